/* Tests selecting, excluding and splitting by paths, merging, and replacing the contents of a node. */
#include "rig.h"

#define PATHS(...) (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)

DEVICE_CASE(keysets_share_leaves) {
  scoped_rig r = rig_open();
  scoped_tree td = rig_tree(&r, SAMPLE(3)), out = NULL;
  char *before = help_snapshot(td);
  tdict_lock(td);
  td_ok(tdict_select(td, PATHS("n", "a"), true, &out, err));
  for (int way = 0; way < 3; way++) {
    assert_false(tdict_is_locked(out));
    assert_ptr_equal(td_leaf(out, "a"), td_leaf(td, "a"));
    if (way < 2) assert_ptr_equal(td_leaf(out, "n.m.u"), td_leaf(td, "n.m.u"));
    td_release(out);
    if (way == 0) td_ok(tdict_exclude(td, PATHS("e"), &out, err));
    if (way == 1) td_ok(tdict_flatten_keys(td, NULL, &out, err));
  }
  td_ok(tdict_unlock(td, err));
  help_unchanged(td, before);
}

CASE(select_takes_paths) {
  scoped_tree td = ops_tree(SAMPLE(3)), out = NULL;
  td_ok(tdict_select(td, PATHS("n.m", "a", "n.b"), true, &out, err));
  help_paths(out, "n n.m n.m.u n.b a");
  assert_int_equal(tdict_batch_ndim(td_child(out, "n.m")), 2);
  td_release(out);
  td_ok(tdict_select(td, PATHS("n.m.u", "n", "n.b", "e"), true, &out, err));
  help_paths(out, "n n.b n.m n.m.u e");
  td_release(out);
  td_ok(tdict_select(td, NULL, 0, true, &out, err));
  help_paths(out, "");
}

CASE(select_refuses_missing) {
  scoped_tree td = ops_tree(SAMPLE(3)), out = NULL;
  td_fails_at(TDICT_ENOTFOUND, "not a key", "n.q", tdict_select(td, PATHS("a", "n.q"), true, &out, err));
  td_fails(TDICT_ETYPE, "tensor", tdict_select(td, PATHS("a.q"), true, &out, err));
  td_fails(TDICT_EINVAL, "empty key", tdict_select(td, PATHS("a", ""), false, &out, err));
  td_fails(TDICT_EINVAL, "path 1 is NULL", tdict_select(td, PATHS("a", NULL), false, &out, err));
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_select(NULL, PATHS("a"), false, &out, err));
  assert_null(out);
  td_ok(tdict_select(td, PATHS("a", "n.q", "a.q", "q.q"), false, &out, err));
  help_paths(out, "a");
}

CASE(exclude_removes_paths) {
  scoped_tree td = ops_tree(SAMPLE(3)), out = NULL;
  td_ok(tdict_exclude(td, PATHS("n.m.u", "a", "q", "n.b.q"), &out, err));
  help_paths(out, "n n.b n.m e"); /* n.m is kept, although it is empty now */
  td_release(out);
  td_fails(TDICT_EINVAL, "empty key", tdict_exclude(td, PATHS("n..m"), &out, err));
  help_paths(td, "a n n.b n.m n.m.u e");
}

CASE(split_keys_splits) {
  tdict_tree *td = ops_tree(SAMPLE(3)), *out[3];
  static const char *const first[] = {"n.m", "e"}, *const second[] = {"a"};
  const tdict_key_set sets[] = {{first, 2}, {second, 1}};
  td_ok(tdict_split_keys(td, sets, 2, out, &(size_t){3}, err));
  help_paths(out[0], "n n.m n.m.u e");
  help_paths(out[1], "a");
  help_paths(out[2], "n n.b");
  for (int i = 0; i < 3; i++) tdict_release(out[i]);
  static const char *const deep[] = {"n.m.u", "n.b", "a"};
  const tdict_key_set all = {deep, 3}, one = {deep, 1};
  td_ok(tdict_split_keys(td, &one, 1, out, &(size_t){2}, err));
  help_paths(out[0], "n n.m n.m.u");
  help_paths(out[1], "a n n.b"); /* n.m is left out, because it is empty now */
  for (int i = 0; i < 2; i++) tdict_release(out[i]);
  td_ok(tdict_split_keys(td, &all, 1, out, &(size_t){2}, err));
  help_paths(out[1], "");
  for (int i = 0; i < 2; i++) tdict_release(out[i]);
  help_paths(td, "a n n.b n.m n.m.u e");
  td_ok(tdict_split_keys(td, NULL, 0, out, &(size_t){1}, err));
  help_paths(out[0], "a n n.b n.m n.m.u"); /* the last part has no empty trees */
  td_release(out[0], td);
}

CASE(split_keys_refuses) {
  tdict_tree *td = ops_tree(SAMPLE(3)), *out[2] = {NULL, NULL};
  static const char *const missing[] = {"q"};
  const tdict_key_set set = {missing, 1}, bare = {NULL, 1};
  td_fails(TDICT_ENOTFOUND, "not a key", tdict_split_keys(td, &set, 1, out, &(size_t){2}, err));
  td_fails(TDICT_EINVAL, "paths is NULL", tdict_split_keys(td, &bare, 1, out, &(size_t){2}, err));
  td_fails(TDICT_EINVAL, "sets is NULL", tdict_split_keys(td, NULL, 1, out, &(size_t){2}, err));
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_split_keys(NULL, &set, 1, out, &(size_t){2}, err));
  td_fails(TDICT_EINVAL, "room for 1 trees", tdict_split_keys(td, &set, 1, out, &(size_t){1}, err));
  assert_null(out[0]);
  tdict_release(td);
}

CASE(keysets_survive_enomem) {
  tdict_tree *td = ops_tree(SAMPLE(3)), *out = NULL, *flat = NULL, *many[2];
  static const char *const set_paths[] = {"n.m"};
  const tdict_key_set set = {set_paths, 1};
  RIG_WITHOUT_MEMORY(td, tdict_select(td, PATHS("n.m", "a"), true, &out, err));
  tdict_release(out);
  RIG_WITHOUT_MEMORY(td, tdict_exclude(td, PATHS("n.m", "a"), &out, err));
  tdict_release(out);
  RIG_WITHOUT_MEMORY(td, tdict_split_keys(td, &set, 1, many, &(size_t){2}, err));
  td_release(many[0], many[1]);
  RIG_WITHOUT_MEMORY(td, tdict_flatten_keys(td, NULL, &flat, err));
  RIG_WITHOUT_MEMORY(flat, tdict_unflatten_keys(flat, NULL, &out, err));
  td_release(out, flat, td);
}

/* Two trees that share the child `n` of the sample. */
typedef struct family {
  tdict_tree *td, *n, *other;
} family;
static family family_open(void) {
  family f = {ops_tree(SAMPLE(3)), NULL, TREE(3)};
  f.n = tdict_retain(td_child(f.td, "n"));
  td_ok(tdict_set_tree(f.other, "n", f.n, err));
  return f;
}
static void family_close(family *f) { td_release(f->td, f->n, f->other); }
#define scoped_family TD_SCOPED(family_close, family)

CASE(assign_replaces_entries) {
  scoped_family f = family_open();
  scoped_tree part = NULL, from = ops_tree(SAMPLE(3));
  scoped_tree former = tdict_retain(td_child(f.n, "m"));
  td_ok(tdict_select(from, PATHS("n", "a"), true, &part, err));
  tdict_lock(part);
  td_ok(tdict_assign(f.n, part, err));
  /* Both trees have the new entries, because they hold the same node. The former child has not changed. */
  assert_ptr_equal(td_child(f.td, "n"), f.n);
  assert_ptr_equal(td_child(f.other, "n"), f.n);
  help_paths(f.td, "a n n.n n.n.b n.n.m n.n.m.u n.a e");
  help_paths(former, "u");
  /* Tensors are shared. Child trees are new nodes, which are not locked. */
  assert_ptr_equal(td_leaf(f.n, "n.m.u"), td_leaf(part, "n.m.u"));
  assert_ptr_not_equal(td_child(f.n, "n"), td_child(part, "n"));
  td_ok(tdict_delete(f.n, "n.m", err));
  help_paths(part, "n n.b n.m n.m.u a");
  td_ok(tdict_assign(f.td, f.td, err));
  assert_ptr_equal(td_child(f.td, "n"), f.n);
  td_ok(tdict_unlock(part, err));
}

/* The source may be an ancestor or a descendant of the tree. */
CASE(assign_takes_trees_above_and_below) {
  scoped_family f = family_open();
  td_ok(tdict_assign(f.n, f.td, err));
  help_paths(f.td, "a n n.a n.n n.n.b n.n.m n.n.m.u n.e e");
  td_ok(tdict_assign(f.td, td_child(f.td, "n.n"), err)); /* the source is in an entry that is replaced */
  help_paths(f.td, "b m m.u");
  help_paths(f.other, "n n.a n.n n.n.b n.n.m n.n.m.u n.e");
}

DEVICE_CASE(assign_keeps_batch_size_and_device) {
  scoped_rig r = rig_open();
  tdict_device device;
  scoped_tree td = TREE(3);
  tdict_tree *child = NULL;
  scoped_tree other = rig_tree(&r, SAMPLE(3, 2)), bare = help_tree_without_batch();
  td_ok(tdict_set_tree(other, "n.bare", bare, err)); /* the child gets the batch size [3, 2] */
  child = td_child(other, "n.bare");
  td_ok(tdict_set_batch_size(child, 0, NULL, err));
  td_ok(tdict_set_device(td, &(tdict_device){td_device().type, td_device().index}, err));
  td_ok(tdict_assign(td, other, err));
  help_paths(td, "a n n.b n.m n.m.u n.bare e");
  assert_int_equal(tdict_batch_ndim(td), 1);
  assert_int_equal(tdict_batch_ndim(td_child(td, "n")), 2);
  assert_int_equal(tdict_batch_ndim(td_child(td, "n.bare")), 1);
  assert_int_equal(tdict_batch_size(td_child(td, "n.bare"))[0], 3);
  assert_true(tdict_get_device(td, NULL));
  assert_true(tdict_get_device(td_child(td, "n.m"), &device));
  assert_int_equal(device.type, td_device().type);
  assert_false(tdict_get_device(td_child(other, "n.m"), NULL)); /* the source has not changed */
  assert_int_equal(tdict_batch_ndim(child), 0);
}

DEVICE_CASE(assign_refuses_what_does_not_fit) {
  scoped_rig r = rig_open();
  scoped_tree td = TREE(3), other = rig_tree(&r, SAMPLE(3)), wrong = help_tree_without_batch(), on = TREE(3);
  const tdict_device elsewhere = {td_device().type == TDICT_DEVICE_CPU ? TDICT_DEVICE_CUDA : TDICT_DEVICE_CPU, 0};
  td_put(td, "x", TENSOR(3));
  td_put(wrong, "q.deep", TENSOR(4));
  char *before = help_snapshot(td);
  td_fails_at(TDICT_ESHAPE, "batch size is [3]", "q.deep", tdict_assign(td, wrong, err));
  help_unchanged(td, before);
  /* A child that was changed through its own handle is refused if it does not fit. */
  td_ok(tdict_set_batch_size(td_child(other, "n"), 0, NULL, err));
  td_put(other, "n.odd", TENSOR(2));
  before = help_snapshot(td);
  td_fails_at(TDICT_ESHAPE, "[2]", "n.odd", tdict_assign(td, other, err));
  help_unchanged(td, before);
  td_ok(tdict_delete(other, "n.odd", err));
  td_ok(tdict_set_device(on, &elsewhere, err));
  td_fails_at(TDICT_EWRONGDEVICE, "", "a", tdict_assign(on, other, err));
  help_paths(on, "");
}

CASE(assign_changes_nothing_on_failure) {
  scoped_family f = family_open();
  scoped_tree from = ops_tree(SAMPLE(3));
  char *before = help_snapshot(f.td);
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_assign(NULL, from, err));
  td_fails(TDICT_EINVAL, "other is NULL", tdict_assign(f.td, NULL, err));
  tdict_lock(f.td);
  td_fails(TDICT_ELOCKED, "locked", tdict_assign(f.td, from, err));
  td_fails(TDICT_ELOCKED, "locked", tdict_assign(f.n, from, err)); /* this tree is below a locked tree */
  td_fails(TDICT_ELOCKED, "locked", tdict_assign(f.td, f.td, err));
  td_ok(tdict_unlock(f.td, err));
  help_unchanged(f.td, before);
  tdict_lock(f.n); /* a locked child is replaced, not changed */
  RIG_WITHOUT_MEMORY(f.td, tdict_assign(f.td, from, err));
  help_paths(f.td, "a n n.b n.m n.m.u e");
  assert_ptr_equal(td_leaf(f.td, "n.m.u"), td_leaf(from, "n.m.u"));
  assert_true(tdict_is_locked(f.n));
  assert_false(tdict_is_locked(td_child(f.td, "n")));
  td_ok(tdict_unlock(f.n, err));
}
