/* Tests paths: which strings are valid, escaping and joining keys, and reading a path key by key. */
#include "core/tree/path.h"

#include "help.h"
#include "tdict/path.h"

static const char *const no_paths[] = {"", ".", "a.", ".a", "a..b", "..", "a.b.", "\\", "a\\", "a.\\", "a\\\\\\"};

CASE(tree_path_syntax) {
  scoped_tree td = help_tree_without_batch(), tree = NULL;
  scoped_tensor t = TENSOR(2), found = NULL;
  td_ok(tdict_set(td, "next.obs.pixels", t, err));
  assert_string_equal(tdict_get_entry_at(td_child(td, "next.obs"), 0).key, "pixels");
  td_ok(tdict_set(td, "h\\.0", t, err));
  assert_string_equal(tdict_get_entry_at(td, 1).key, "h.0");
  td_ok(tdict_set(td, "back\\\\slash", t, err));
  assert_string_equal(tdict_get_entry_at(td, 2).key, "back\\slash");
  td_ok(tdict_set(td, "\\p\\l\\ain", t, err));
  assert_string_equal(tdict_get_entry_at(td, 3).key, "plain");
  td_ok(tdict_set(td, " \t\n/\x01\xff\xc3\xa9", t, err)); /* all other bytes are allowed */
  assert_string_equal(tdict_get_entry_at(td, 4).key, " \t\n/\x01\xff\xc3\xa9");
  td_ok(tdict_set(td, "\\..\\.", t, err)); /* a key "." in a tree with the key "." */
  assert_ptr_equal(td_leaf(td_child(td, "\\."), "\\."), t);
  assert_ptr_equal(td_leaf(td, "plain"), t);
  char *before = help_snapshot(td);
  for (size_t i = 0; i < sizeof no_paths / sizeof *no_paths; i++) {
    const char *path = no_paths[i];
    const char *why = strchr(path, '\\') ? "backslash" : "empty key";
    td_fails_at(TDICT_EINVAL, why, path, tdict_set(td, path, t, err));
    td_fails(TDICT_EINVAL, why, tdict_set_tree(td, path, td, err));
    td_fails(TDICT_EINVAL, why, tdict_get(td, path, &found, err));
    td_fails(TDICT_EINVAL, why, tdict_get_tree(td, path, &tree, err));
    td_fails(TDICT_EINVAL, why, tdict_delete(td, path, err));
    td_fails(TDICT_EINVAL, why, tdict_pop(td, path, &found, err));
    td_fails(TDICT_EINVAL, why, tdict_pop_tree(td, path, &tree, err));
    td_fails(TDICT_EINVAL, why, tdict_rename(td, path, "x", false, err));
    td_fails(TDICT_EINVAL, why, tdict_rename(td, "plain", path, false, err));
    assert_false(tdict_has(td, path));
    assert_null(tdict_data(td, path));
  }
  td_fails(TDICT_EINVAL, "empty key", tdict_get(td, "plain..x", &found, err)); /* refused, whatever the tree contains */
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_set(NULL, "x", t, err));
  td_fails(TDICT_EINVAL, "path is NULL", tdict_set(td, NULL, t, err));
  td_fails(TDICT_EINVAL, "tensor is NULL", tdict_set(td, "x", NULL, err));
  help_unchanged(td, before);
}

CASE(tree_path_escape) {
  char buffer[16];
  memset(buffer, 0xA5, sizeof buffer);
  assert_int_equal(tdict_path_escape("h.0\\", buffer, sizeof buffer), 6);
  assert_string_equal(buffer, "h\\.0\\\\");
  assert_int_equal((unsigned char)buffer[7], 0xA5);
  assert_int_equal(tdict_path_escape("a.b", NULL, 0), 4);
  assert_int_equal(tdict_path_escape("abcdef", buffer, 4), 6);
  assert_string_equal(buffer, "abc");
  assert_int_equal(tdict_path_escape("", buffer, 1), 0);
  assert_string_equal(buffer, "");
}

CASE(tree_path_join) {
  const char *const keys[] = {"next", "h.0", "\\", "x"};
  char buffer[32];
  assert_int_equal(tdict_path_join(keys, 4, buffer, sizeof buffer), 14);
  assert_string_equal(buffer, "next.h\\.0.\\\\.x");
  tdict_tree *td = help_tree_without_batch();
  td_put(td, buffer, TENSOR(1)); /* the joined path must lead to these keys */
  tdict_tree *node = td;
  for (int i = 0; i < 3; i++) {
    assert_string_equal(tdict_get_entry_at(node, 0).key, keys[i]);
    char path[8];
    tdict_path_escape(keys[i], path, sizeof path);
    node = td_child(node, path);
  }
  assert_string_equal(tdict_get_entry_at(node, 0).key, "x");
  tdict_release(td);
  assert_int_equal(tdict_path_join(keys, 4, buffer, 6), 14);
  assert_string_equal(buffer, "next.");
  assert_int_equal(tdict_path_join(keys, 0, buffer, sizeof buffer), 0);
  assert_string_equal(buffer, "");
}

CASE(path_reads_long_escaped_keys) {
  char text[1000], key[1000], error_text[600];
  for (size_t length = 1; length < 400; length += 7) {
    for (size_t i = 0; i < length; i++) key[i] = i % 3 ? (char)('a' + i % 26) : '.';
    key[length] = 0;
    size_t escaped = tdict_path_escape(key, text, sizeof text);
    snprintf(text + escaped, sizeof text - escaped, ".end");
    tdict_path path;
    tdict_path_init(&path, text, "test");
    td_ok(tdict_path_next(&path, err));
    assert_int_equal(path.name.length, length);
    assert_memory_equal(path.name.text, key, length);
    assert_false(path.last);
    td_ok(tdict_path_next(&path, err));
    assert_true(path.last && path.name.length == 3 && memcmp(path.name.text, "end", 3) == 0);
    path.rest = text; /* again, reusing the memory of the path */
    td_ok(tdict_path_next(&path, err));
    assert_memory_equal(path.name.text, key, length);
    tdict_path_reset(&path);
  }
  memset(error_text, 'x', sizeof error_text);
  error_text[0] = '\\';
  error_text[sizeof error_text - 1] = 0;
  tdict_path path;
  tdict_path_init(&path, error_text, "test");
  td_fail_alloc(0, false);
  td_fails(TDICT_ENOMEM, "path", tdict_path_next(&path, err));
  assert_true(td_fail_alloc_stop());
  tdict_path_reset(&path);
}

/* Reading a key allocates nothing if it has no backslash or is short. */
CASE(path_reads_without_allocating) {
  char text[700];
  memset(text, 'k', sizeof text);
  memcpy(text, "h\\.0.", 5);
  text[sizeof text - 1] = 0;
  tdict_path path;
  tdict_path_init(&path, text, "test");
  td_fail_alloc(0, true);
  td_ok(tdict_path_next(&path, err));
  td_ok(tdict_path_next(&path, err));
  assert_false(td_fail_alloc_stop());
  assert_int_equal(path.name.length, sizeof text - 1 - 5);
}
