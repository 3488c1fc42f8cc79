/* Tests tdict_flatten_keys() and tdict_unflatten_keys(). */
#include "rig.h"

CASE(flatten_keys_flattens) {
  scoped_tree td = ops_tree(SAMPLE(3)), out = td_made(tree, tdict_flatten_keys(td, NULL, &made, err));
  help_paths(out, "a n\\.b n\\.m\\.u"); /* the empty tree e is dropped */
  assert_string_equal(tdict_get_entry_at(out, 2).key, "n.m.u");
  assert_ptr_equal(td_leaf(out, "n\\.m\\.u"), td_leaf(td, "n.m.u"));
  assert_int_equal(tdict_batch_ndim(out), 1);
  td_release(out);
  td_ok(tdict_flatten_keys(td, "->", &out, err));
  help_paths(out, "a n->b n->m->u");
  td_release(out);
  td_fails(TDICT_EINVAL, "separator is empty", tdict_flatten_keys(td, "", &out, err));
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_flatten_keys(NULL, NULL, &out, err));
}

CASE(flatten_keys_refuses_collision) {
  scoped_tree td = td_tree("[3] n\\.b:f32[3] n.b:f32[3]"), out = NULL;
  char *before = help_snapshot(td);
  td_fails_at(TDICT_EEXIST, "n.b", "n.b", tdict_flatten_keys(td, NULL, &out, err));
  assert_null(out);
  help_unchanged(td, before);
  td_ok(tdict_flatten_keys(td, "_", &out, err));
  help_paths(out, "n\\.b n_b");
}

CASE(unflatten_keys_unflattens) {
  scoped_tree td = ops_tree(SAMPLE(3)), flat = td_made(tree, tdict_flatten_keys(td, NULL, &made, err)), out = NULL;
  td_ok(tdict_unflatten_keys(flat, NULL, &out, err));
  help_paths(out, "a n n.b n.m n.m.u");
  assert_ptr_equal(td_leaf(out, "n.m.u"), td_leaf(td, "n.m.u"));
  td_release(out);
  td_ok(tdict_unflatten_keys(td, "x", &out, err)); /* no key contains this separator */
  help_paths(out, "a n n.b n.m n.m.u e");
}

/* Keys are ordered as in TensorDict: first keys that are not split, then new trees in the order of the split keys. */
CASE(unflatten_keys_puts_split_keys_last) {
  static const char *const keys[] = {"a\\.b", "z", "k\\.n", "a\\.c", "y\\.u\\.v", "k.old", "q"};
  scoped_tree td = TREE(3), out = NULL;
  for (int i = 0; i < 7; i++) td_put(td, keys[i], TENSOR(3));
  td_ok(tdict_unflatten_keys(td, NULL, &out, err));
  help_paths(out, "z k k.old k.n q a a.b a.c y y.u y.u.v");
}

/* Five keys must give the same tree in any order. Some keys name a tree into which other keys are put. */
CASE(unflatten_keys_merges_in_every_order) {
  static const char *const keys[] = {"a\\.b", "a.c", "a\\.t", "a\\.t\\.u", "x\\.y\\.z"};
  static const char *const wanted[] = {"a.b", "a.c", "a.t.own", "a.t.u", "x.y.z"};
  enum { KEYS = 5, ORDERS = 120 };
  scoped_tree t = TREE(3);
  tdict_tensor *tensors[KEYS];
  for (int i = 0; i < KEYS; i++) tensors[i] = TENSOR(3);
  td_ok(tdict_set(t, "own", tensors[2], err));
  for (int n = 0; n < ORDERS; n++) {
    tdict_tree *td = TREE(3), *out = NULL;
    int left[KEYS] = {0, 1, 2, 3, 4};
    for (int i = KEYS, rest = n; i > 0; rest /= i--) {
      const int k = left[rest % i];
      left[rest % i] = left[i - 1];
      td_ok(k == 2 ? tdict_set_tree(td, keys[k], t, err) : tdict_set(td, keys[k], tensors[k], err));
    }
    td_ok(tdict_unflatten_keys(td, NULL, &out, err));
    for (int i = 0; i < KEYS; i++) assert_ptr_equal(td_leaf(out, wanted[i]), tensors[i]);
    assert_int_equal(tdict_num_leaves(out), KEYS);
    assert_int_equal(tdict_num_keys(out), 2);
    td_release(out, td);
    help_paths(t, "own"); /* only the copy in the result has the key u */
  }
  for (int i = 0; i < KEYS; i++) tdict_tensor_release(tensors[i]);
}

/* The tree "y" gets the key "back" from "y\.back". "y" is copied first, because it would otherwise contain itself. */
CASE(unflatten_keys_makes_no_cycles) {
  scoped_tree td = TREE(3), x = TREE(3), y = TREE(3), out = NULL;
  td_ok(tdict_set_tree(x, "holds", y, err));
  td_ok(tdict_set_tree(td, "y", y, err));
  td_ok(tdict_set_tree(td, "y\\.back", x, err));
  char *before = help_snapshot(td);
  td_ok(tdict_unflatten_keys(td, NULL, &out, err));
  help_paths(out, "y y.back y.back.holds");
  help_unchanged(td, before);
}

CASE(unflatten_keys_refuses) {
  static const char *const bad[][2] = {{"a", "a\\.b"}, {"a\\.b", "a"}, {"a\\.b\\.c", "a\\.b"}};
  tdict_tree *out = NULL;
  for (int i = 0; i < 3; i++) {
    scoped_tree td = TREE(3);
    td_put(td, bad[i][0], TENSOR(3));
    td_put(td, bad[i][1], TENSOR(3));
    char *before = help_snapshot(td);
    td_fails(TDICT_EEXIST, "unflatten_keys", tdict_unflatten_keys(td, NULL, &out, err));
    assert_string_equal(td_last_error.path, bad[i][strlen(bad[i][1]) > strlen(bad[i][0])]); /* the longer key */
    help_unchanged(td, before);
  }
  static const char *const empty[] = {"\\.a", "a\\.", "a\\.\\.b"};
  for (int i = 0; i < 3; i++) {
    scoped_tree td = TREE(3);
    td_put(td, empty[i], TENSOR(3));
    td_fails(TDICT_EINVAL, "empty part", tdict_unflatten_keys(td, NULL, &out, err));
    td_fails(TDICT_EINVAL, "separator is empty", tdict_unflatten_keys(td, "", &out, err));
  }
  assert_null(out);
}

/* The existing child "x" has more batch dimensions than its parent. Tensors without these dimensions are refused. */
CASE(unflatten_keys_keeps_batch_sizes) {
  const int64_t two[] = {2}, two_three[] = {2, 3}, good[] = {2, 3, 4}, bad[] = {2, 5};
  scoped_tree td = NULL, child = NULL;
  scoped_tensor fits = NULL, other = NULL;
  td_ok(tdict_create(1, two, &td, err));
  td_ok(tdict_create(2, two_three, &child, err));
  td_ok(tdict_set_tree(td, "x", child, err));
  td_ok(tdict_tensor_zeros(TDICT_F32, 3, good, NULL, &fits, err));
  td_ok(tdict_tensor_zeros(TDICT_F32, 2, bad, NULL, &other, err));
  td_ok(tdict_set(td, "x\\.fits", fits, err));
  tdict_tree *out = td_made(tree, tdict_unflatten_keys(td, NULL, &made, err));
  assert_true(tdict_has(out, "x.fits"));
  td_release(out);
  td_ok(tdict_set(td, "x\\.other", other, err));
  td_fails_at(TDICT_ESHAPE, "unflatten_keys", "x\\.other", tdict_unflatten_keys(td, NULL, &out, err));
  assert_null(out);
}
