/* Declares what the caller of a transfer can name: pairs of a tensor and an address, from which and to which the
 * transfer copies, further devices, and rows. The caller owns them. Thread rule: no thread may change the tensors
 * during a call. */
#ifndef TDICT_ENGINE_PLAN_PAIR_H
#define TDICT_ENGINE_PLAN_PAIR_H

#include "core/tensor/tensor.h"

/* A tensor, and the address to which the transfer copies its elements in C order. */
typedef struct tdict_copy_pair {
  tdict_tensor *src; /* borrowed */
  char *dst;
  uint32_t leaf; /* number of the leaf in the tree in which paths of errors are looked up; UINT32_MAX: errors have no
                  * path */
} tdict_copy_pair;

/* Another device that receives the same result, see tdict_target. */
typedef struct tdict_more_target {
  tdict_memory *memory; /* borrowed */
  size_t position;      /* number of the promise's tree */
} tdict_more_target;

/* The rows [at, at + count) of a tree, whose first batch dimension has `all` rows. */
typedef struct tdict_source_rows {
  int64_t at, count, all; /* count and all are above 0 */
} tdict_source_rows;
/* Reduces the bytes of a contiguous tensor to those of the rows, and returns the offset of the first row. */
static inline size_t tdict_source_rows_cut(const tdict_source_rows *rows, size_t *bytes) {
  const size_t row = *bytes / (size_t)rows->all;
  *bytes = (size_t)rows->count * row;
  return (size_t)rows->at * row;
}

#endif
