/* Defines a lazy stack, a list of trees that it owns references to. Thread rule: as in tdict/lazy_stack.h. */
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

/* Returns TDICT_EINVAL for NULL, and TDICT_ESHAPE if an item's batch size no longer fits. `what` begins the message. */
tdict_status tdict_lazy_stack_check(const char *what, const tdict_lazy_stack *stack, const void *out, tdict_error *err);
/* Sets err->path to the index of the item and the path in it ("2.obs"); "" and NULL are the item. Returns `status`. */
tdict_status tdict_lazy_fail_at(tdict_error *err, tdict_status status, size_t i, const char *path);

#endif
