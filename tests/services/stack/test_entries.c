/* Tests entries of lazy stacks: common keys, stacked copies, nested stacks, and setting an entry. */
#include "rig.h"

typedef struct seen {
  const tdict_lazy_stack *stack;
  char text[400];
} seen;
static tdict_status note(void *user, const tdict_lazy_entry *entry, tdict_error *err) {
  static const char *const kinds[] = {"tensors", "trees", "objects", "mixed"};
  seen *to = user;
  (void)err;
  size_t length = strlen(to->text);
  snprintf(to->text + length, sizeof to->text - length, "%s:%d:%s ", entry->path, (int)entry->depth,
           kinds[entry->kind]);
  assert_int_equal(entry->count, td_lazy_count(to->stack));
  assert_int_equal(entry->tensors != NULL, entry->kind == TDICT_LAZY_TENSORS);
  for (size_t i = 0; entry->tensors && i < entry->count; i++)
    assert_ptr_equal(entry->tensors[i], td_leaf(rig_item(to->stack, (int64_t)i), entry->path));
  return TDICT_OK;
}
static tdict_status stop(void *user, const tdict_lazy_entry *entry, tdict_error *err) {
  (void)user, (void)entry;
  memcpy(err->message, "only a message", sizeof "only a message");
  return TDICT_EIO;
}

CASE(lazy_stack_walks_common_keys) {
  static const tdict_type thing = TD_TYPE(.name = "thing", .release = help_end_thing);
  int ends = 0;
  tdict_lazy_stack *s = rig_three();
  td_put(rig_item(s, 0), "first", TENSOR(2));
  td_put(rig_item(s, 0), "m.a\\.b", TENSOR(2));
  td_put(rig_item(s, 1), "m.a\\.b.c", TENSOR(2));
  td_put(rig_item(s, 2), "m.a\\.b", TENSOR(2, 2));
  for (int i = 0; i < 3; i++) td_ok(tdict_set_object(rig_item(s, i), "o", &thing, help_make_thing(&ends, 0, ""), err));
  seen all = {s, ""};
  td_ok(tdict_lazy_stack_walk(s, note, &all, err));
  assert_string_equal(all.text, "x:0:tensors n:0:trees n.y:1:tensors m:0:trees m.a\\.b:1:mixed o:0:objects ");
  td_fails_at(TDICT_EIO, "only a message", "x", tdict_lazy_stack_walk(s, stop, NULL, err));
  td_fails(TDICT_EINVAL, "visit is NULL", tdict_lazy_stack_walk(s, NULL, NULL, err));
  td_fails(TDICT_EINVAL, "NULL", tdict_lazy_stack_walk(NULL, note, &all, err));
  TD_SWEEP(sweep) {
    seen again = {s, ""};
    (void)td_refused(sweep, tdict_lazy_stack_walk(s, note, &again, NULL));
  }
  tdict_lazy_stack_release(s);
  assert_int_equal(ends, 3);
}

DEVICE_CASE(lazy_stack_get_stacks_a_copy) {
  scoped_context context = td_context(NULL);
  scoped_lazy_stack s = rig_three(), moved = NULL;
  float wanted[3][6], found[18];
  scoped_tensor t = NULL, host = NULL;
  for (int i = 0; i < 3; i++) memcpy(wanted[i], tdict_const_data(rig_item(s, i), "x"), sizeof wanted[i]);
  td_ok(td_lazy_to_device(context, s, td_device(), NULL, &moved, err));
  td_ok(tdict_lazy_stack_get(moved, "x", NULL, &t, err));
  assert_true(tdict_device_equal(tdict_tensor_device(t), td_device()));
  assert_int_equal(tdict_tensor_ndim(t), 3);
  const int64_t shape[] = {3, 2, 3};
  assert_memory_equal(tdict_tensor_shape(t), shape, sizeof shape);
  td_ok(tdict_tensor_clone(t, NULL, &host, err));
  memcpy(found, tdict_tensor_const_data(host), sizeof found);
  assert_memory_equal(found, wanted, sizeof found);
}

CASE(lazy_stack_get_refuses) {
  tdict_lazy_stack *s = rig_three(), *nested = NULL;
  tdict_tensor *const nothing = (tdict_tensor *)(uintptr_t)0xA5A5, *t = nothing;
  const int64_t none[] = {2, 0};
  td_fails(TDICT_ESHAPE, "[2, 4] in item 1, but [2, 1] in item 0", tdict_lazy_stack_get(s, "n.y", NULL, &t, err));
  assert_string_equal(td_last_error.path, "1.n.y");
  td_fails_at(TDICT_ENOTFOUND, "", "0.only", tdict_lazy_stack_get(s, "only", NULL, &t, err));
  td_ok(tdict_delete(rig_item(s, 2), "x", err));
  td_fails_at(TDICT_ENOTFOUND, "", "2.x", tdict_lazy_stack_get(s, "x", NULL, &t, err));
  td_put(rig_item(s, 2), "x", td_made(tensor, tdict_tensor_zeros(TDICT_U8, COUNTS(2, 3), NULL, &made, err)));
  td_fails(TDICT_EDTYPE, "uint8 in item 2, but float32 in item 0", tdict_lazy_stack_get(s, "x", NULL, &t, err));
  td_put(rig_item(s, 0), "d", td_made(tensor, tdict_tensor_zeros(TDICT_U8, COUNTS(2, 0), NULL, &made, err)));
  for (int i = 1; i < 3; i++) td_put(rig_item(s, i), "d", help_tensor_on(tdict_sim(0), 2, none));
  td_fails(TDICT_EWRONGDEVICE, "sim:0 in item 1, but on cpu", tdict_lazy_stack_get(s, "d", NULL, &t, err));
  td_put(rig_item(s, 0), "d", help_tensor_on(tdict_sim(0), 2, none));
  td_fails(TDICT_EWRONGDEVICE, "belongs to the program", tdict_lazy_stack_get(s, "d", NULL, &t, err));
  td_fails(TDICT_EINVAL, "NULL", tdict_lazy_stack_get(s, "x", NULL, NULL, err));
  td_fails_at(TDICT_ETYPE, "", "0.x", tdict_lazy_stack_get_tree(s, "x", &nested, err));
  td_fails(TDICT_ENOTFOUND, "", tdict_lazy_stack_get_tree(s, "q", &nested, err));
  td_fails(TDICT_EINVAL, "NULL", tdict_lazy_stack_get_tree(s, "n", NULL, err));
  assert_true(t == nothing && nested == NULL);
  tdict_tree *first_two[] = {rig_item(s, 0), rig_item(s, 1)};
  tdict_lazy_stack *two = td_made(lazy_stack, tdict_lazy_stack_create(first_two, 2, &made, err));
  TD_WITHOUT_MEMORY_THEN(tdict_lazy_stack_get(two, "x", NULL, &t, err), assert_ptr_equal(t, nothing));
  td_release(t, two, s);
}

CASE(lazy_stack_get_tree_stacks_children) {
  scoped_lazy_stack s = rig_three(), nested = td_made(lazy_stack, tdict_lazy_stack_get_tree(s, "n", &made, err));
  assert_int_equal(td_lazy_count(nested), 3);
  for (int i = 0; i < 3; i++) assert_ptr_equal(rig_item(nested, i), td_child(rig_item(s, i), "n"));
  td_release(nested);
  td_ok(tdict_set_batch_size(td_child(rig_item(s, 1), "n"), COUNTS(2, 4), err));
  td_fails(TDICT_ESHAPE, "item 1 has batch size [2, 4], wanted [2]", tdict_lazy_stack_get_tree(s, "n", &nested, err));
}

static void check_views(const tdict_lazy_stack *s, const char *path, tdict_tensor *t) {
  const float *data = tdict_tensor_const_data(t);
  for (int i = 0; i < 3; i++) {
    tdict_tensor *view = td_leaf(rig_item(s, i), path);
    assert_true(tdict_tensor_shares_storage(view, t));
    assert_ptr_equal(tdict_tensor_const_data(view), data + 6 * i);
    assert_int_equal(tdict_tensor_ndim(view), 2);
    assert_true(tdict_tensor_shape(view)[0] == 2 && tdict_tensor_shape(view)[1] == 3);
  }
}

CASE(lazy_stack_set_splits_into_views) {
  scoped_lazy_stack s = rig_three();
  scoped_tensor t = TENSOR(3, 2, 3);
  const tdict_tree *n = td_child(rig_item(s, 0), "n");
  const char *const paths[] = {"x", "n.y", "z.q\\..r", "n.new"};
  for (int i = 0; i < 4; i++) {
    td_ok(tdict_lazy_stack_set(s, paths[i], t, err));
    check_views(s, paths[i], t);
  }
  assert_ptr_equal(td_child(rig_item(s, 0), "n"), n); /* handles stay valid */
  help_paths(rig_item(s, 0), "x n n.y n.new z z.q\\. z.q\\..r");
  td_ok(tdict_lazy_stack_set(s, "n", t, err)); /* a tensor replaces a tree */
  check_views(s, "n", t);
  tdict_lazy_stack_release(s);
  /* An item that occurs twice gets the last of its two views, even at a path whose nodes are new. */
  tdict_tree *a = TREE(2), *b = TREE(2), *items[] = {a, b, a};
  td_ok(tdict_lazy_stack_create(items, 3, &s, err));
  td_ok(tdict_lazy_stack_set(s, "p.q", t, err));
  assert_ptr_equal(tdict_const_data(a, "p.q"), (const float *)tdict_tensor_const_data(t) + 12);
  assert_ptr_equal(tdict_const_data(b, "p.q"), (const float *)tdict_tensor_const_data(t) + 6);
  td_release(a, b);
}

CASE(lazy_stack_set_changes_all_or_none) {
  scoped_lazy_stack s = rig_three();
  scoped_tensor t = TENSOR(3, 2, 3), wrong = TENSOR(2, 2, 3);
  char *before[3];
  for (int i = 0; i < 3; i++) before[i] = help_snapshot(rig_item(s, i));
  td_fails_at(TDICT_ESHAPE, "batch size is [3, 2], the tensor has shape [2, 2, 3]", "x",
              tdict_lazy_stack_set(s, "x", wrong, err));
  td_fails_at(TDICT_ETYPE, "", "0.x.a", tdict_lazy_stack_set(s, "x.a", t, err));
  td_fails(TDICT_EINVAL, "", tdict_lazy_stack_set(s, "q..r", t, err));
  td_fails(TDICT_EINVAL, "NULL", tdict_lazy_stack_set(s, NULL, t, err));
  td_fails(TDICT_EINVAL, "NULL", tdict_lazy_stack_set(s, "x", NULL, err));
  for (int i = 0; i < 3; i++) help_unchanged(rig_item(s, i), before[i]);
  TD_SWEEP(sweep) {
    for (int i = 0; i < 3; i++) before[i] = help_snapshot(rig_item(s, i));
    const bool refused = td_refused(sweep, tdict_lazy_stack_set(s, "new.path", t, NULL));
    for (int i = 0; i < 3; i++) {
      if (refused)
        help_unchanged(rig_item(s, i), before[i]);
      else
        free(before[i]);
    }
  }
  check_views(s, "new.path", t);
  tdict_lock(rig_item(s, 2));
  for (int i = 0; i < 3; i++) before[i] = help_snapshot(rig_item(s, i));
  td_fails_at(TDICT_ELOCKED, "", "2.x", tdict_lazy_stack_set(s, "x", t, err));
  td_ok(tdict_set_batch_size(td_child(rig_item(s, 1), "n"), COUNTS(2, 4), err));
  td_fails_at(TDICT_ESHAPE, "[2, 4]", "1.n.y", tdict_lazy_stack_set(s, "n.y", t, err));
  td_ok(tdict_set_batch_size(td_child(rig_item(s, 1), "n"), COUNTS(2), err));
  for (int i = 0; i < 3; i++) help_unchanged(rig_item(s, i), before[i]);
  td_ok(tdict_unlock(rig_item(s, 2), err));
}
