/* Tests reads by path, and the order of keys. */
#include "help.h"
#include "tdict/object.h"
#include "tdict/path.h"

CASE(tree_get_borrows) {
  scoped_tree td = TREE(2), child = TREE(2);
  scoped_tensor t = TENSOR(2, 3), other = TENSOR(2, 4);
  tdict_tensor *found = NULL;
  tdict_tree *tree = NULL;
  td_ok(tdict_set(td, "a", t, err));
  td_ok(tdict_set_tree(td, "c", child, err));
  td_ok(tdict_set(td, "c.x.y", other, err));
  for (int i = 0; i < 1000; i++) { /* the references are borrowed, so they are not released */
    td_ok(tdict_get(td, "a", &found, err));
    assert_ptr_equal(found, t);
    td_ok(tdict_get(td, "c.x.y", &found, err));
    assert_ptr_equal(found, other);
    td_ok(tdict_get_tree(td, "c", &tree, err));
    assert_ptr_equal(tree, child);
  }
}

CASE(tree_get_refuses) {
  tdict_tree *td = help_tree_without_batch(), *const no_tree = (tdict_tree *)(uintptr_t)0xA5A5, *tree = no_tree;
  tdict_tensor *const no_tensor = (tdict_tensor *)(uintptr_t)0xA5A5, *t = no_tensor;
  td_put(td, "n.leaf", TENSOR(2));
  td_fails_at(TDICT_ENOTFOUND, "'x'", "x", tdict_get(td, "x", &t, err));
  td_fails(TDICT_ENOTFOUND, "'x'", tdict_get(td, "n.x", &t, err));
  td_fails_at(TDICT_ENOTFOUND, "'x'", "x.n.leaf", tdict_get(td, "x.n.leaf", &t, err));
  td_fails(TDICT_ENOTFOUND, "'Leaf'", tdict_get_tree(td, "n.Leaf", &tree, err));
  td_fails(TDICT_ETYPE, "'leaf' is a tensor", tdict_get(td, "n.leaf.x", &t, err));
  td_fails(TDICT_ETYPE, "'leaf' is a tensor", tdict_get_tree(td, "n.leaf.x.y", &tree, err));
  td_fails_at(TDICT_ETYPE, "found a tree", "n", tdict_get(td, "n", &t, err));
  td_fails(TDICT_ETYPE, "found a tensor", tdict_get_tree(td, "n.leaf", &tree, err));
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_get(NULL, "n", &t, err));
  td_fails(TDICT_EINVAL, "path is NULL", tdict_get(td, NULL, &t, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_get(td, "n.leaf", NULL, err));
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_get_tree(NULL, "n", &tree, err));
  td_fails(TDICT_EINVAL, "path is NULL", tdict_get_tree(td, NULL, &tree, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_get_tree(td, "n", NULL, err));
  assert_ptr_equal(t, no_tensor);
  assert_ptr_equal(tree, no_tree);
  char path[600];
  memset(path, 'p', sizeof path);
  path[sizeof path - 1] = 0;
  td_fails(TDICT_ENOTFOUND, "not a key", tdict_get(td, path, &t, err));
  assert_int_equal(strlen(td_last_error.path), sizeof td_last_error.path - 1);
  tdict_release(td);
}

CASE(tree_data) {
  scoped_tree td = TREE(2);
  tdict_tensor *t = td_put(td, "n.leaf", TENSOR(2, 3));
  assert_non_null(tdict_data(td, "n.leaf"));
  assert_ptr_equal(tdict_data(td, "n.leaf"), tdict_tensor_data(t));
  assert_ptr_equal(tdict_const_data(td, "n.leaf"), tdict_tensor_const_data(t));
  const char *const none[] = {"n", "x", "n.leaf.x", "", "n."};
  for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
    assert_null(tdict_data(td, none[i]));
    assert_null(tdict_const_data(td, none[i]));
  }
  unsigned char bytes[8] = {0};
  const int64_t shape[] = {2};
  tdict_tensor_desc view =
      td_with(tdict_tensor_desc, data = bytes, dtype = TDICT_U8, ndim = 1, shape = shape, flags = TDICT_DESC_READ_ONLY);
  tdict_tensor *fixed = td_made(tensor, tdict_tensor_from_data(&view, NULL, NULL, &made, err));
  td_put(td, "fixed", fixed);
  assert_null(tdict_data(td, "fixed"));
  assert_ptr_equal(tdict_const_data(td, "fixed"), bytes);
}

CASE(tree_has) {
  scoped_tree td = td_tree("[2] n.leaf:f32[2,3] dotted\\.key:f32[2]");
  const char *const there[] = {"n", "n.leaf", "dotted\\.key"};
  const char *const absent[] = {"leaf", "n.x", "n.leaf.x", "dotted.key", "dotted", "", ".", "n.", "n\\", "N"};
  for (size_t i = 0; i < sizeof there / sizeof *there; i++) assert_true(tdict_has(td, there[i]));
  for (size_t i = 0; i < sizeof absent / sizeof *absent; i++) assert_false(tdict_has(td, absent[i]));
  assert_false(tdict_has(td, NULL));
  assert_false(tdict_has(NULL, "n"));
}

CASE(tree_keys_in_order) {
  static const char *const names[] = {"zebra", "apple", "h.0", "middle", "0", "\\", "last"};
  enum { COUNT = sizeof names / sizeof *names };
  scoped_tree td = help_tree_without_batch();
  assert_int_equal(tdict_num_keys(td), 0);
  assert_null(tdict_get_entry_at(td, 0).key);
  for (size_t i = 0; i < COUNT; i++) {
    char path[32];
    tdict_path_escape(names[i], path, sizeof path);
    td_put(td, path, TENSOR(1));
  }
  td_put(td, "zebra", TENSOR(2)); /* a replaced key keeps its position */
  assert_int_equal(tdict_num_keys(td), COUNT);
  for (size_t i = 0; i < COUNT; i++) assert_string_equal(tdict_get_entry_at(td, i).key, names[i]);
  assert_null(tdict_get_entry_at(td, COUNT).key);
  assert_null(tdict_get_entry_at(td, SIZE_MAX).key);
  td_ok(tdict_delete(td, "apple", err)); /* leaves a hole in the table */
  assert_int_equal(tdict_num_keys(td), COUNT - 1);
  assert_string_equal(tdict_get_entry_at(td, 0).key, "zebra");
  for (size_t i = 1; i < COUNT - 1; i++) assert_string_equal(tdict_get_entry_at(td, i).key, names[i + 1]);
  assert_null(tdict_get_entry_at(td, COUNT - 1).key);
  td_put(td, "apple", TENSOR(1)); /* a key that is added again comes last */
  assert_string_equal(tdict_get_entry_at(td, COUNT - 1).key, "apple");
}

static void *const some_object = (void *)(uintptr_t)0x1234;
static void keep_object(void *self) { assert_ptr_equal(self, some_object); }

CASE(tree_lookup_finds) {
  static const tdict_type type = TD_TYPE(.name = "kept", .release = keep_object);
  tdict_tree *td = TREE(2), *child = TREE(2);
  tdict_tensor *t = td_put(td, "n.h\\.0", TENSOR(2, 3));
  tdict_entry entry;
  td_put_tree(td, "n.child", child);
  td_ok(tdict_set_object(td, "o", &type, some_object, err));
  const char *path = "n.h\\.0";
  td_ok(tdict_get_entry(td, path, &entry, err));
  assert_true(entry.tensor == t && !entry.tree && !entry.object && !entry.type);
  assert_ptr_equal(entry.path, path);
  assert_string_equal(entry.key, "h.0");
  assert_int_equal(entry.depth, 1);
  td_ok(tdict_get_entry(td, "n.child", &entry, err));
  assert_true(entry.tree == child && !entry.tensor && !entry.object && !entry.type);
  td_ok(tdict_get_entry(td, "o", &entry, err));
  assert_true(entry.object == some_object && entry.type == &type && !entry.tensor && !entry.tree);
  assert_int_equal(entry.depth, 0);
  tdict_release(td);
}

CASE(tree_lookup_refuses) {
  scoped_tree td = td_tree("[2] n.leaf:f32[2,3]");
  tdict_entry entry, before;
  memset(&entry, 0xA5, sizeof entry);
  before = entry;
  td_fails(TDICT_ENOTFOUND, "'laef' is not a key of the tree; keys: leaf", tdict_get_entry(td, "n.laef", &entry, err));
  assert_string_equal(td_last_error.path, "n.laef");
  td_fails(TDICT_ENOTFOUND, "paths use dots", tdict_get_entry(td, "n/leaf", &entry, err));
  td_fails(TDICT_ETYPE, "'leaf' is a tensor", tdict_get_entry(td, "n.leaf.x", &entry, err));
  td_fails(TDICT_EINVAL, "empty", tdict_get_entry(td, "n.", &entry, err));
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_get_entry(NULL, "n", &entry, err));
  td_fails(TDICT_EINVAL, "path is NULL", tdict_get_entry(td, NULL, &entry, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_get_entry(td, "n", NULL, err));
  assert_memory_equal(&entry, &before, sizeof entry);
}

CASE(tree_at_finds) {
  static const tdict_type type = TD_TYPE(.name = "kept", .release = keep_object);
  tdict_tree *td = TREE(2), *child = TREE(2);
  tdict_entry entry;
  td_put(td, "gone", TENSOR(2));
  tdict_tensor *t = td_put(td, "t", TENSOR(2, 3));
  td_put_tree(td, "h\\.0", child);
  td_ok(tdict_set_object(td, "o", &type, some_object, err));
  for (int deleted = 0; deleted < 2; deleted++) {
    const size_t first = deleted ? 0 : 1;
    entry = tdict_get_entry_at(td, first);
    assert_true(entry.tensor == t && !entry.tree && !entry.object && !entry.type && !entry.path && entry.depth == 0);
    assert_string_equal(entry.key, "t");
    entry = tdict_get_entry_at(td, first + 1);
    assert_true(entry.tree == child && !entry.tensor && !entry.object);
    assert_string_equal(entry.key, "h.0");
    entry = tdict_get_entry_at(td, first + 2);
    assert_true(entry.object == some_object && entry.type == &type && !entry.tensor && !entry.tree);
    if (!deleted) td_ok(tdict_delete(td, "gone", err)); /* the second round has a deleted entry */
  }
  tdict_release(td);
}

CASE(tree_at_is_empty_past_the_end) {
  scoped_tree td = TREE(2);
  td_put(td, "a", TENSOR(2));
  const tdict_entry past[] = {tdict_get_entry_at(td, 1), tdict_get_entry_at(td, SIZE_MAX), tdict_get_entry_at(NULL, 0)};
  for (size_t i = 0; i < sizeof past / sizeof *past; i++)
    assert_true(!past[i].key && !past[i].tensor && !past[i].tree && !past[i].object && !past[i].type && !past[i].path);
}
