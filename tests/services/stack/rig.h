/* Makes items and lazy stacks for the tests in tests/services/stack. */
#ifndef TDICT_TESTS_SERVICES_STACK_RIG_H
#define TDICT_TESTS_SERVICES_STACK_RIG_H

#include "core/tree/help.h"
#include "support/lazy.h"

/* Makes a stack of items, and releases the caller's references to them. */
#define STACK(...) rig_stack((tdict_tree *[]){__VA_ARGS__}, sizeof(tdict_tree *[]){__VA_ARGS__} / sizeof(tdict_tree *))
static inline tdict_lazy_stack *rig_stack(tdict_tree **items, size_t count) {
  tdict_lazy_stack *s = td_made(lazy_stack, tdict_lazy_stack_create(items, count, &made, err));
  for (size_t i = 0; i < count; i++) tdict_release(items[i]);
  return s;
}
static inline tdict_tree *rig_item(const tdict_lazy_stack *s, int64_t i) {
  return td_made(tree, tdict_lazy_stack_get_item(s, i, &made, err));
}

/* Makes an item of batch size [2]: "x" F32 [2, 3], "n.y" F32 [2, wide], and the key `own` if it is not NULL. */
static inline tdict_tree *rig_new_item(int64_t wide, const char *own) {
  tdict_tree *td = td_tree("[2] x:f32[2,3]");
  td_put(td, "n.y", TENSOR(2, wide));
  if (own) td_put(td, own, TENSOR(2));
  return td;
}
static inline tdict_lazy_stack *rig_three(void) {
  return STACK(rig_new_item(1, NULL), rig_new_item(4, "only"), rig_new_item(2, NULL));
}

#endif
