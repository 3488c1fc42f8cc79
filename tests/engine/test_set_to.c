/* Tests tdict_set_to(), which moves a tensor to the device of the tree. */
#include "core/ops/rig.h"

GPU_CASE(set_to_moves_first) {
  scoped_rig r = rig_open();
  const tdict_device here = td_device(), cpu = tdict_cpu();
  scoped_tree td = TREE(4), want = TREE(4);
  scoped_tensor t = TENSOR(4, 3);
  td_ok(tdict_set_to(r.context, td, "plain", t, err)); /* without a device, like tdict_set() */
  assert_ptr_equal(td_leaf(td, "plain"), t);
  td_ok(tdict_delete(td, "plain", err));
  td_ok(tdict_set_device(td, &here, err));
  td_ok(tdict_set_to(r.context, td, "n.x", t, err));
  td_ok(tdict_set(want, "n.x", t, err));
  assert_true(tdict_device_equal(tdict_tensor_device(td_leaf(td, "n.x")), here));
  assert_true(tdict_equal(td, want));
  tdict_tensor *there = td_leaf(td, "n.x");
  td_ok(tdict_set_to(r.context, td, "y", there, err)); /* already on the device, so shared */
  assert_ptr_equal(td_leaf(td, "y"), there);
  td_ok(tdict_set_device(want, &cpu, err));
  td_ok(tdict_set_to(r.context, want, "back", there, err)); /* from the device to the host */
  assert_memory_equal(tdict_const_data(want, "back"), tdict_tensor_const_data(t), 4 * 3 * sizeof(float));
}

GPU_CASE(set_to_refuses) {
  scoped_rig r = rig_open();
  const tdict_device here = td_device();
  scoped_tree td = TREE(4);
  scoped_tensor t = TENSOR(4, 3), wrong = TENSOR(5);
  td_ok(tdict_set_device(td, &here, err));
  td_ok(tdict_set_to(r.context, td, "n.x", t, err));
  char *before = help_snapshot(td);
  td_fails(TDICT_EINVAL, "context is NULL", tdict_set_to(NULL, td, "n.x", t, err));
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_set_to(r.context, NULL, "n.x", t, err));
  td_fails(TDICT_EINVAL, "path is NULL", tdict_set_to(r.context, td, NULL, t, err));
  td_fails(TDICT_EINVAL, "tensor is NULL", tdict_set_to(r.context, td, "n.x", NULL, err));
  td_fails(TDICT_EINVAL, "empty key", tdict_set_to(r.context, td, "n..x", t, err));
  td_fails(TDICT_ETYPE, "'x' is a tensor", tdict_set_to(r.context, td, "n.x.y", t, err));
  td_fails_at(TDICT_ESHAPE, "[5]", "n.z", tdict_set_to(r.context, td, "n.z", wrong, err));
  scoped_tensor far = help_tensor_on(tdict_sim(7), COUNTS(4, 0));
  td_fails(TDICT_EWRONGDEVICE, "sim:7", tdict_set_to(r.context, td, "n.far", far, err));
  help_unchanged(td, before);
  tdict_lock(td);
  before = help_snapshot(td);
  td_fails(TDICT_ELOCKED, "locked", tdict_set_to(r.context, td, "n.x", t, err));
  help_unchanged(td, before);
}
