/* Declares pairs of tensors, from which and to which a transfer copies. The caller of the transfer owns the pairs.
 * Thread rule: no thread may change the tensors during a call. */
#ifndef TDICT_TRANSFER_PLAN_PAIR_H
#define TDICT_TRANSFER_PLAN_PAIR_H

#include "tensor/tensor.h"

/* Two borrowed tensors of equal shape and dtype. */
typedef struct tdict_copy_pair {
  tdict_tensor *src, *dst;
  uint32_t leaf; /* number of the leaf in the tree in which paths of errors are looked up */
} tdict_copy_pair;

#endif
