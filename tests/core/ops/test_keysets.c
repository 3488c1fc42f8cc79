/* Tests selecting, excluding and splitting by paths, and merging. */
#include "rig.h"

#define PATHS(...) (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)

DEVICE_CASE(keysets_share_leaves) {
  rig r = rig_open();
  tdict_tree *td = rig_tree(&r, SAMPLE(3)), *out = NULL;
  char *before = help_snapshot(td);
  tdict_lock(td);
  td_ok(tdict_select(td, PATHS("n", "a"), true, &out, err));
  for (int way = 0; way < 4; way++) {
    assert_false(tdict_is_locked(out));
    assert_ptr_equal(help_get(out, "a"), help_get(td, "a"));
    if (way < 3) assert_ptr_equal(help_get(out, "n.m.u"), help_get(td, "n.m.u"));
    tdict_release(out);
    if (way == 0) td_ok(tdict_exclude(td, PATHS("e"), &out, err));
    if (way == 1) td_ok(tdict_merge((const tdict_tree *const[]){td}, 1, &out, err));
    if (way == 2) td_ok(tdict_flatten_keys(td, NULL, &out, err));
  }
  td_ok(tdict_unlock(td, err));
  help_unchanged(td, before);
  tdict_release(td);
  rig_close(&r);
}

CASE(select_takes_paths) {
  tdict_tree *td = ops_tree(SAMPLE(3)), *out = NULL;
  td_ok(tdict_select(td, PATHS("n.m", "a", "n.b"), true, &out, err));
  help_paths(out, "n n.m n.m.u n.b a");
  assert_int_equal(tdict_batch_ndim(help_get_tree(out, "n.m")), 2);
  tdict_release(out);
  td_ok(tdict_select(td, PATHS("n.m.u", "n", "n.b", "e"), true, &out, err));
  help_paths(out, "n n.b n.m n.m.u e");
  tdict_release(out);
  td_ok(tdict_select(td, NULL, 0, true, &out, err));
  help_paths(out, "");
  tdict_release(out);
  tdict_release(td);
  m_reset();
}

CASE(select_refuses_missing) {
  tdict_tree *td = ops_tree(SAMPLE(3)), *out = NULL;
  td_fails(TDICT_ENOTFOUND, "no key", tdict_select(td, PATHS("a", "n.q"), true, &out, err));
  assert_string_equal(td_last_error.path, "n.q");
  td_fails(TDICT_ETYPE, "tensor", tdict_select(td, PATHS("a.q"), true, &out, err));
  td_fails(TDICT_EINVAL, "empty key", tdict_select(td, PATHS("a", ""), false, &out, err));
  td_fails(TDICT_EINVAL, "path 1 is NULL", tdict_select(td, PATHS("a", NULL), false, &out, err));
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_select(NULL, PATHS("a"), false, &out, err));
  assert_null(out);
  td_ok(tdict_select(td, PATHS("a", "n.q", "a.q", "q.q"), false, &out, err));
  help_paths(out, "a");
  tdict_release(out);
  tdict_release(td);
  m_reset();
}

CASE(exclude_removes_paths) {
  tdict_tree *td = ops_tree(SAMPLE(3)), *out = NULL;
  td_ok(tdict_exclude(td, PATHS("n.m.u", "a", "q", "n.b.q"), &out, err));
  help_paths(out, "n n.b n.m e"); /* n.m is empty and stays */
  tdict_release(out);
  td_fails(TDICT_EINVAL, "empty key", tdict_exclude(td, PATHS("n..m"), &out, err));
  help_paths(td, "a n n.b n.m n.m.u e");
  tdict_release(td);
  m_reset();
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
  help_paths(out[1], "a n n.b"); /* n.m has become empty */
  for (int i = 0; i < 2; i++) tdict_release(out[i]);
  td_ok(tdict_split_keys(td, &all, 1, out, &(size_t){2}, err));
  help_paths(out[1], "");
  for (int i = 0; i < 2; i++) tdict_release(out[i]);
  help_paths(td, "a n n.b n.m n.m.u e");
  td_ok(tdict_split_keys(td, NULL, 0, out, &(size_t){1}, err));
  help_paths(out[0], "a n n.b n.m n.m.u"); /* empty trees are left out of the last part */
  tdict_release(out[0]);
  tdict_release(td);
  m_reset();
}

CASE(split_keys_refuses) {
  tdict_tree *td = ops_tree(SAMPLE(3)), *out[2] = {NULL, NULL};
  static const char *const missing[] = {"q"};
  const tdict_key_set set = {missing, 1}, bare = {NULL, 1};
  td_fails(TDICT_ENOTFOUND, "no key", tdict_split_keys(td, &set, 1, out, &(size_t){2}, err));
  td_fails(TDICT_EINVAL, "paths is NULL", tdict_split_keys(td, &bare, 1, out, &(size_t){2}, err));
  td_fails(TDICT_EINVAL, "sets is NULL", tdict_split_keys(td, NULL, 1, out, &(size_t){2}, err));
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_split_keys(NULL, &set, 1, out, &(size_t){2}, err));
  td_fails(TDICT_EINVAL, "room for 1 trees", tdict_split_keys(td, &set, 1, out, &(size_t){1}, err));
  assert_null(out[0]);
  tdict_release(td);
  m_reset();
}

CASE(merge_merges) {
  tdict_tree *a = ops_tree(SAMPLE(3)), *b = TREE(3), *out = NULL;
  char *before = help_snapshot(a);
  help_put(b, "n.b", TENSOR(3));
  help_put(b, "x", TENSOR(3));
  td_ok(tdict_merge((const tdict_tree *const[]){a, b}, 2, &out, err));
  help_paths(out, "a n n.b n.m n.m.u e x");
  assert_ptr_equal(help_get(out, "n.b"), help_get(b, "n.b"));
  assert_ptr_equal(help_get(out, "a"), help_get(a, "a"));
  help_unchanged(a, before);
  tdict_release(out);
  tdict_release(a);
  tdict_release(b);
  m_reset();
}

CASE(merge_refuses) {
  tdict_tree *a = TREE(3), *b = TREE(4), *out = NULL;
  help_put(b, "x", TENSOR(4));
  td_fails(TDICT_EINVAL, "no trees", tdict_merge(NULL, 0, &out, err));
  td_fails(TDICT_EINVAL, "tree 1 is NULL", tdict_merge((const tdict_tree *const[]){a, NULL}, 2, &out, err));
  td_fails(TDICT_ESHAPE, "[3]", tdict_merge((const tdict_tree *const[]){a, b}, 2, &out, err));
  assert_null(out);
  tdict_release(a);
  tdict_release(b);
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
  tdict_release(many[0]);
  tdict_release(many[1]);
  RIG_WITHOUT_MEMORY(td, tdict_flatten_keys(td, NULL, &flat, err));
  RIG_WITHOUT_MEMORY(flat, tdict_unflatten_keys(flat, NULL, &out, err));
  tdict_release(out);
  tdict_release(flat);
  RIG_WITHOUT_MEMORY(td, tdict_merge((const tdict_tree *const[]){td, td}, 2, &out, err));
  tdict_release(out);
  tdict_release(td);
  m_reset();
}
