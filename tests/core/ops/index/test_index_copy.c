/* Tests copies of rows by lists and masks: any layout and width, waits for transfers, and lost bytes. */
#include "core/tensor/naive.h"
#include "core/tensor/slow_fence.h"
#include "core/tensor/tensor.h"
#include "core/tree/help.h"
#include "support/threads.h"

enum { MOST = 700, DIMS = 3 };

/* An index with lists. at_position() returns the index that selects only position i of the lists. */
typedef struct lists {
  tdict_indices all;
  int64_t positions[DIMS][MOST], count;
  bool side_by_side;
  int first; /* list */
} lists;

static tdict_indices at_position(const lists *l, int64_t i) {
  tdict_indices one = l->all;
  for (int d = 0; d < DIMS; d++)
    if (one.item[d].kind == TDICT_INDEX_LIST)
      one.item[d] = TDICT_AT(l->positions[d][l->all.item[d].start == 1 ? 0 : i]);
  return one;
}

static void make_lists(naive_random *r, const int64_t *shape, lists *l) {
  bool some = false;
  int last = -1;
  l->all = *TDICT_INDEX(TDICT_ALL, TDICT_ALL, TDICT_ALL);
  l->count = naive_below(r, 4) ? naive_below(r, 6) : 250 + naive_below(r, MOST - 250);
  l->side_by_side = true;
  for (int d = 0; d < DIMS; d++) {
    int64_t kind = naive_below(r, 4);
    if (kind == 0) l->all.item[d] = TDICT_RANGE(shape[d] - 1, TDICT_NONE, -1);
    if (kind < 2 && !(d == DIMS - 1 && !some)) continue;
    bool single = some && naive_below(r, 4) == 0;
    int64_t count = single ? 1 : l->count;
    for (int64_t i = 0; i < count; i++) l->positions[d][i] = naive_below(r, shape[d]);
    l->all.item[d] = TDICT_LIST(l->positions[d], count);
    if (!some) l->first = d;
    if (some && last != d - 1) l->side_by_side = false;
    some = true;
    last = d;
  }
}

static tdict_tree *tree_over(tdict_tensor *t) {
  tdict_tree *td = help_tree(DIMS, tdict_tensor_shape(t));
  td_put(td, "x", t);
  return td;
}

/* Makes a tensor of random elements. Its dimensions have a random order in memory. */
static tdict_tensor *any_tensor(naive_random *r, tdict_dtype dtype) {
  static const int orders[][4] = {{0, 1, 2, 3}, {2, 1, 0, 3}, {3, 1, 2, 0}, {1, 0, 3, 2}};
  int64_t shape[4];
  for (int d = 0; d < 4; d++) shape[d] = 1 + naive_below(r, naive_below(r, 6) ? 5 : 40);
  scoped_tensor t = naive_tensor(dtype, 4, shape, naive_next(r));
  return td_made(tensor, tdict_tensor_permute(t, 4, orders[naive_below(r, 4)], &made, err));
}

static void check_lists(naive_random *r, tdict_dtype dtype) {
  lists l;
  scoped_tree td = tree_over(any_tensor(r, dtype)), got = NULL, same = NULL, zeros = NULL;
  make_lists(r, tdict_batch_size(td), &l);
  td_ok(tdict_clone_deep(td, NULL, &same, err));
  td_ok(tdict_clone_deep(td, NULL, &zeros, err));
  td_ok(tdict_fill(zeros, NULL, 0, NULL, err));
  td_ok(tdict_index_get(NULL, td, &l.all, NULL, &got, err));
  td_ok(tdict_index_set(NULL, zeros, &l.all, got, NULL, err));
  td_ok(tdict_index_set(NULL, same, &l.all, got, NULL, err));
  assert_true(tdict_equal(same, td)); /* the rows had these values, so nothing changes */
  const int place = l.side_by_side ? l.first : 0;
  assert_int_equal(tdict_batch_size(got)[place], l.count);
  for (int64_t i = 0; i < l.count; i++) {
    scoped_tree wanted = NULL, here = NULL, written = NULL;
    const tdict_indices at = at_position(&l, i);
    tdict_indices row = *TDICT_INDEX(TDICT_ALL, TDICT_ALL, TDICT_ALL);
    row.item[place] = TDICT_AT(i);
    row.count = tdict_batch_ndim(got);
    td_ok(tdict_index_get(NULL, td, &at, NULL, &wanted, err));
    td_ok(tdict_index_get(NULL, got, &row, NULL, &here, err));
    td_ok(tdict_index_get(NULL, zeros, &at, NULL, &written, err));
    assert_true(tdict_equal(here, wanted));
    assert_true(tdict_equal(written, wanted));
  }
}

CASE(index_copy_takes_any_layout) {
  static const tdict_dtype dtypes[] = {
      TDICT_U8, TDICT_I16, TDICT_I32, TDICT_I64, TDICT_DTYPE(1, 64, 2), TDICT_DTYPE(1, 8, 3)};
  naive_random r = {17};
  for (int i = 0; i < 600; i++) check_lists(&r, dtypes[i % 6]);
}

/* Masks have two dimensions, in C order or transposed. Some rows are longer than the library's blocks (64 elements). */
CASE(index_copy_reads_any_mask) {
  naive_random r = {18};
  for (int round = 0; round < 200; round++) {
    const int64_t counts[] = {1 + naive_below(&r, 5), 1 + naive_below(&r, 70)};
    const int turn[] = {1, 0};
    scoped_tensor mask = td_made(tensor, tdict_tensor_zeros(TDICT_U8, 2, counts, NULL, &made, err)), turned = NULL;
    unsigned char *bits = tdict_tensor_data(mask);
    for (int64_t i = 0; i < counts[0] * counts[1]; i++)
      bits[i] = naive_below(&r, 12) ? 0 : (unsigned char)(1 + i % 255);
    td_ok(tdict_tensor_permute(mask, 2, turn, &turned, err));
    for (int side = 0; side < 2; side++) {
      const tdict_tensor *m = side ? turned : mask;
      const int64_t *shape = tdict_tensor_shape(m), *strides = tdict_tensor_strides(m);
      scoped_tree td = help_tree(2, shape), got = NULL;
      td_put(td, "x", naive_tensor(TDICT_I32, 2, shape, naive_next(&r)));
      td_ok(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_MASK(m)), NULL, &got, err));
      const int32_t *all = tdict_const_data(td, "x"), *some = tdict_const_data(got, "x");
      int64_t found = 0;
      for (int64_t i = 0; i < shape[0] * shape[1]; i++)
        if (bits[i / shape[1] * strides[0] + i % shape[1] * strides[1]]) assert_int_equal(some[found++], all[i]);
      assert_int_equal(tdict_batch_size(got)[0], found);
    }
  }
}

/* Checks that tdict_index_set(), or tdict_index_get() if `value` is NULL, waits for a transfer that uses `busy`. */
static void check_waits(tdict_storage *busy, bool writes, tdict_tree *td, const tdict_tree *value) {
  static const int64_t positions[] = {2, 0};
  const tdict_indices *index = TDICT_INDEX(TDICT_LIST(positions, 2));
  scoped_slow_fence transfer;
  scoped_tree got = NULL;
  begin_use(&transfer, busy, writes);
  transfer.thread = td_start(end_later, &transfer);
  if (value)
    td_ok(tdict_index_set(NULL, td, index, value, NULL, err));
  else
    td_ok(tdict_index_get(NULL, td, index, NULL, &got, err));
  assert_true(transfer.ended);
}

CASE(index_copy_waits_for_transfers) {
  scoped_tree td = TREE(3), value = TREE(2);
  tdict_storage *mine = td_put(td, "x", TENSOR(3, 5))->storage, *others = td_put(value, "x", TENSOR(2, 5))->storage;
  check_waits(mine, true, td, NULL);
  check_waits(mine, true, td, value);
  check_waits(mine, false, td, value);
  check_waits(others, true, td, value);
}

CASE(index_copy_refuses_lost_bytes) {
  static const int64_t positions[] = {2, 0};
  const tdict_indices *index = TDICT_INDEX(TDICT_LIST(positions, 2));
  scoped_tree td = TREE(3), value = TREE(2), got = NULL;
  tdict_storage *mine = td_put(td, "x", TENSOR(3, 5))->storage, *others = td_put(value, "x", TENSOR(2, 5))->storage;
  tdict_tensor *x = td_leaf(td, "x");
  scoped_tree part = td_made(tree, tdict_index_get(NULL, value, TDICT_INDEX(TDICT_RANGE(1, 2, 1)), NULL, &made, err));
  tdict_storage_lose_all(mine);
  td_fails(TDICT_EINVAL, "transfer into them failed", tdict_index_get(NULL, td, index, NULL, &got, err));
  assert_null(got);
  td_ok(tdict_index_set(NULL, td, index, value, NULL, err)); /* row 1 is still lost */
  td_ok(tdict_index_get(NULL, td, index, NULL, &got, err));
  assert_null(tdict_tensor_const_data(x));
  td_ok(tdict_index_set(NULL, td, TDICT_INDEX(TDICT_LIST(&(int64_t){1}, 1)), part, NULL, err));
  assert_non_null(tdict_tensor_const_data(x));
  tdict_storage_lose_all(others);
  td_fails(TDICT_EINVAL, "transfer into them failed", tdict_index_set(NULL, td, index, value, NULL, err));
}

/* Lost rows of a column can be read again as soon as they have been written, in any order. */
CASE(lost_rows_are_restored_in_any_order) {
  enum { ROWS = 100 };
  int64_t positions[ROWS];
  scoped_tensor whole = TENSOR(ROWS, 25), column = NULL, row = NULL;
  scoped_tree td = TREE(ROWS), value = TREE(ROWS), part = TREE(10);
  td_ok(tdict_tensor_slice(whole, &(tdict_tensor_range){1, 3, 1, 1}, &column, err));
  td_ok(tdict_set(td, "x", column, err));
  td_put(value, "x", TENSOR(ROWS, 1));
  td_put(part, "x", TENSOR(10, 1));
  tdict_tensor_lose(column);
  td_ok(tdict_write_rows(td, 20, part, err));
  assert_null(tdict_tensor_const_data(column));
  td_ok(tdict_tensor_slice(column, &(tdict_tensor_range){0, 20, 10, 1}, &row, err));
  assert_non_null(tdict_tensor_const_data(row));
  for (int64_t i = 0; i < ROWS; i++) positions[i] = i * 37 % ROWS;
  td_ok(tdict_index_set(NULL, td, TDICT_INDEX(TDICT_LIST(positions, ROWS)), value, NULL, err));
  assert_non_null(tdict_tensor_const_data(column));
  assert_non_null(tdict_tensor_const_data(whole));
}

/* The source of the second leaf is lost, so the call must not write the first leaf. */
CASE(lost_sources_are_found_before_writing) {
  static const int64_t all[] = {2, 0, 1};
  const tdict_indices *index = TDICT_INDEX(TDICT_LIST(all, 3));
  scoped_tree dst = TREE(3), src = TREE(3);
  tdict_tensor *x = td_put(dst, "x", TENSOR(3, 5));
  td_put(dst, "y", TENSOR(3, 5));
  td_put(src, "x", TENSOR(3, 5));
  tdict_storage_lose_all(td_put(src, "y", TENSOR(3, 5))->storage);
  unsigned char before[60];
  assert_int_equal(tdict_tensor_bytes(x), sizeof before);
  memcpy(before, tdict_tensor_const_data(x), sizeof before);
  td_fails_at(TDICT_EINVAL, "transfer into them failed", "y", tdict_copy(dst, src, NULL, err));
  td_fails(TDICT_EINVAL, "transfer into them failed", tdict_update_in_place(dst, src, NULL, 0, err));
  td_fails(TDICT_EINVAL, "transfer into them failed", tdict_index_set(NULL, dst, index, src, NULL, err));
  td_fails(TDICT_EINVAL, "transfer into them failed", tdict_index_into(NULL, dst, src, index, NULL, err));
  td_fails(TDICT_EINVAL, "transfer into them failed", tdict_write_rows(dst, 0, src, err));
  const tdict_tree *items[] = {src};
  td_fails(TDICT_EINVAL, "transfer into them failed", tdict_cat_into(dst, items, 1, NULL, NULL, err));
  assert_memory_equal(tdict_tensor_const_data(x), before, sizeof before);
}

/* Makes a tree of batch size [6, 4] with the leaves "a" and "n.b". */
static tdict_tree *rollout(void) {
  tdict_tree *td = td_tree("[6,4] n.b:f32[6,4,3] a:f32[6,4]");
  return td;
}

CASE(index_into_keeps_addresses) {
  static const int64_t rows[] = {5, 0, 5}, columns[] = {1};
  const tdict_indices *const picks[] = {
      TDICT_INDEX(TDICT_LIST(rows, 3)), TDICT_INDEX(TDICT_AT(2), TDICT_RANGE(3, TDICT_NONE, -1)),
      TDICT_INDEX(TDICT_ALL, TDICT_LIST(columns, 1)), TDICT_INDEX(TDICT_NEW_AXIS, TDICT_ALL)};
  scoped_tree td = rollout();
  for (int i = 0; i < 4; i++) {
    scoped_tree wanted = td_made(tree, tdict_index_get(NULL, td, picks[i], NULL, &made, err)), out = NULL;
    td_ok(tdict_clone_deep(wanted, NULL, &out, err));
    td_ok(tdict_fill(out, NULL, 0, NULL, err));
    tdict_lock(out);
    const void *a = tdict_const_data(out, "a"), *b = tdict_const_data(out, "n.b");
    td_ok(tdict_index_into(NULL, out, td, picks[i], NULL, err));
    assert_true(tdict_equal(out, wanted));
    assert_ptr_equal(tdict_const_data(out, "a"), a);
    assert_ptr_equal(tdict_const_data(out, "n.b"), b);
  }
}

CASE(index_into_refuses) {
  static const int64_t rows[] = {5, 0, 5};
  const tdict_indices *index = TDICT_INDEX(TDICT_LIST(rows, 3));
  scoped_tree td = rollout(), out = NULL, small = TREE(3);
  td_ok(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_RANGE(0, 3, 1)), NULL, &out, err));
  scoped_tree kept = td_made(tree, tdict_clone_deep(out, NULL, &made, err)), copy = NULL;
  td_release(out);
  td_ok(tdict_clone_deep(kept, NULL, &copy, err));
  td_fails(TDICT_EINVAL, "dst is NULL", tdict_index_into(NULL, NULL, td, index, NULL, err));
  td_fails(TDICT_EINVAL, "src is NULL", tdict_index_into(NULL, copy, NULL, index, NULL, err));
  td_fails(TDICT_ESHAPE, "dst has batch size [3], wanted [3, 4]", tdict_index_into(NULL, small, td, index, NULL, err));
  td_fails(TDICT_EINVAL, "position 5", tdict_index_into(NULL, copy, copy, index, NULL, err));
  td_put(copy, "z", TENSOR(3, 4)); /* one key too many */
  td_fails(TDICT_ENOTFOUND, "dst has 3 keys, but the tree has 2", tdict_index_into(NULL, copy, td, index, NULL, err));
  td_ok(tdict_delete(copy, "z", err));
  td_put(copy, "n.z", TENSOR(3, 4));
  td_fails(TDICT_ENOTFOUND, "dst has 2 keys, but the tree has 1", tdict_index_into(NULL, copy, td, index, NULL, err));
  assert_string_equal(td_last_error.path, "n");
  td_ok(tdict_delete(copy, "n.z", err));
  td_ok(tdict_delete(copy, "a", err));
  td_fails_at(TDICT_ENOTFOUND, "no such key", "a", tdict_index_into(NULL, copy, td, index, NULL, err));
  td_put(copy, "a", TENSOR(3, 4, 2)); /* n.b comes before this leaf, but must not be written */
  td_fails(TDICT_ESHAPE, "", tdict_index_into(NULL, copy, td, index, NULL, err));
  td_put(copy, "a", naive_tensor(TDICT_I32, 2, (const int64_t[]){3, 4}, 7));
  td_fails_at(TDICT_EDTYPE, "", "a", tdict_index_into(NULL, copy, td, index, NULL, err));
  assert_memory_equal(tdict_const_data(copy, "n.b"), tdict_const_data(kept, "n.b"), 3 * 4 * 3 * sizeof(float));
  td_ok(tdict_delete(copy, "a", err));
  td_put_tree(copy, "a", TREE(3, 4));
  td_fails(TDICT_ETYPE, "tree", tdict_index_into(NULL, copy, td, index, NULL, err));
}
