/* Calls operations on device trees of rows, and checks the results. The leaves "b" and "n.d" may be on a different
 * device from the others. Each case releases what it makes. */
#ifndef TDICT_TESTS_CORE_OPS_DEVICE_WAYS_H
#define TDICT_TESTS_CORE_OPS_DEVICE_WAYS_H

#include "core/ops/device/rows.h"

typedef enum tree_way {
  WAY_GET,
  WAY_GET_BY_DEVICE_LIST,
  WAY_INTO,
  WAY_SET,
  WAY_STACK,
  WAY_CAT,
  WAY_STACK_INTO,
  WAY_CAT_INTO,
  WAY_CLONE,
  WAY_CONTIGUOUS,
  WAY_COPY,
  WAY_FILL,
  WAY_TO_DTYPE,
  NUM_WAYS
} tree_way;
static const char *const way_names[NUM_WAYS] = {
    "get",   "get by device list", "into", "set",  "stack",   "cat", "stack_into", "cat_into",
    "clone", "contiguous",         "copy", "fill", "to_dtype"};
static const char *const way_paths[] = {"a", "b", "n.c", "n.d", "e"};
static const int64_t way_rows[] = {9, 0, 33};

/* The trees of all operations: two of 40 rows, a view of the first in reverse order, one of 3 rows, and the
 * destinations of joins. In the tree with number k, leaf i has random bytes with seed k + i. */
typedef struct ways {
  place w[2]; /* the place of most leaves, and the place of "b" and "n.d" */
  tdict_tree *td, *other, *view, *few, *stacked, *joined;
  tdict_tensor *list; /* way_rows on the device */
} ways;
static inline const place *place_of(const ways *t, int leaf) { return &t->w[leaf == 1 || leaf == 3]; }

static inline tdict_tree *ways_tree(const ways *t, int64_t rows, uint64_t number) {
  tdict_tree *td = TREE(rows);
  for (int i = 0; i < 5; i++) td_put(td, way_paths[i], rows_on(place_of(t, i), rows, number + (uint64_t)i));
  return td;
}
static inline tdict_tree *ways_stacked(const ways *t) {
  const int64_t shape[] = {2, 40, 6};
  tdict_tree *td = TREE(2, 40);
  for (int i = 0; i < 5; i++) td_put(td, way_paths[i], new_tensor(TDICT_I32, 3, shape, place_of(t, i)->memory));
  return td;
}
/* Restores the elements of all trees that operations write. */
static inline void ways_reset(const ways *t) {
  for (int i = 0; i < 5; i++) {
    const uint64_t n = (uint64_t)i;
    put_number(place_of(t, i), td_leaf(t->td, way_paths[i]), 1 + n);
    put_number(place_of(t, i), td_leaf(t->other, way_paths[i]), 11 + n);
    put_number(place_of(t, i), td_leaf(t->few, way_paths[i]), 21 + n);
    put_number(place_of(t, i), td_leaf(t->stacked, way_paths[i]), 31 + n);
    put_number(place_of(t, i), td_leaf(t->joined, way_paths[i]), 41 + n);
  }
}
static inline ways ways_open(const place *w, const place *second) {
  const int64_t three = 3;
  ways t = {.w = {*w, *second}};
  t.td = ways_tree(&t, 40, 1);
  t.other = ways_tree(&t, 40, 11);
  t.few = ways_tree(&t, 3, 21);
  t.joined = ways_tree(&t, 80, 41);
  t.stacked = ways_stacked(&t);
  td_ok(tdict_index_get(NULL, t.td, TDICT_INDEX(TDICT_RANGE(TDICT_NONE, TDICT_NONE, -1)), NULL, &t.view, err));
  t.list = new_tensor(TDICT_I64, 1, &three, w->memory);
  put_bytes(w, t.list, way_rows);
  ways_reset(&t);
  return t;
}
static inline void ways_close(ways *t) { td_release(t->list, t->td, t->other, t->view, t->few, t->stacked, t->joined); }
#define scoped_ways TD_SCOPED(ways_close, ways)

/* Calls the operation, on the stream `s` or blocking if `s` is NULL. Operations that make a new tree set *out. */
static inline tdict_status ways_call(const ways *t, tree_way way, const tdict_stream *s, tdict_tree **out,
                                     tdict_error *err) {
  const tdict_run *run = TD_ON_IF(s);
  const tdict_indices *index = TDICT_INDEX(TDICT_LIST(way_rows, 3));
  const tdict_tree *const items[] = {t->td, t->other};
  switch (way) {
  case WAY_GET:
    return tdict_index_get(NULL, t->td, index, run, out, err);
  case WAY_GET_BY_DEVICE_LIST:
    return tdict_index_get(NULL, t->td, TDICT_INDEX(TDICT_LIST_OF(t->list)), run, out, err);
  case WAY_INTO:
    return tdict_index_into(NULL, t->few, t->td, index, run, err);
  case WAY_SET:
    return tdict_index_set(NULL, t->td, index, t->few, run, err);
  case WAY_STACK:
    return tdict_stack(items, 2, NULL, run, out, err);
  case WAY_CAT:
    return tdict_cat(items, 2, NULL, run, out, err);
  case WAY_STACK_INTO:
    return tdict_stack_into(t->stacked, items, 2, NULL, run, err);
  case WAY_CAT_INTO:
    return tdict_cat_into(t->joined, items, 2, NULL, run, err);
  case WAY_CLONE:
    return tdict_clone_deep(t->td, run, out, err);
  case WAY_CONTIGUOUS:
    return tdict_contiguous(t->view, run, out, err);
  case WAY_COPY:
    return tdict_copy(t->other, t->td, run, err);
  case WAY_FILL:
    return tdict_fill(t->other, NULL, 9, run, err);
  default:
    return tdict_to_dtype(t->td, TDICT_F64, NULL, run, out, err);
  }
}
/* Returns the destination of an operation that makes no new tree, else NULL. */
static inline tdict_tree *ways_destination(const ways *t, tree_way way) {
  switch (way) {
  case WAY_INTO:
    return t->few;
  case WAY_SET:
    return t->td;
  case WAY_STACK_INTO:
    return t->stacked;
  case WAY_CAT_INTO:
    return t->joined;
  case WAY_COPY:
  case WAY_FILL:
    return t->other;
  default:
    return NULL;
  }
}

/* Row `at` of a result must equal row `from` of a leaf with `rows` rows, filled with random bytes of seed `number`. */
typedef struct wanted_row {
  int64_t at, from, rows;
  uint64_t number;
} wanted_row;
static inline wanted_row ways_wanted(tree_way way) {
  switch (way) {
  case WAY_GET:
  case WAY_GET_BY_DEVICE_LIST:
  case WAY_INTO:
    return (wanted_row){2, 33, 40, 1};
  case WAY_SET:
    return (wanted_row){33, 2, 3, 21};
  case WAY_STACK:
  case WAY_CAT:
  case WAY_STACK_INTO:
  case WAY_CAT_INTO:
    return (wanted_row){42, 2, 40, 11};
  case WAY_CONTIGUOUS:
    return (wanted_row){4, 35, 40, 1};
  default:
    return (wanted_row){4, 4, 40, 1};
  }
}
/* Checks a row of each leaf of a completed result, or all rows after a fill or a conversion. */
static inline void ways_check(const ways *t, tree_way way, const tdict_tree *out) {
  const tdict_tree *result = out ? out : ways_destination(t, way);
  const wanted_row r = ways_wanted(way);
  assert_non_null(result);
  for (int i = 0; i < 5; i++) {
    tdict_tensor *leaf = td_leaf(result, way_paths[i]);
    const place *w = place_of(t, i);
    if (way != WAY_FILL && way != WAY_TO_DTYPE) {
      check_row(w, leaf, r.at, r.rows, r.number + (uint64_t)i, r.from);
      continue;
    }
    int32_t numbers[240];
    scoped_bytes found = get_bytes(w, leaf);
    td_fill_random(numbers, sizeof numbers, 1 + (uint64_t)i);
    for (int k = 0; k < 240; k++) {
      const double wanted = way == WAY_FILL ? 9 : numbers[k];
      const double number = way == WAY_FILL ? ((int32_t *)(void *)found)[k] : ((double *)(void *)found)[k];
      assert_true(number == wanted);
    }
  }
}
/* Checks that all trees still have the elements that ways_reset() wrote. */
static inline void ways_check_untouched(const ways *t) {
  const tdict_tree *const trees[] = {t->td, t->other, t->few, t->stacked, t->joined};
  for (int k = 0; k < 5; k++)
    for (int i = 0; i < 5; i++)
      assert_true(has_number(place_of(t, i), td_leaf(trees[k], way_paths[i]), (uint64_t)(1 + 10 * k + i)));
}

#endif
