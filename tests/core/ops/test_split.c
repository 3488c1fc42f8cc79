/* Tests splitting trees along a batch dimension on each device. */
#include "rig.h"

enum { ROOM = 12 };

/* Checks that the pieces are views with the given sizes, and releases them. */
static void check(const rig *r, const m_tree *t, const tdict_tree *td, int dim, tdict_tree **pieces,
                  const int64_t *sizes) {
  int64_t at = 0;
  for (size_t i = 0; at < t->bs[dim]; i++) {
    m_map map = m_map_whole(t->nb, t->bs);
    rig_cut(&map, dim, at, 1, sizes[i]);
    rig_check(r, rig_mapped(t, &map), pieces[i]);
    rig_shares(td, pieces[i], true);
    tdict_release(pieces[i]);
    at += sizes[i];
  }
}

DEVICE_CASE(split_sizes) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(7, 4);
  tdict_tree *td = rig_tree(&r, t), *out[ROOM];
  const int64_t sizes[] = {2, 4, 1}, columns[] = {1, 3};
  rig_check(&r, t, td);
  td_ok(tdict_split(td, 0, sizes, out, &(size_t){3}, err));
  check(&r, t, td, 0, out, sizes);
  td_ok(tdict_split(td, -1, columns, out, &(size_t){2}, err));
  check(&r, t, td, 1, out, columns);
  tdict_release(td);
}

DEVICE_CASE(split_every) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(7, 4);
  tdict_tree *td = rig_tree(&r, t), *out[ROOM];
  const int64_t sizes[] = {3, 3, 1};
  size_t count = ROOM;
  rig_check(&r, t, td);
  td_ok(tdict_split_every(td, 0, 3, out, &count, err));
  assert_int_equal(count, 3);
  check(&r, t, td, 0, out, sizes);
  count = 1;
  td_ok(tdict_split_every(td, 0, 100, out, &count, err));
  assert_int_equal(count, 1);
  check(&r, t, td, 0, out, (const int64_t[]){7});
  count = ROOM;
  td_ok(tdict_split_every(td, 0, (7 + 5 - 1) / 5, out, &count, err)); /* at most five pieces; here, there are four */
  assert_int_equal(count, 4);
  check(&r, t, td, 0, out, (const int64_t[]){2, 2, 2, 1});
  tdict_release(td);
}

DEVICE_CASE(split_unbind) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(3, 4);
  tdict_tree *td = rig_tree(&r, t), *out[ROOM];
  size_t count = ROOM;
  rig_check(&r, t, td);
  td_ok(tdict_unbind(td, 1, out, &count, err));
  assert_int_equal(count, 4);
  for (int i = 0; i < 4; i++) {
    m_map map = m_map_whole(t->nb, t->bs);
    rig_cut(&map, 1, i, 0, -1);
    rig_check(&r, rig_mapped(t, &map), out[i]);
    rig_shares(td, out[i], true);
    tdict_release(out[i]);
  }
  tdict_release(td);
}

CASE(split_counts_pieces) {
  static const int64_t sizes[] = {1, 3, 7, 8, INT64_MAX};
  for (int64_t whole = 0; whole < 9; whole++) {
    tdict_tree *td = TREE(2, whole), *out[ROOM];
    size_t told = 99, count;
    td_ok(tdict_unbind(td, -1, NULL, &told, err));
    assert_int_equal(told, whole);
    count = told;
    td_ok(tdict_unbind(td, -1, out, &count, err));
    assert_int_equal(count, told);
    for (size_t i = 0; i < count; i++) tdict_release(out[i]);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
      td_ok(tdict_split_every(td, 1, sizes[s], NULL, &told, err));
      count = told - 1;
      td_fails(TDICT_EINVAL, "room for", tdict_split_every(td, 1, sizes[s], out, &count, err));
      count = told;
      td_ok(tdict_split_every(td, 1, sizes[s], out, &count, err));
      assert_int_equal(count, told);
      for (size_t i = 0; i < count; i++) tdict_release(out[i]);
    }
    told = 99;
    count = ROOM;
    if (whole) {
      td_fails(TDICT_EINVAL, "size is 0, wanted 1", tdict_split_every(td, 1, 0, NULL, &told, err));
      td_fails(TDICT_EINVAL, "size is 0, wanted 1", tdict_split_every(td, 1, 0, out, &count, err));
    } else { /* as in PyTorch, splitting an empty dimension makes one empty piece */
      td_ok(tdict_split_every(td, 1, 0, NULL, &told, err));
      assert_int_equal(told, 1);
      td_ok(tdict_split_every(td, 1, 0, out, &count, err));
      assert_int_equal(count, 1);
      assert_int_equal(tdict_batch_size(out[0])[1], 0);
      tdict_release(out[0]);
      told = 99;
    }
    td_fails(TDICT_EINVAL, "size is -1", tdict_split_every(td, 1, -1, NULL, &told, err));
    td_fails(TDICT_EINVAL, "dimension 2", tdict_split_every(td, 2, 1, NULL, &told, err));
    td_fails(TDICT_EINVAL, "dimension -3", tdict_unbind(td, -3, NULL, &told, err));
    td_fails(TDICT_EINVAL, "tree is NULL", tdict_unbind(NULL, 0, NULL, &told, err));
    td_fails(TDICT_EINVAL, "count is NULL", tdict_unbind(td, 0, NULL, NULL, err));
    td_fails(TDICT_EINVAL, "count is NULL", tdict_split_every(td, 0, 1, NULL, NULL, err));
    assert_int_equal(told, 99);
    tdict_release(td);
  }
}

CASE(split_refuses) {
  tdict_tree *td = TREE(4), *out[ROOM] = {NULL};
  const int64_t sizes[] = {2, 1}, negative[] = {5, -1};
  size_t count = 1;
  td_fails(TDICT_ESHAPE, "sum to 3", tdict_split(td, 0, sizes, out, &(size_t){2}, err));
  td_fails(TDICT_EINVAL, "-1", tdict_split(td, 0, negative, out, &(size_t){2}, err));
  td_fails(TDICT_EINVAL, "NULL", tdict_split(td, 0, NULL, out, &(size_t){2}, err));
  td_fails(TDICT_ESHAPE, "sum to 3", tdict_split(td, 0, sizes, NULL, &(size_t){2}, err));
  td_fails(TDICT_EINVAL, "room for 1", tdict_split_every(td, 0, 2, out, &count, err));
  td_fails(TDICT_EINVAL, "size is 0", tdict_split_every(td, 0, 0, out, &count, err));
  td_fails(TDICT_EINVAL, "room for 1", tdict_unbind(td, 0, out, &count, err));
  td_fails(TDICT_EINVAL, "NULL", tdict_unbind(td, 0, out, NULL, err));
  assert_int_equal(count, 1);
  td_ok(tdict_split(td, 0, (const int64_t[]){3, 1}, NULL, (count = 2, &count), err));
  assert_int_equal(count, 2);
  count = 0; /* not read, because the call only counts the pieces */
  td_ok(tdict_split_every(td, 0, 1, NULL, &count, err));
  assert_int_equal(count, 4);
  assert_null(out[0]);
  tdict_release(td);
}

CASE(split_all_or_nothing) {
  tdict_tree *td = ops_tree(SAMPLE(4)), *out[ROOM];
  size_t count = ROOM;
  memset(out, 0xA5, sizeof out);
  tdict_tree *untouched = out[0];
  td_fail_alloc(9, true); /* fails an allocation for the third piece */
  tdict_status status = tdict_unbind(td, 0, out, &count, NULL);
  assert_true(td_fail_alloc_stop());
  assert_int_equal(status, TDICT_ENOMEM);
  assert_int_equal(count, ROOM);
  for (int i = 0; i < ROOM; i++) assert_ptr_equal(out[i], untouched);
  tdict_release(td);
}
