/* Tests writes in place to trees with ragged leaves. Compares the leaves with plain arrays of rows. */
#include "core/tree/box.h"
#include "rows.h"

static const tdict_type bare_type = TD_TYPE(.name = "bare", .release = free);

/* Replaces row `i` with row `k` of `from`, which must have the same length. */
static void replace_row(rows *r, int64_t i, const rows *from, int64_t k) {
  assert_int_equal(r->length[i], from->length[k]);
  memcpy(r->value[i], from->value[k], (size_t)(r->length[i] * r->width) * sizeof(float));
}

DEVICE_CASE(ragged_rows_are_written) {
  scoped_place w = open_place();
  for (int n = 0; n < 30; n++) {
    rows r = rows_random(2 + n % 6, 2), fresh = rows_of(2, (int)r.count, r.length);
    tdict_tree *td = rows_tree(&r, MEMORY(w)), *new_rows = rows_tree(&fresh, MEMORY(w)), *row = NULL, *part = NULL;
    tdict_tensor *values = tdict_ragged_get_info(rows_get(td, "n.x")).values;
    const int64_t i = rows_pick((uint32_t)r.count), first = rows_pick((uint32_t)r.count), count = r.count - first;
    /* write one row from a tensor */
    td_ok(tdict_index_get(NULL, new_rows, TDICT_INDEX(TDICT_AT(i)), NULL, &row, err));
    td_ok(tdict_write_rows(td, i, row, err));
    replace_row(&r, i, &fresh, i);
    rows_check_at(&w, &r, td, "n.x");
    /* write one row from a ragged leaf of one row */
    td_ok(tdict_index_get(NULL, new_rows, TDICT_INDEX(TDICT_RANGE(first, first + 1, 1)), NULL, &part, err));
    td_ok(tdict_index_set(NULL, td, TDICT_INDEX(TDICT_RANGE(first, first + 1, 1)), part, NULL, err));
    replace_row(&r, first, &fresh, first);
    rows_check_at(&w, &r, td, "n.x");
    tdict_release(part);
    /* write the rows from `first` to the end */
    td_ok(tdict_index_get(NULL, new_rows, TDICT_INDEX(TDICT_RANGE(first, TDICT_NONE, 1)), NULL, &part, err));
    td_ok(tdict_write_rows(td, first, part, err));
    for (int64_t k = first; k < r.count; k++) replace_row(&r, k, &fresh, k);
    rows_check_at(&w, &r, td, "n.x");
    tdict_release(part);
    /* write all rows with index_set, copy or update_in_place */
    for (int64_t k = 0; k < r.count; k++)
      for (int64_t j = 0; j < fresh.length[k] * 2; j++) fresh.value[k][j] += 1;
    tdict_tree *again = rows_tree(&fresh, MEMORY(w));
    if (n % 3 == 0) td_ok(tdict_index_set(NULL, td, TDICT_INDEX(TDICT_ALL), again, NULL, err));
    if (n % 3 == 1) td_ok(tdict_copy(td, again, NULL, err));
    if (n % 3 == 2) td_ok(tdict_update_in_place(td, again, NULL, 0, err));
    rows_check_at(&w, &fresh, td, "n.x");
    assert_ptr_equal(tdict_ragged_get_info(rows_get(td, "n.x")).values, values);
    (void)count;
    td_release(again, row);
    rows_check_and_release(&w, &fresh, td);
    tdict_release(new_rows);
    rows_free(&r);
  }
}

CASE(ragged_lists_are_written) {
  scoped_place w = open_place();
  for (int n = 0; n < 30; n++) {
    rows r = rows_random(6, 2), fresh = {.width = 2};
    int64_t list[8];
    const int64_t count = n % 9;
    for (int64_t k = 0; k < count; k++) {
      list[k] = n % 2 && k ? (list[k - 1] + 1) % 6 : rows_pick(6);
      rows_add(&fresh, r.length[list[k]]);
    }
    tdict_tree *td = rows_tree(&r, NULL), *value = rows_tree(&fresh, NULL), *out = NULL;
    td_ok(tdict_index_set(NULL, td, TDICT_INDEX(TDICT_LIST(list, count)), value, NULL, err));
    for (int64_t k = 0; k < count; k++) replace_row(&r, list[k], &fresh, k); /* the last value listed for a row wins */
    rows_check_at(&w, &r, td, "n.x");
    /* read the rows into an existing leaf */
    td_ok(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST(list, count)), NULL, &out, err));
    td_ok(tdict_fill(out, NULL, 0, NULL, err));
    td_ok(tdict_index_into(NULL, out, td, TDICT_INDEX(TDICT_LIST(list, count)), NULL, err));
    rows part = rows_select(&r, count, list);
    rows_check_and_release(&w, &part, out);
    /* read one row into a tensor */
    td_ok(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_AT(n % 6)), NULL, &out, err));
    tdict_tree *copy = td_made(tree, tdict_clone_deep(out, NULL, &made, err));
    td_ok(tdict_fill(copy, NULL, 0, NULL, err));
    td_ok(tdict_index_into(NULL, copy, td, TDICT_INDEX(TDICT_AT(n % 6)), NULL, err));
    rows_check_row(&w, &r, n % 6, td_leaf(copy, "n.x"));
    td_release(copy, out, value);
    rows_free(&fresh);
    rows_check_and_release(&w, &r, td);
  }
}

CASE(ragged_one_row_is_repeated) {
  scoped_place w = open_place();
  rows r = rows_of(2, COUNTS(3, 3, 2, 3)), fresh = rows_of(2, COUNTS(3));
  tdict_tree *td = TREE(4), *value = help_tree(0, NULL);
  rows_put(td, "n.x", &r, NULL);
  td_put(value, "n.x", rows_tensor(&fresh, 0, NULL));
  td_ok(tdict_index_set(NULL, td, TDICT_INDEX(TDICT_LIST(((const int64_t[]){3, 0, 1}), 3)), value, NULL, err));
  replace_row(&r, 0, &fresh, 0);
  replace_row(&r, 1, &fresh, 0);
  replace_row(&r, 3, &fresh, 0);
  rows_check_at(&w, &r, td, "n.x");
  td_fails(TDICT_ESHAPE, "row 2 has length 2, but row 0 of the other side has 3",
           tdict_index_set(NULL, td, TDICT_INDEX(TDICT_ALL), value, NULL, err));
  tdict_release(value);
  rows_free(&fresh);
  rows_check_and_release(&w, &r, td);
}

/* tdict_cat_into() writes the rows of three trees one after another, even if their offsets have different dtypes. */
DEVICE_CASE(ragged_cat_into_writes_rows) {
  scoped_place w = open_place();
  for (int n = 0; n < 20; n++) {
    rows parts[3], all = {.width = 2};
    tdict_tree *items[3];
    for (int i = 0; i < 3; i++) {
      parts[i] = rows_random(rows_pick(4), 2);
      items[i] = rows_tree(&parts[i], MEMORY(w));
      for (int64_t k = 0; k < parts[i].count; k++) rows_add_copy(&all, &parts[i], k);
    }
    scoped_rows before = rows_of(2, (int)all.count, all.length);
    tdict_tree *td = rows_tree(&before, MEMORY(w));
    tdict_tensor *values = tdict_ragged_get_info(rows_get(td, "n.x")).values;
    tdict_lock(td);
    td_ok(tdict_cat_into(td, (const tdict_tree *const *)items, 3, NULL, NULL, err));
    rows_check_at(&w, &all, td, "n.x");
    assert_ptr_equal(tdict_ragged_get_info(rows_get(td, "n.x")).values, values);
    td_ok(tdict_cat_into(td, (const tdict_tree *const[]){td}, 1, NULL, NULL, err)); /* the tree is its own source */
    rows_check_at(&w, &all, td, "n.x");
    for (int i = 0; i < 3; i++) rows_check_and_release(&w, &parts[i], items[i]);
    rows_check_and_release(&w, &all, td);
  }
}

CASE(ragged_cat_into_refuses) {
  scoped_place w = open_place();
  scoped_rows b = rows_of(2, COUNTS(2)), r = rows_of(2, COUNTS(3, 1, 2)), many = rows_of(2, COUNTS(2, 2));
  rows a = rows_of(2, COUNTS(3, 1)), other = rows_of(2, COUNTS(3, 1, 4)), wide = rows_of(3, COUNTS(2));
  scoped_tree second = rows_tree(&b, NULL), td = rows_tree(&r, NULL);
  tdict_tree *first = rows_tree(&a, NULL), *longer = rows_tree(&other, NULL), *wider = rows_tree(&wide, NULL);
  const tdict_tree *both[] = {first, second}, *misfit[] = {first, wider};
  td_ok(tdict_fill(td, NULL, 0, NULL, err));
  for (int64_t i = 0; i < 3; i++) memset(r.value[i], 0, (size_t)r.length[i] * 2 * sizeof(float));
  td_fails_at(TDICT_ESHAPE, "row 2 has length 4, but row 0 of the other side has 2", "n.x",
              tdict_cat_into(longer, both, 2, NULL, NULL, err));
  td_fails_at(TDICT_ESHAPE, "has shape", "n.x.values", tdict_cat_into(td, misfit, 2, NULL, NULL, err));
  rows_check_at(&w, &r, td, "n.x"); /* no row of the first tree was written */
  TD_WITHOUT_MEMORY_THEN(tdict_cat_into(td, both, 2, NULL, NULL, err), rows_check_at(&w, &r, td, "n.x"));
  /* a child whose ragged leaf has more rows than its parent */
  td_ok(tdict_set_batch_size(td_child(second, "n"), 0, NULL, err));
  rows_put(td_child(second, "n"), "x", &many, NULL);
  td_fails_at(TDICT_ESHAPE, "the object has [2]", "n.x", tdict_cat_into(td, both, 2, NULL, NULL, err));
  rows_check_and_release(&w, &a, first);
  rows_check_and_release(&w, &other, longer);
  rows_check_and_release(&w, &wide, wider);
}

CASE(ragged_writes_refuse) {
  scoped_place w = open_place();
  rows r = rows_of(2, COUNTS(3, 1, 2)), other = rows_of(2, COUNTS(3, 2, 2)), wide = rows_of(3, COUNTS(3, 1, 2));
  tdict_tree *td = rows_tree(&r, NULL), *value = rows_tree(&other, NULL), *wider = rows_tree(&wide, NULL), *row = NULL;
  tdict_tree *plain = TREE(3), *empty = TREE(3), *objects = TREE(3);
  const int64_t two[] = {0, 1};
  /* the tensor "t" comes before the ragged leaf, but must not change either */
  td_ok(tdict_fill(value, NULL, 0, NULL, err));
  td_fails(TDICT_ESHAPE, "row 1 has length 1, but row 1 of the other side has 2", tdict_copy(td, value, NULL, err));
  assert_string_equal(td_last_error.path, "n.x");
  td_fails(TDICT_ESHAPE, "row 1 has length 1", tdict_index_set(NULL, td, TDICT_INDEX(TDICT_ALL), value, NULL, err));
  td_fails(TDICT_ESHAPE, "row 1 has length 1", tdict_write_rows(td, 0, value, err));
  td_fails(TDICT_ESHAPE, "row 1 has length 1", tdict_update_in_place(td, value, NULL, 0, err));
  td_fails(TDICT_ESHAPE, "row 1 has length 2", tdict_index_into(NULL, td, value, TDICT_INDEX(TDICT_ALL), NULL, err));
  td_ok(tdict_index_get(NULL, value, TDICT_INDEX(TDICT_AT(1)), NULL, &row, err));
  td_fails(TDICT_ESHAPE, "row 0 has length 3, but row 0 of the other side has 2", tdict_write_rows(td, 0, row, err));
  assert_string_equal(td_last_error.path, "n.x");
  td_fails_at(TDICT_ESHAPE, "has shape", "n.x.values", tdict_copy(td, wider, NULL, err));
  td_fails(TDICT_ENOTSUP, "ragged", tdict_index_set(NULL, td, TDICT_INDEX(TDICT_NEW_AXIS), row, NULL, err));
  td_put(plain, "n.x", TENSOR(3, 2));
  td_fails(TDICT_ETYPE, "an object of type ragged",
           tdict_index_set(NULL, td, TDICT_INDEX(TDICT_ALL), plain, NULL, err));
  td_fails(TDICT_ETYPE, "an object of type ragged", tdict_update_in_place(td, plain, NULL, 0, err));
  td_ok(tdict_set_object(objects, "n.x", &bare_type, malloc(1), err));
  td_fails(TDICT_ETYPE, "type ragged", tdict_update_in_place(td, objects, NULL, 0, err));
  td_fails(TDICT_ETYPE, "type ragged", tdict_index_set(NULL, td, TDICT_INDEX(TDICT_ALL), objects, NULL, err));
  td_fails(TDICT_ENOTSUP, "ragged", tdict_write_rows(empty, 0, value, err)); /* there is no leaf to write to */
  assert_int_equal(tdict_num_keys(empty), 0);
  tdict_ragged *leaf = rows_make(&r, TDICT_I64, NULL);
  td_ok(tdict_delete(row, "t", err));
  td_ok(tdict_set_ragged(row, "n.x", leaf, err)); /* a leaf of three rows for two selected rows */
  td_fails(TDICT_ESHAPE, "2 rows are selected, but the other leaf has 3",
           tdict_index_set(NULL, td, TDICT_INDEX(TDICT_LIST(two, 2)), row, NULL, err));
  tdict_ragged_release(leaf);
  tdict_tensor *scalar = td_made(tensor, tdict_tensor_zeros(TDICT_F32, 0, NULL, NULL, &made, err));
  td_put(row, "n.x", scalar);
  td_fails(TDICT_ESHAPE, "a row is a scalar", tdict_write_rows(td, 0, row, err));
  for (int64_t i = 0; i < 3; i++) assert_int_equal(((const int64_t *)tdict_const_data(td, "t"))[i], i);
  td_release(row, objects, empty, plain, value);
  rows_check_and_release(&w, &wide, wider);
  rows_free(&other);
  rows_check_and_release(&w, &r, td);
}

/* The child "n" is changed through its own handle, so that its ragged leaf has more rows than the tree. */
CASE(ragged_changed_child_is_refused) {
  scoped_place w = open_place();
  scoped_rows r = rows_of(1, COUNTS(2, 1)), other = rows_of(1, COUNTS(1, 1, 1));
  scoped_tree td = rows_tree(&r, NULL), out = NULL, row = NULL;
  td_ok(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_AT(0)), NULL, &row, err));
  td_ok(tdict_delete(td, "t", err));
  td_ok(tdict_delete(row, "t", err));
  td_ok(tdict_set_batch_size(td_child(td, "n"), 0, NULL, err));
  rows_put(td_child(td, "n"), "x", &other, NULL);
  td_fails(TDICT_ESHAPE, "the object has [3]", tdict_index_get(NULL, td, TDICT_INDEX(TDICT_AT(1)), NULL, &out, err));
  td_fails_at(TDICT_ESHAPE, "the object has [3]", "n.x", tdict_write_rows(td, 1, row, err));
}

CASE(ragged_operations_survive_enomem) {
  scoped_place w = open_place();
  scoped_rows r = rows_of(2, COUNTS(3, 0, 2, 1)), fresh = rows_of(2, COUNTS(3, 0, 2, 1));
  scoped_tree td = rows_tree(&r, NULL), value = rows_tree(&fresh, NULL), out = NULL;
  const int64_t list[] = {3, 0};
  TD_WITHOUT_MEMORY(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_AT(2)), NULL, &out, err));
  td_release(out);
  TD_WITHOUT_MEMORY(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_RANGE(1, 3, 1)), NULL, &out, err));
  td_release(out);
  TD_WITHOUT_MEMORY(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST(list, 2)), NULL, &out, err));
  td_release(out);
  TD_WITHOUT_MEMORY(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_RANGE(TDICT_NONE, TDICT_NONE, -2)), NULL, &out, err));
  td_release(out);
  /* all allocations precede the first write, so a failed call changes nothing */
  TD_WITHOUT_MEMORY_THEN(tdict_copy(td, value, NULL, err), rows_check_at(&w, &r, td, "n.x"));
  rows_check_at(&w, &fresh, td, "n.x");
  td_ok(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_RANGE(TDICT_NONE, TDICT_NONE, -1)), NULL, &out, err));
  TD_WITHOUT_MEMORY(tdict_index_set(NULL, td, TDICT_INDEX(TDICT_RANGE(TDICT_NONE, TDICT_NONE, -1)), out, NULL, err));
}

static int no_batch(const void *self, const int64_t **sizes) {
  (void)self, (void)sizes;
  return 0;
}
static const tdict_builtin fixed_type = {.type = {.struct_size = sizeof fixed_type, .name = "fixed", .release = free},
                                         .mark = &tdict_builtin_mark,
                                         .batch = no_batch};

/* An object whose built-in type has no write function cannot be written in place. */
CASE(builtin_without_pair_is_not_written) {
  scoped_tree td = td_tree("[2] a:f32[2]"), value = td_tree("[2] a:f32[2]"), row = NULL;
  td_ok(tdict_set_object(td, "n.x", &fixed_type.type, malloc(1), err));
  td_ok(tdict_set_object(value, "n.x", &fixed_type.type, malloc(1), err));
  td_ok(tdict_index_get(NULL, value, TDICT_INDEX(TDICT_AT(1)), NULL, &row, err));
  const float before = ((const float *)tdict_const_data(td, "a"))[1];
  td_fails_at(TDICT_ENOTSUP, "type fixed", "n.x", tdict_copy(td, value, NULL, err));
  td_fails(TDICT_ENOTSUP, "type fixed", tdict_update_in_place(td, value, NULL, 0, err));
  td_fails(TDICT_ENOTSUP, "type fixed", tdict_index_set(NULL, td, TDICT_INDEX(TDICT_ALL), value, NULL, err));
  td_fails_at(TDICT_ENOTSUP, "type fixed", "n.x", tdict_write_rows(td, 1, row, err));
  td_fails(TDICT_ENOTSUP, "type fixed", tdict_index_into(NULL, value, td, TDICT_INDEX(TDICT_ALL), NULL, err));
  const tdict_tree *one[] = {td};
  td_fails_at(TDICT_ENOTSUP, "type fixed", "n.x", tdict_cat_into(value, one, 1, NULL, NULL, err));
  assert_memory_equal(&before, (const float *)tdict_const_data(td, "a") + 1, sizeof before);
  td_ok(tdict_fill(td, NULL, 3, NULL, err)); /* skips the object */
  assert_true(((const float *)tdict_const_data(td, "a"))[1] == 3);
}
