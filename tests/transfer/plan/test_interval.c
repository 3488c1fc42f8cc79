/* Trees that are one interval of memory: which trees are found, and the spans of their leaves. */
#include "transfer/plan/interval.h"

#include "support/fail_alloc.h"
#include "transfer/trees.h"

/* Compares the record with the addresses of the leaves, which the walk of the test finds. */
static void check_spans(const tdict_tree *td, const tdict_consolidated *record) {
  leaf_list l = list_entries(td);
  size_t n = 0, dims = 0;
  for (size_t i = 0; i < l.count; i++) {
    const tdict_tensor *t = l.tensors[i];
    if (!t) continue;
    assert_ptr_equal(t->storage, record->bytes->storage);
    assert_int_equal(record->leaves[n].bytes, tdict_tensor_bytes(t));
    if (tdict_tensor_bytes(t)) assert_int_equal(record->leaves[n].begin, (char *)t->data - (char *)t->storage->data);
    dims += (size_t)tdict_tensor_ndim(t);
    n++;
  }
  assert_int_equal(record->num_leaves, n);
  assert_int_equal(record->num_dims, dims);
  free_list(&l);
}
static bool is_interval(const tdict_tree *td) {
  tdict_consolidated *record = (tdict_consolidated *)1;
  td_ok(tdict_interval_find(td, &record, err));
  if (record) check_spans(td, record);
  tdict_consolidated_release(record);
  return record != NULL;
}
/* Five fields; one has no elements. */
static tdict_tree *from_schema(tdict_memory *memory) {
  static const tdict_field fields[] = {{"a.x", TDICT_U8, 1, {7}},
                                       {"a.none", TDICT_F32, 2, {3, 0}},
                                       {"b", TDICT_F64, 1, {32}},
                                       {"c.d.e", TDICT_DTYPE(1, 8, 3), 1, {400}},
                                       {"z", TDICT_BOOL, 0, {0}}};
  static const tdict_schema schema = {fields, sizeof fields / sizeof *fields};
  tdict_tree *td = NULL;
  td_ok(tdict_create_from(&schema, SHAPE(5), memory, &td, err));
  return td;
}

GPU_CASE(interval_is_found_in_trees_of_one_arena) {
  world w = open_world();
  tdict_tree *host = from_schema(NULL), *pinned = from_schema(w.pinned), *made = from_schema(w.memory), *out, *whole;
  assert_true(is_interval(host) && is_interval(pinned) && is_interval(made));
  /* the result of a transfer ends at its last leaf */
  out = to_device(&w, host, w.device);
  assert_true(is_interval(out));
  td_ok(tdict_consolidate(host, NULL, &whole, err));
  assert_true(is_interval(whole));
  td_ok(tdict_unlock(whole, err));
  assert_false(is_interval(whole)); /* its tensors are not of an arena */
  tdict_release(whole);
  tdict_release(out);
  tdict_release(made);
  tdict_release(pinned);
  tdict_release(host);
  close_world(&w);
}

CASE(interval_is_not_found_in_other_trees) {
  tdict_tree *td = from_schema(NULL), *other = from_schema(NULL), *separate = batch_tree(NULL), *empty = new_tree();
  assert_true(is_interval(td));
  assert_false(is_interval(empty));
  /* a leaf is missing at the end, in the middle, at the start */
  static const char *const paths[] = {"z", "b", "a.x"};
  for (int i = 0; i < 3; i++) {
    tdict_tree *part = from_schema(NULL);
    td_ok(tdict_delete(part, paths[i], err));
    assert_false(is_interval(part));
    tdict_release(part);
  }
  /* a leaf of another storage */
  td_ok(tdict_set(td, "b", leaf_of(other, "b"), err));
  assert_false(is_interval(td));
  /* another order */
  tdict_tensor *b = tdict_tensor_retain(leaf_of(other, "b"));
  td_ok(tdict_delete(other, "b", err));
  td_ok(tdict_set(other, "b", b, err));
  tdict_tensor_release(b);
  assert_false(is_interval(other));
  /* a view of a leaf, at the same address */
  tdict_tensor *view = NULL;
  td_ok(tdict_tensor_slice(leaf_of(separate, "action"), &(tdict_tensor_range){0, 0, 16, 1}, &view, err));
  assert_true(is_interval(separate));
  td_ok(tdict_set(separate, "action", view, err));
  assert_false(is_interval(separate));
  tdict_tensor_release(view);
  tdict_release(separate);
  tdict_release(empty);
  tdict_release(other);
  tdict_release(td);
}

CASE(interval_survives_enomem) {
  tdict_tree *td = from_schema(NULL), *deep = new_tree();
  char path[128] = "";
  for (int i = 0; i < 40; i++) strcat(path, i ? ".d" : "d");
  const tdict_field fields[] = {{path, TDICT_U8, 1, {9}}, {"last", TDICT_U8, 1, {9}}};
  tdict_release(deep);
  td_ok(tdict_create_from(&(tdict_schema){fields, 2}, 0, NULL, NULL, &deep, err));
  const tdict_tree *const trees[] = {td, deep};
  for (int i = 0; i < 2; i++) {
    tdict_consolidated *record = NULL;
    TD_WITHOUT_MEMORY_THEN(tdict_interval_find(trees[i], &record, err), assert_null(record));
    assert_non_null(record);
    check_spans(trees[i], record);
    tdict_consolidated_release(record);
  }
  tdict_release(deep);
  tdict_release(td);
}
