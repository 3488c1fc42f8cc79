/* Shape and stride mathematics: no memory, no errors but overflow. Strides are in elements unless named bytes.
 * Pure functions; thread-safe. */
#ifndef TDICT_TENSOR_LAYOUT_H
#define TDICT_TENSOR_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memory/memory.h"
#include "tdict/tensor.h"

typedef struct tdict_layout_size {
  int64_t numel;
  size_t bytes; /* at most INT64_MAX */
} tdict_layout_size;
/* Checks ndim, counts and dtype and computes the elements' number and bytes. TDICT_EINVAL, TDICT_EDTYPE,
 * TDICT_EOVERFLOW. `what` begins the message. */
tdict_status tdict_layout_check(const char *what, tdict_dtype dtype, int ndim, const int64_t *shape,
                                tdict_layout_size *out, tdict_error *err);
/* Strides of C order. */
void tdict_layout_strides(int ndim, const int64_t *shape, int64_t *strides);
bool tdict_layout_is_contiguous(int ndim, const int64_t *shape, const int64_t *strides);
/* The lowest and the end of the highest byte touched, relative to the first element; false on overflow. Both 0 when
 * there is no element. */
bool tdict_layout_extent(int ndim, const int64_t *shape, const int64_t *strides, size_t item_bytes, int64_t *low,
                         int64_t *end);

/* Two layouts of one shape, walked together as rectangles of bytes. */
typedef struct tdict_pair {
  int ndim;         /* after merging; dimension ndim-1 is the innermost; 1 or more */
  size_t run_bytes; /* contiguous on both sides */
  /* of runs; strides in bytes */
  int64_t shape[TDICT_MAX_NDIM], dst_strides[TDICT_MAX_NDIM], src_strides[TDICT_MAX_NDIM];
} tdict_pair;
/* Merges what can be merged. A NULL stride pointer is C order. */
void tdict_pair_init(tdict_pair *pair, int ndim, const int64_t *shape, const int64_t *dst_strides,
                     const int64_t *src_strides, size_t item_bytes);
/* The bytes [begin, end), counted in C order, of two tensors that begin at `dst` and `src`: addresses that offsets are
 * added to as numbers, so they may be NULL or a device's. What lies beyond the last byte is left out. */
typedef struct tdict_pair_part {
  void *dst;
  const void *src;
  size_t begin, end;
} tdict_pair_part;
/* Shows the part as rectangles. Stops at the first answer that is not OK and returns it. */
typedef tdict_status (*tdict_rect_fn)(void *user, const tdict_rect *rect, tdict_error *err);
tdict_status tdict_pair_walk(const tdict_pair *pair, const tdict_pair_part *part, tdict_rect_fn fn, void *user,
                             tdict_error *err);
/* Copies one rectangle between host addresses. */
void tdict_rect_copy(const tdict_rect *rect);

#endif
