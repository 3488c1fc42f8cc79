/* Shapes and strides, in elements, but of tdict_pair in bytes. Allocates nothing. Pure functions; thread-safe. */
#ifndef TDICT_CORE_TENSOR_LAYOUT_H
#define TDICT_CORE_TENSOR_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/memory/memory.h"
#include "tdict/tensor.h"

typedef struct tdict_layout_size {
  int64_t numel;
  size_t bytes; /* at most INT64_MAX */
} tdict_layout_size;
/* Checks ndim, counts and dtype, and computes elements and bytes. TDICT_EINVAL, TDICT_EDTYPE or TDICT_EOVERFLOW. */
tdict_status tdict_layout_check(const char *what, tdict_dtype dtype, int ndim, const int64_t *shape,
                                tdict_layout_size *out, tdict_error *err);
/* Computes the number of elements. Returns false if the number does not fit 63 bits. */
bool tdict_layout_count(int ndim, const int64_t *shape, int64_t *out);
static inline bool tdict_sizes_equal(const int64_t *a, const int64_t *b, int count) {
  for (int i = 0; i < count; i++)
    if (a[i] != b[i]) return false;
  return true;
}
static inline bool tdict_shapes_equal(int a_ndim, const int64_t *a, int b_ndim, const int64_t *b) {
  return a_ndim == b_ndim && tdict_sizes_equal(a, b, a_ndim);
}
/* Writes a shape such as "[4, 3]" and returns the buffer. Cuts a long shape with "...]". `bytes` is at least 8. */
char *tdict_text_shape(int ndim, const int64_t *shape, char *buffer, size_t bytes);
/* Evaluates to this text, for the arguments of a message. The text is in a buffer of the enclosing block. */
#define TDICT_SHAPE_TEXT(ndim, shape) tdict_text_shape((ndim), (shape), (char[96]){0}, 96)
/* Computes the strides of C order. */
void tdict_layout_strides(int ndim, const int64_t *shape, int64_t *strides);
/* Returns true for C order without gaps. Dimensions of size 1 do not count; without elements, always true. */
bool tdict_layout_is_contiguous(int ndim, const int64_t *shape, const int64_t *strides);
/* Computes the range of bytes that the elements cover, relative to the first element: *low is the lowest byte, *end is
 * the highest byte + 1. Both are 0 if there are no elements. Returns false on overflow. */
bool tdict_layout_extent(int ndim, const int64_t *shape, const int64_t *strides, size_t item_bytes, int64_t *low,
                         int64_t *end);

/* Two layouts of one shape, which are walked together as rectangles of bytes. */
typedef struct tdict_pair {
  int ndim;         /* number of dimensions after merging, at least 1; dimension ndim - 1 is the innermost */
  size_t run_bytes; /* bytes of a run, contiguous on both sides */
  /* sizes of the dimensions, and strides in bytes; one index of the innermost dimension is one run */
  int64_t shape[TDICT_MAX_NDIM], dst_strides[TDICT_MAX_NDIM], src_strides[TDICT_MAX_NDIM];
} tdict_pair;
/* Initializes the pair, and merges dimensions without a gap in both layouts. NULL strides: C order. */
void tdict_pair_init(tdict_pair *pair, int ndim, const int64_t *shape, const int64_t *dst_strides,
                     const int64_t *src_strides, size_t item_bytes);
/* The part of two tensors that a walk visits: the bytes [begin, end), counted in C order. `dst` and `src` are the
 * addresses of the first elements of the tensors. Offsets are added to the addresses as numbers, so the addresses may
 * be NULL or device addresses. `end` may be larger than the number of bytes; the walk then ends at the last byte. */
typedef struct tdict_pair_span {
  void *dst;
  const void *src;
  size_t begin, end;
} tdict_pair_span;
/* Handles one rectangle of a walk. A status other than TDICT_OK ends the walk. */
typedef tdict_status (*tdict_rect_fn)(void *user, const tdict_rect *rect, tdict_error *err);
/* Calls fn for each rectangle of the part. Returns the first status of fn that is not TDICT_OK, else TDICT_OK. */
tdict_status tdict_pair_walk(const tdict_pair *pair, const tdict_pair_span *part, tdict_rect_fn fn, void *user,
                             tdict_error *err);
/* Copies one rectangle between host addresses. */
void tdict_rect_copy(const tdict_rect *rect);
/* Copies the part between host addresses. */
void tdict_pair_copy(const tdict_pair *pair, const tdict_pair_span *part);

/* Rows of two tensors in host memory. Row i of the listed tensor is at positions[i] * pitch bytes, and row i of the
 * other tensor is at i * step bytes. */
typedef struct tdict_rows {
  const int64_t *positions;
  int64_t count, pitch, step;
} tdict_rows;
/* Copies rows of `width` bytes, in order, from the listed tensor at `src` to the other tensor at `dst`. If a row
 * overlaps its destination, the copied bytes are unspecified. */
void tdict_rows_read(void *dst, const void *src, const tdict_rows *rows, size_t width);
/* Copies rows like tdict_rows_read(), from the other tensor at `src` to the listed tensor at `dst`. */
void tdict_rows_write(void *dst, const void *src, const tdict_rows *rows, size_t width);
/* Writes an element of `item` bytes to all places of host memory, which has `bytes` bytes, at least one element. */
void tdict_rows_fill(void *to, const void *element, size_t item, size_t bytes);

#endif
