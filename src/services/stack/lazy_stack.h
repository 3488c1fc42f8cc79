/* Defines a lazy stack, which is a list of trees. The stack owns a reference to each tree. Thread rule: as in
 * tdict/lazy_stack.h. */
#ifndef TDICT_SERVICES_STACK_LAZY_STACK_H
#define TDICT_SERVICES_STACK_LAZY_STACK_H

#include <stdatomic.h>

#include "tdict/lazy_stack.h"

struct tdict_lazy_stack {
  _Atomic(int64_t) refs;
  tdict_tree **items;
  size_t count, cap;
  int32_t batch_ndim;
  int64_t batch_size[TDICT_MAX_BATCH_NDIM]; /* the number of items, then the batch size of the items */
};

/* Returns TDICT_EINVAL if `stack` or `out` is NULL, and TDICT_ESHAPE if the batch size of an item no longer fits the
 * stack. The error message begins with `what`. */
tdict_status tdict_lazy_stack_check(const char *what, const tdict_lazy_stack *stack, const void *out, tdict_error *err);
/* Sets err->path to the index of the item and the path in the item, such as "2.obs". Returns `status`. A `path` of NULL
 * or "" means the item itself. */
tdict_status tdict_lazy_fail_at(tdict_error *err, tdict_status status, size_t i, const char *path);

#endif
