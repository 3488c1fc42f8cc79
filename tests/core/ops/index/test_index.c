/* Tests which indices return views, which return copies, and which are refused, on each device. */

#include "core/ops/rig.h"
#include "support/threads.h"

/* Returns td[index]. */
static tdict_tree *get(const tdict_tree *td, const tdict_indices *index) {
  return td_made(tree, tdict_index_get(NULL, td, index, NULL, &made, err));
}
static void check(const rig *r, const m_tree *t, const tdict_tree *td, const tdict_indices *index, m_map *map) {
  scoped_tree out = get(td, index);
  rig_check(r, rig_mapped(t, map), out);
  if (!map->copies) rig_shares(out, td, true);
}

DEVICE_CASE(index_at) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(3, 4);
  scoped_tree td = rig_tree(&r, t);
  rig_check(&r, t, td);
  for (int64_t i = -3; i < 3; i++) {
    m_map map = m_map_whole(t->nb, t->bs);
    rig_cut(&map, 0, i < 0 ? i + 3 : i, 0, -1);
    check(&r, t, td, TDICT_INDEX(TDICT_AT(i)), &map);
    rig_cut(&map, 1, 2, 0, -1);
    check(&r, t, td, TDICT_INDEX(TDICT_AT(i), TDICT_AT(-2)), &map);
  }
}

DEVICE_CASE(index_range) {
  static const struct {
    int64_t start, stop, step, first, count;
  } ranges[] = {{1, 4, 1, 1, 3},
                {TDICT_NONE, TDICT_NONE, 2, 0, 4},
                {5, 1, -1, 5, 4},
                {TDICT_NONE, TDICT_NONE, -1, 6, 7},
                {-3, 99, 1, 4, 3},
                {3, 3, 1, 0, 0},
                {-99, 2, 1, 0, 2},
                {99, TDICT_NONE, -3, 6, 3},
                {2, -1, 1, 2, 4},
                {4, 1, 1, 0, 0},
                {1, INT64_MAX, INT64_MAX, 1, 1}};
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(7, 2);
  scoped_tree td = rig_tree(&r, t);
  rig_check(&r, t, td);
  for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
    m_map map = m_map_whole(t->nb, t->bs);
    rig_cut(&map, 0, ranges[i].first, ranges[i].step, ranges[i].count);
    check(&r, t, td, TDICT_INDEX(TDICT_RANGE(ranges[i].start, ranges[i].stop, ranges[i].step)), &map);
  }
}

DEVICE_CASE(index_new_axis) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(3, 2);
  scoped_tree td = rig_tree(&r, t);
  m_map map = m_map_whole(t->nb, t->bs);
  rig_insert(&map, 1, 1);
  rig_insert(&map, 0, 1);
  check(&r, t, td, TDICT_INDEX(TDICT_NEW_AXIS, TDICT_ALL, TDICT_NEW_AXIS), &map);
}

DEVICE_CASE(index_rest) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(3, 2, 4);
  scoped_tree td = rig_tree(&r, t);
  m_map map = m_map_whole(t->nb, t->bs);
  rig_cut(&map, 2, 3, 0, -1);
  check(&r, t, td, TDICT_INDEX(TDICT_REST, TDICT_AT(3)), &map);
  rig_cut(&map, 0, 1, 0, -1);
  check(&r, t, td, TDICT_INDEX(TDICT_AT(1), TDICT_REST, TDICT_AT(-1)), &map);
}

/* In a tree without batch dimensions, an index cannot select anything, but it can add dimensions. */
DEVICE_CASE(index_without_batch_dimensions) {
  scoped_rig r = rig_open();
  m_tree *t = m_tree_make(0, NULL);
  m_put(t, "a", rig_array(TDICT_F32, t, 2, (const int64_t[]){2, 3}), NULL);
  scoped_tree td = rig_tree(&r, t), twin = rig_tree(&r, t), out = NULL;
  td_ok(tdict_set_text(td, "t", "x", err));
  const tdict_indices *const indices[] = {&(tdict_indices){0}, TDICT_INDEX(TDICT_REST), TDICT_INDEX(TDICT_NEW_AXIS),
                                          TDICT_INDEX(TDICT_NEW_AXIS, TDICT_REST, TDICT_NEW_AXIS)};
  for (int n = 0; n < 4; n++, tdict_release(out)) {
    const char *text = NULL;
    td_ok(tdict_index_get(NULL, td, indices[n], NULL, &out, err));
    assert_int_equal(tdict_batch_ndim(out), n > 1 ? n - 1 : 0);
    for (int i = 0; i < tdict_batch_ndim(out); i++) assert_int_equal(tdict_batch_size(out)[i], 1);
    assert_int_equal(tdict_tensor_ndim(td_leaf(out, "a")), tdict_batch_ndim(out) + 2);
    assert_true(tdict_tensor_shares_storage(td_leaf(out, "a"), td_leaf(td, "a")));
    td_ok(tdict_get_text(out, "t", -1, &text, NULL, err));
    assert_string_equal(text, "x");
  }
  td_fails(TDICT_EINVAL, "but there are only 0",
           tdict_index_get(NULL, td, TDICT_INDEX(TDICT_NEW_AXIS, TDICT_ALL), NULL, &out, err));
  td_ok(tdict_delete(td, "t", err));
  td_ok(tdict_clone_deep(td, TD_IN(r.memory), &out, err));
  td_ok(tdict_fill(td, NULL, 0, NULL, err));
  td_ok(tdict_index_set(NULL, td, TDICT_INDEX(TDICT_REST), out, NULL, err));
  assert_true(tdict_equal(td, twin));
  td_ok(tdict_fill(td, NULL, 0, NULL, err));
  td_ok(tdict_index_into(NULL, out, td, TDICT_INDEX(TDICT_REST), NULL, err));
  assert_true(tdict_equal(td, out) && !tdict_equal(out, twin));
}

DEVICE_CASE(index_gives_views) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(3, 4, 6);
  tdict_tree *td = rig_tree(&r, t);
  m_map map = m_map_whole(t->nb, t->bs);
  rig_cut(&map, 2, 5, -1, 4);
  rig_insert(&map, 2, 1);
  rig_cut(&map, 0, 2, 0, -1);
  check(&r, t, td, TDICT_INDEX(TDICT_AT(2), TDICT_ALL, TDICT_NEW_AXIS, TDICT_RANGE(5, 1, -1)), &map);
  /* the first element of the view is element [2, 0, 5] */
  tdict_tree *out = get(td, TDICT_INDEX(TDICT_AT(2), TDICT_ALL, TDICT_NEW_AXIS, TDICT_RANGE(5, 1, -1)));
  tdict_tensor_desc v = tdict_tensor_desc_default(), whole = v;
  tdict_tensor_get_desc(td_leaf(out, "a"), &v);
  tdict_tensor_get_desc(td_leaf(td, "a"), &whole);
  assert_ptr_equal(v.data, (char *)whole.data + sizeof(float) * (2 * 24 + 5));
  tdict_release(td);
  tdict_release(out); /* views stay valid after their source is released */
}

DEVICE_CASE(index_children) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(3, 4);
  scoped_tree td = rig_tree(&r, t);
  tdict_tree *out = get(td, TDICT_INDEX(TDICT_AT(0)));
  assert_int_equal(tdict_batch_ndim(td_child(out, "n")), 1);
  assert_int_equal(tdict_batch_ndim(td_child(out, "n.m")), 2);
  assert_int_equal(tdict_batch_size(td_child(out, "n.m"))[1], 2);
  assert_int_equal(tdict_batch_ndim(td_child(out, "e")), 1);
  tdict_release(out);
  td_fails(TDICT_EINVAL, "items for 3",
           tdict_index_get(NULL, td, TDICT_INDEX(TDICT_ALL, TDICT_ALL, TDICT_AT(0)), NULL, &out, err));
}

CASE(index_list_copies) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(3, 4);
  scoped_tree td = rig_tree(&r, t);
  const int64_t positions[] = {3, 0, -1, 0, 1}, plain[] = {3, 0, 3, 0, 1};
  m_map map = m_map_whole(t->nb, t->bs);
  rig_check(&r, t, td);
  map.list[1] = plain;
  map.shape[1] = 5;
  map.copies = true;
  check(&r, t, td, TDICT_INDEX(TDICT_ALL, TDICT_LIST(positions, 5)), &map);
  tdict_tree *out = get(td, TDICT_INDEX(TDICT_ALL, TDICT_LIST(positions, 5)));
  rig_shares(out, td, false);
  tdict_release(out);
  rig_cut(&map, 0, 2, 0, -1);
  check(&r, t, td, TDICT_INDEX(TDICT_AT(2), TDICT_LIST(positions, 5)), &map);
  map.shape[0] = 0;
  check(&r, t, td, TDICT_INDEX(TDICT_AT(2), TDICT_LIST(NULL, 0)), &map);
}

CASE(index_mask_copies) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(2, 3, 2);
  scoped_tree td = rig_tree(&r, t);
  static const unsigned char bits[6] = {0, 1, 1, 0, 0, 1};
  static const int64_t rows[] = {0, 0, 1}, columns[] = {1, 2, 2};
  scoped_tensor mask = td_made(tensor, tdict_tensor_zeros(TDICT_BOOL, 2, t->bs, NULL, &made, err));
  memcpy(tdict_tensor_data(mask), bits, sizeof bits);
  m_map map = m_map_whole(t->nb, t->bs);
  map.list[0] = rows;
  map.list[1] = columns;
  map.out[0] = map.out[1] = 0;
  map.out[2] = 1;
  map.shape[0] = 3;
  map.shape[1] = 2;
  map.out_ndim = 2;
  map.copies = true;
  check(&r, t, td, TDICT_INDEX(TDICT_MASK(mask)), &map);
  check(&r, t, td, TDICT_INDEX(TDICT_MASK(mask), TDICT_REST), &map);
  memset(tdict_tensor_data(mask), 0, sizeof bits);
  map.shape[0] = 0;
  check(&r, t, td, TDICT_INDEX(TDICT_MASK(mask)), &map);
}

/* Lists and masks are paired: element i of the result comes from position i of each. They make one dimension of the
 * result, which is in their place if they are adjacent, and otherwise comes first. */
CASE(index_lists_are_paired) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(3, 4, 2);
  scoped_tree td = rig_tree(&r, t);
  static const int64_t rows[] = {2, 0, -1, 1}, columns[] = {3, 3, 0, -4}, plain_rows[] = {2, 0, 2, 1};
  static const int64_t plain_columns[] = {3, 3, 0, 0}, ones[] = {1, 1, 1, 1}, last[] = {1};
  static const unsigned char bits[4] = {1, 0, 1, 1};
  static const int64_t set[] = {0, 2, 3};
  rig_check(&r, t, td);
  m_map map = {.in = 3, .out_ndim = 2, .shape = {4, 2}, .out = {0, 0, 1}, .step = {1, 1, 1}, .copies = true};
  map.list[0] = plain_rows;
  map.list[1] = plain_columns;
  check(&r, t, td, TDICT_INDEX(TDICT_LIST(rows, 4), TDICT_LIST(columns, 4)), &map); /* adjacent */
  map.list[1] = ones;
  /* a list of one position is used for all elements */
  check(&r, t, td, TDICT_INDEX(TDICT_LIST(rows, 4), TDICT_LIST(last, 1)), &map);
  map.list[1] = NULL;
  map.list[2] = ones;
  map.out[1] = 1;
  map.out[2] = 0;
  map.shape[1] = 4;
  check(&r, t, td, TDICT_INDEX(TDICT_LIST(rows, 4), TDICT_ALL, TDICT_LIST(last, 1)), &map); /* separated */
  map = (m_map){.in = 3, .out_ndim = 2, .shape = {3, 4}, .out = {0, 1, 1}, .step = {1, 1, 1}, .copies = true};
  map.list[1] = plain_columns;
  map.list[2] = ones;
  check(&r, t, td, TDICT_INDEX(TDICT_REST, TDICT_LIST(columns, 4), TDICT_LIST(last, 1)), &map); /* not the first */
  map = (m_map){.in = 3, .out_ndim = 3, .shape = {4, 3, 1}, .out = {1, 0, 0}, .step = {1, 1, 1}, .copies = true};
  map.list[1] = plain_columns;
  map.list[2] = ones;
  const tdict_indices *behind = TDICT_INDEX(TDICT_ALL, TDICT_LIST(columns, 4), TDICT_NEW_AXIS, TDICT_LIST(last, 1));
  check(&r, t, td, behind, &map); /* separated, with another dimension before them */
  map = (m_map){.in = 3, .out_ndim = 3, .shape = {3, 1, 2}, .out = {0, 0, 2}, .step = {1, 1, 1}, .copies = true};
  scoped_tensor mask = td_made(tensor, tdict_tensor_zeros(TDICT_BOOL, 1, (const int64_t[]){4}, NULL, &made, err));
  memcpy(tdict_tensor_data(mask), bits, sizeof bits);
  map.list[0] = plain_rows;
  map.list[1] = set;
  /* separated by a new axis */
  check(&r, t, td, TDICT_INDEX(TDICT_LIST(rows, 3), TDICT_NEW_AXIS, TDICT_MASK(mask)), &map);
  map.out_ndim = 1;
  map.shape[0] = 3;
  map.out[2] = 0;
  map.list[2] = ones;
  check(&r, t, td, TDICT_INDEX(TDICT_LIST(rows, 3), TDICT_MASK(mask), TDICT_LIST(last, 1)), &map); /* all three */
  map.shape[0] = 0;
  check(&r, t, td, TDICT_INDEX(TDICT_LIST(NULL, 0), TDICT_LIST(last, 1), TDICT_LIST(NULL, 0)), &map);
}

/* The same rules apply to writes. */
CASE(index_lists_are_written) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(3, 4);
  scoped_tree td = rig_tree(&r, t), got = NULL, value = ops_tree(rig_like(SAMPLE(2)));
  static const int64_t rows[] = {2, 0}, columns[] = {1, 3};
  const tdict_indices *index = TDICT_INDEX(TDICT_LIST(rows, 2), TDICT_LIST(columns, 2));
  scoped_tree before = td_made(tree, tdict_clone_deep(td, NULL, &made, err));
  td_ok(tdict_index_set(NULL, td, index, value, NULL, err));
  td_ok(tdict_index_get(NULL, td, index, NULL, &got, err));
  assert_true(tdict_equal(got, value));
  for (int64_t i = 0; i < 3; i++) /* no other element has changed */
    for (int64_t j = 0; j < 4; j++) {
      scoped_tree now = get(td, TDICT_INDEX(TDICT_AT(i), TDICT_AT(j)));
      scoped_tree then = get(before, TDICT_INDEX(TDICT_AT(i), TDICT_AT(j)));
      assert_int_equal(tdict_equal(now, then), !((i == 2 && j == 1) || (i == 0 && j == 3)));
    }
  scoped_tensor numbers = td_made(tensor, tdict_tensor_clone(td_leaf(value, "a"), NULL, &made, err));
  td_ok(tdict_fill(td, NULL, 0, NULL, err));
  td_ok(tdict_write(td, "a", index, numbers, err)); /* writes one tensor only */
  assert_true(((const float *)tdict_const_data(td, "a"))[2 * 4 + 1] ==
              ((const float *)tdict_const_data(value, "a"))[0]);
  assert_true(((const float *)tdict_const_data(td, "a"))[0 * 4 + 3] ==
              ((const float *)tdict_const_data(value, "a"))[1]);
}

DEVICE_CASE(index_result_is_unlocked) {
  scoped_rig r = rig_open();
  scoped_tree td = rig_tree(&r, SAMPLE(3));
  tdict_lock(td);
  scoped_tree out = get(td, TDICT_INDEX(TDICT_AT(0)));
  assert_false(tdict_is_locked(out) || tdict_is_locked(td_child(out, "n.m")));
  assert_true(tdict_is_locked(td));
  td_ok(tdict_delete(out, "n.m", err));
  assert_true(tdict_has(td, "n.m"));
}

DEVICE_CASE(index_refuses) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(3, 4);
  scoped_tree td = rig_tree(&r, t), out = NULL, none = help_tree(0, NULL);
  scoped_tensor mask = NULL, wide = NULL;
  const int64_t far[] = {0, 3};
  td_ok(tdict_tensor_zeros(TDICT_BOOL, 1, t->bs + 1, NULL, &mask, err));
  td_ok(tdict_tensor_zeros(TDICT_I64, 1, t->bs, NULL, &wide, err));
  char *before = help_snapshot(td);
  td_fails(TDICT_EINVAL, "NULL", tdict_index_get(NULL, NULL, TDICT_INDEX(TDICT_ALL), NULL, &out, err));
  td_fails(TDICT_EINVAL, "NULL", tdict_index_get(NULL, td, TDICT_INDEX(TDICT_ALL), NULL, NULL, err));
  td_fails(TDICT_EINVAL, "index is NULL", tdict_index_get(NULL, td, NULL, NULL, &out, err));
  td_fails(TDICT_EINVAL, "for 1 dimensions", tdict_index_get(NULL, none, TDICT_INDEX(TDICT_AT(0)), NULL, &out, err));
  td_fails(TDICT_EINVAL, "TDICT_REST is used twice",
           tdict_index_get(NULL, td, TDICT_INDEX(TDICT_REST, TDICT_REST), NULL, &out, err));
  td_fails(TDICT_EINVAL, "position 3", tdict_index_get(NULL, td, TDICT_INDEX(TDICT_AT(3)), NULL, &out, err));
  td_fails(TDICT_EINVAL, "position -4", tdict_index_get(NULL, td, TDICT_INDEX(TDICT_AT(-4)), NULL, &out, err));
  td_fails(TDICT_EINVAL, "step", tdict_index_get(NULL, td, TDICT_INDEX(TDICT_RANGE(0, 1, 0)), NULL, &out, err));
  td_fails(TDICT_EINVAL, "position 3", tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST(far, 2)), NULL, &out, err));
  const int64_t near[] = {0, 1, 2};
  td_fails(TDICT_ESHAPE, "a list or mask has 3 positions, but another has 2",
           tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST(near, 2), TDICT_LIST(near, 3)), NULL, &out, err));
  td_fails(TDICT_ESHAPE, "mask has shape [4]",
           tdict_index_get(NULL, td, TDICT_INDEX(TDICT_MASK(mask)), NULL, &out, err));
  td_fails(TDICT_EDTYPE, "int64", tdict_index_get(NULL, td, TDICT_INDEX(TDICT_MASK(wide)), NULL, &out, err));
  td_fails(TDICT_EINVAL, "is invalid", tdict_index_get(NULL, td, TDICT_INDEX(TDICT_MASK(NULL)), NULL, &out, err));
  td_fails(TDICT_EINVAL, "is invalid",
           tdict_index_get(NULL, td, TDICT_INDEX(tdict_index_of(99, 0, 0, 0, NULL)), NULL, &out, err));
  tdict_indices long_one = tdict_indices_none();
  for (int i = 0; i < 15; i++) tdict_indices_add(&long_one, TDICT_NEW_AXIS);
  td_fails(TDICT_EINVAL, "17 batch", tdict_index_get(NULL, td, &long_one, NULL, &out, err));
  assert_null(out);
  help_unchanged(td, before);
}

CASE(index_survives_enomem) {
  m_tree *t = SAMPLE(3, 4);
  scoped_tree td = ops_tree(t), out = NULL, row = ops_tree(rig_like(SAMPLE(4))), empty = TREE(3, 4);
  const int64_t positions[] = {1, 2};
  RIG_WITHOUT_MEMORY(td, tdict_index_get(NULL, td, TDICT_INDEX(TDICT_AT(1)), NULL, &out, err));
  td_release(out);
  RIG_WITHOUT_MEMORY(td, tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST(positions, 2)), NULL, &out, err));
  td_release(out);
  RIG_WITHOUT_MEMORY(
      td, tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST(positions, 2), TDICT_LIST(positions, 1)), NULL, &out, err));
  td_release(out);
  RIG_WITHOUT_MEMORY(empty, tdict_index_set(NULL, empty, TDICT_INDEX(TDICT_AT(1)), row, NULL, err));
}

/* Writes `value` to the part of the tree's model that `map` selects. */
static void write_model(m_tree *t, m_map *map, const m_tree *value) {
  m_tree *part = rig_mapped(t, map);
  m_array *to[8], *from[8];
  int count = m_arrays(part, to, NULL, 8);
  assert_int_equal(m_arrays(value, from, NULL, 8), count);
  for (int i = 0; i < count; i++)
    for (int64_t k = 0; k < to[i]->n; k++) m_write(to[i]->cells[k], m_value(from[i]->cells[k % from[i]->n]));
}

DEVICE_CASE(index_set_writes_through) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(4, 3), *value = rig_like(SAMPLE(2, 3));
  scoped_tree td = rig_tree(&r, t), from = rig_tree(&r, value);
  rig_check(&r, t, td);
  m_map map = m_map_whole(t->nb, t->bs);
  rig_cut(&map, 0, 3, -2, 2);
  tdict_lock(td);
  t->locked = true;
  td_ok(tdict_index_set(NULL, td, TDICT_INDEX(TDICT_RANGE(3, TDICT_NONE, -2)), from, NULL, err));
  write_model(t, &map, value);
  rig_check(&r, t, td);
  tdict_release(from);
  from = ops_tree(value = rig_like(value)); /* from host memory */
  td_ok(tdict_index_set(NULL, td, TDICT_INDEX(TDICT_RANGE(3, TDICT_NONE, -2)), from, NULL, err));
  write_model(t, &map, value);
  rig_check(&r, t, td);
}

CASE(index_set_writes_lists) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(4, 3), *value = rig_like(SAMPLE(4, 2));
  scoped_tree td = rig_tree(&r, t), from = rig_tree(&r, value);
  const int64_t positions[] = {2, 0};
  rig_check(&r, t, td);
  m_map map = m_map_whole(t->nb, t->bs);
  map.list[1] = positions;
  map.shape[1] = 2;
  td_ok(tdict_index_set(NULL, td, TDICT_INDEX(TDICT_ALL, TDICT_LIST(positions, 2)), from, NULL, err));
  write_model(t, &map, value);
  rig_check(&r, t, td);
}

DEVICE_CASE(index_set_repeats_the_value) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(4, 3), *value = rig_like(SAMPLE(3));
  scoped_tree td = rig_tree(&r, t), from = rig_tree(&r, value);
  m_map map = m_map_whole(t->nb, t->bs);
  rig_cut(&map, 0, 1, 1, 3);
  rig_check(&r, t, td);
  td_ok(tdict_index_set(NULL, td, TDICT_INDEX(TDICT_RANGE(1, TDICT_NONE, 1)), from, NULL, err));
  write_model(t, &map, value);
  rig_check(&r, t, td);
}

static m_array *zeros_of(const m_array *a, void *user) {
  (void)user;
  m_array *made = m_array_make(a->dtype, a->ndim, a->shape);
  m_array_zero(made);
  return made;
}

DEVICE_CASE(index_set_allocates_missing_tensors) {
  scoped_rig r = rig_open();
  m_tree *whole = SAMPLE(4, 3), *row = rig_like(SAMPLE(3));
  m_tree *t = m_tree_each(whole, 2, 2, whole->bs, zeros_of, NULL);
  scoped_tree td = TREE(4, 3), from = rig_tree(&r, row);
  td_ok(tdict_write_rows(td, 2, from, err));
  m_map map = m_map_whole(t->nb, t->bs);
  rig_cut(&map, 0, 2, 0, -1);
  write_model(t, &map, row);
  rig_check(&r, t, td);
  assert_true(tdict_device_equal(tdict_tensor_device(td_leaf(td, "n.b")), td_device()));
  tdict_release(td);
  td = TREE(4, 3);
  tdict_lock(td);
  td_fails(TDICT_ELOCKED, "locked", tdict_write_rows(td, 2, from, err));
  assert_int_equal(tdict_num_keys(td), 0);
}

DEVICE_CASE(index_set_refuses) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(4, 3);
  scoped_tree td = rig_tree(&r, t), from = rig_tree(&r, rig_like(SAMPLE(3))), bad = rig_tree(&r, rig_like(SAMPLE(2)));
  const tdict_indices *row = TDICT_INDEX(TDICT_AT(1));
  td_fails(TDICT_EINVAL, "NULL", tdict_index_set(NULL, td, row, NULL, NULL, err));
  td_fails(TDICT_ESHAPE, "[2]", tdict_index_set(NULL, td, row, bad, NULL, err));
  td_fails(TDICT_EINVAL, "position 9", tdict_index_set(NULL, td, TDICT_INDEX(TDICT_AT(9)), from, NULL, err));
  td_put_tree(from, "x", TREE(3));
  td_fails_at(TDICT_ENOTFOUND, "no such key", "x", tdict_index_set(NULL, td, row, from, NULL, err));
  td_ok(tdict_delete(from, "x", err));
  td_put(from, "e", TENSOR(3));
  td_fails(TDICT_ETYPE, "tree", tdict_index_set(NULL, td, row, from, NULL, err));
  td_ok(tdict_delete(from, "e", err));
  td_put(from, "n.b", TENSOR(3, 3)); /* float32 */
  td_fails_at(TDICT_EDTYPE, "float32", "n.b", tdict_index_set(NULL, td, row, from, NULL, err));
  td_put(from, "n.b", TENSOR(3, 2));
  td_fails(TDICT_ESHAPE, "[3, 2", tdict_index_set(NULL, td, row, from, NULL, err));
  rig_check(&r, t, td); /* the call was refused before it wrote an element */
}

DEVICE_CASE(rows_fill_a_batch) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(6, 2);
  scoped_tree td = rig_tree(&r, t);
  rig_check(&r, t, td);
  for (int64_t i = 0; i < 4; i++) {
    m_tree *row = rig_like(SAMPLE(2));
    scoped_tree from = ops_tree(row);
    m_map map = m_map_whole(t->nb, t->bs);
    rig_cut(&map, 0, i, 0, -1);
    td_ok(tdict_write_rows(td, i, from, err));
    write_model(t, &map, row);
  }
  m_tree *rows = rig_like(SAMPLE(2, 2));
  scoped_tree from = rig_tree(&r, rows);
  m_map map = m_map_whole(t->nb, t->bs);
  rig_cut(&map, 0, 4, 1, 2);
  td_ok(tdict_write_rows(td, 4, from, err));
  write_model(t, &map, rows);
  rig_check(&r, t, td);
  td_fails(TDICT_EINVAL, "2 rows from row 5", tdict_write_rows(td, 5, from, err));
  td_fails(TDICT_EINVAL, "2 rows from row -1 of 6", tdict_write_rows(td, -1, from, err));
  td_fails(TDICT_EINVAL, "2 rows from row -7 of 6", tdict_write_rows(td, -7, from, err));
  rig_check(&r, t, td);
  map = m_map_whole(t->nb, t->bs);
  rig_cut(&map, 0, 1, 1, 2);
  td_ok(tdict_write_rows(td, -5, from, err)); /* rows 1 and 2 */
  write_model(t, &map, rows);
  rig_check(&r, t, td);
  m_tree *row = rig_like(SAMPLE(2));
  scoped_tree last = rig_tree(&r, row);
  td_fails(TDICT_EINVAL, "position 6", tdict_write_rows(td, 6, last, err));
  td_fails(TDICT_EINVAL, "position -7", tdict_write_rows(td, -7, last, err));
  map = m_map_whole(t->nb, t->bs);
  rig_cut(&map, 0, 5, 0, -1);
  td_ok(tdict_write_rows(td, -1, last, err)); /* row 5 */
  write_model(t, &map, row);
  rig_check(&r, t, td);
}

enum { WRITERS = 4, ROWS = 64 };
typedef struct row_writer {
  tdict_tree *td, *const *rows;
  int first, failures;
} row_writer;
static void *write_rows_of(void *user) {
  row_writer *w = user;
  for (int i = w->first; i < ROWS; i += WRITERS)
    if (tdict_write_rows(w->td, i, w->rows[i], NULL) != TDICT_OK) w->failures++;
  return NULL;
}

DEVICE_CASE(rows_written_by_threads) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(ROWS, 3);
  tdict_tree *td = rig_tree(&r, t), *rows[ROWS];
  row_writer writers[WRITERS];
  pthread_t threads[WRITERS];
  for (int64_t i = 0; i < ROWS; i++) {
    m_tree *row = rig_like(SAMPLE(3));
    rows[i] = ops_tree(row);
    m_map map = m_map_whole(t->nb, t->bs);
    rig_cut(&map, 0, i, 0, -1);
    write_model(t, &map, row);
  }
  for (int i = 0; i < WRITERS; i++) {
    writers[i] = (row_writer){td, rows, i, 0};
    threads[i] = td_start(write_rows_of, &writers[i]);
  }
  for (int i = 0; i < WRITERS; i++) {
    pthread_join(threads[i], NULL);
    assert_int_equal(writers[i].failures, 0);
  }
  rig_check(&r, t, td);
  for (int i = 0; i < ROWS; i++) tdict_release(rows[i]);
  tdict_release(td);
}
