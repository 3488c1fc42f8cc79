/* Tests value leaves in operations on trees and in transfers. An operation must move the values of a column as it moves
 * the elements of a tensor. */
#include "core/ops/rig.h"

static const tdict_nontensor *values_of(const tdict_tree *td, const char *path) {
  void *object = NULL;
  td_ok(tdict_get_object(td, path, tdict_nontensor_type(), &object, err));
  return object;
}

/* Checks the shape and the texts of a leaf. `wanted` lists the texts in C order, separated by spaces. */
static void check_texts(const tdict_tree *td, const char *path, int ndim, const int64_t *shape, const char *wanted) {
  const tdict_nontensor *values = values_of(td, path);
  const int64_t *sizes = NULL;
  char all[256] = "";
  size_t length = 0;
  int64_t count = 1;
  assert_int_equal(tdict_nontensor_shape(values, &sizes), ndim);
  for (int i = 0; i < ndim; i++) assert_int_equal(sizes[i], shape[i]);
  for (int i = 0; i < ndim; i++) count *= shape[i];
  for (int64_t i = 0; i < count; i++) {
    tdict_value value;
    td_ok(tdict_nontensor_get(values, i, &value, err));
    length += (size_t)snprintf(all + length, sizeof all - length, "%s%s", i ? " " : "", value.text);
  }
  assert_string_equal(all, wanted);
}
#define CHECK_TEXTS(td, path, wanted, ...) check_texts(td, path, COUNTS(__VA_ARGS__), wanted)
#define CHECK_ONE(td, path, wanted) check_texts(td, path, 0, NULL, wanted)

static const char *const six[] = {"a", "b", "c", "d", "e", "f"};
static tdict_tree *tree_of_six(void) {
  tdict_tree *td = TREE(2, 3);
  td_ok(tdict_set_texts(td, "s", six, 6, err));
  td_ok(tdict_set_text(td, "w", "whole", err));
  return td;
}

static tdict_tree *indexed(const tdict_tree *td, const tdict_indices *index) {
  return td_made(tree, tdict_index_get(NULL, td, index, NULL, &made, err));
}

CASE(values_are_indexed) {
  static const int64_t rows[] = {1, 0, 1}, columns[] = {2, 0, 0};
  scoped_tree td = tree_of_six(), out = indexed(td, TDICT_INDEX(TDICT_AT(1)));
  CHECK_TEXTS(out, "s", "d e f", 3);
  assert_ptr_equal(values_of(out, "w"), values_of(td, "w")); /* shared */
  tdict_release(out);
  out = indexed(td, TDICT_INDEX(TDICT_AT(1), TDICT_AT(-1)));
  CHECK_ONE(out, "s", "f");
  tdict_release(out);
  out = indexed(td, TDICT_INDEX(TDICT_ALL, TDICT_AT(1)));
  CHECK_TEXTS(out, "s", "b e", 2);
  tdict_release(out);
  out = indexed(td, TDICT_INDEX(TDICT_ALL, TDICT_RANGE(2, TDICT_NONE, -2)));
  CHECK_TEXTS(out, "s", "c a f d", 2, 2);
  tdict_release(out);
  out = indexed(td, TDICT_INDEX(TDICT_LIST(rows, 3)));
  CHECK_TEXTS(out, "s", "d e f a b c d e f", 3, 3);
  tdict_release(out);
  out = indexed(td, TDICT_INDEX(TDICT_LIST(rows, 3), TDICT_LIST(columns, 3)));
  CHECK_TEXTS(out, "s", "f a d", 3);
  tdict_release(out);
  out = indexed(td, TDICT_INDEX(TDICT_AT(1), TDICT_LIST(columns, 3)));
  CHECK_TEXTS(out, "s", "f d d", 3);
  tdict_release(out);
  out = indexed(td, TDICT_INDEX(TDICT_NEW_AXIS, TDICT_AT(0)));
  CHECK_TEXTS(out, "s", "a b c", 1, 3);
}

CASE(values_take_new_shapes) {
  tdict_tree *td = tree_of_six(), *out = NULL, *parts[3] = {NULL};
  td_ok(tdict_reshape(td, 1, (const int64_t[]){-1}, &out, err));
  CHECK_TEXTS(out, "s", "a b c d e f", 6);
  tdict_release(out);
  td_ok(tdict_reshape_view(td, 2, (const int64_t[]){3, 2}, &out, err));
  CHECK_TEXTS(out, "s", "a b c d e f", 3, 2);
  tdict_release(out);
  td_ok(tdict_transpose(td, 0, 1, &out, err));
  CHECK_TEXTS(out, "s", "a d b e c f", 3, 2);
  tdict_release(out);
  td_ok(tdict_expand(td, 3, (const int64_t[]){2, 2, 3}, &out, err));
  CHECK_TEXTS(out, "s", "a b c d e f a b c d e f", 2, 2, 3);
  tdict_release(out);
  td_ok(tdict_unsqueeze(td, 1, &out, err));
  CHECK_TEXTS(out, "s", "a b c d e f", 2, 1, 3);
  tdict_release(out);
  td_ok(tdict_split_every(td, 1, 2, parts, &(size_t){3}, err));
  CHECK_TEXTS(parts[0], "s", "a b d e", 2, 2);
  CHECK_TEXTS(parts[1], "s", "c f", 2, 1);
  assert_ptr_equal(values_of(parts[1], "w"), values_of(td, "w"));
  td_release(parts[0], parts[1]);
  td_ok(tdict_unbind(td, 1, parts, &(size_t){3}, err));
  CHECK_TEXTS(parts[2], "s", "c f", 2);
  for (int i = 0; i < 3; i++) tdict_release(parts[i]);
  tdict_release(td);
}

/* Stacks or concatenates two trees. Does not release them. */
static tdict_tree *joined(const tdict_tree *a, const tdict_tree *b, bool stacks, int dim) {
  tdict_tree *out = NULL;
  tdict_join_options o = td_with(tdict_join_options, dim = dim);
  const tdict_tree *both[] = {a, b};
  td_ok(stacks ? tdict_stack(both, 2, &o, NULL, &out, err) : tdict_cat(both, 2, &o, NULL, &out, err));
  return out;
}

static tdict_tree *column_of(int count, const char *const *texts, const char *whole) {
  tdict_tree *td = TREE(count);
  td_ok(tdict_set_texts(td, "s", texts, (size_t)count, err));
  td_ok(tdict_set_text(td, "w", whole, err));
  return td;
}

CASE(values_are_joined) {
  scoped_tree a = column_of(2, six, "same"), b = column_of(2, six + 2, "same"), c = column_of(1, six + 4, "other");
  scoped_tree out = joined(a, b, true, 0);
  CHECK_TEXTS(out, "s", "a b c d", 2, 2);
  CHECK_TEXTS(out, "w", "same same same same", 2, 2); /* equal values become a column too, as in TensorDict */
  tdict_release(out);
  out = joined(a, b, true, 1);
  CHECK_TEXTS(out, "s", "a c b d", 2, 2);
  tdict_release(out);
  out = joined(a, b, false, 0);
  CHECK_TEXTS(out, "s", "a b c d", 4);
  CHECK_ONE(out, "w", "same");
  assert_ptr_equal(values_of(out, "w"), values_of(a, "w"));
  tdict_release(out);
  out = joined(a, c, false, 0);
  CHECK_TEXTS(out, "s", "a b e", 3);
  CHECK_TEXTS(out, "w", "same same other", 3);
  tdict_release(out);
  scoped_tree row_a = indexed(a, TDICT_INDEX(TDICT_AT(0))), row_b = indexed(b, TDICT_INDEX(TDICT_AT(1)));
  out = joined(row_a, row_b, true, 0); /* without batch dimensions, values for whole trees become a column */
  CHECK_TEXTS(out, "s", "a d", 2);
  CHECK_TEXTS(out, "w", "same same", 2);
  tdict_release(out);
  /* Join a value for the whole tree with a column. */
  td_ok(tdict_set_text(b, "s", "all", err));
  out = joined(a, b, true, 0);
  CHECK_TEXTS(out, "s", "a b all all", 2, 2);
  tdict_release(out);
  out = joined(b, a, false, 0);
  CHECK_TEXTS(out, "s", "all all a b", 4);
  tdict_release(out);
  scoped_tree six_values = tree_of_six();
  out = joined(six_values, six_values, false, 1);
  CHECK_TEXTS(out, "s", "a b c a b c d e f d e f", 2, 6);
}

CASE(values_refuse_to_join) {
  scoped_tree a = column_of(2, six, "w"), b = column_of(2, six, "w"), c = column_of(1, six, "w");
  tdict_tree *out = NULL;
  const tdict_tree *both[] = {a, b}, *unequal[] = {a, c};
  td_fails_at(TDICT_ESHAPE, "the values have shape [1] in tree 1, but [2] in tree 0", "s",
              tdict_pad_sequence(unequal, 2, NULL, NULL, &out, err));
  td_ok(tdict_delete(b, "s", err));
  td_put(b, "s", TENSOR(2));
  td_fails(TDICT_ETYPE, "a tensor in tree 1, but an object of type nontensor in tree 0",
           tdict_stack(both, 2, NULL, NULL, &out, err));
  td_fails(TDICT_ETYPE, "the key holds", tdict_cat(both, 2, NULL, NULL, &out, err));
  tdict_tensor *t = TENSOR(2);
  td_ok(tdict_set_unbatched(b, "s", t, err));
  tdict_tensor_release(t);
  td_fails(TDICT_ETYPE, "an object of type nontensor in one tree, and of type unbatched in another",
           tdict_stack(both, 2, NULL, NULL, &out, err));
  assert_null(out);
}

/* A child changed through its own handle has a column that no longer fits its parent. Reads of the column are
 * refused. */
CASE(values_of_changed_children) {
  scoped_tree td = TREE(2), kid = NULL;
  tdict_tree *out = NULL;
  td_ok(tdict_create(1, (const int64_t[]){2}, &kid, err));
  td_ok(tdict_set_texts(kid, "s", six, 2, err));
  td_ok(tdict_set_tree(td, "kid", kid, err));
  td_ok(tdict_delete(kid, "s", err));
  td_ok(tdict_set_batch_size(kid, 1, (const int64_t[]){3}, err));
  td_ok(tdict_set_texts(kid, "s", six, 3, err));
  td_fails_at(TDICT_ESHAPE, "[3]", "kid.s", tdict_index_get(NULL, td, TDICT_INDEX(TDICT_AT(1)), NULL, &out, err));
  const tdict_tree *both[] = {td, td};
  td_fails_at(TDICT_ESHAPE, "[3]", "kid.s", tdict_stack(both, 2, NULL, NULL, &out, err));
  /* Update, set_tree and set_batch_size check the column too. */
  scoped_tree loose = td_made(tree, tdict_create(1, (const int64_t[]){4}, &made, err));
  td_fails(TDICT_ESHAPE, "[3]", tdict_update(loose, kid, NULL, 0, err));
  td_fails(TDICT_ESHAPE, "[3]", tdict_set_tree(loose, "x", kid, err));
  td_fails(TDICT_ESHAPE, "[3]", tdict_set_batch_size(kid, 1, (const int64_t[]){2}, err));
  td_ok(tdict_set_text(kid, "s", "whole", err)); /* a value for the whole tree fits every batch size */
  td_ok(tdict_update(loose, kid, NULL, 0, err));
  assert_null(out);
}

CASE(values_are_shared_by_copies) {
  tdict_tree *td = tree_of_six();
  scoped_tree clone = td_made(tree, tdict_clone(td, &made, err)), deep = NULL;
  td_ok(tdict_clone_deep(td, NULL, &deep, err));
  assert_ptr_equal(values_of(clone, "s"), values_of(td, "s"));
  assert_ptr_equal(values_of(deep, "s"), values_of(td, "s"));
  tdict_release(td);
  CHECK_TEXTS(deep, "s", "a b c d e f", 2, 3);
}

/* Checks how tdict_get_difference() describes the difference between the leaves "x" of two trees. */
static void check_difference(const tdict_value *x, const tdict_value *y, const char *wanted) {
  scoped_tree a = help_tree_without_batch(), b = help_tree_without_batch();
  tdict_difference found;
  td_ok(tdict_set_values(a, "x", x, TDICT_WHOLE_TREE, err));
  td_ok(tdict_set_values(b, "x", y, TDICT_WHOLE_TREE, err));
  td_ok(tdict_get_difference(a, b, NULL, &found, err));
  assert_int_equal(found.differs, wanted != NULL);
  if (wanted) assert_string_equal(found.message, wanted);
  if (wanted) assert_string_equal(found.path, "x");
}
#define TEXT(what, string) \
  { .kind = TDICT_VALUE_##what, .text = (string), .length = sizeof(string) - 1 }

CASE(values_are_compared) {
  static const tdict_value all[] = {{.kind = TDICT_VALUE_NULL},
                                    {.kind = TDICT_VALUE_BOOL, .integer = 1},
                                    {.kind = TDICT_VALUE_INTEGER, .integer = 1},
                                    {.kind = TDICT_VALUE_REAL, .real = 1},
                                    TEXT(TEXT, "1"),
                                    TEXT(JSON, "1"),
                                    TEXT(TEXT, "2"),
                                    TEXT(TEXT, "1\0"),
                                    TEXT(JSON, "1 "),
                                    {.kind = TDICT_VALUE_REAL, .real = 0.1},
                                    {.kind = TDICT_VALUE_REAL, .real = 0.0},
                                    {.kind = TDICT_VALUE_REAL, .real = -0.0},
                                    {.kind = TDICT_VALUE_BOOL}};
  enum { COUNT = sizeof all / sizeof *all };
  tdict_tree *trees[COUNT];
  for (int i = 0; i < COUNT; i++) {
    trees[i] = help_tree_without_batch();
    td_ok(tdict_set_values(trees[i], "x", &all[i], TDICT_WHOLE_TREE, err));
  }
  for (int i = 0; i < COUNT; i++) {
    for (int k = 0; k < COUNT; k++) assert_int_equal(tdict_equal(trees[i], trees[k]), i == k);
    scoped_tree again = help_tree_without_batch();
    td_ok(tdict_set_values(again, "x", &all[i], TDICT_WHOLE_TREE, err));
    assert_true(tdict_equal(trees[i], again)); /* a different object */
  }
  for (int i = 0; i < COUNT; i++) tdict_release(trees[i]);
  check_difference(&all[1], &all[12], "value: true and false");
  check_difference(&all[2], &all[3], "value: integer 1 and real 1");
  check_difference(&all[0], &all[4], "value: null and text \"1\"");
  check_difference(&all[5], &all[9], "value: json 1 and real 0.10000000000000001");
  static const tdict_value e = TEXT(TEXT, "12345678901234567890123456789012345678\xe2\x82\xac and more"),
                           f = TEXT(TEXT, "12");
  check_difference(&e, &f, "value: text \"12345678901234567890123456789012345678...\" and text \"12\"");
  scoped_tree a = tree_of_six(), b = tree_of_six(), c = TREE(2, 3);
  tdict_difference found;
  assert_true(tdict_equal(a, b));
  td_ok(tdict_set_texts(b, "s", (const char *const[]){"a", "b", "c", "d", "x", "y"}, 6, err));
  td_ok(tdict_get_difference(a, b, NULL, &found, err));
  assert_string_equal(found.message, "value [1, 1]: text \"e\" and text \"x\"");
  td_ok(tdict_set_text(b, "s", "a", err));
  td_ok(tdict_get_difference(a, b, NULL, &found, err));
  assert_string_equal(found.message, "values of shape [2, 3] and []");
  td_ok(tdict_get_difference(a, c, NULL, &found, err));
  assert_true(found.differs);
}

CASE(values_are_printed) {
  scoped_tree td = TREE(2);
  char text[600];
  td_ok(tdict_set_text(td, "note", "say \"hi\"\n", err));
  td_ok(tdict_set_text(td, "long", "0123456789012345678901234567890123456789!", err));
  td_ok(tdict_set_texts(td, "rows", six, 2, err));
  td_ok(tdict_set_values(td, "n", &(const tdict_value){.kind = TDICT_VALUE_INTEGER, .integer = -5}, TDICT_WHOLE_TREE,
                         err));
  td_ok(tdict_set_values(td, "json", &(const tdict_value)TEXT(JSON, "{\"a\": 1}"), TDICT_WHOLE_TREE, err));
  td_ok(tdict_set_values(td, "nul", &(const tdict_value)TEXT(TEXT, "ab\0cd"), TDICT_WHOLE_TREE, err));
  td_ok(tdict_set_values(td, "no", &(const tdict_value){.kind = TDICT_VALUE_NULL}, TDICT_WHOLE_TREE, err));
  tdict_format(td, text, sizeof text);
  assert_string_equal(text, "tree batch=[2]\n"
                            "  note  text \"say \"hi\"\\x0a\"\n"
                            "  long  text \"0123456789012345678901234567890123456789...\"\n"
                            "  rows  values [2]\n"
                            "  n     integer -5\n"
                            "  json  json {\"a\": 1}\n"
                            "  nul   text \"ab...\"\n"
                            "  no    null\n"
                            "0 tensors, 7 objects, 199 bytes\n");
}

static tdict_status count_entry(void *user, const tdict_leaves *at, tdict_error *err) {
  (void)at, (void)err;
  ++*(int *)user;
  return TDICT_OK;
}
static bool keep_all(void *user, const tdict_leaves *at) {
  (void)user, (void)at;
  return true;
}

CASE(values_are_skipped_by_visits) {
  scoped_tree td = tree_of_six(), out = NULL;
  td_put(td, "t", TENSOR(2, 3));
  const tdict_tree *trees[] = {td};
  int visits = 0;
  td_ok(tdict_visit(NULL, trees, 1, count_entry, &visits, NULL, err));
  assert_int_equal(visits, 1);
  td_ok(tdict_fill(td, NULL, 3, NULL, err));
  assert_true(((const float *)tdict_const_data(td, "t"))[5] == 3);
  td_fails(TDICT_ENOTSUP, "nontensor", tdict_fill(td, "s", 3, NULL, err));
  td_ok(tdict_filter(td, keep_all, NULL, &out, err));
  assert_ptr_equal(values_of(out, "s"), values_of(td, "s"));
}

/* tdict_copy() and tdict_update_in_place() accept values that equal those in the tree, but refuse different values. */
CASE(values_are_not_written) {
  static const char advice[] = "tdict_set_values() or tdict_set_texts()";
  scoped_tree td = tree_of_six(), same = tree_of_six(), other = tree_of_six(), row = NULL, text_only = TREE(2, 3);
  td_put(td, "t", TENSOR(2, 3));
  td_put(same, "t", TENSOR(2, 3));
  td_put(other, "t", TENSOR(2, 3));
  td_ok(tdict_set_text(other, "s", "all", err));
  td_ok(tdict_copy(td, same, NULL, err));
  assert_memory_equal(tdict_const_data(td, "t"), tdict_const_data(same, "t"), 24);
  td_ok(tdict_update_in_place(td, same, NULL, 0, err));
  char *before = help_snapshot(td);
  td_fails_at(TDICT_ENOTSUP,
              "copy: leaves of type nontensor cannot be written in place and differ: values of shape [2, 3]", "s",
              tdict_copy(td, other, NULL, err));
  assert_non_null(strstr(td_last_error.message, advice));
  assert_memory_equal(tdict_const_data(td, "t"), tdict_const_data(same, "t"), 24); /* checked before the first write */
  td_fails(TDICT_ENOTSUP, advice, tdict_update_in_place(td, other, NULL, 0, err));
  /* A write through an index to a column is refused, even if the values are equal. */
  td_fails_at(TDICT_ENOTSUP, advice, "s", tdict_index_set(NULL, td, TDICT_INDEX(TDICT_ALL), same, NULL, err));
  td_fails(TDICT_ENOTSUP, advice, tdict_index_set(NULL, td, TDICT_INDEX(TDICT_ALL), td, NULL, err));
  td_fails(TDICT_ENOTSUP, advice, tdict_index_into(NULL, td, same, TDICT_INDEX(TDICT_ALL), NULL, err));
  row = indexed(same, TDICT_INDEX(TDICT_AT(0)));
  td_fails(TDICT_ENOTSUP, "write_row", tdict_write_rows(td, 1, row, err));
  td_fails(TDICT_ENOTSUP, "write_rows", tdict_write_rows(td, 0, same, err));
  /* An equal value for the whole tree is accepted. */
  td_ok(tdict_delete(row, "s", err));
  td_ok(tdict_write_rows(td, 1, row, err));
  assert_memory_equal((const char *)tdict_const_data(td, "t") + 12, tdict_const_data(same, "t"), 12);
  td_ok(tdict_set_text(row, "w", "another", err));
  td_fails(TDICT_ENOTSUP, "and differ: value: text \"whole\" and text \"another\"", tdict_write_rows(td, 0, row, err));
  assert_string_equal(td_last_error.path, "w");
  td_ok(tdict_set_text(text_only, "w", "whole", err));
  const tdict_tree *items[] = {text_only, text_only};
  scoped_tree dst = TREE(2, 2, 3);
  td_ok(tdict_set_text(dst, "w", "whole", err));
  td_ok(tdict_stack_into(dst, items, 2, NULL, NULL, err));
  td_ok(tdict_set_text(dst, "w", "another", err));
  td_fails_at(TDICT_ENOTSUP, advice, "w", tdict_stack_into(dst, items, 2, NULL, NULL, err));
  help_unchanged(td, before);
}

CASE(values_survive_enomem_in_operations) {
  static const int64_t list[] = {1, 0};
  scoped_tree td = tree_of_six(), out = NULL;
  const tdict_tree *both[] = {td, td};
  tdict_join_options second = td_with(tdict_join_options, dim = 1);
  RIG_WITHOUT_MEMORY(td, tdict_index_get(NULL, td, TDICT_INDEX(TDICT_AT(1)), NULL, &out, err));
  tdict_release(out);
  RIG_WITHOUT_MEMORY(td, tdict_index_get(NULL, td, TDICT_INDEX(TDICT_ALL, TDICT_LIST(list, 2)), NULL, &out, err));
  tdict_release(out);
  RIG_WITHOUT_MEMORY(td, tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST(list, 2)), NULL, &out, err));
  tdict_release(out);
  RIG_WITHOUT_MEMORY(td, tdict_transpose(td, 0, 1, &out, err));
  tdict_release(out);
  RIG_WITHOUT_MEMORY(td, tdict_stack(both, 2, &second, NULL, &out, err));
  tdict_release(out);
  RIG_WITHOUT_MEMORY(td, tdict_cat(both, 2, NULL, NULL, &out, err));
}

/* Values are part of the result in every transfer mode. They stay in host memory. */
DEVICE_CASE(values_are_transferred) {
  static const int32_t modes[] = {TDICT_MODE_BLOCKING, TDICT_MODE_NON_BLOCKING, TDICT_MODE_NON_BLOCKING_PIN};
  rig r = {td_context(NULL), NULL};
  tdict_tree *src = TREE(2, 3), *dst = NULL;
  ops_put_values(src);
  for (int i = 0; i < 3; i++) {
    tdict_transfer_options o = td_with(tdict_transfer_options, mode = modes[i]);
    tdict_future *future = td_made(future, tdict_to_device_async(r.context, src, td_device(), &o, &made, err));
    scoped_tree out = td_made(tree, tdict_future_wait(future, &made, err));
    tdict_transfer_stats stats = td_filled(tdict_transfer_stats, tdict_future_get_stats(future, &made, err));
    assert_int_equal(stats.num_objects_kept, 0);
    tdict_future_release(future);
    assert_ptr_equal(values_of(out, "s"), values_of(src, "s"));
    assert_ptr_equal(values_of(out, "kid.w"), values_of(src, "kid.w"));
    tdict_tensor *u = NULL;
    td_ok(tdict_get_unbatched(out, "u", &u, err));
    assert_true(tdict_device_equal(tdict_tensor_device(u), td_device()));
    scoped_tree back = td_made(tree, tdict_to_device(r.context, out, tdict_cpu(), &o, &made, err));
    const char *wrong = ops_check_values(back);
    if (wrong) fail_msg("%s", wrong);
  }
  tdict_pin_options pin = tdict_pin_options_default();
  if (td_device().type != TDICT_DEVICE_CPU) {
    scoped_tree out = td_made(tree, tdict_pin_memory(r.context, src, &pin, &made, err));
    assert_ptr_equal(values_of(out, "s"), values_of(src, "s"));
    assert_true(tdict_is_pinned(out));
    assert_false(tdict_is_pinned(src));
  }
  /* Transfer into a tree with equal values, then into a tree with different values. */
  tdict_tree *twin = TREE(2, 3);
  ops_put_values(twin);
  td_ok(tdict_to_device(r.context, twin, td_device(), NULL, &dst, err));
  td_ok(tdict_transfer_into(r.context, dst, src, NULL, err));
  td_ok(tdict_set_text(dst, "kid.w", "another", err));
  td_fails_at(TDICT_ENOTSUP, "tdict_set_values()", "kid.w", tdict_transfer_into(r.context, dst, src, NULL, err));
  td_ok(tdict_delete(dst, "kid.w", err));
  tdict_tensor *t = TENSOR(2, 3, 2);
  if (td_device().type == TDICT_DEVICE_CPU) {
    td_ok(tdict_set(dst, "kid.w", t, err));
    td_fails(TDICT_ETYPE, "nontensor", tdict_transfer_into(r.context, dst, src, NULL, err));
  }
  td_release(t, dst, twin, src, r.context);
}

/* Transfers a tree that has values but no tensors. */
DEVICE_CASE(values_alone_are_transferred) {
  rig r = {td_context(NULL), NULL};
  tdict_tree *src = tree_of_six(), *out = td_made(tree, tdict_to_device(r.context, src, td_device(), NULL, &made, err));
  CHECK_TEXTS(out, "s", "a b c d e f", 2, 3);
  tdict_release(src);
  CHECK_ONE(out, "w", "whole");
  td_release(out, r.context);
}

/* Copies and stacks a tree that has values in host memory and tensors on a device. */
DEVICE_CASE(values_beside_device_tensors) {
  scoped_rig r = rig_open();
  scoped_tree host = TREE(2, 3), td = NULL, out = NULL, back = NULL;
  ops_put_values(host);
  td_ok(tdict_clone_deep(host, TD_IN(r.memory), &td, err));
  const tdict_tree *both[] = {td, td};
  td_ok(tdict_stack(both, 2, NULL, NULL, &out, err));
  td_ok(tdict_clone_deep(out, NULL, &back, err));
  if (!r.memory) {
    const char *wrong = ops_check_values(back);
    if (wrong) fail_msg("%s", wrong);
  }
  assert_int_equal(tdict_nontensor_shape(values_of(back, "s"), NULL), 3);
}
