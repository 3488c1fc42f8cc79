/* Items and lazy stacks for the tests of this layer. */
#ifndef TDICT_TESTS_SERVICES_STACK_RIG_H
#define TDICT_TESTS_SERVICES_STACK_RIG_H

#include "core/tree/help.h"
#include "support/fail_alloc.h"
#include "support/lazy.h"

/* A stack of items, whose references it takes. */
#define STACK(...) rig_stack((tdict_tree *[]){__VA_ARGS__}, sizeof(tdict_tree *[]){__VA_ARGS__} / sizeof(tdict_tree *))
static inline tdict_lazy_stack *rig_stack(tdict_tree **items, size_t count) {
  tdict_lazy_stack *s = NULL;
  td_ok(tdict_lazy_stack_create(items, count, &s, err));
  for (size_t i = 0; i < count; i++) tdict_release(items[i]);
  return s;
}
static inline tdict_tree *rig_item(const tdict_lazy_stack *s, int64_t i) {
  tdict_tree *item = NULL;
  td_ok(tdict_lazy_stack_get_item(s, i, &item, err));
  return item;
}

/* An item of batch size [2]: "x" F32 [2, 3], "n.y" F32 [2, wide], and with `own` a key of its own. */
static inline tdict_tree *rig_new_item(int64_t wide, const char *own) {
  tdict_tree *td = TREE(2);
  help_put(td, "x", TENSOR(2, 3));
  help_put(td, "n.y", TENSOR(2, wide));
  if (own) help_put(td, own, TENSOR(2));
  return td;
}
static inline tdict_lazy_stack *rig_three(void) {
  return STACK(rig_new_item(1, NULL), rig_new_item(4, "only"), rig_new_item(2, NULL));
}

#endif
