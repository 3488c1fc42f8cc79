/* Declares the stack of trees whose tensors have different sizes. Thread rule: as in tdict/combine.h. */
#ifndef TDICT_CORE_OPS_PAD_H
#define TDICT_CORE_OPS_PAD_H

#include "core/tensor/tensor.h"
#include "tdict/combine.h"

typedef struct tdict_pad_rule {
  const char *what; /* prefix of error messages */
  /* true: pads the first dimension, as tdict_pad_sequence(); else all after the batch dimensions, which are equal */
  bool pads_sequence;
  double value;
  tdict_memory *memory; /* NULL: as in tdict_stack() */
} tdict_pad_rule;

/* Stacks the trees along a new first dimension. Each tensor of the result has the largest size in each padded
 * dimension. If `mask` is not NULL, writes to *mask a tree of bool tensors with the same keys. An element of a mask is
 * true if the element of the result comes from a tree. A mask has the batch dimensions, and then all dimensions up to
 * the last dimension in which the tensors differ in size. In *mask, a tree of masks replaces each object of the
 * program. Returns the errors of tdict_pad_sequence(). */
tdict_status tdict_pad_trees(const tdict_pad_rule *rule, const tdict_tree *const *items, size_t count, tdict_tree **out,
                             tdict_tree **mask, tdict_error *err);

/* Checks that a tensor of tree `i` can be joined with that of tree 0 at the same path. `sizes_match`: the caller
 * accepts its shape. `what` begins the message. Returns TDICT_ESHAPE, TDICT_EDTYPE or TDICT_EWRONGDEVICE. */
tdict_status tdict_check_part(const char *what, const tdict_tensor *t, size_t i, const tdict_tensor *first,
                              bool sizes_match, tdict_error *err);

#endif
