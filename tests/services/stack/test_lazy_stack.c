/* Tests lazy stacks as lists: items, batch sizes, additions, and refusals. */
#include "rig.h"

CASE(lazy_stack_shares_its_items) {
  tdict_tree *a = rig_new_item(1, NULL), *b = rig_new_item(4, NULL), *items[] = {a, b, a};
  int ndim = 0;
  tdict_lazy_stack *s = td_made(lazy_stack, tdict_lazy_stack_create(items, 3, &made, err));
  tdict_release(a);
  tdict_release(b);
  const int64_t *sizes = tdict_lazy_stack_get_batch_size(s, &ndim);
  assert_true(ndim == 2 && sizes[0] == 3 && sizes[1] == 2);
  for (int i = -3; i < 3; i++) assert_ptr_equal(rig_item(s, i), items[(i + 3) % 3]);
  td_put(a, "new", TENSOR(2));
  assert_true(tdict_has(rig_item(s, 2), "new"));
  scoped_lazy_stack same = tdict_lazy_stack_retain(s);
  tdict_lazy_stack_release(s);
  assert_ptr_equal(rig_item(same, 1), b);
  tdict_lazy_stack_release(NULL);
}

CASE(lazy_stack_insert_survives_enomem) {
  scoped_lazy_stack s = STACK(TREE(2));
  scoped_tree item = TREE(2);
  int failed = 0;
  for (int count = 1; count < 40; count++) TD_SWEEP(sweep) {
      const bool is_refused = td_refused(sweep, tdict_lazy_stack_insert(s, 0, item, err));
      failed += is_refused;
      assert_int_equal(tdict_lazy_stack_get_batch_size(s, NULL)[0], is_refused ? count : count + 1);
    }
  assert_true(failed > 0);
}

CASE(lazy_stack_inserts_items) {
  scoped_lazy_stack s = STACK(TREE(2));
  tdict_tree *wanted[8] = {rig_item(s, 0)};
  static const int64_t places[] = {1, 0, -1, 3, -4, 5}; /* negative indices count from the end; the first one appends */
  size_t count = 1;
  for (size_t k = 0; k < 6; k++) {
    scoped_tree item = TREE(2);
    size_t at = (size_t)(places[k] < 0 ? places[k] + (int64_t)count : places[k]);
    td_ok(tdict_lazy_stack_insert(s, places[k], item, err));
    memmove(wanted + at + 1, wanted + at, (count++ - at) * sizeof *wanted);
    wanted[at] = item;
  }
  tdict_tree *last = TREE(2);
  td_ok(tdict_lazy_stack_insert(s, 7, last, err)); /* at the end */
  tdict_release(last);
  wanted[count++] = last;
  assert_int_equal(tdict_lazy_stack_get_batch_size(s, NULL)[0], count);
  for (size_t i = 0; i < count; i++) assert_ptr_equal(rig_item(s, (int64_t)i), wanted[i]);
  scoped_tree other = TREE(3), fits = TREE(2);
  td_fails_at(TDICT_ESHAPE, "item 8 has batch size [3], wanted [2]", "8", tdict_lazy_stack_insert(s, 8, other, err));
  td_fails(TDICT_EINVAL, "index 9", tdict_lazy_stack_insert(s, 9, fits, err));
  td_fails(TDICT_EINVAL, "index -9", tdict_lazy_stack_insert(s, -9, fits, err));
  td_fails(TDICT_EINVAL, "item is NULL", tdict_lazy_stack_insert(s, 0, NULL, err));
  td_fails(TDICT_EINVAL, "stack is NULL", tdict_lazy_stack_insert(NULL, 0, fits, err));
  assert_int_equal(td_lazy_count(s), 8);
  TD_SWEEP(sweep) { /* a full list must grow */
    const size_t before = td_lazy_count(s);
    const bool refused = td_refused(sweep, td_lazy_append(s, fits, NULL));
    assert_int_equal(td_lazy_count(s), before + !refused);
  }
}

/* As in TensorDict, the stack is locked if all of its items are locked. */
CASE(lazy_stack_of_locked_items_is_locked) {
  scoped_lazy_stack s = STACK(TREE(2), TREE(2));
  scoped_tree item = TREE(2);
  tdict_lock(rig_item(s, 0));
  td_ok(td_lazy_append(s, item, err)); /* some items can still change */
  tdict_lock(rig_item(s, 1));
  tdict_lock(item);
  td_fails(TDICT_ELOCKED, "all items are locked", td_lazy_append(s, item, err));
  td_fails(TDICT_ELOCKED, "all items are locked", tdict_lazy_stack_insert(s, 0, item, err));
  assert_int_equal(td_lazy_count(s), 3);
  td_ok(tdict_unlock(rig_item(s, 1), err));
  td_ok(tdict_lazy_stack_insert(s, 0, item, err));
  assert_int_equal(td_lazy_count(s), 4);
}

CASE(lazy_stack_create_refuses) {
  tdict_tree *a = TREE(2), *b = TREE(2, 1), *items[] = {a, b}, *missing[] = {a, NULL};
  tdict_tree *most = TREE(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1), *item = NULL;
  tdict_lazy_stack *const nothing = (tdict_lazy_stack *)(uintptr_t)0xA5A5, *s = nothing;
  td_fails(TDICT_ESHAPE, "item 1 has batch size [2, 1], wanted [2]", tdict_lazy_stack_create(items, 2, &s, err));
  assert_string_equal(td_last_error.path, "1");
  td_fails(TDICT_EINVAL, "no items", tdict_lazy_stack_create(items, 0, &s, err));
  td_fails(TDICT_EINVAL, "item 1 is NULL", tdict_lazy_stack_create(missing, 2, &s, err));
  td_fails(TDICT_EINVAL, "items is NULL", tdict_lazy_stack_create(NULL, 2, &s, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_lazy_stack_create(items, 1, NULL, err));
  td_fails(TDICT_EINVAL, "16 batch dimensions", tdict_lazy_stack_create(&most, 1, &s, err));
  TD_WITHOUT_MEMORY_THEN(tdict_lazy_stack_create(items, 1, &s, err), assert_ptr_equal(s, nothing));
  td_fails(TDICT_EINVAL, "index 1, but the stack has 1 items", tdict_lazy_stack_get_item(s, 1, &item, err));
  td_fails(TDICT_EINVAL, "index -2", tdict_lazy_stack_get_item(s, -2, &item, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_lazy_stack_get_item(s, 0, NULL, err));
  td_fails(TDICT_EINVAL, "stack is NULL", tdict_lazy_stack_get_item(NULL, 0, &item, err));
  assert_null(item);
  td_release(s, most, a, b);
}

static tdict_status ignore_entry(void *user, const tdict_lazy_entry *entry, tdict_error *err) {
  (void)user, (void)entry, (void)err;
  return TDICT_OK;
}

/* The error of each function names the item whose batch size was changed through another handle. */
CASE(lazy_stack_refuses_changed_items) {
  tdict_context *context = NULL;
  td_ok(tdict_context_create(td_options(tdict_context_options, device = tdict_cpu()), &context, err));
  tdict_lazy_stack *s = STACK(TREE(2, 1), TREE(2, 1)), *other = NULL;
  tdict_tensor *t = TENSOR(2, 2, 1);
  tdict_tree *tree = NULL;
  tdict_future *future = NULL;
  td_ok(tdict_set_batch_size(rig_item(s, 1), COUNTS(2), err));
#define REFUSED(call)                                                         \
  do {                                                                        \
    td_fails(TDICT_ESHAPE, "item 1 has batch size [2], wanted [2, 1]", call); \
    assert_string_equal(td_last_error.path, "1");                             \
  } while (0)
  REFUSED(tdict_lazy_stack_walk(s, ignore_entry, NULL, err));
  REFUSED(tdict_lazy_stack_get(s, "a", NULL, &t, err));
  REFUSED(tdict_lazy_stack_get_tree(s, "a", &other, err));
  REFUSED(tdict_lazy_stack_set(s, "a", t, err));
  REFUSED(tdict_lazy_stack_to_device_async(context, s, tdict_cpu(), NULL, &future, err));
  REFUSED(tdict_lazy_stack_densify(s, NULL, NULL, &tree, err));
  REFUSED(tdict_lazy_stack_pad(s, NULL, &tree, err));
  assert_false(tdict_has(rig_item(s, 0), "a"));
  td_ok(tdict_set_batch_size(rig_item(s, 1), COUNTS(2, 1), err));
  td_ok(tdict_set_batch_size(rig_item(s, 0), COUNTS(2), err));
  td_fails(TDICT_ESHAPE, "item 0 has batch size [2], wanted [2, 1]",
           tdict_lazy_stack_densify(s, NULL, NULL, &tree, err));
  td_release(t, s, context);
}
