/* Tests moving a whole lazy stack in one transfer, and creating a lazy stack from a tree whose children are
 * numbered. */
#include "rig.h"

/* Compares the elements of every tensor of both stacks, through copies in host memory. */
static void check_same(tdict_lazy_stack *moved, tdict_lazy_stack *s, tdict_device device) {
  assert_int_equal(td_lazy_count(moved), td_lazy_count(s));
  for (int64_t i = 0; i < (int64_t)td_lazy_count(s); i++) {
    tdict_tree *from = rig_item(s, i), *to = rig_item(moved, i);
    tdict_device found;
    assert_true(tdict_get_device(to, &found) && tdict_device_equal(found, device));
    assert_int_equal(tdict_num_leaves(to), tdict_num_leaves(from));
    for (int k = 0; k < 3; k++) {
      static const char *const paths[] = {"x", "n.y", "only"};
      if (!tdict_has(from, paths[k])) continue;
      tdict_tensor *host = NULL, *t = td_leaf(to, paths[k]);
      assert_true(tdict_device_equal(tdict_tensor_device(t), device));
      td_ok(tdict_tensor_clone(t, NULL, &host, err));
      assert_int_equal(tdict_tensor_bytes(host), tdict_tensor_bytes(td_leaf(from, paths[k])));
      assert_memory_equal(tdict_tensor_const_data(host), tdict_const_data(from, paths[k]), tdict_tensor_bytes(host));
      tdict_tensor_release(host);
    }
  }
}

DEVICE_CASE(lazy_stack_to_device_is_one_transfer) {
  scoped_context context = td_context(NULL);
  scoped_lazy_stack s = rig_three(), moved = NULL;
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  td_ok(td_lazy_to_device(context, s, td_device(), td_options(tdict_transfer_options, stats = &stats), &moved, err));
  assert_int_equal(stats.num_leaves, 7);
  if (td_device().type == TDICT_DEVICE_CPU) { /* nothing has to move */
    assert_int_equal(stats.num_shared_leaves, 7);
    for (int i = 0; i < 3; i++) assert_ptr_equal(td_leaf(rig_item(moved, i), "x"), td_leaf(rig_item(s, i), "x"));
  } else {
    check_same(moved, s, td_device());
    const tdict_tensor *first = td_leaf(rig_item(moved, 0), "x");
    for (int i = 0; i < 3; i++) {
      assert_true(tdict_tensor_shares_storage(td_leaf(rig_item(moved, i), "x"), first));
      assert_true(tdict_tensor_shares_storage(td_leaf(rig_item(moved, i), "n.y"), first));
    }
    assert_false(tdict_has(rig_item(s, 0), "0"));
    scoped_lazy_stack back = td_made(lazy_stack, td_lazy_to_device(context, moved, tdict_cpu(), NULL, &made, err));
    check_same(back, s, tdict_cpu());
  }
}

GPU_CASE(lazy_stack_to_device_copies_shared_leaves_once) {
  scoped_context context = td_context(NULL);
  tdict_tree *a = rig_new_item(5, NULL), *items[] = {a, a, a};
  scoped_lazy_stack s = NULL, moved = NULL;
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  td_ok(tdict_lazy_stack_create(items, 3, &s, err));
  tdict_release(a);
  td_ok(td_lazy_to_device(context, s, td_device(), td_options(tdict_transfer_options, stats = &stats), &moved, err));
  assert_int_equal(stats.total_bytes, (6 + 10) * 4);
  check_same(moved, s, td_device());
}

CASE(lazy_stack_to_device_refuses) {
  static char bytes[4];
  scoped_context context = NULL;
  td_ok(tdict_context_create(td_options(tdict_context_options, device = tdict_cpu()), &context, err));
  tdict_lazy_stack *s = rig_three(), *const nothing = (tdict_lazy_stack *)(uintptr_t)0xA5A5, *moved = nothing;
  tdict_future *future = NULL;
  tdict_tensor_desc view = td_with(tdict_tensor_desc, data = bytes, device = tdict_sim(0), dtype = TDICT_U8, ndim = 1);
  view.shape = (const int64_t[]){2};
  td_put(rig_item(s, 1), "n.far", td_made(tensor, tdict_tensor_from_data(&view, NULL, NULL, &made, err)));
  td_fails(TDICT_EWRONGDEVICE, "", tdict_lazy_stack_to_device_async(context, s, tdict_cpu(), NULL, &future, err));
  assert_string_equal(td_last_error.path, "1.n.far");
  td_ok(tdict_delete(rig_item(s, 1), "n.far", err));
  td_fails(TDICT_EINVAL, "NULL", tdict_lazy_stack_to_device_async(context, NULL, tdict_cpu(), NULL, &future, err));
  td_fails(TDICT_EINVAL, "", tdict_lazy_stack_to_device_async(NULL, s, tdict_cpu(), NULL, &future, err));
  td_fails(TDICT_EINVAL, "NULL", tdict_lazy_stack_to_device_async(context, s, tdict_cpu(), NULL, NULL, err));
  assert_null(future);
  TD_WITHOUT_MEMORY_THEN(td_lazy_to_device(context, s, tdict_cpu(), NULL, &moved, err),
                         assert_ptr_equal(moved, nothing));
  td_release(moved, s);
}

CASE(lazy_stack_from_tree_takes_numbered_children) {
  tdict_tree *td = help_tree_without_batch(), *child[12];
  tdict_lazy_stack *s = NULL;
  for (int i = 0; i < 12; i++) child[i] = td_put_tree(td, td_text("%d", i), TREE(2));
  tdict_lock(td); /* the items may be locked */
  td_ok(tdict_lazy_stack_from_tree(td, &s, err));
  td_ok(tdict_unlock(td, err));
  assert_int_equal(td_lazy_count(s), 12);
  for (int i = 0; i < 12; i++) assert_ptr_equal(rig_item(s, i), child[i]);
  tdict_lazy_stack_release(s);
  tdict_lazy_stack *const nothing = (tdict_lazy_stack *)(uintptr_t)0xA5A5;
  s = nothing;
  TD_WITHOUT_MEMORY_THEN(tdict_lazy_stack_from_tree(td, &s, err), assert_ptr_equal(s, nothing));
  tdict_lazy_stack_release(s);
  s = nothing;
  td_ok(tdict_set_batch_size(child[5], COUNTS(7), err));
  td_fails_at(TDICT_ESHAPE, "item 5 has batch size [7]", "5", tdict_lazy_stack_from_tree(td, &s, err));
  td_put(td, "3", TENSOR(2));
  td_fails_at(TDICT_ETYPE, "the entry is a tensor, wanted a tree", "3", tdict_lazy_stack_from_tree(td, &s, err));
  td_ok(tdict_delete(td, "1", err));
  td_fails(TDICT_ENOTFOUND, "key 1 is '2', wanted '1'", tdict_lazy_stack_from_tree(td, &s, err));
  tdict_release(td);
  td = help_tree_without_batch();
  td_fails(TDICT_EINVAL, "no keys", tdict_lazy_stack_from_tree(td, &s, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_lazy_stack_from_tree(td, NULL, err));
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_lazy_stack_from_tree(NULL, &s, err));
  assert_ptr_equal(s, nothing);
  tdict_release(td);
}
