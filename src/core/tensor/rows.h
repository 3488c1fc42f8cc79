/* Copies rows of bytes between two lists of offsets. Keeps no state. Thread-safe. */
#ifndef TDICT_CORE_TENSOR_ROWS_H
#define TDICT_CORE_TENSOR_ROWS_H

#include <stddef.h>
#include <stdint.h>

/* Byte offsets of rows: the row at src[i] is copied to dst[i]. */
typedef struct tdict_rows {
  const int64_t *dst, *src;
  int64_t count;
} tdict_rows;
/* Copies rows of `width` bytes, in order, from src + rows->src[i] to dst + rows->dst[i]. `dst` and `src` are host
 * addresses. If a row overlaps its destination, the copied bytes are unspecified. */
void tdict_rows_copy(void *dst, const void *src, const tdict_rows *rows, size_t width);

#endif
