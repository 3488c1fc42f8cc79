/* Tests the cursor: the order of entries, trees deeper than its local frames, shared nodes, and a second walk. */
#include "core/tree/cursor.h"

#include "help.h"

static size_t count(tdict_cursor *cursor, bool *ok) {
  size_t shown = 0;
  *ok = true;
  for (tdict_leaf leaf; *ok && (leaf = tdict_cursor_next(cursor)) != 0; shown++)
    if (tdict_leaf_tree(leaf)) *ok = tdict_cursor_enter(cursor, tdict_leaf_tree(leaf));
  return shown;
}

CASE(cursor_second_walk_needs_no_memory) {
  tdict_tree *td = TREE(1), *node = td;
  for (int i = 0; i < 100; i++) {
    td_put_tree(node, "d", TREE(1));
    td_ok(tdict_set_tree(node, "again", td_child(node, "d"), err));
    td_put(node, "t", TENSOR(1));
    node = td_child(node, "d");
  }
  tdict_cursor cursor;
  bool ok;
  tdict_cursor_init(&cursor, td, true);
  assert_int_equal(count(&cursor, &ok), 300);
  assert_true(ok);
  td_fail_alloc(0, true);
  tdict_cursor_rewind(&cursor, td);
  size_t again = count(&cursor, &ok);
  assert_false(td_fail_alloc_stop());
  assert_true(ok);
  assert_int_equal(again, 300);
  tdict_cursor_reset(&cursor);
  td_fail_alloc(0, true);
  tdict_cursor_init(&cursor, td, true);
  count(&cursor, &ok);
  assert_true(td_fail_alloc_stop());
  assert_false(ok);
  tdict_cursor_reset(&cursor);
  tdict_release(td);
}

CASE(cursor_path_names_the_last_leaf) {
  scoped_tree td = td_tree("[1] a.h\\.0.x:f32[1] a.b:f32[1]");
  tdict_cursor cursor;
  char path[248];
  tdict_cursor_init(&cursor, td, false);
  static const char *const wanted[] = {"a", "a.h\\.0", "a.h\\.0.x", "a.b"};
  for (size_t i = 0; i < 4; i++) {
    tdict_leaf leaf = tdict_cursor_next(&cursor);
    assert_true(leaf != 0);
    tdict_cursor_path(&cursor, NULL, path, sizeof path);
    assert_string_equal(path, wanted[i]);
    tdict_cursor_path(&cursor, "up\\.per", path, sizeof path);
    assert_memory_equal(path, "up\\.per.", 8);
    assert_string_equal(path + 8, wanted[i]);
    if (tdict_leaf_tree(leaf)) assert_true(tdict_cursor_enter(&cursor, tdict_leaf_tree(leaf)));
  }
  assert_true(tdict_cursor_next(&cursor) == 0);
  tdict_cursor_reset(&cursor);
}
