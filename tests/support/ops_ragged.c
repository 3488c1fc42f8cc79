/* Operations on trees with a ragged leaf. Results are compared with plain arrays of rows. The tree also has the row
 * numbers in a tensor "t", so "t" in a result says which rows the result must have. See ops.h. */
#include <stdlib.h>
#include <string.h>

#include "tdict/clone.h"
#include "tdict/ragged.h"
#include "tdict/shape.h"
#include "tdict/write.h"

#include "support/ops.h"

enum { MOST_ROWS = 5, MOST_LENGTH = 4, MOST_JOINED = 3 };
typedef struct row_list {
  int64_t count, length[MOST_ROWS];
  int32_t value[MOST_ROWS][MOST_LENGTH];
} row_list;

static int32_t new_number(ops *o) { return (int32_t)ops_pick(o, 1u << 30); }

static void choose_rows(ops *o, row_list *r) {
  r->count = (int64_t)ops_pick(o, MOST_ROWS + 1);
  for (int64_t i = 0; i < r->count; i++) {
    r->length[i] = (int64_t)ops_pick(o, MOST_LENGTH + 1);
    for (int64_t k = 0; k < r->length[i]; k++) r->value[i][k] = new_number(o);
  }
}

static void must(bool ok) {
  if (!ok) abort();
}

/* Returns a tree with batch size [count], the ragged leaf "n.x", and the row numbers in "t". */
static tdict_tree *make_tree(const row_list *r) {
  int64_t offsets[MOST_ROWS + 1] = {0}, count = r->count + 1;
  int32_t values[MOST_ROWS * MOST_LENGTH];
  scoped_tensor v = NULL, at = NULL, numbers = NULL;
  scoped_ragged leaf = NULL;
  tdict_tree *td = NULL;
  for (int64_t i = 0; i < r->count; i++) {
    offsets[i + 1] = offsets[i] + r->length[i];
    memcpy(values + offsets[i], r->value[i], (size_t)r->length[i] * sizeof *values);
  }
  must(tdict_tensor_from_array(TDICT_I32, 1, &offsets[r->count], values, &v, NULL) == TDICT_OK &&
       tdict_tensor_from_array(TDICT_I64, 1, &count, offsets, &at, NULL) == TDICT_OK &&
       tdict_tensor_arange(TDICT_I64, 0, 1, r->count, &numbers, NULL) == TDICT_OK &&
       tdict_ragged_create(v, at, &leaf, NULL) == TDICT_OK && tdict_create(1, &r->count, &td, NULL) == TDICT_OK &&
       tdict_set(td, "t", numbers, NULL) == TDICT_OK && tdict_set_ragged(td, "n.x", leaf, NULL) == TDICT_OK);
  return td;
}

/* Returns whether a row of a result equals row `i` of the list. */
static bool is_row(const row_list *r, int64_t i, const tdict_tensor *row) {
  return i < r->count && tdict_tensor_ndim(row) == 1 && tdict_tensor_shape(row)[0] == r->length[i] &&
         (r->length[i] == 0 ||
          memcmp(tdict_tensor_const_data(row), r->value[i], (size_t)r->length[i] * sizeof r->value[0][0]) == 0);
}

/* Checks that a result has the rows whose numbers are in its tensor "t". */
static void check_rows(ops *o, const row_list *r, const tdict_tree *td) {
  tdict_tensor *t = NULL;
  must(tdict_get(td, "t", &t, NULL) == TDICT_OK);
  const int64_t *numbers = tdict_tensor_const_data(t); /* may be a view with a negative stride */
  tdict_tensor *row = NULL;
  tdict_ragged *leaf = NULL;
  if (tdict_batch_ndim(td) == 0) { /* a single row is a tensor */
    if (tdict_get(td, "n.x", &row, NULL) != TDICT_OK || !is_row(r, numbers[0], row)) ops_complain(o, "another row");
    return;
  }
  const int64_t count = tdict_batch_size(td)[0];
  if (tdict_get_ragged(td, "n.x", &leaf, NULL) != TDICT_OK || tdict_ragged_get_info(leaf).num_rows != count) {
    ops_complain(o, "no ragged leaf with this number of rows");
    return;
  }
  const int64_t *at = tdict_tensor_const_data(tdict_ragged_get_info(leaf).offsets);
  for (int64_t i = 0, sum = 0; i < count; i++) {
    must(tdict_ragged_get_row(leaf, i, &row, NULL) == TDICT_OK);
    sum += tdict_ragged_row_length(leaf, i);
    if (!is_row(r, numbers[i * tdict_tensor_strides(t)[0]], row) || at[0] != 0 || at[i + 1] != sum)
      ops_complain(o, "other rows");
    tdict_tensor_release(row);
  }
}

/* Returns a clone without the ragged leaf. The status of an operation on the clone is the status expected for `td`. */
static tdict_tree *plain_of(const tdict_tree *td) {
  tdict_tree *plain = NULL;
  must(tdict_clone(td, &plain, NULL) == TDICT_OK && tdict_delete(plain, "n", NULL) == TDICT_OK);
  return plain;
}

typedef struct choice {
  uint32_t way;
  int64_t n[3];
} choice;
static choice choose(ops *o, uint32_t ways) {
  choice c = {ops_pick(o, ways), {0}};
  for (int i = 0; i < 3; i++) c.n[i] = (int64_t)ops_pick(o, MOST_ROWS + 1) - 2;
  return c;
}

static tdict_status select_rows(const tdict_tree *td, const choice *c, tdict_tree **out, tdict_error *err) {
  tdict_tree *pieces[MOST_ROWS] = {NULL};
  size_t count = MOST_ROWS;
  tdict_status status;
  switch (c->way) {
  case 0:
    return tdict_index_get(NULL, td, TDICT_INDEX(TDICT_AT(c->n[0])), NULL, out, err);
  case 1:
    return tdict_index_get(NULL, td, TDICT_INDEX(TDICT_RANGE(c->n[0], c->n[1], 1)), NULL, out, err);
  case 2:
    return tdict_index_get(NULL, td, TDICT_INDEX(TDICT_REST, TDICT_RANGE(c->n[0], TDICT_NONE, c->n[2])), NULL, out,
                           err);
  case 3:
    return tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST(c->n, 3)), NULL, out, err);
  case 4:
    return tdict_clone_deep(td, NULL, out, err);
  default:
    status = tdict_split_every(td, 0, c->n[0] + 2, pieces, &count, err);
    for (size_t i = 1; status == TDICT_OK && i < count; i++) tdict_release(pieces[i]);
    if (status == TDICT_OK) *out = pieces[0];
    return status == TDICT_OK && count == 0 ? TDICT_ENOTFOUND : status;
  }
}

static tdict_status join_rows(const tdict_tree *td, const choice *c, tdict_tree **out, tdict_error *err) {
  const tdict_tree *items[MOST_JOINED] = {td, td, td};
  return tdict_cat(items, 1 + c->way % MOST_JOINED, NULL, NULL, out, err);
}

typedef tdict_status (*maker)(const tdict_tree *td, const choice *c, tdict_tree **out, tdict_error *err);
static void make(ops *o, maker fn, uint32_t ways) {
  row_list r;
  choose_rows(o, &r);
  const choice c = choose(o, ways);
  scoped_tree td = make_tree(&r), plain = plain_of(td), out = NULL, wanted = NULL;
  tdict_status status = OPS_CALL(o, fn(td, &c, &out, o->err));
  tdict_status answer = o->refused ? TDICT_OK : fn(plain, &c, &wanted, NULL);
  if (ops_judge(o, status, answer)) {
    if (tdict_batch_ndim(out) != tdict_batch_ndim(wanted)) ops_complain(o, "another batch size");
    check_rows(o, &r, out);
  }
  check_rows(o, &r, td);
}

static tdict_status keep_rows(const tdict_tree *td, const choice *c, tdict_tree **out, tdict_error *err) {
  const ops_choice whole = {c->way, {0}};
  return ops_whole_of(td, &whole, out, err);
}

static void op_ragged_index(ops *o) { make(o, select_rows, 6); }
static void op_ragged_cat(ops *o) { make(o, join_rows, MOST_JOINED); }
static void op_ragged_whole(ops *o) {
  (void)ops_context();
  make(o, keep_rows, OPS_WAYS_OF_ALL_LEAVES);
}

/* Returns new rows with the lengths of the rows from `first` on. If `differs` is true, the last length differs. */
static row_list choose_values(ops *o, const row_list *r, int64_t first, bool differs) {
  row_list value = {.count = r->count - first};
  for (int64_t i = 0; i < value.count; i++) {
    value.length[i] = r->length[first + i];
    if (differs && i == value.count - 1) value.length[i] = (value.length[i] + 1) % (MOST_LENGTH + 1);
    for (int64_t k = 0; k < value.length[i]; k++) value.value[i][k] = new_number(o);
  }
  return value;
}

static tdict_status write_value(tdict_tree *td, int64_t first, const tdict_tree *value, uint32_t way,
                                tdict_error *err) {
  tdict_tree *row = NULL;
  int64_t list[MOST_ROWS];
  for (int64_t i = 0; i < MOST_ROWS; i++) list[i] = first + i;
  switch (way) {
  case 0:
    return tdict_write_rows(td, first, value, err);
  case 1:
    return tdict_index_set(NULL, td, TDICT_INDEX(TDICT_LIST(list, tdict_batch_size(value)[0])), value, NULL, err);
  case 2:
    return first ? tdict_write_rows(td, first, value, err) : tdict_update_in_place(td, value, NULL, 0, err);
  default: {
    tdict_status status = TDICT_OK; /* row by row: after a failure, some rows may already be written */
    for (int64_t i = 0; i < tdict_batch_size(value)[0] && status == TDICT_OK; i++) {
      status = tdict_index_get(NULL, value, TDICT_INDEX(TDICT_AT(i)), NULL, &row, err);
      if (status == TDICT_OK) status = tdict_write_rows(td, first + i, row, err);
      tdict_release(row);
      row = NULL;
    }
    return status;
  }
  }
}

static void op_ragged_write(ops *o) {
  row_list r;
  choose_rows(o, &r);
  const int64_t first = (int64_t)ops_pick(o, (uint32_t)r.count + 1);
  const bool differs = ops_pick(o, 4) == 0 && r.count > first;
  const uint32_t way = ops_pick(o, 4);
  const row_list value = choose_values(o, &r, first, differs);
  scoped_tree td = make_tree(&r), from = make_tree(&value);
  must(tdict_delete(from, "t", NULL) == TDICT_OK);
  tdict_status status = OPS_CALL(o, write_value(td, first, from, way, o->err));
  const bool is_done = ops_judge(o, status, differs ? TDICT_ESHAPE : TDICT_OK);
  for (int64_t i = 0; is_done && i < value.count; i++)
    memcpy(r.value[first + i], value.value[i], sizeof value.value[i]);
  if (is_done || way != 3) check_rows(o, &r, td);
}

/* Unbinds the tree into rows and stacks them again. The result is a ragged leaf unless all lengths are equal. */
static void op_ragged_stack(ops *o) {
  row_list r;
  choose_rows(o, &r);
  if (r.count == 0) return;
  scoped_tree td = make_tree(&r), out = NULL;
  tdict_tree *samples[MOST_ROWS];
  size_t count = MOST_ROWS;
  tdict_join_options options = td_with(tdict_join_options, ragged = true);
  must(tdict_unbind(td, 0, samples, &count, NULL) == TDICT_OK);
  bool is_ragged = false;
  for (int64_t i = 1; i < r.count; i++) is_ragged |= r.length[i] != r.length[0];
  tdict_status status =
      OPS_CALL(o, tdict_stack((const tdict_tree *const *)samples, count, &options, NULL, &out, o->err));
  if (ops_judge(o, status, TDICT_OK)) {
    if (is_ragged)
      check_rows(o, &r, out);
    else if (tdict_object_type(out, "n.x"))
      ops_complain(o, "a ragged leaf, although all lengths are equal");
  }
  for (size_t i = 0; i < count; i++) tdict_release(samples[i]);
}

/* Splits the rows at row `at` and joins both parts into an existing leaf, whose last row may have a different
 * length. */
static void op_ragged_cat_into(ops *o) {
  row_list r;
  choose_rows(o, &r);
  const int64_t at = (int64_t)ops_pick(o, (uint32_t)r.count + 1);
  const bool differs = ops_pick(o, 4) == 0 && r.count > 0;
  const row_list before = choose_values(o, &r, 0, differs);
  scoped_tree from = make_tree(&r), td = make_tree(&before);
  tdict_tree *parts[2] = {NULL, NULL};
  must(tdict_split(from, 0, (const int64_t[]){at, r.count - at}, parts, &(size_t){2}, NULL) == TDICT_OK);
  tdict_status status = OPS_CALL(o, tdict_cat_into(td, (const tdict_tree *const *)parts, 2, NULL, NULL, o->err));
  check_rows(o, ops_judge(o, status, differs ? TDICT_ESHAPE : TDICT_OK) ? &r : &before, td);
  check_rows(o, &r, from);
  tdict_release(parts[0]);
  tdict_release(parts[1]);
}

const ops_fn ops_ragged[] = {op_ragged_index, op_ragged_cat,   op_ragged_write,
                             op_ragged_stack, op_ragged_whole, op_ragged_cat_into};
const char *const ops_ragged_names[] = {"ragged_index", "ragged_cat",   "ragged_write",
                                        "ragged_stack", "ragged_whole", "ragged_cat_into"};
const int ops_num_ragged = sizeof ops_ragged / sizeof *ops_ragged;
