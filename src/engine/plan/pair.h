/* Declares the places that the caller of a transfer can name: pairs of a tensor and an address, from which and to which
 * the transfer copies, and further devices. The caller owns them. Thread rule: no thread may change the tensors during
 * a call. */
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

#endif
