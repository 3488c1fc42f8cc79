/* Tests setting the batch size and the device of whole trees. */
#include "help.h"

CASE(tree_batch_size) {
  scoped_tree td = TREE(4, 0, 2), none = help_tree_without_batch();
  assert_int_equal(tdict_batch_ndim(td), 3);
  assert_memory_equal(tdict_batch_size(td), ((const int64_t[]){4, 0, 2}), 24);
  assert_int_equal(tdict_batch_ndim(none), 0);
  td_put(none, "x", TENSOR(4, 3)); /* never inferred */
  assert_int_equal(tdict_batch_ndim(none), 0);
}

static void expect_batch(const tdict_tree *td, int ndim, const int64_t *wanted) {
  assert_int_equal(tdict_batch_ndim(td), ndim);
  if (ndim) assert_memory_equal(tdict_batch_size(td), wanted, (size_t)ndim * sizeof *wanted);
}

CASE(tree_set_batch_size) {
  scoped_tree td = td_tree("x:f32[4,3,2] n.m.y:f32[4,3,5]");
  td_put_tree(td, "empty", TREE(7));
  td_put_tree(td, "n.long", TREE(4, 3, 6));
  td_ok(tdict_set_batch_size(td, COUNTS(4), err));
  expect_batch(td, COUNTS(4));
  expect_batch(td_child(td, "n"), COUNTS(4));
  expect_batch(td_child(td, "n.m"), COUNTS(4));
  expect_batch(td_child(td, "n.long"), COUNTS(4, 3, 6));
  expect_batch(td_child(td, "empty"), COUNTS(4)); /* an empty tree takes its parent's batch size */
  td_ok(tdict_set_batch_size(td, COUNTS(4, 3), err));
  expect_batch(td_child(td, "n.m"), COUNTS(4, 3));
  td_ok(tdict_set_batch_size(td, 0, NULL, err)); /* batch sizes of children do not shrink */
  expect_batch(td, 0, NULL);
  expect_batch(td_child(td, "n.m"), COUNTS(4, 3));
  td_put(td, "free", TENSOR(9));
  td_ok(tdict_delete(td, "free", err));
  /* The sizes may be passed in the array of a node that the call changes. */
  td_ok(tdict_set_batch_size(td, 2, tdict_batch_size(td_child(td, "n.m")), err));
  td_ok(tdict_set_batch_size(td, 1, tdict_batch_size(td), err));
  expect_batch(td, COUNTS(4));
}

CASE(tree_set_batch_size_refuses) {
  scoped_tree td = td_tree("[4] x:f32[4,3,2] n.m.y:f32[4,3] n.z:f32[4,2]");
  td_put_tree(td, "long", TREE(4, 5));
  td_put(td, "long.w", TENSOR(4, 5));
  char *before = help_snapshot(td);
  td_fails(TDICT_ESHAPE, "batch size is [4, 3], tensor has shape [4, 2]", tdict_set_batch_size(td, COUNTS(4, 3), err));
  assert_string_equal(td_last_error.path, "n.z");
  td_fails(TDICT_ESHAPE, "batch size is [5], tensor has shape [4, 3, 2]", tdict_set_batch_size(td, COUNTS(5), err));
  assert_string_equal(td_last_error.path, "x");
  td_fails(TDICT_EINVAL, "17 batch dimensions", tdict_set_batch_size(td, 17, (const int64_t[17]){0}, err));
  td_fails(TDICT_EINVAL, "-1 batch dimensions", tdict_set_batch_size(td, -1, NULL, err));
  td_fails(TDICT_EINVAL, "is -4", tdict_set_batch_size(td, COUNTS(-4), err));
  td_fails(TDICT_EINVAL, "is NULL", tdict_set_batch_size(td, 1, NULL, err));
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_set_batch_size(NULL, COUNTS(4), err));
  help_unchanged(td, before);
  td_ok(tdict_delete(td, "n.z", err));
  before = help_snapshot(td);
  td_fails_at(TDICT_ESHAPE, "the tree has [4, 5]", "long", tdict_set_batch_size(td, COUNTS(4, 3), err));
  help_unchanged(td, before);
  td_ok(tdict_delete(td, "long", err));
  tdict_lock(td_child(td, "n.m"));
  before = help_snapshot(td);
  td_fails_at(TDICT_ELOCKED, "locked", "n.m", tdict_set_batch_size(td, COUNTS(4, 3), err));
  help_unchanged(td, before);
  tdict_lock(td);
  td_fails(TDICT_ELOCKED, "locked", tdict_set_batch_size(td, COUNTS(4), err));
}

CASE(tree_device) {
  const tdict_device cpu = tdict_cpu(), sim = tdict_sim(2);
  tdict_device device = {77, 77};
  scoped_tree td = TREE(2);
  assert_false(tdict_get_device(td, &device));
  assert_int_equal(device.type, 77);
  td_put(td, "x", TENSOR(2));
  td_put(td, "n.m.y", TENSOR(2));
  td_put(td, "n.there", help_tensor_on(sim, COUNTS(2))); /* without a device, leaves may be on any device */
  td_ok(tdict_delete(td, "n.there", err));
  td_ok(tdict_set_device(td, &cpu, err));
  assert_true(tdict_get_device(td, NULL));
  static const char *const nodes[] = {"n", "n.m"};
  for (size_t i = 0; i < 2; i++) {
    device.type = 77;
    assert_true(tdict_get_device(td_child(td, nodes[i]), &device));
    assert_true(tdict_device_equal(device, cpu));
  }
  td_ok(tdict_set_device(td, NULL, err));
  assert_false(tdict_get_device(td, NULL));
  for (size_t i = 0; i < 2; i++) assert_false(tdict_get_device(td_child(td, nodes[i]), NULL));
  td_put(td, "n.there", help_tensor_on(sim, COUNTS(2)));
  /* An empty tree may change from one device to another. */
  scoped_tree empty = TREE(2);
  td_put_tree(empty, "n", TREE(2));
  td_ok(tdict_set_device(empty, &cpu, err));
  td_ok(tdict_set_device(empty, &sim, err));
  assert_true(tdict_get_device(td_child(empty, "n"), &device) && tdict_device_equal(device, sim));
}

CASE(tree_device_refuses) {
  const tdict_device cpu = tdict_cpu(), sim = tdict_sim(0), nowhere = {TDICT_DEVICE_AUTO, 0}, negative = tdict_cuda(-1);
  scoped_tree td = TREE(2);
  td_put(td, "n.there", help_tensor_on(sim, COUNTS(2)));
  td_put(td, "n.here", TENSOR(2));
  char *before = help_snapshot(td);
  td_fails_at(TDICT_EWRONGDEVICE, "device is cpu, the tensor is on sim:0", "n.there", tdict_set_device(td, &cpu, err));
  td_fails_at(TDICT_EWRONGDEVICE, "device is sim:0, the tensor is on cpu", "n.here", tdict_set_device(td, &sim, err));
  td_fails(TDICT_EINVAL, "cannot hold memory", tdict_set_device(td, &nowhere, err));
  td_fails(TDICT_EINVAL, "cannot hold memory", tdict_set_device(td, &negative, err));
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_set_device(NULL, &cpu, err));
  help_unchanged(td, before);
  td_ok(tdict_delete(td, "n.there", err));
  scoped_tree n = tdict_retain(td_child(td, "n"));
  tdict_lock(n);
  td_fails_at(TDICT_ELOCKED, "locked", "n", tdict_set_device(td, &cpu, err));
  td_ok(tdict_set_device(td, NULL, err)); /* the locked child has no device, so it does not change */
  td_ok(tdict_unlock(n, err));
  td_ok(tdict_set_device(td, &cpu, err));
  tdict_lock(n);
  td_fails(TDICT_ELOCKED, "locked", tdict_set_device(td, NULL, err));
  assert_true(tdict_get_device(td, NULL) && tdict_get_device(n, NULL));
}

/* The tree is so deep, and its nodes are shared so often, that visiting all nodes needs memory. */
CASE(tree_batch_and_device_survive_enomem) {
  const tdict_device cpu = tdict_cpu();
  scoped_tree td = TREE(2);
  tdict_tree *node = td;
  for (int i = 0; i < 60; i++) {
    td_put_tree(node, "d", TREE(2));
    td_ok(tdict_set_tree(node, "again", td_child(node, "d"), err));
    node = td_child(node, "d");
  }
  td_put(node, "x", TENSOR(2, 3));
  for (int what = 0; what < 3; what++) {
    int64_t n = 0;
    for (;; n++) {
      tdict_error error = {0};
      td_fail_alloc(n, n % 2 == 1);
      tdict_status status = what == 0   ? tdict_set_batch_size(td, COUNTS(2, 3), &error)
                            : what == 1 ? tdict_set_device(td, &cpu, &error)
                                        : tdict_set_device(td, NULL, &error);
      bool refused = td_fail_alloc_stop();
      if (!refused) {
        assert_int_equal(status, TDICT_OK);
        break;
      }
      assert_int_equal(status, TDICT_ENOMEM);
      for (const tdict_tree *at = td;; at = td_child(at, "d")) {
        assert_int_equal(tdict_batch_ndim(at), what == 0 ? 1 : 2);
        assert_true(tdict_get_device(at, NULL) == (what == 2));
        if (!tdict_has(at, "d")) break;
      }
    }
    assert_true(n > 2);
    assert_int_equal(tdict_batch_ndim(node), 2);
    assert_true(tdict_get_device(node, NULL) == (what == 1));
  }
}
