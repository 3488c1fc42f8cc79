/* Tests changes to trees while allocations fail. A failed call must not change the tree. */
#include "core/tree/node.h"

#include "help.h"

typedef tdict_status (*operation)(tdict_tree *td, void *with, tdict_error *err);

/* Makes each allocation of an operation fail, alone and together with all later ones. Each run gets a new tree. The
 * failed operation must not change the tree, and must then succeed on it. Returns the number of allocations. */
static int64_t sweep(tdict_tree *(*make)(void), operation op, void *with) {
  for (int64_t n = 0;; n++) {
    bool done = false;
    for (int all = 0; all < 2; all++) {
      scoped_tree td = make();
      tdict_error error = {0};
      char *before = help_snapshot(td);
      td_fail_alloc(n, all == 1);
      tdict_status status = op(td, with, &error);
      bool refused = td_fail_alloc_stop();
      if (!refused) {
        if (status != TDICT_OK) fail_msg("%s: %s", tdict_status_name(status), error.message);
        free(before);
        done = true;
      } else {
        assert_int_equal(status, TDICT_ENOMEM);
        assert_int_equal(error.status, TDICT_ENOMEM);
        assert_true(error.message[0] != 0);
        help_unchanged(td, before);
        td_ok(op(td, with, err)); /* succeeds once there is memory */
      }
    }
    if (done) return n;
  }
}

static tdict_tree *empty(void) { return TREE(2, 3); }

static tdict_tree *full(void) { /* one more key makes the node's two arrays and the index grow */
  tdict_tree *td = TREE(2, 3);
  scoped_tensor t = TENSOR(2, 3);
  for (int i = 0; i < 15; i++) td_ok(tdict_set(td, td_text("key %d", i), t, err));
  td_ok(tdict_set(td, "n.m.x", t, err));
  return td;
}

static tdict_tree *other_owner;
/* Makes a tree that shares its key table with another tree. */
static tdict_tree *shared_keys(void) {
  tdict_tree *td = full(), *like = td_made(tree, tdict_node_create_like(td, &made, err));
  for (uint32_t i = 0; i < td->keys->num_slots; i++) like->leaves[i] = tdict_leaf_retain(td->leaves[i]);
  tdict_release(other_owner);
  other_owner = td;
  return like;
}

static tdict_status set_one(tdict_tree *td, void *with, tdict_error *err) { return tdict_set(td, "new", with, err); }
static tdict_status set_way(tdict_tree *td, void *with, tdict_error *err) {
  return tdict_set(td, "some.way.h\\.0.to.go", with, err);
}
static tdict_status set_long(tdict_tree *td, void *with, tdict_error *err) {
  char path[700];
  memset(path, 'k', sizeof path);
  path[sizeof path - 1] = 0;
  memcpy(path, "\\.", 2); /* two keys that contain a backslash and are longer than 128 bytes */
  memcpy(path + 300, ".\\.", 3);
  return tdict_set(td, path, with, err);
}

CASE(tree_set_survives_enomem) {
  tdict_tree *(*const makers[])(void) = {empty, full, shared_keys};
  scoped_tensor t = TENSOR(2, 3, 4);
  for (size_t i = 0; i < sizeof makers / sizeof *makers; i++) {
    assert_true(sweep(makers[i], set_one, t) >= 1);
    assert_true(sweep(makers[i], set_way, t) >= 4 * 4);
    assert_true(sweep(makers[i], set_long, t) >= 2);
  }
  tdict_release(other_owner);
}

static tdict_status set_child(tdict_tree *td, void *with, tdict_error *err) {
  return tdict_set_tree(td, "a.child", with, err);
}

CASE(tree_set_tree_survives_enomem) {
  tdict_tree *child = TREE(2), *node = child;
  for (int i = 0; i < 40; i++) { /* so deep, with shared nodes, that visiting all nodes needs memory */
    td_put_tree(node, "d", TREE(2));
    td_ok(tdict_set_tree(node, "again", td_child(node, "d"), err));
    node = td_child(node, "d");
  }
  td_put(node, "x", TENSOR(2, 3));
  int64_t nodes = 41;
  assert_true(sweep(empty, set_child, child) > 2 * nodes);
  for (tdict_tree *at = child; tdict_has(at, "d"); at = td_child(at, "d")) assert_int_equal(tdict_batch_ndim(at), 1);
  tdict_release(child);
}

static tdict_status rename_here(tdict_tree *td, void *with, tdict_error *err) {
  return tdict_rename(td, "key 3", with, false, err);
}
static tdict_status rename_tree(tdict_tree *td, void *with, tdict_error *err) {
  return tdict_rename(td, "n", with, false, err);
}
static tdict_status delete_one(tdict_tree *td, void *with, tdict_error *err) { return tdict_delete(td, with, err); }

CASE(tree_rename_and_delete_survive_enomem) {
  static char fresh[1000]; /* too long for a buffer on the stack */
  static char way[] = "new.way", taken[] = "key 5", one[] = "key 7", tree[] = "n";
  static char inside[] = "n.m.y";
  memset(fresh, 'f', sizeof fresh - 1);
  assert_true(sweep(full, rename_here, fresh) >= 1);
  assert_true(sweep(full, rename_here, way) >= 4);
  assert_true(sweep(full, rename_tree, way) >= 4);
  assert_true(sweep(full, rename_here, inside) >= 0);
  assert_true(sweep(shared_keys, rename_here, fresh) >= 4);
  assert_true(sweep(shared_keys, rename_here, taken) >= 4);
  assert_true(sweep(shared_keys, rename_here, way) >= 8);
  assert_true(sweep(shared_keys, delete_one, one) >= 4);
  assert_true(sweep(shared_keys, delete_one, tree) >= 4);
  tdict_release(other_owner);
}

CASE(tree_create_from_survives_enomem) {
  static const tdict_field fields[] = {
      {"obs.pixels", TDICT_U8, 3, {8, 8, 3}}, {"obs.state", TDICT_F32, 1, {5}}, {"next.reward", TDICT_F32, 0, {0}}};
  for (int64_t n = 0;; n++) {
    tdict_tree *const none = (tdict_tree *)(uintptr_t)0xA5A5, *td = none;
    tdict_error error = {0};
    td_fail_alloc(n, n % 2 == 0);
    tdict_status status = tdict_create_from(fields, 3, COUNTS(4), NULL, &td, &error);
    bool refused = td_fail_alloc_stop();
    if (!refused) {
      assert_int_equal(status, TDICT_OK);
      assert_int_equal(tdict_num_leaves(td), 3);
      tdict_release(td);
      assert_true(n > 10);
      break;
    }
    assert_int_equal(status, TDICT_ENOMEM);
    assert_int_equal(error.status, TDICT_ENOMEM);
    assert_ptr_equal(td, none);
  }
}
