/* Tests the functions that set and return text, numbers and JSON. Values must be returned as they were set. Also tests
 * the errors that tdict/nontensor.h documents. */
#include <math.h>

#include "core/ops/rig.h"

#define VALUE(...) (&(const tdict_value){__VA_ARGS__})
#define TEXT(what, bytes, size) VALUE(.kind = TDICT_VALUE_##what, .text = (bytes), .length = (size))

CASE(values_come_back) {
  static const char nul[] = "a\0b";
  const tdict_value values[] = {{.kind = TDICT_VALUE_NULL},
                                {.kind = TDICT_VALUE_BOOL, .integer = 1},
                                {.kind = TDICT_VALUE_BOOL},
                                {.kind = TDICT_VALUE_INTEGER, .integer = INT64_MIN},
                                {.kind = TDICT_VALUE_INTEGER, .integer = INT64_MAX},
                                {.kind = TDICT_VALUE_REAL, .real = -0.0},
                                {.kind = TDICT_VALUE_REAL, .real = HUGE_VAL},
                                {.kind = TDICT_VALUE_TEXT, .text = "", .length = 0},
                                {.kind = TDICT_VALUE_TEXT, .text = "gr\xc3\xbc\xc3\x9f", .length = 6},
                                {.kind = TDICT_VALUE_TEXT, .text = nul, .length = 3},
                                {.kind = TDICT_VALUE_JSON, .text = "{\"a\": [1, null]}", .length = 16}};
  enum { COUNT = sizeof values / sizeof *values };
  scoped_tree td = TREE(COUNT), single = TREE(COUNT);
  tdict_value got;
  td_ok(tdict_set_values(td, "n.column", values, COUNT, err));
  for (int i = 0; i < COUNT; i++) {
    td_ok(tdict_get_value(td, "n.column", i, &got, err));
    assert_true(ops_same_value(&got, &values[i]));
    assert_true(got.text != values[i].text || !got.text);                    /* copied */
    td_ok(tdict_set_values(single, "x", &values[i], TDICT_WHOLE_TREE, err)); /* replaces the old value */
    td_ok(tdict_get_value(single, "x", -1, &got, err));
    assert_true(ops_same_value(&got, &values[i]));
    for (int k = 0; k < COUNT; k++) { /* every element has the value */
      tdict_value at;
      td_ok(tdict_get_value(single, "x", k, &at, err));
      assert_true(ops_same_value(&at, &got));
    }
  }
  assert_int_equal(tdict_num_keys(single), 1);
  assert_int_equal(tdict_num_objects(td), 1);
  assert_ptr_equal(tdict_object_type(td, "n.column"), tdict_nontensor_type());
}

CASE(values_ignore_unused_members) {
  scoped_tree td = help_tree_without_batch();
  tdict_value got;
  td_ok(tdict_set_values(
      td, "x", VALUE(.kind = TDICT_VALUE_INTEGER, .integer = 5, .real = 2, .text = (const char *)8, .length = 9),
      TDICT_WHOLE_TREE, err));
  td_ok(tdict_get_value(td, "x", -1, &got, err));
  assert_true(ops_same_value(&got, VALUE(.kind = TDICT_VALUE_INTEGER, .integer = 5)));
  td_ok(tdict_set_values(td, "x", VALUE(.kind = TDICT_VALUE_REAL, .integer = 5, .real = 2), TDICT_WHOLE_TREE, err));
  td_ok(tdict_get_value(td, "x", -1, &got, err));
  assert_true(ops_same_value(&got, VALUE(.kind = TDICT_VALUE_REAL, .real = 2)));
}

CASE(texts_come_back) {
  static const char *const texts[] = {"one", NULL, "three", "three", "", "six"};
  scoped_tree td = TREE(2, 3);
  const char *text = NULL;
  size_t length = 0;
  tdict_value value;
  td_ok(tdict_set_texts(td, "s", texts, 6, err));
  for (int i = 0; i < 6; i++) {
    if (!texts[i]) continue;
    td_ok(tdict_get_text(td, "s", i, &text, &length, err));
    assert_string_equal(text, texts[i]);
    assert_int_equal(length, strlen(texts[i]));
  }
  td_ok(tdict_get_value(td, "s", 1, &value, err));
  assert_int_equal(value.kind, TDICT_VALUE_NULL);
  td_ok(tdict_set_text(td, "w", "whole", err));
  td_ok(tdict_get_text(td, "w", -1, &text, NULL, err));
  assert_string_equal(text, "whole");
  td_ok(tdict_get_text(td, "w", 5, &text, &length, err));
  assert_string_equal(text, "whole");
  td_ok(tdict_set_values(td, "j", TEXT(JSON, " [1]", 4), TDICT_WHOLE_TREE, err));
  td_ok(tdict_get_text(td, "j", -1, &text, &length, err));
  assert_string_equal(text, " [1]");
}

/* In a tree without batch dimensions, a column has one value. In a tree without elements, it has none. */
CASE(values_of_special_trees) {
  scoped_tree none = help_tree_without_batch(), empty = TREE(3, 0);
  const char *text = NULL;
  tdict_value value;
  td_ok(tdict_set_texts(none, "s", (const char *const[]){"only"}, 1, err));
  td_ok(tdict_get_text(none, "s", -1, &text, NULL, err));
  assert_string_equal(text, "only");
  td_ok(tdict_get_text(none, "s", 0, &text, NULL, err));
  td_ok(tdict_set_texts(empty, "s", NULL, 0, err));
  td_ok(tdict_set_values(empty, "t", NULL, 0, err));
  td_ok(tdict_set_text(empty, "w", "whole", err));
  td_fails(TDICT_EINVAL, "element 0 does not exist", tdict_get_value(empty, "s", 0, &value, err));
  td_fails(TDICT_EINVAL, "element 0 does not exist", tdict_get_value(empty, "w", 0, &value, err));
  td_fails(TDICT_EINVAL, "element 1 does not exist", tdict_get_value(none, "s", 1, &value, err));
  td_fails(TDICT_EINVAL, "element -2 does not exist", tdict_get_value(none, "s", -2, &value, err));
  td_ok(tdict_get_text(empty, "w", -1, &text, NULL, err));
}

CASE(set_values_refuses) {
  scoped_tree td = td_tree("[2] t:f32[2]");
  td_ok(tdict_set_text(td, "s", "before", err));
  char *before = help_snapshot(td);
  const tdict_value good = {.kind = TDICT_VALUE_NULL};
  const char *const two[] = {"a", "b"};
  td_fails(TDICT_EINVAL, "set_values: tree is NULL", tdict_set_values(NULL, "x", &good, TDICT_WHOLE_TREE, err));
  td_fails(TDICT_EINVAL, "set_values: path is NULL", tdict_set_values(td, NULL, &good, TDICT_WHOLE_TREE, err));
  td_fails(TDICT_EINVAL, "set_values: values is NULL", tdict_set_values(td, "x", NULL, TDICT_WHOLE_TREE, err));
  td_fails(TDICT_EINVAL, "set_values: values is NULL", tdict_set_values(td, "x", NULL, 2, err));
  td_fails(TDICT_EINVAL, "set_values: tree is NULL", tdict_set_values(NULL, "x", &good, 1, err));
  td_fails(TDICT_EINVAL, "set_text: text is NULL", tdict_set_text(td, "x", NULL, err));
  td_fails(TDICT_EINVAL, "set_text: path is NULL", tdict_set_text(td, NULL, "a", err));
  td_fails(TDICT_EINVAL, "set_texts: texts is NULL", tdict_set_texts(td, "x", NULL, 2, err));
  td_fails(TDICT_EINVAL, "set_texts: path is NULL", tdict_set_texts(td, NULL, two, 2, err));
  td_fails(TDICT_EINVAL, "empty key", tdict_set_text(td, "x..y", "a", err));
  td_fails(TDICT_ETYPE, "set_text", tdict_set_text(td, "t.x", "a", err));
  td_fails(TDICT_ETYPE, "set_texts", tdict_set_texts(td, "s.x", two, 2, err));
  /* Values. */
  td_fails_at(TDICT_EINVAL, "the kind is 6", "x", tdict_set_values(td, "x", VALUE(.kind = 6), TDICT_WHOLE_TREE, err));
  td_fails(TDICT_EINVAL, "the kind is -1", tdict_set_values(td, "x", VALUE(.kind = -1), TDICT_WHOLE_TREE, err));
  td_fails(TDICT_EINVAL, "the bool is 2",
           tdict_set_values(td, "x", VALUE(.kind = TDICT_VALUE_BOOL, .integer = 2), TDICT_WHOLE_TREE, err));
  td_fails(TDICT_EINVAL, "the text is NULL", tdict_set_values(td, "x", TEXT(TEXT, NULL, 0), TDICT_WHOLE_TREE, err));
  td_fails(TDICT_EINVAL, "the text is NULL", tdict_set_values(td, "x", TEXT(JSON, NULL, 0), TDICT_WHOLE_TREE, err));
  td_fails(TDICT_EINVAL, "not UTF-8 at byte 2",
           tdict_set_values(td, "x", TEXT(TEXT, "ab\xff", 3), TDICT_WHOLE_TREE, err));
  td_fails(TDICT_EINVAL, "not UTF-8 at byte 1", tdict_set_text(td, "x", "a\xc3", err));
  td_fails(TDICT_EINVAL, "not JSON at byte 3: wanted a value",
           tdict_set_values(td, "x", TEXT(JSON, "[1,]", 4), TDICT_WHOLE_TREE, err));
  td_fails(TDICT_EINVAL, "not JSON at byte 0: wanted a value",
           tdict_set_values(td, "x", TEXT(JSON, "", 0), TDICT_WHOLE_TREE, err));
  td_fails_at(TDICT_ESHAPE, "3 values, but the tree has 2 elements", "x", tdict_set_texts(td, "x", two, 3, err));
  td_fails(TDICT_ESHAPE, "1 values, but the tree has 2 elements", tdict_set_values(td, "a.b", &good, 1, err));
  td_fails_at(TDICT_EINVAL, "value 1: not UTF-8 at byte 0", "x",
              tdict_set_texts(td, "x", (const char *const[]){"a", "\xff"}, 2, err));
  td_fails(TDICT_EINVAL, "value 1: the kind is 9",
           tdict_set_values(td, "x", (const tdict_value[]){{.kind = 0}, {.kind = 9}}, 2, err));
  tdict_lock(td);
  td_fails(TDICT_ELOCKED, "set_text", tdict_set_text(td, "x", "a", err));
  td_fails(TDICT_ELOCKED, "set_texts", tdict_set_texts(td, "s", two, 2, err));
  td_ok(tdict_unlock(td, err));
  help_unchanged(td, before);
  tdict_release(td);
  /* A column for this batch size would have too many values. */
  td = TREE(INT64_MAX, 4);
  td_fails(TDICT_ESHAPE, "more than", tdict_set_texts(td, "x", two, 2, err));
  td_ok(tdict_set_text(td, "w", "whole", err));
  tdict_value value;
  td_ok(tdict_get_value(td, "w", INT64_MAX, &value, err));
}

CASE(get_values_refuses) {
  scoped_tree td = TREE(2);
  const char *text = "untouched";
  size_t length = 77;
  tdict_value value = {.kind = 99};
  td_put(td, "t", TENSOR(2));
  td_ok(tdict_set_texts(td, "s", (const char *const[]){"a", NULL}, 2, err));
  td_ok(tdict_set_values(td, "i", VALUE(.kind = TDICT_VALUE_INTEGER, .integer = 3), TDICT_WHOLE_TREE, err));
  td_fails(TDICT_EINVAL, "get_value: tree is NULL", tdict_get_value(NULL, "s", -1, &value, err));
  td_fails(TDICT_EINVAL, "get_value: path is NULL", tdict_get_value(td, NULL, -1, &value, err));
  td_fails(TDICT_EINVAL, "get_value: out is NULL", tdict_get_value(td, "s", -1, NULL, err));
  td_fails(TDICT_EINVAL, "get_value: out is NULL", tdict_get_value(td, "s", 0, NULL, err));
  td_fails(TDICT_EINVAL, "get_text: text is NULL", tdict_get_text(td, "s", -1, NULL, &length, err));
  td_fails(TDICT_EINVAL, "get_text: tree is NULL", tdict_get_text(NULL, "s", 0, &text, &length, err));
  td_fails(TDICT_ENOTFOUND, "get_value", tdict_get_value(td, "none", -1, &value, err));
  td_fails(TDICT_EINVAL, "empty key", tdict_get_value(td, "", -1, &value, err));
  td_fails_at(TDICT_ETYPE, "get_value: found a tensor, wanted an object of type nontensor", "t",
              tdict_get_value(td, "t", -1, &value, err));
  td_fails(TDICT_ETYPE, "get_text", tdict_get_text(td, "s.x", 0, &text, &length, err));
  td_fails_at(TDICT_ESHAPE, "a column of values", "s", tdict_get_value(td, "s", -1, &value, err));
  td_fails(TDICT_ESHAPE, "pass the position of an element", tdict_get_text(td, "s", -1, &text, &length, err));
  td_fails_at(TDICT_EINVAL, "element 2 does not exist", "s", tdict_get_value(td, "s", 2, &value, err));
  td_fails(TDICT_EINVAL, "element -2 does not exist", tdict_get_text(td, "s", -2, &text, &length, err));
  td_fails(TDICT_ETYPE, "found an integer, wanted text or JSON", tdict_get_text(td, "i", -1, &text, &length, err));
  td_fails(TDICT_ETYPE, "found null, wanted text or JSON", tdict_get_text(td, "s", 1, &text, &length, err));
  assert_int_equal(value.kind, 99);
  assert_string_equal(text, "untouched");
  assert_int_equal(length, 77);
  void *object = NULL;
  td_ok(tdict_get_object(td, "s", tdict_nontensor_type(), &object, err));
  td_fails(TDICT_EINVAL, "value 2 of 2 does not exist", tdict_nontensor_get(object, 2, &value, err));
  td_fails(TDICT_EINVAL, "value -1 of 2 does not exist", tdict_nontensor_get(object, -1, &value, err));
  td_fails(TDICT_EINVAL, "values is NULL", tdict_nontensor_get(NULL, 0, &value, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_nontensor_get(object, 0, NULL, err));
  assert_int_equal(tdict_nontensor_shape(object, NULL), 1);
}

CASE(values_survive_enomem) {
  scoped_tree td = TREE(2);
  const char *const two[] = {"a", "b"};
  td_ok(tdict_set_text(td, "old", "before", err));
  RIG_WITHOUT_MEMORY(td, tdict_set_texts(td, "n.m.s", two, 2, err));
  RIG_WITHOUT_MEMORY(td, tdict_set_text(td, "w", "whole", err));
  RIG_WITHOUT_MEMORY(td, tdict_set_text(td, "old", "after", err));
  RIG_WITHOUT_MEMORY(td, tdict_set_values(td, "v", VALUE(.kind = TDICT_VALUE_REAL, .real = 1), TDICT_WHOLE_TREE, err));
  RIG_WITHOUT_MEMORY(td, tdict_set_values(td, "vs", (const tdict_value[]){{.kind = 0}, {.kind = 0}}, 2, err));
  const char *text = NULL;
  td_ok(tdict_get_text(td, "old", -1, &text, NULL, err));
  assert_string_equal(text, "after");
}

/* Setting a column of a million texts makes at most 5 allocations. */
CASE(texts_are_packed) {
  enum { COUNT = 1000000 };
  scoped_tree td = TREE(COUNT);
  const char **texts = malloc(COUNT * sizeof *texts);
  char(*names)[12] = malloc(COUNT * sizeof *names);
  size_t bytes = 0;
  assert_true(texts && names);
  for (int i = 0; i < COUNT; i++) {
    bytes += (size_t)snprintf(names[i], sizeof names[i], "row %d", i) + 1;
    texts[i] = names[i];
  }
  td_fail_alloc(1000, false);
  td_ok(tdict_set_texts(td, "s", texts, COUNT, err));
  assert_true(td_allocs_seen() <= 5);
  assert_false(td_fail_alloc_stop());
  assert_int_equal(tdict_bytes(td), bytes + 16 * (size_t)COUNT);
  const char *text = NULL;
  td_ok(tdict_get_text(td, "s", 765432, &text, NULL, err));
  assert_string_equal(text, "row 765432");
  free(names);
  free(texts);
}
