/* Copies of trees, on each device. */
#include "rig.h"

DEVICE_CASE(clone_shallow_shares) {
  rig r = rig_open();
  m_tree *t = SAMPLE(3);
  tdict_tree *td = rig_tree(&r, t), *out = NULL;
  rig_check(&r, t, td);
  tdict_lock(td);
  char *before = help_snapshot(td);
  td_ok(tdict_clone(td, &out, err));
  assert_false(tdict_is_locked(out));
  rig_check(&r, t, out);
  assert_ptr_equal(help_get(out, "n.m.u"), help_get(td, "n.m.u"));
  assert_ptr_not_equal(help_get_tree(out, "n.m"), help_get_tree(td, "n.m"));
  td_ok(tdict_delete(out, "n.b", err));
  help_put(out, "n.new", TENSOR(3));
  td_ok(tdict_rename(out, "a", "z", false, err));
  help_unchanged(td, before);
  help_paths(out, "z n n.m n.m.u n.new e");
  td_fails(TDICT_EINVAL, "NULL", tdict_clone(NULL, &out, err));
  td_fails(TDICT_EINVAL, "NULL", tdict_clone(td, NULL, err));
  tdict_release(out);
  tdict_release(td);
  rig_close(&r);
}

DEVICE_CASE(clone_deep_copies) {
  rig r = rig_open();
  m_tree *t = SAMPLE(4, 3);
  tdict_tree *td = rig_tree(&r, t), *turned = NULL, *out = NULL;
  tdict_device device = td_device();
  td_ok(tdict_set_device(td, &device, err));
  m_map map;
  m_map_whole(&map, t->nb, t->bs);
  map.shape[0] = 3, map.shape[1] = 4;
  map.out[0] = 1, map.out[1] = 0;
  map.copies = true;
  td_ok(tdict_transpose(td, 0, 1, &turned, err));
  tdict_lock(turned);
  td_ok(tdict_clone_deep(turned, NULL, &out, err));
  tdict_release(turned);
  assert_false(tdict_is_locked(out));
  rig_shares(td, out, false);
  assert_true(tdict_tensor_is_contiguous(help_get(out, "n.b")));
  assert_true(tdict_tensor_shares_storage(help_get(out, "a"), help_get(out, "n.b")));
  assert_true(tdict_device_equal(tdict_tensor_device(help_get(out, "a")), td_device()));
  m_tree *made = rig_mapped(t, &map);
  assert_true(tdict_get_device(out, &device) && tdict_device_equal(device, td_device()));
  td_ok(tdict_set_device(out, NULL, err));
  td_ok(tdict_zero(td, err)); /* is not seen by the copy */
  rig_check(&r, made, out);
  tdict_release(out);
  if (r.context) { /* to pinned memory: the tree's device goes with it */
    td_ok(tdict_clone_deep(td, tdict_pinned_memory(r.context), &out, err));
    assert_true(tdict_tensor_is_pinned(help_get(out, "n.m.u")));
    assert_true(tdict_get_device(out, &device) && tdict_device_equal(device, tdict_cpu()));
    tdict_release(out);
  }
  td_fails(TDICT_EINVAL, "NULL", tdict_clone_deep(NULL, NULL, &out, err));
  tdict_release(td);
  rig_close(&r);
}

CASE(clone_survives_enomem) {
  tdict_tree *td = ops_tree(SAMPLE(3)), *out = NULL;
  RIG_WITHOUT_MEMORY(td, tdict_clone(td, &out, err));
  tdict_release(out);
  RIG_WITHOUT_MEMORY(td, tdict_clone_deep(td, NULL, &out, err));
  tdict_release(out);
  tdict_release(td);
  m_reset();
}

CASE(clone_of_a_deep_tree) {
  /* deeper than a stack of calls could go */
  enum { LEVELS = 10000 };
  tdict_tree *td = TREE(2), *out = NULL;
  for (int i = 0; i < LEVELS; i++) {
    tdict_tree *above = TREE(2);
    help_put_tree(above, "d", td);
    td = above;
  }
  td_ok(tdict_clone_deep(td, NULL, &out, err));
  assert_int_equal(tdict_depth(out), LEVELS);
  assert_true(tdict_equal(td, out));
  tdict_release(out);
  td_ok(tdict_index_get(td, TDICT_INDEX(TDICT_AT(0)), &out, err));
  assert_int_equal(tdict_depth(out), LEVELS);
  tdict_release(out);
  tdict_release(td);
}
