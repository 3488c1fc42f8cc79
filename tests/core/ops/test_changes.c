/* Tests changes of keys in place: they happen completely or not at all, handles stay valid, and locked trees are
 * refused. */
#include "rig.h"

#define PATHS(...) (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)

/* Makes a tree of two parents that share the child `n` of the sample. */
typedef struct family {
  tdict_tree *td, *n, *other;
} family;
static family family_open(void) {
  family f = {ops_tree(SAMPLE(3)), NULL, TREE(3)};
  f.n = tdict_retain(help_get_tree(f.td, "n"));
  td_ok(tdict_set_tree(f.other, "n", f.n, err));
  return f;
}
static void family_close(family *f) {
  tdict_release(f->td);
  tdict_release(f->n);
  tdict_release(f->other);
  m_reset();
}

CASE(select_in_place_selects) {
  family f = family_open();
  tdict_tensor *u = help_get(f.td, "n.m.u");
  td_ok(tdict_select_in_place(f.td, PATHS("n.m", "a", "q"), false, err));
  help_paths(f.td, "n n.m n.m.u a");
  assert_ptr_equal(help_get(f.td, "n.m.u"), u);
  assert_ptr_equal(help_get_tree(f.td, "n"), f.n);
  help_paths(f.other, "n n.m n.m.u"); /* a tree that leads to a path changes in every tree that holds it */
  td_ok(tdict_select_in_place(f.td, PATHS("n.m.u", "n"), true, err)); /* complete, since a path names the whole tree */
  help_paths(f.td, "n n.m n.m.u");
  td_ok(tdict_select_in_place(f.td, NULL, 0, true, err));
  help_paths(f.td, "");
  help_paths(f.other, "n n.m n.m.u"); /* a tree that leads to no path is removed but not changed */
  assert_int_equal(tdict_batch_size(f.td)[0], 3);
  family_close(&f);
}

/* Tests a tree that is at two of the paths. */
CASE(select_in_place_keeps_what_any_path_names) {
  tdict_tree *td = TREE(3), *child = TREE(3);
  help_put(child, "x", TENSOR(3));
  help_put(child, "y", TENSOR(3));
  help_put(child, "z", TENSOR(3));
  td_ok(tdict_set_tree(td, "a", child, err));
  td_ok(tdict_set_tree(td, "b", child, err));
  td_ok(tdict_select_in_place(td, PATHS("b.y", "a.x"), true, err));
  help_paths(td, "b b.y b.x a a.y a.x");
  td_ok(tdict_select_in_place(td, PATHS("b.y", "a"), true, err));
  help_paths(td, "b b.y b.x a a.y a.x");
  tdict_release(child);
  tdict_release(td);
}

CASE(exclude_in_place_excludes) {
  family f = family_open();
  td_ok(tdict_exclude_in_place(f.td, PATHS("n.m.u", "a", "q", "n.b.q", "a", "n.m.u"), err));
  help_paths(f.td, "n n.b n.m e"); /* n.m is empty and stays */
  help_paths(f.other, "n n.b n.m");
  assert_ptr_equal(help_get_tree(f.td, "n"), f.n);
  td_ok(tdict_exclude_in_place(f.td, PATHS("n"), err));
  help_paths(f.td, "e");
  help_paths(f.other, "n n.b n.m"); /* removed, not changed */
  td_ok(tdict_exclude_in_place(f.td, NULL, 0, err));
  help_paths(f.td, "e");
  family_close(&f);
}

CASE(flatten_keys_in_place_flattens) {
  family f = family_open();
  tdict_tensor *u = help_get(f.td, "n.m.u");
  td_ok(tdict_flatten_keys_in_place(f.td, NULL, err));
  help_paths(f.td, "a n\\.b n\\.m\\.u");
  assert_ptr_equal(help_get(f.td, "n\\.m\\.u"), u);
  help_paths(f.other, "n n.b n.m n.m.u");
  td_ok(tdict_flatten_keys_in_place(f.other, "->", err));
  help_paths(f.other, "n->b n->m->u");
  family_close(&f);
}

CASE(unflatten_keys_in_place_unflattens) {
  family f = family_open();
  tdict_tensor *v = help_put(f.td, "n\\.m\\.v", TENSOR(3, 2));
  help_put(f.td, "x\\.y", TENSOR(3));
  td_ok(tdict_unflatten_keys_in_place(f.td, NULL, err));
  help_paths(f.td, "a n n.b n.m n.m.u n.m.v e x x.y");
  assert_ptr_equal(help_get(f.td, "n.m.v"), v);
  assert_ptr_equal(help_get_tree(f.td, "n"), f.n);
  help_paths(f.other, "n n.b n.m n.m.u n.m.v");
  td_ok(tdict_unflatten_keys_in_place(f.td, "_", err)); /* no tree at this key */
  help_paths(f.td, "a n n.b n.m n.m.u n.m.v e x x.y");
  family_close(&f);
}

/* A tree must not contain itself, neither by one key nor by two keys of one call. */
CASE(unflatten_keys_in_place_refuses_cycles) {
  tdict_tree *td = TREE(3), *x = TREE(3), *y = TREE(3), *out = NULL;
  td_ok(tdict_set_tree(x, "holds", y, err));
  td_ok(tdict_set_tree(td, "y", y, err));
  td_ok(tdict_set_tree(td, "y\\.back", x, err));
  char *before = help_snapshot(td);
  td_fails(TDICT_EINVAL, "would contain itself", tdict_unflatten_keys_in_place(td, NULL, err));
  assert_string_equal(td_last_error.path, "y\\.back");
  help_unchanged(td, before);
  td_ok(tdict_unflatten_keys(td, NULL, &out, err)); /* copies make no cycle */
  help_paths(out, "y y.back y.back.holds");
  tdict_release(out);
  tdict_release(td);
  td = TREE(3);
  tdict_tree *a = TREE(3), *b = TREE(3), *p = TREE(3), *q = TREE(3);
  td_ok(tdict_set_tree(p, "b", b, err));
  td_ok(tdict_set_tree(q, "a", a, err));
  td_ok(tdict_set_tree(td, "a", a, err));
  td_ok(tdict_set_tree(td, "b", b, err));
  td_ok(tdict_set_tree(td, "a\\.p", p, err));
  td_ok(tdict_set_tree(td, "b\\.q", q, err));
  before = help_snapshot(td);
  td_fails(TDICT_EINVAL, "would contain itself", tdict_unflatten_keys_in_place(td, NULL, err));
  assert_string_equal(td_last_error.path, "b\\.q");
  help_unchanged(td, before);
  tdict_tree *all[] = {td, x, y, a, b, p, q};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) tdict_release(all[i]);
}

/* Tests that a failure after other keys have been processed changes nothing. */
CASE(in_place_is_atomic) {
  family f = family_open();
  help_put(f.td, "n\\.new", TENSOR(3));
  help_put(f.td, "n\\.m\\.v", TENSOR(3, 2));
  help_put(f.td, "a\\.below", TENSOR(3));
  char *before = help_snapshot(f.td), *others = help_snapshot(f.other);
  td_fails(TDICT_EEXIST, "a tensor or object is at the path", tdict_unflatten_keys_in_place(f.td, NULL, err));
  assert_string_equal(td_last_error.path, "a\\.below");
  td_fails(TDICT_ENOTFOUND, "no key", tdict_select_in_place(f.td, PATHS("n.b", "a", "n.q"), true, err));
  td_fails(TDICT_EINVAL, "empty key", tdict_exclude_in_place(f.td, PATHS("n.b", "a", "n..b"), err));
  help_unchanged(f.td, before);
  help_put(f.td, "n\\.b", TENSOR(3));
  before = help_snapshot(f.td);
  td_fails(TDICT_EEXIST, "another entry has the key", tdict_flatten_keys_in_place(f.td, NULL, err));
  help_unchanged(f.td, before);
  help_unchanged(f.other, others);
  td_ok(tdict_exclude_in_place(f.td, PATHS("a\\.below", "n\\.b"), err));
  RIG_WITHOUT_MEMORY(f.td, tdict_unflatten_keys_in_place(f.td, NULL, err));
  RIG_WITHOUT_MEMORY(f.td, tdict_exclude_in_place(f.td, PATHS("n.m.v", "e"), err));
  RIG_WITHOUT_MEMORY(f.td, tdict_select_in_place(f.td, PATHS("n.m", "a"), true, err));
  RIG_WITHOUT_MEMORY(f.td, tdict_flatten_keys_in_place(f.td, NULL, err));
  help_paths(f.td, "n\\.m\\.u a");
  family_close(&f);
}

CASE(in_place_refuses_bad_arguments) {
  family f = family_open();
  char *before = help_snapshot(f.td);
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_select_in_place(NULL, PATHS("a"), true, err));
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_exclude_in_place(NULL, PATHS("a"), err));
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_flatten_keys_in_place(NULL, NULL, err));
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_unflatten_keys_in_place(NULL, NULL, err));
  td_fails(TDICT_EINVAL, "path 1 is NULL", tdict_select_in_place(f.td, PATHS("a", NULL), true, err));
  td_fails(TDICT_EINVAL, "paths is NULL", tdict_exclude_in_place(f.td, NULL, 1, err));
  td_fails(TDICT_EINVAL, "separator is empty", tdict_flatten_keys_in_place(f.td, "", err));
  td_fails(TDICT_EINVAL, "separator is empty", tdict_unflatten_keys_in_place(f.td, "", err));
  td_fails(TDICT_ETYPE, "tensor", tdict_select_in_place(f.td, PATHS("a.q"), true, err));
  help_unchanged(f.td, before);
  family_close(&f);
}

CASE(in_place_refuses_locked) {
  family f = family_open();
  help_put(f.td, "n\\.new", TENSOR(3));
  tdict_lock(f.n); /* a tree that leads to a path */
  char *before = help_snapshot(f.td);
  td_fails(TDICT_ELOCKED, "locked", tdict_select_in_place(f.td, PATHS("a", "n.b"), true, err));
  assert_string_equal(td_last_error.path, "n.b");
  td_fails(TDICT_ELOCKED, "locked", tdict_exclude_in_place(f.td, PATHS("a", "n.b"), err));
  assert_string_equal(td_last_error.path, "n.b");
  td_fails(TDICT_ELOCKED, "locked", tdict_unflatten_keys_in_place(f.td, NULL, err));
  assert_string_equal(td_last_error.path, "n\\.new");
  help_unchanged(f.td, before);
  td_ok(tdict_exclude_in_place(f.td, PATHS("n\\.new", "n.q"), err)); /* n does not change */
  td_ok(tdict_select_in_place(f.td, PATHS("n", "e"), true, err));
  help_paths(f.td, "n n.b n.m n.m.u e");
  assert_true(tdict_is_locked(f.n));
  td_ok(tdict_unlock(f.n, err));
  help_put(f.td, "n\\.new", TENSOR(3));
  tdict_lock(f.td);
  before = help_snapshot(f.td);
  td_fails(TDICT_ELOCKED, "locked", tdict_select_in_place(f.td, PATHS("n"), true, err));
  td_fails(TDICT_ELOCKED, "locked", tdict_exclude_in_place(f.td, PATHS("n"), err));
  td_fails(TDICT_ELOCKED, "locked", tdict_flatten_keys_in_place(f.td, NULL, err));
  td_fails(TDICT_ELOCKED, "locked", tdict_unflatten_keys_in_place(f.td, NULL, err));
  td_ok(tdict_exclude_in_place(f.td, PATHS("q"), err)); /* nothing to do */
  help_unchanged(f.td, before);
  family_close(&f);
}
