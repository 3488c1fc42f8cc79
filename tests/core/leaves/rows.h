/* Plain arrays of rows of different lengths, which tests compare with ragged leaves. The caller releases what these
 * functions return. Thread rule: the main thread. */
#ifndef TDICT_TESTS_CORE_LEAVES_ROWS_H
#define TDICT_TESTS_CORE_LEAVES_ROWS_H

#include "core/tree/help.h"
#include "engine/help.h"

enum { MOST_ROWS = 40 };
typedef struct rows {
  int64_t count, width; /* width: floats in each element of a row */
  int64_t length[MOST_ROWS];
  float *value[MOST_ROWS]; /* length * width numbers */
} rows;

static inline uint32_t rows_pick(uint32_t below) {
  static uint64_t state = 20261123;
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(state >> 33) % below;
}
/* Adds a row with new random numbers. */
static inline void rows_add(rows *r, int64_t length) {
  static uint64_t seed;
  const size_t bytes = (size_t)(length * r->width) * sizeof(float);
  float *row = td_alloc(bytes + 1);
  assert_true(r->count < MOST_ROWS);
  td_fill_random(row, bytes, ++seed);
  for (int64_t i = 0; i < length * r->width; i++) { /* avoids NaN, which does not equal itself */
    int32_t number;
    memcpy(&number, &row[i], sizeof number);
    row[i] = (float)number;
  }
  r->length[r->count] = length;
  r->value[r->count++] = row;
}
static inline void rows_add_copy(rows *r, const rows *from, int64_t i) {
  rows_add(r, from->length[i]);
  memcpy(r->value[r->count - 1], from->value[i], (size_t)(from->length[i] * from->width) * sizeof(float));
}
static inline rows rows_random(int64_t count, int64_t width) {
  rows r = {.width = width};
  for (int64_t i = 0; i < count; i++) rows_add(&r, rows_pick(4) ? rows_pick(6) : 0);
  return r;
}
static inline rows rows_of(int64_t width, int count, const int64_t *lengths) {
  rows r = {.width = width};
  for (int i = 0; i < count; i++) rows_add(&r, lengths[i]);
  return r;
}
static inline void rows_free(rows *r) {
  for (int64_t i = 0; i < r->count; i++) free(r->value[i]);
  r->count = 0;
}
#define scoped_rows TD_SCOPED(rows_free, rows)
static inline rows rows_select(const rows *from, int64_t count, const int64_t *positions) {
  rows r = {.width = from->width};
  for (int64_t i = 0; i < count; i++) rows_add_copy(&r, from, positions[i]);
  return r;
}

/* Returns row `i` as a tensor of shape [length, width] in `memory`, or in host memory if `memory` is NULL. */
static inline tdict_tensor *rows_tensor(const rows *r, int64_t i, tdict_memory *memory) {
  tdict_tensor *host = NULL, *made = NULL;
  td_ok(tdict_tensor_from_array(TDICT_F32, COUNTS(r->length[i], r->width), r->value[i], &host, err));
  if (!memory) return host;
  td_ok(tdict_tensor_clone(host, memory, &made, err));
  tdict_tensor_release(host);
  return made;
}
/* Copies the rows to a new ragged leaf in `memory`: values of shape [total, width] and offsets of dtype `dtype`. */
static inline tdict_ragged *rows_make(const rows *r, tdict_dtype dtype, tdict_memory *memory) {
  int64_t wide[MOST_ROWS + 1] = {0};
  int32_t narrow[MOST_ROWS + 1] = {0};
  for (int64_t i = 0; i < r->count; i++) {
    wide[i + 1] = wide[i] + r->length[i];
    narrow[i + 1] = (int32_t)wide[i + 1];
  }
  const int64_t total = wide[r->count];
  float *all = td_alloc((size_t)(total * r->width) * sizeof(float) + 1);
  for (int64_t i = 0; i < r->count; i++)
    memcpy(all + wide[i] * r->width, r->value[i], (size_t)(r->length[i] * r->width) * sizeof(float));
  scoped_tensor values = NULL, offsets = NULL;
  tdict_tensor *moved = NULL;
  td_ok(tdict_tensor_from_array(TDICT_F32, COUNTS(total, r->width), all, &values, err));
  td_ok(tdict_tensor_from_array(dtype, COUNTS(r->count + 1), dtype == TDICT_I64 ? (void *)wide : (void *)narrow,
                                &offsets, err));
  free(all);
  if (memory) {
    td_ok(tdict_tensor_clone(values, memory, &moved, err));
    tdict_tensor_release(values);
    values = moved;
    td_ok(tdict_tensor_clone(offsets, memory, &moved, err));
    tdict_tensor_release(offsets);
    offsets = moved;
  }
  return td_made(ragged, tdict_ragged_create(values, offsets, &made, err));
}
/* Makes a ragged leaf of these rows and sets it in the tree. Returns the leaf, which the tree owns. */
static inline tdict_ragged *rows_put(tdict_tree *td, const char *path, const rows *r, tdict_memory *memory) {
  scoped_ragged made = rows_make(r, r->count % 2 ? TDICT_I32 : TDICT_I64, memory);
  td_ok(tdict_set_ragged(td, path, made, err));
  return made;
}
static inline tdict_ragged *rows_get(const tdict_tree *td, const char *path) {
  return td_made(ragged, tdict_get_ragged(td, path, &made, err));
}

static inline void rows_check_row(const place *w, const rows *want, int64_t i, const tdict_tensor *got) {
  assert_int_equal(tdict_tensor_ndim(got), 2);
  assert_int_equal(tdict_tensor_shape(got)[0], want->length[i]);
  assert_int_equal(tdict_tensor_shape(got)[1], want->width);
  scoped_bytes found = read_elements(w, got);
  assert_memory_equal(found, want->value[i], (size_t)(want->length[i] * want->width) * sizeof(float));
}
/* Checks that a ragged leaf equals these rows: its values, its offsets, and what its functions return. */
static inline void rows_check(const place *w, const rows *want, const tdict_ragged *got) {
  const tdict_tensor *values = tdict_ragged_get_info(got).values, *offsets = tdict_ragged_get_info(got).offsets;
  assert_int_equal(tdict_ragged_get_info(got).num_rows, want->count);
  assert_int_equal(tdict_tensor_ndim(values), 2);
  assert_int_equal(tdict_tensor_shape(values)[1], want->width);
  assert_int_equal(tdict_tensor_ndim(offsets), 1);
  assert_int_equal(tdict_tensor_shape(offsets)[0], want->count + 1);
  assert_true(tdict_device_equal(tdict_tensor_device(values), tdict_tensor_device(offsets)));
  const bool is_wide = tdict_tensor_dtype(offsets) == TDICT_I64;
  scoped_bytes found = read_elements(w, values), at = read_elements(w, offsets);
  int64_t sum = 0, longest = 0;
  for (int64_t i = 0; i <= want->count; i++) {
    assert_int_equal(is_wide ? ((int64_t *)(void *)at)[i] : ((int32_t *)(void *)at)[i], sum);
    if (i == want->count) break;
    assert_int_equal(tdict_ragged_row_length(got, i), want->length[i]);
    assert_memory_equal(found + (size_t)(sum * want->width) * sizeof(float), want->value[i],
                        (size_t)(want->length[i] * want->width) * sizeof(float));
    sum += want->length[i];
    if (want->length[i] > longest) longest = want->length[i];
  }
  assert_int_equal(tdict_tensor_shape(values)[0], sum);
  assert_int_equal(tdict_ragged_max_length(got), longest);
}
static inline void rows_check_at(const place *w, const rows *want, const tdict_tree *td, const char *path) {
  rows_check(w, want, rows_get(td, path));
}

/* Makes a tree of batch size [rows] with a ragged leaf at "n.x" and a tensor of the row numbers at "t". */
static inline tdict_tree *rows_tree(const rows *r, tdict_memory *memory) {
  tdict_tree *td = TREE(r->count);
  tdict_tensor *numbers = td_made(tensor, tdict_tensor_arange(TDICT_I64, 0, 1, r->count, &made, err));
  if (memory) {
    tdict_tensor *moved = td_made(tensor, tdict_tensor_clone(numbers, memory, &made, err));
    tdict_tensor_release(numbers);
    numbers = moved;
  }
  td_put(td, "t", numbers);
  rows_put(td, "n.x", r, memory);
  return td;
}
static inline void rows_check_and_release(const place *w, rows *want, tdict_tree *got) {
  assert_int_equal(tdict_batch_ndim(got), 1);
  assert_int_equal(tdict_batch_size(got)[0], want->count);
  rows_check_at(w, want, got, "n.x");
  rows_free(want);
  tdict_release(got);
}
#define MEMORY(w) ((w).gpu ? (w).memory : NULL)

#endif
