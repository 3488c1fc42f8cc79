/* Implements the built-in type of ragged leaves: the hooks for transfers, indices, joins and writes. A box owns one
 * reference to its leaf. Thread rule: as in tdict/ragged.h. */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/leaves/ragged.h"
#include "core/tree/objects.h"
#include "tdict/view.h"

static const char what[] = "ragged", *const keys[] = {"values", "offsets"};

static void release(void *self) { tdict_ragged_release(self); }

static bool is_pinned(const void *self) {
  const tdict_ragged *r = self;
  return tdict_tensor_needs_no_pin(r->values) && tdict_tensor_needs_no_pin(r->offsets);
}

static tdict_status flatten(const void *self, tdict_tree **out, tdict_error *err) {
  const tdict_ragged *r = self;
  return tdict_tree_of_tensors(keys, (tdict_tensor *const[]){r->values, r->offsets}, 2, out, err);
}

static tdict_status flatten_elements(const void *self, tdict_tree **out, tdict_error *err) {
  return tdict_tree_of_tensors(keys, &((const tdict_ragged *)self)->values, 1, out, err);
}

/* Returns an error unless number of values, and shape, dtype and device of the offsets fit `r`. Does not read the
 * offsets, which a transfer can still be writing. */
static tdict_status check_new_tensors(const tdict_ragged *r, const tdict_tensor *values, const tdict_tensor *offsets,
                                      tdict_error *err) {
  const int64_t total = r->at[r->num_rows];
  if (values->ndim < 1 || values->dims[0] != total)
    return tdict_fail(err, TDICT_ESHAPE, "%s: the new values have shape %s, wanted %lld elements in dimension 0", what,
                      TDICT_SHAPE_TEXT(values->ndim, values->dims), (long long)total);
  if (offsets->ndim != 1 || offsets->dims[0] != r->num_rows + 1 || offsets->dtype != r->offsets->dtype)
    return tdict_fail(err, TDICT_ESHAPE, "%s: the new offsets have shape %s, wanted the shape and dtype of the old",
                      what, TDICT_SHAPE_TEXT(offsets->ndim, offsets->dims));
  if (tdict_device_equal(values->storage->device, offsets->storage->device)) return TDICT_OK;
  return tdict_fail(err, TDICT_EWRONGDEVICE, "%s: the new values are on %s, but the offsets are on %s", what,
                    TDICT_DEVICE_TEXT(values->storage->device), TDICT_DEVICE_TEXT(offsets->storage->device));
}

/* Makes a leaf with the tensors of `tree` and the row lengths of `self`, whose offsets stand in for missing ones. */
static tdict_status unflatten(const void *self, const tdict_tree *tree, void **out, tdict_error *err) {
  const tdict_ragged *old = self;
  tdict_tensor *values, *offsets = old->offsets;
  tdict_ragged *r;
  tdict_status status = tdict_get(tree, "values", &values, err);
  if (status == TDICT_OK && tdict_has(tree, "offsets")) status = tdict_get(tree, "offsets", &offsets, err);
  if (status == TDICT_OK) status = check_new_tensors(old, values, offsets, err);
  if (status == TDICT_OK) status = tdict_ragged_new(what, old->num_rows, &r, err);
  if (status != TDICT_OK) return status;
  for (int64_t i = 1; i <= r->num_rows; i++) r->at[i] = old->at[i];
  r->values = tdict_tensor_retain(values);
  r->offsets = tdict_tensor_retain(offsets);
  *out = r;
  return TDICT_OK;
}

static size_t bytes(const void *self) {
  const tdict_ragged *r = self;
  return tdict_tensor_nbytes(r->values) + tdict_tensor_nbytes(r->offsets);
}

/* Prints a text such as "ragged float32 [3, *, 17], 12 elements, cpu pinned". */
static size_t print(const void *self, char *buffer, size_t room) {
  const tdict_ragged *r = self;
  const tdict_tensor *t = r->values;
  const char *last = t->ndim > 1 ? TDICT_SHAPE_TEXT(t->ndim - 1, t->dims + 1) + 1 : "]";
  const int length =
      snprintf(buffer, room, "ragged %s [%lld, *%s%s, %lld element%s, %s%s", TDICT_DTYPE_TEXT(t->dtype),
               (long long)r->num_rows, t->ndim > 1 ? ", " : "", last, (long long)t->dims[0], t->dims[0] == 1 ? "" : "s",
               TDICT_DEVICE_TEXT(t->storage->device), tdict_tensor_is_pinned(t) ? " pinned" : "");
  return (size_t)length;
}

static int batch(const void *self, const int64_t **sizes) {
  *sizes = &((const tdict_ragged *)self)->num_rows;
  return 1;
}

/* Sets both tensors of `r` to consecutive rows of `from`: views, except offsets that do not begin with 0. */
static tdict_status share_rows(tdict_ragged *r, const tdict_ragged *from, int64_t first, tdict_error *err) {
  const tdict_tensor_range values = {0, from->at[first], r->at[r->num_rows], 1},
                           offsets = {0, first, r->num_rows + 1, 1};
  tdict_memory *memory;
  tdict_status status = tdict_tensor_slice(from->values, &values, &r->values, err);
  if (status != TDICT_OK) return status;
  if (from->at[first] == 0) return tdict_tensor_slice(from->offsets, &offsets, &r->offsets, err);
  status = tdict_tensor_choose_memory(what, from->offsets, NULL, &memory, err);
  if (status != TDICT_OK) return status;
  return tdict_ragged_make_offsets(r, what, from->offsets->dtype, memory, &r->offsets, err);
}

static tdict_status share_range(const tdict_ragged *from, int64_t start, int64_t count, tdict_ragged **out,
                                tdict_error *err) {
  tdict_ragged *r;
  tdict_status status = tdict_ragged_new(what, count, &r, err);
  if (status != TDICT_OK) return status;
  for (int64_t i = 1; i <= count; i++) r->at[i] = from->at[start + i] - from->at[start];
  status = share_rows(r, from, start, err);
  return TDICT_HAND_OVER(status, r, out, tdict_ragged_release);
}

/* Returns the length of the run of consecutive rows from entry `i` of the list on. NULL: the list has all rows. */
static int64_t count_run(const tdict_positions *positions, int64_t i) {
  int64_t end = i + 1;
  if (!positions->at) return positions->count - i;
  while (end < positions->count && positions->at[end] == positions->at[end - 1] + 1) end++;
  return end - i;
}

/* Copies the rows at `positions` one after another to the values of `r`, consecutive rows together. */
static tdict_status copy_rows(const tdict_ragged *r, const tdict_ragged *from, const tdict_positions *positions,
                              tdict_error *err) {
  tdict_status status = TDICT_OK;
  tdict_temp to, part;
  for (int64_t i = 0, n; i < positions->count && status == TDICT_OK; i += n) {
    n = count_run(positions, i);
    const int64_t elements = r->at[i + n] - r->at[i];
    status = tdict_tensor_copy(tdict_ragged_part(&to, r->values, r->at[i], elements),
                               tdict_ragged_part(&part, from->values, from->at[positions->at[i]], elements), err);
  }
  return status;
}

static tdict_status select_rows(const tdict_ragged *from, const tdict_positions *rows, tdict_ragged **out,
                                tdict_error *err) {
  const tdict_ragged_options options = {sizeof options, from->offsets->dtype, NULL};
  tdict_ragged *r;
  if (!tdict_is_on_host(from->values))
    return tdict_fail(err, TDICT_ENOTSUP, "%s: rows on a device can be selected by an integer or a range of step 1",
                      what);
  tdict_status status = tdict_ragged_new(what, rows->count, &r, err);
  if (status != TDICT_OK) return status;
  for (int64_t i = 0; i < rows->count && status == TDICT_OK; i++)
    if (!tdict_add_i64(r->at[i], tdict_ragged_length(from, rows->at[i]), &r->at[i + 1]))
      status = tdict_fail(err, TDICT_EOVERFLOW, "%s: the sum of the lengths does not fit in 63 bits", what);
  if (status == TDICT_OK) status = tdict_ragged_allocate(r, what, from->values, 1, &options, err);
  if (status == TDICT_OK) status = copy_rows(r, from, rows, err);
  return TDICT_HAND_OVER(status, r, out, tdict_ragged_release);
}

/* Makes a row, or a leaf of the rows. Consecutive rows are views, unless a list selects them. */
static tdict_status arrange(const void *self, const tdict_arrangement *to, tdict_leaf *out, tdict_error *err) {
  const tdict_positions rows = {to->at, to->ndim ? to->shape[0] : 1};
  tdict_tensor *row = NULL;
  tdict_ragged *made;
  tdict_box *box;
  tdict_status status;
  if (to->ndim == 0) {
    status = tdict_ragged_get_row(self, to->at[0], &row, err);
    *out = tdict_leaf_of_tensor(row);
    return status;
  }
  if (to->is_list || (rows.count && count_run(&rows, 0) < rows.count))
    status = select_rows(self, &rows, &made, err);
  else
    status = share_range(self, rows.count ? rows.at[0] : 0, rows.count, &made, err);
  if (status != TDICT_OK) return status;
  status = tdict_box_give(tdict_ragged_type(), made, &box, err);
  if (status == TDICT_OK) *out = tdict_leaf_of_box(box);
  return status;
}

/* Makes a leaf without tensors. Writes the offsets of the rows of all items, one item after another. */
static tdict_status join_offsets(const tdict_ragged *const *items, size_t count, tdict_ragged **out, tdict_error *err) {
  int64_t rows = 0, next = 0;
  for (size_t i = 0; i < count; i++)
    if (!tdict_add_i64(rows, items[i]->num_rows, &rows))
      return tdict_fail(err, TDICT_EOVERFLOW, "cat: the number of rows does not fit in 63 bits");
  tdict_ragged *r;
  tdict_status status = tdict_ragged_new("cat", rows, &r, err);
  if (status != TDICT_OK) return status;
  for (size_t i = 0; i < count; i++)
    for (int64_t row = 0; row < items[i]->num_rows && status == TDICT_OK; row++, next++)
      if (!tdict_add_i64(r->at[next], tdict_ragged_length(items[i], row), &r->at[next + 1]))
        status = tdict_fail(err, TDICT_EOVERFLOW, "cat: the sum of the lengths does not fit in 63 bits");
  return TDICT_HAND_OVER(status, r, out, tdict_ragged_release);
}

static tdict_status join(const void *const *items, size_t count, const tdict_joining *how, void **out,
                         tdict_error *err) {
  const tdict_ragged *const *leaves = (const tdict_ragged *const *)items;
  const tdict_ragged_options options = {sizeof options, leaves[0]->offsets->dtype, how->memory};
  tdict_ragged *r = NULL;
  if (how->is_stack)
    return tdict_fail(err, TDICT_ENOTSUP, "stack: a ragged leaf would get a second batch dimension, wanted cat");
  tdict_tensor **values = malloc(count * sizeof *values); /* cannot overflow: `items` has `count` pointers */
  if (!values) return tdict_fail(err, TDICT_ENOMEM, "cat: no memory for a list of %zu tensors", count);
  for (size_t i = 0; i < count; i++) values[i] = leaves[i]->values;
  tdict_status status = join_offsets(leaves, count, &r, err);
  if (status == TDICT_OK) status = tdict_ragged_join(r, "cat", values, count, &options, err);
  free((void *)values);
  return TDICT_HAND_OVER(status, r, out, tdict_ragged_release);
}

/* A write to the rows of `to` at `positions`. The new elements are in the rows of `from`, or in the tensor `row`. */
typedef struct pairing {
  const tdict_ragged *to, *from;
  const tdict_tensor *row;
  tdict_positions positions;
  tdict_tree **trees;
} pairing;

static int64_t get_position(const pairing *p, int64_t i) { return p->positions.at ? p->positions.at[i] : i; }

/* Checks that each new row is as long as the row that the write replaces. */
static tdict_status check_lengths(const pairing *p, tdict_error *err) {
  if (p->from && p->from->num_rows != p->positions.count)
    return tdict_fail(err, TDICT_ESHAPE, "%s: %lld rows are selected, but the other leaf has %lld", what,
                      (long long)p->positions.count, (long long)p->from->num_rows);
  if (p->row && p->row->ndim < 1) return tdict_fail(err, TDICT_ESHAPE, "%s: a row is a scalar, wanted a tensor", what);
  for (int64_t i = 0; i < p->positions.count; i++) {
    const int64_t found = p->from ? tdict_ragged_length(p->from, i) : p->row->dims[0];
    const int64_t wanted = tdict_ragged_length(p->to, get_position(p, i));
    if (found != wanted)
      return tdict_fail(err, TDICT_ESHAPE, "%s: row %lld has length %lld, but row %lld of the other side has %lld",
                        what, (long long)get_position(p, i), (long long)wanted, (long long)(p->from ? i : 0),
                        (long long)found);
  }
  return TDICT_OK;
}

static tdict_status set_part(tdict_tree *tree, const char *key, const tdict_tensor *values, tdict_tensor_range part,
                             tdict_error *err) {
  tdict_tensor *view;
  tdict_status status = tdict_tensor_slice(values, &part, &view, err);
  if (status != TDICT_OK) return status;
  status = tdict_set(tree, key, view, err);
  tdict_tensor_release(view);
  return status;
}

/* Adds the pair of views for `count` consecutive rows, which begin at entry `i` of the positions. */
static tdict_status add_run(const pairing *p, int64_t i, int64_t count, tdict_error *err) {
  char key[32] = "values";
  const int64_t first = p->positions.count ? get_position(p, i) : 0;
  const int64_t begin = p->to->at[first], elements = p->to->at[first + count] - begin;
  if (i > 0) snprintf(key, sizeof key, "values%lld", (long long)i);
  tdict_status status = set_part(p->trees[0], key, p->to->values, (tdict_tensor_range){0, begin, elements, 1}, err);
  if (status != TDICT_OK) return status;
  if (p->row) return tdict_set(p->trees[1], key, (tdict_tensor *)(uintptr_t)p->row, err);
  return set_part(p->trees[1], key, p->from->values, (tdict_tensor_range){0, p->from->at[i], elements, 1}, err);
}

static tdict_status pair(const void *self, const tdict_positions *positions, tdict_leaf value, tdict_tree *trees[2],
                         tdict_error *err) {
  const tdict_box *box = tdict_leaf_box(value);
  pairing p = {.to = self, .from = box ? box->self : NULL, .row = tdict_leaf_tensor(value)};
  tdict_tree *made[2] = {NULL, NULL};
  p.trees = made;
  p.positions = positions ? *positions : (tdict_positions){NULL, p.to->num_rows};
  tdict_status status = check_lengths(&p, err);
  if (status == TDICT_OK) status = tdict_create(0, NULL, &made[0], err);
  if (status == TDICT_OK) status = tdict_create(0, NULL, &made[1], err);
  /* If a write from a leaf selects no row, a pair of empty views lets the caller check dtype and shape. */
  if (status == TDICT_OK && p.positions.count == 0 && p.from) status = add_run(&p, 0, 0, err);
  for (int64_t i = 0, n; i < p.positions.count && status == TDICT_OK; i += n) {
    n = p.row ? 1 : count_run(&p.positions, i);
    status = add_run(&p, i, n, err);
  }
  for (int i = 0; i < 2; i++)
    if (status == TDICT_OK)
      trees[i] = made[i];
    else
      tdict_release(made[i]);
  return status;
}

static const tdict_builtin ragged_type = {.type = {.struct_size = sizeof ragged_type,
                                                   .name = "ragged",
                                                   .release = release,
                                                   .is_pinned = is_pinned,
                                                   .flatten = flatten,
                                                   .unflatten = unflatten,
                                                   .bytes = bytes,
                                                   .print = print},
                                          .mark = &tdict_builtin_mark,
                                          .batch = batch,
                                          .arrange = arrange,
                                          .join = join,
                                          .elements = flatten_elements,
                                          .pair = pair};

const tdict_type *tdict_ragged_type(void) { return &ragged_type.type; }

tdict_status tdict_set_ragged(tdict_tree *tree, const char *path, tdict_ragged *ragged, tdict_error *err) {
  if (!tree || !path || !ragged)
    return tdict_fail_null_at(err, "set_ragged", path, !tree ? "tree" : !path ? "path" : "ragged");
  return tdict_object_set("set_ragged", tree, path, &ragged_type.type, tdict_ragged_retain(ragged), err);
}

tdict_status tdict_get_ragged(const tdict_tree *tree, const char *path, tdict_ragged **out, tdict_error *err) {
  void *found = NULL;
  if (!tree || !path || !out) return tdict_fail_null(err, "get_ragged", !tree ? "tree" : !path ? "path" : "out");
  tdict_status status = tdict_object_get("get_ragged", tree, path, &ragged_type.type, &found, err);
  if (status == TDICT_OK) *out = found;
  return status;
}
