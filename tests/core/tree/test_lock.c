/* Tests locks: which changes they forbid, which trees are locked, and what unlocks them. */
#include "core/tree/node.h"

#include "help.h"

CASE(tree_lock_blocks) {
  const int64_t batch[] = {2, 1};
  const tdict_device cpu = tdict_cpu();
  scoped_tree td = TREE(2), small = TREE(2);
  tdict_tree *tree = NULL;
  scoped_tensor t = TENSOR(2, 3), popped = NULL;
  td_put(td, "a", TENSOR(2, 3));
  td_put(td, "n.deep.x", TENSOR(2, 1));
  tdict_lock(td);
  tdict_lock(td); /* locking twice changes nothing */
  assert_true(tdict_is_locked(td) && tdict_is_locked(td_child(td, "n.deep")));
  char *before = help_snapshot(td);
  static const char *const places[] = {"a", "new", "n.deep.x", "n.deep.new", "n.new.way"};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    td_fails_at(TDICT_ELOCKED, "locked", places[i], tdict_set(td, places[i], t, err));
    td_fails(TDICT_ELOCKED, "locked", tdict_set_tree(td, places[i], small, err));
  }
  td_fails(TDICT_ELOCKED, "locked", tdict_delete(td, "a", err));
  td_fails(TDICT_ELOCKED, "locked", tdict_delete(td, "n.deep", err));
  td_fails(TDICT_ELOCKED, "locked", tdict_pop(td, "n.deep.x", &popped, err));
  td_fails(TDICT_ELOCKED, "locked", tdict_pop_tree(td, "n", &tree, err));
  td_fails(TDICT_ELOCKED, "locked", tdict_rename(td, "a", "b", false, err));
  td_fails(TDICT_ELOCKED, "locked", tdict_rename(td, "n.deep.x", "n.deep.y", false, err));
  td_fails(TDICT_ELOCKED, "locked", tdict_set_batch_size(td, 2, batch, err));
  td_fails(TDICT_ELOCKED, "locked", tdict_set_device(td, &cpu, err));
  help_unchanged(td, before);
  assert_non_null(tdict_data(td, "n.deep.x")); /* elements may still be written */
  memset(tdict_data(td, "n.deep.x"), 0xA5, 8);
  td_ok(tdict_unlock(td, err));
  td_ok(tdict_set(td, "n.new.way", t, err));
  td_ok(tdict_delete(td, "a", err));
}

/* A child can be locked although its parent is not. The child cannot be changed, but it can be replaced as a whole. */
CASE(tree_lock_of_a_child_leaves_its_parent_unlocked) {
  scoped_tree td = td_tree("[2] n.deep.x:f32[2,1]");
  scoped_tree n = tdict_retain(td_child(td, "n"));
  tdict_lock(n);
  assert_false(tdict_is_locked(td));
  td_fails(TDICT_ELOCKED, "locked", tdict_delete(td, "n.deep.x", err));
  scoped_tensor t = TENSOR(2);
  td_fails(TDICT_ELOCKED, "locked", tdict_set(td, "n.y", t, err));
  td_put(td, "other", TENSOR(2));
  td_fails(TDICT_ELOCKED, "locked", tdict_rename(td, "other", "n.other", false, err));
  td_fails(TDICT_ELOCKED, "locked", tdict_rename(td, "n.deep", "deep", false, err));
  td_ok(tdict_set(td, "n", t, err));
  assert_true(tdict_is_locked(n));
}

CASE(tree_unlock) {
  scoped_tree td = TREE(2), second = TREE(2), shared = TREE(2);
  td_ok(tdict_unlock(td, err)); /* no effect on an unlocked tree */
  assert_false(tdict_is_locked(td));
  td_put(shared, "low.x", TENSOR(2));
  td_ok(tdict_set_tree(td, "s", shared, err));
  td_ok(tdict_set_tree(td, "n.s", shared, err));
  td_ok(tdict_set_tree(second, "s", shared, err));
  tdict_tree *low = td_child(shared, "low");
  tdict_lock(td);
  assert_true(tdict_is_locked(shared) && tdict_is_locked(low));
  assert_false(tdict_is_locked(second));
  tdict_lock(second);
  td_ok(tdict_unlock(td, err)); /* `second` still locks `shared` */
  assert_false(tdict_is_locked(td) || tdict_is_locked(td_child(td, "n")));
  assert_true(tdict_is_locked(shared) && tdict_is_locked(low));
  td_ok(tdict_unlock(second, err));
  assert_false(tdict_is_locked(shared) || tdict_is_locked(low));
  /* A child that had its own lock is unlocked together with its parent. */
  tdict_lock(low);
  tdict_lock(td);
  td_ok(tdict_unlock(td, err));
  assert_false(tdict_is_locked(shared) || tdict_is_locked(low));
  for (int i = 0; i < 3; i++) { /* locks are not counted */
    tdict_lock(shared);
    tdict_lock(td);
    tdict_lock(second);
    td_ok(tdict_unlock(second, err));
    td_ok(tdict_unlock(td, err));
    assert_int_equal(shared->locks_above, 0);
    assert_int_equal(low->locks_above, 0);
    assert_false(tdict_is_locked(low));
  }
  td_put(shared, "low.y", TENSOR(2));
}

CASE(tree_unlock_refuses_child) {
  scoped_tree td = td_tree("[2] n.deep.x:f32[2]");
  tdict_tree *n = td_child(td, "n"), *deep = td_child(td, "n.deep");
  tdict_lock(td);
  td_fails(TDICT_ELOCKED, "below a locked tree", tdict_unlock(n, err));
  td_fails(TDICT_ELOCKED, "below a locked tree", tdict_unlock(deep, err));
  tdict_lock(deep); /* locking `deep` itself does not change this */
  td_fails(TDICT_ELOCKED, "below a locked tree", tdict_unlock(deep, err));
  assert_true(tdict_is_locked(n) && tdict_is_locked(deep));
  td_fails(TDICT_EINVAL, "NULL", tdict_unlock(NULL, err));
  td_ok(tdict_unlock(td, err));
  td_ok(tdict_unlock(n, err));
}

CASE(tree_lock_ends_with_the_last_reference) {
  tdict_tree *td = td_tree("[2] n.deep.x:f32[2]"), *second = TREE(2);
  scoped_tree n = tdict_retain(td_child(td, "n")), deep = tdict_retain(td_child(td, "n.deep"));
  td_ok(tdict_set_tree(second, "deep", deep, err));
  tdict_lock(td);
  tdict_lock(second);
  tdict_release(td);
  assert_false(tdict_is_locked(n));
  assert_true(tdict_is_locked(deep)); /* `second` still locks `deep` */
  tdict_release(second);
  assert_false(tdict_is_locked(deep));
  td_ok(tdict_delete(n, "deep.x", err));
  /* The child's own lock remains after its parent is released. */
  tdict_lock(deep);
  tdict_lock(n);
  td_release(n);
  assert_true(tdict_is_locked(deep));
  td_ok(tdict_unlock(deep, err));
}
