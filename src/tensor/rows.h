/* Copies rows of bytes between lists of offsets. Pure functions except for the bytes that they write; thread-safe. */
#ifndef TDICT_TENSOR_ROWS_H
#define TDICT_TENSOR_ROWS_H

#include <stddef.h>
#include <stdint.h>

/* Byte offsets of rows; dst[i] and src[i] belong together. */
typedef struct tdict_rows {
  const int64_t *dst, *src;
  int64_t count;
} tdict_rows;
/* Copies rows of `width` bytes, in order, from src + rows->src[i] to dst + rows->dst[i]. Both are host addresses. If
 * a row overlaps its destination, the bytes there are unspecified. */
void tdict_rows_copy(void *dst, const void *src, const tdict_rows *rows, size_t width);

#endif
