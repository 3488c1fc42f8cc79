/* Tests setting, deleting, popping and renaming entries, and the errors of these calls. */
#include "help.h"
#include "tdict/nontensor.h"
#include "tdict/ragged.h"
#include "tdict/unbatched.h"
#include "tdict/write.h"

CASE(tree_set_makes_nodes) {
  const tdict_device cpu = tdict_cpu();
  tdict_device device = {0, 0};
  scoped_tree td = TREE(4, 3);
  td_ok(tdict_set_device(td, &cpu, err));
  scoped_tensor t = TENSOR(4, 3, 2);
  td_ok(tdict_set(td, "a.b.c.t", t, err));
  help_paths(td, "a a.b a.b.c a.b.c.t");
  static const char *const nodes[] = {"a", "a.b", "a.b.c"};
  for (size_t i = 0; i < 3; i++) {
    const tdict_tree *node = td_child(td, nodes[i]);
    assert_int_equal(tdict_batch_ndim(node), 2);
    assert_memory_equal(tdict_batch_size(node), ((const int64_t[]){4, 3}), 16);
    assert_true(tdict_get_device(node, &device) && tdict_device_equal(device, cpu));
  }
  assert_ptr_equal(td_leaf(td, "a.b.c.t"), t); /* shared, not copied */
  /* New nodes get the batch size of their parent, not of the root. */
  td_put_tree(td, "long", TREE(4, 3, 2));
  td_put(td, "long.x.y", TENSOR(4, 3, 2));
  assert_int_equal(tdict_batch_ndim(td_child(td, "long.x")), 3);
  tdict_tensor *const second = TENSOR(4, 3);
  td_ok(tdict_set(td, "a.b.second", second, err));
  help_paths(td, "a a.b a.b.c a.b.c.t a.b.second long long.x long.x.y");
  tdict_tensor_release(second);
}

CASE(tree_set_replaces) {
  scoped_tree td = TREE(2), child = TREE(2);
  scoped_tensor t = TENSOR(2), popped = NULL;
  td_put(td, "a", TENSOR(2, 1));
  td_put(td, "n.x", TENSOR(2, 2));
  td_put(td, "c", TENSOR(2, 3));
  td_ok(tdict_set(td, "a", t, err));
  td_ok(tdict_set(td, "n", t, err)); /* a tensor replaces a tree */
  td_ok(tdict_set_tree(td, "c", child, err));
  help_paths(td, "a n c");
  assert_ptr_equal(td_leaf(td, "a"), t);
  assert_ptr_equal(td_leaf(td, "n"), t);
  assert_ptr_equal(td_child(td, "c"), child);
  for (int i = 0; i < 3; i++) { /* replaces each entry with itself */
    td_ok(tdict_set(td, "a", t, err));
    td_ok(tdict_set_tree(td, "c", child, err));
  }
  help_paths(td, "a n c");
  td_ok(tdict_pop(td, "a", &popped, err));
  td_ok(tdict_delete(td, "n", err));
  td_release(popped);
  assert_int_equal(tdict_tensor_ndim(t), 1); /* the test's own reference is still valid */
}

CASE(tree_set_refuses_path_through_leaf) {
  scoped_tree td = TREE(2), child = TREE(2);
  scoped_tensor t = TENSOR(2);
  td_put(td, "n.leaf", TENSOR(2, 2));
  char *before = help_snapshot(td);
  td_fails_at(TDICT_ETYPE, "'leaf' is a tensor", "n.leaf.x", tdict_set(td, "n.leaf.x", t, err));
  td_fails(TDICT_ETYPE, "'leaf' is a tensor", tdict_set(td, "n.leaf.x.y.z", t, err));
  td_fails(TDICT_ETYPE, "'leaf' is a tensor", tdict_set_tree(td, "n.leaf.x", child, err));
  help_unchanged(td, before);
}

/* If a value is NULL, the error has the path, as for other errors of the call. */
CASE(tree_set_of_null_names_the_path) {
  scoped_tree td = TREE(4);
  char *before = help_snapshot(td);
#define FAILS(name, call) td_fails_at(TDICT_EINVAL, name " is NULL", "n.x", call)
  FAILS("tensor", tdict_set(td, "n.x", NULL, err));
  FAILS("child", tdict_set_tree(td, "n.x", NULL, err));
  FAILS("self", tdict_set_object(td, "n.x", tdict_nontensor_type(), NULL, err));
  FAILS("text", tdict_set_text(td, "n.x", NULL, err));
  FAILS("texts", tdict_set_texts(td, "n.x", NULL, 4, err));
  FAILS("values", tdict_set_values(td, "n.x", NULL, 4, err));
  FAILS("ragged", tdict_set_ragged(td, "n.x", NULL, err));
  FAILS("tensor", tdict_set_unbatched(td, "n.x", NULL, err));
  FAILS("value", tdict_write(td, "n.x", NULL, NULL, err));
#undef FAILS
  help_unchanged(td, before);
}

CASE(tree_set_refuses_batch_mismatch) {
  scoped_tree td = TREE(4, 3), none = help_tree_without_batch();
  tdict_tensor *wrong = TENSOR(4, 2, 7), *few = TENSOR(4), *scalar = help_tensor(0, NULL), *good = TENSOR(4, 3, 7);
  char *before = help_snapshot(td);
  td_fails_at(TDICT_ESHAPE, "batch size is [4, 3], tensor has shape [4, 2, 7]", "x", tdict_set(td, "x", wrong, err));
  td_fails_at(TDICT_ESHAPE, "batch size is [4, 3], tensor has shape [4]", "n.m.x", tdict_set(td, "n.m.x", few, err));
  td_fails(TDICT_ESHAPE, "batch size is [4, 3], tensor has shape []", tdict_set(td, "x", scalar, err));
  help_unchanged(td, before);
  td_ok(tdict_set(td, "x", good, err));
  td_ok(tdict_set(none, "x", wrong, err)); /* without a batch size, any shape is allowed */
  td_ok(tdict_set(none, "y", scalar, err));
  td_put_tree(td, "long", TREE(4, 3, 7));
  td_put(td, "long.ok", TENSOR(4, 3, 7, 1));
  tdict_tensor *first = TENSOR(4, 3, 6);
  td_fails(TDICT_ESHAPE, "batch size is [4, 3, 7], tensor has shape [4, 3, 6]", tdict_set(td, "long.x", first, err));
  tdict_tensor *const all[] = {wrong, few, scalar, good, first};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) tdict_tensor_release(all[i]);
}

CASE(tree_set_refuses_other_device) {
  const tdict_device sim = tdict_sim(1);
  scoped_tree td = TREE(2);
  scoped_tensor host = TENSOR(2), there = help_tensor_on(sim, COUNTS(2, 3)),
                other = help_tensor_on(tdict_sim(0), COUNTS(2));
  td_ok(tdict_set_device(td, &sim, err));
  char *before = help_snapshot(td);
  td_fails_at(TDICT_EWRONGDEVICE, "device is sim:1, the tensor is on cpu", "n.x", tdict_set(td, "n.x", host, err));
  td_fails(TDICT_EWRONGDEVICE, "device is sim:1, the tensor is on sim:0", tdict_set(td, "x", other, err));
  help_unchanged(td, before);
  td_ok(tdict_set(td, "n.x", there, err));
  td_fails(TDICT_EWRONGDEVICE, "on cpu", tdict_set(td, "n.x", host, err));
  assert_ptr_equal(td_leaf(td, "n.x"), there);
}

CASE(tree_delete) {
  scoped_tree td = TREE(2);
  static const char *const names[] = {"a", "b", "n.x", "n.y", "m.deep.z", "c"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) td_put(td, names[i], TENSOR(2, (int64_t)i + 1));
  scoped_tensor kept = tdict_tensor_retain(td_leaf(td, "n.x"));
  scoped_tree tree = tdict_retain(td_child(td, "m"));
  td_ok(tdict_delete(td, "n.x", err));
  help_paths(td, "a b n n.y m m.deep m.deep.z c");
  td_ok(tdict_delete(td, "m", err));
  help_paths(td, "a b n n.y c");
  td_ok(tdict_delete(td, "n.y", err)); /* the tree `n` is empty now, but stays */
  help_paths(td, "a b n c");
  td_ok(tdict_delete(td, "a", err));
  td_ok(tdict_delete(td, "c", err));
  help_paths(td, "b n");
  assert_int_equal(tdict_tensor_numel(kept), 6);
  help_paths(tree, "deep deep.z");
}

CASE(tree_delete_refuses) {
  scoped_tree td = td_tree("[2] n.x:f32[2]");
  char *before = help_snapshot(td);
  td_fails(TDICT_ENOTFOUND, "'y'", tdict_delete(td, "y", err));
  td_fails_at(TDICT_ENOTFOUND, "'y'", "n.y", tdict_delete(td, "n.y", err));
  td_fails(TDICT_ENOTFOUND, "'y'", tdict_delete(td, "y.x", err));
  td_fails(TDICT_ETYPE, "'x' is a tensor", tdict_delete(td, "n.x.y", err));
  td_fails(TDICT_EINVAL, "empty key", tdict_delete(td, "", err));
  td_fails(TDICT_EINVAL, "path is NULL", tdict_delete(td, NULL, err));
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_delete(NULL, "n", err));
  help_unchanged(td, before);
}

CASE(tree_pop) {
  tdict_tree *td = TREE(2), *tree = NULL;
  tdict_tensor *t = NULL, *x = td_put(td, "n.x", TENSOR(2, 3));
  td_put(td, "n.y.z", TENSOR(2));
  tdict_tree *y = td_child(td, "n.y");
  td_ok(tdict_pop(td, "n.x", &t, err));
  assert_ptr_equal(t, x);
  help_paths(td, "n n.y n.y.z");
  td_ok(tdict_pop_tree(td, "n.y", &tree, err));
  assert_ptr_equal(tree, y);
  help_paths(td, "n");
  tdict_release(td); /* popped items belong to the caller */
  help_paths(tree, "z");
  assert_int_equal(tdict_tensor_numel(t), 6);
  td_release(t, tree);
}

CASE(tree_pop_refuses) {
  tdict_tree *td = TREE(2), *const no_tree = (tdict_tree *)(uintptr_t)0xA5A5, *tree = no_tree;
  tdict_tensor *const no_tensor = (tdict_tensor *)(uintptr_t)0xA5A5, *t = no_tensor;
  td_put(td, "n.x", TENSOR(2));
  char *before = help_snapshot(td);
  td_fails_at(TDICT_ETYPE, "found a tree, wanted a tensor", "n", tdict_pop(td, "n", &t, err));
  td_fails(TDICT_ETYPE, "found a tensor, wanted a tree", tdict_pop_tree(td, "n.x", &tree, err));
  td_fails(TDICT_ETYPE, "'x' is a tensor", tdict_pop(td, "n.x.y", &t, err));
  td_fails(TDICT_ENOTFOUND, "'y'", tdict_pop(td, "n.y", &t, err));
  td_fails(TDICT_ENOTFOUND, "'y'", tdict_pop_tree(td, "y", &tree, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_pop(td, "n.x", NULL, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_pop_tree(td, "n", NULL, err));
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_pop(NULL, "n.x", &t, err));
  td_fails(TDICT_EINVAL, "path is NULL", tdict_pop_tree(td, NULL, &tree, err));
  assert_ptr_equal(t, no_tensor);
  assert_ptr_equal(tree, no_tree);
  help_unchanged(td, before);
  tdict_release(td);
}

CASE(tree_rename) {
  scoped_tree td = td_tree("[2] a:f32[2] b:f32[2,2] n.x:f32[2,3] c:f32[2,4]");
  tdict_tensor *b = td_leaf(td, "b"), *x = td_leaf(td, "n.x"), *c = td_leaf(td, "c");
  tdict_tree *n = td_child(td, "n");
  td_ok(tdict_rename(td, "b", "bee", true, err)); /* keeps its position */
  help_paths(td, "a bee n n.x c");
  assert_ptr_equal(td_leaf(td, "bee"), b);
  td_ok(tdict_rename(td, "bee", "a", false, err)); /* replaces "a", and keeps its own position */
  help_paths(td, "a n n.x c");
  assert_ptr_equal(td_leaf(td, "a"), b);
  td_ok(tdict_rename(td, "c", "n.new.c", true, err)); /* creates the node "n.new" */
  help_paths(td, "a n n.x n.new n.new.c");
  assert_ptr_equal(td_leaf(td, "n.new.c"), c);
  td_ok(tdict_rename(td, "n", "moved.n", true, err));
  assert_ptr_equal(td_child(td, "moved.n"), n);
  help_paths(td, "a moved moved.n moved.n.x moved.n.new moved.n.new.c");
  td_ok(tdict_rename(td, "moved.n.x", "a", false, err));
  assert_ptr_equal(td_leaf(td, "a"), x);
  help_paths(td, "a moved moved.n moved.n.new moved.n.new.c");
  td_ok(tdict_rename(td, "moved.n.new.c", "moved", false, err)); /* replaces the tree that contains the entry */
  assert_ptr_equal(td_leaf(td, "moved"), c);
  help_paths(td, "a moved");
  td_ok(tdict_rename(td, "a", "a", true, err)); /* to the same path */
  td_ok(tdict_rename(td, "a", "h\\.0", true, err));
  assert_string_equal(tdict_get_entry_at(td, 0).key, "h.0");
}

/* An entry that moves must fit the batch size and device of its new parent. As in tdict_set_tree(), a tree that has too
 * few batch dimensions is copied. */
CASE(tree_rename_adapts_to_the_new_parent) {
  scoped_tree td = TREE(2);
  td_put_tree(td, "long", TREE(2, 3));
  td_put(td, "short.good", TENSOR(2, 3));
  td_put(td, "x", TENSOR(2, 4));
  scoped_tree before_move = tdict_retain(td_child(td, "short"));
  td_fails(TDICT_ESHAPE, "batch size is [2, 3], tensor has shape [2, 4]", tdict_rename(td, "x", "long.x", false, err));
  td_ok(tdict_rename(td, "short", "long.short", false, err));
  help_paths(td, "long long.short long.short.good x");
  assert_int_equal(tdict_batch_ndim(td_child(td, "long.short")), 2);
  assert_int_equal(tdict_batch_ndim(before_move), 1);
}

CASE(tree_rename_refuses) {
  scoped_tree td = td_tree("[2] a:f32[2] b:f32[2] n.m.x:f32[2]");
  td_ok(tdict_set_tree(td, "alias", td_child(td, "n"), err));
  char *before = help_snapshot(td);
  td_fails_at(TDICT_EEXIST, "safe", "b", tdict_rename(td, "a", "b", true, err));
  td_fails(TDICT_EEXIST, "safe", tdict_rename(td, "a", "n.m", true, err));
  td_fails(TDICT_EINVAL, "below", tdict_rename(td, "n", "n.m.n", false, err));
  td_fails(TDICT_EINVAL, "below", tdict_rename(td, "n", "n.new", false, err));
  td_fails(TDICT_EINVAL, "below", tdict_rename(td, "a", "a.b", false, err));
  td_fails(TDICT_EINVAL, "is, or contains, the tree",
           tdict_rename(td, "n", "alias.n", false, err)); /* "alias" is another path to the same tree */
  td_fails(TDICT_ETYPE, "'b' is a tensor", tdict_rename(td, "a", "b.x", false, err));
  td_fails(TDICT_ETYPE, "'b' is a tensor", tdict_rename(td, "b.x", "c", false, err));
  td_fails(TDICT_ENOTFOUND, "'c'", tdict_rename(td, "c", "d", false, err));
  td_fails(TDICT_ENOTFOUND, "'c'", tdict_rename(td, "n.c", "d", false, err));
  td_fails(TDICT_EINVAL, "empty key", tdict_rename(td, "a", "", false, err));
  td_fails(TDICT_EINVAL, "from is NULL", tdict_rename(td, NULL, "d", false, err));
  td_fails(TDICT_EINVAL, "to is NULL", tdict_rename(td, "a", NULL, false, err));
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_rename(NULL, "a", "d", false, err));
  help_unchanged(td, before);
}
