/* Tests functions that change batch dimensions, such as reshape and permute, on each device. */
#include "rig.h"

typedef struct grouping {
  int in, ndim;
  int64_t shape[M_DIMS];
  bool copies;
} grouping;
static m_array *group_array(const m_array *a, void *user) {
  const grouping *g = user;
  m_array *made = m_array_regroup(a, g->in, g->ndim, g->shape);
  return g->copies ? m_array_copy(made) : made;
}
#define GROUP(in, copies, ...) \
  (grouping) { in, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), {__VA_ARGS__}, copies }
/* Compares a result with the model, and releases the result. */
static void check_group(const rig *r, const m_tree *t, tdict_tree *out, grouping g) {
  m_tree *made = m_tree_each(t, g.in, g.ndim, g.shape, group_array, &g);
  made->locked = t->locked;
  rig_check(r, made, out);
  tdict_release(out);
}
static void check_map(const rig *r, const m_tree *t, const tdict_tree *td, tdict_tree *out, m_map *map) {
  rig_check(r, rig_mapped(t, map), out);
  rig_shares(td, out, true);
  tdict_release(out);
}

DEVICE_CASE(shape_view) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(4, 6);
  tdict_tree *td = rig_tree(&r, t), *out = NULL;
  rig_check(&r, t, td);
  check_group(&r, t, td_made(tree, tdict_reshape_view(td, COUNTS(2, 3, 4), &made, err)), GROUP(2, false, 2, 3, 4));
  check_group(&r, t, td_made(tree, tdict_reshape_view(td, COUNTS(-1), &made, err)), GROUP(2, false, 24));
  td_ok(tdict_reshape_view(td, COUNTS(1, 2, -1, 1), &out, err));
  rig_shares(td, out, true);
  check_group(&r, t, out, GROUP(2, false, 1, 2, 12, 1));
  td_fails(TDICT_ESHAPE, "24 elements", tdict_reshape_view(td, COUNTS(5, -1), &out, err));
  td_fails(TDICT_ESHAPE, "[5, 5]", tdict_reshape_view(td, COUNTS(5, 5), &out, err));
  tdict_release(td);
}

DEVICE_CASE(shape_view_refuses_strides) {
  scoped_rig r = rig_open();
  scoped_tree td = rig_tree(&r, SAMPLE(4, 6)), turned = NULL, out = NULL;
  td_ok(tdict_transpose(td, 0, 1, &turned, err));
  td_fails_at(TDICT_ESHAPE, "reshape copies", "a", tdict_reshape_view(turned, COUNTS(24), &out, err));
  td_ok(tdict_reshape_view(turned, COUNTS(3, 2, 4), &out, err)); /* the strides allow a view of this shape */
  rig_shares(td, out, true);
}

DEVICE_CASE(shape_reshape_copies_where_needed) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(4, 6);
  scoped_tree td = rig_tree(&r, t), turned = NULL;
  tdict_tree *out = NULL;
  m_map map = m_map_whole(t->nb, t->bs);
  map.shape[0] = 6;
  map.shape[1] = 4;
  map.out[0] = 1;
  map.out[1] = 0;
  rig_check(&r, t, td);
  td_ok(tdict_transpose(td, 0, 1, &turned, err));
  td_ok(tdict_reshape(turned, COUNTS(2, 12), &out, err));
  rig_shares(turned, out, false);
  assert_true(tdict_device_equal(tdict_tensor_device(td_leaf(out, "a")), td_device()));
  check_group(&r, rig_mapped(t, &map), out, GROUP(2, true, 2, 12));
  td_ok(tdict_reshape(td, COUNTS(2, 12), &out, err));
  rig_shares(td, out, true);
  check_group(&r, t, out, GROUP(2, false, 2, 12));
}

DEVICE_CASE(shape_flatten) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(2, 3, 4);
  scoped_tree td = rig_tree(&r, t), out = NULL;
  rig_check(&r, t, td);
  check_group(&r, t, td_made(tree, tdict_merge_dims(td, 0, 1, &made, err)), GROUP(3, false, 6, 4));
  check_group(&r, t, td_made(tree, tdict_merge_dims(td, -2, -1, &made, err)), GROUP(3, false, 2, 12));
  check_group(&r, t, td_made(tree, tdict_merge_dims(td, 1, 1, &made, err)), GROUP(3, false, 2, 3, 4));
  td_fails(TDICT_EINVAL, "is after dimension", tdict_merge_dims(td, 2, 1, &out, err));
}

DEVICE_CASE(shape_unflatten) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(2, 12);
  tdict_tree *td = rig_tree(&r, t), *out = NULL;
  rig_check(&r, t, td);
  td_ok(tdict_split_dim(td, -1, COUNTS(3, -1, 2), &out, err));
  rig_shares(td, out, true);
  check_group(&r, t, out, GROUP(2, false, 2, 3, 2, 2));
  td_fails(TDICT_ESHAPE, "12 elements", tdict_split_dim(td, 1, COUNTS(5, 2), &out, err));
  td_fails(TDICT_EINVAL, "no sizes", tdict_split_dim(td, 1, 0, NULL, &out, err));
  tdict_release(td);
}

DEVICE_CASE(shape_unsqueeze) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(2, 3);
  scoped_tree td = rig_tree(&r, t);
  rig_check(&r, t, td);
  for (int dim = -3; dim < 3; dim++) {
    m_map map = m_map_whole(t->nb, t->bs);
    rig_insert(&map, dim < 0 ? dim + 3 : dim, 1);
    check_map(&r, t, td, td_made(tree, tdict_unsqueeze(td, dim, &made, err)), &map);
  }
}

DEVICE_CASE(shape_squeeze) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(1, 3, 1);
  scoped_tree td = rig_tree(&r, t);
  rig_check(&r, t, td);
  m_map map = m_map_whole(t->nb, t->bs);
  check_map(&r, t, td, td_made(tree, tdict_squeeze(td, 1, &made, err)), &map);
  rig_cut(&map, 2, 0, 1, -1);
  check_map(&r, t, td, td_made(tree, tdict_squeeze(td, -1, &made, err)), &map);
  rig_cut(&map, 0, 0, 1, -1);
  check_map(&r, t, td, td_made(tree, tdict_squeeze(td, TDICT_EVERY_DIM, &made, err)), &map);
}

DEVICE_CASE(shape_expand) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(1, 3);
  scoped_tree td = rig_tree(&r, t), out = NULL;
  rig_check(&r, t, td);
  m_map map = m_map_whole(t->nb, t->bs);
  map.step[0] = 0;
  map.shape[0] = 5;
  rig_insert(&map, 0, 2);
  check_map(&r, t, td, td_made(tree, tdict_expand(td, COUNTS(2, 5, -1), &made, err)), &map);
  td_fails(TDICT_ESHAPE, "from 3 elements to 4", tdict_expand(td, COUNTS(1, 4), &out, err));
  td_fails(TDICT_EINVAL, "wanted at least 2", tdict_expand(td, COUNTS(3), &out, err));
  td_fails(TDICT_EINVAL, "-1", tdict_expand(td, COUNTS(-1, 1, 3), &out, err));
  td_fails(TDICT_EOVERFLOW, "63 bits", tdict_expand(td, COUNTS(INT64_MAX / 4, 1, 3), &out, err));
}

DEVICE_CASE(shape_permute) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(2, 3, 4);
  scoped_tree td = rig_tree(&r, t), out = NULL;
  rig_check(&r, t, td);
  m_map map = m_map_whole(t->nb, t->bs);
  map.shape[0] = 4, map.shape[1] = 2, map.shape[2] = 3;
  map.out[2] = 0, map.out[0] = 1, map.out[1] = 2;
  check_map(&r, t, td, td_made(tree, tdict_permute(td, 3, (const int[]){-1, 0, 1}, &made, err)), &map);
  td_fails(TDICT_EINVAL, "twice", tdict_permute(td, 3, (const int[]){0, 0, 1}, &out, err));
  td_fails(TDICT_EINVAL, "dimension 3", tdict_permute(td, 3, (const int[]){0, 3, 1}, &out, err));
  td_fails(TDICT_EINVAL, "order has 2 dimensions, the tree has 3",
           tdict_permute(td, 2, (const int[]){1, 0}, &out, err));
  td_fails(TDICT_EINVAL, "order has 4 dimensions", tdict_permute(td, 4, (const int[]){3, 0, 1, 2}, &out, err));
  td_fails(TDICT_EINVAL, "order has -1 dimensions", tdict_permute(td, -1, (const int[]){0, 1, 2}, &out, err));
}

DEVICE_CASE(shape_transpose) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(2, 3, 4);
  scoped_tree td = rig_tree(&r, t);
  rig_check(&r, t, td);
  m_map map = m_map_whole(t->nb, t->bs);
  map.shape[0] = 4, map.shape[2] = 2;
  map.out[2] = 0, map.out[0] = 2;
  check_map(&r, t, td, td_made(tree, tdict_transpose(td, 0, -1, &made, err)), &map);
}

DEVICE_CASE(shape_children) {
  scoped_rig r = rig_open();
  scoped_tree td = rig_tree(&r, SAMPLE(4)), out = td_made(tree, tdict_reshape_view(td, COUNTS(2, 2), &made, err));
  const tdict_tree *deep = td_child(out, "n.m");
  assert_int_equal(tdict_batch_ndim(deep), 3);
  assert_int_equal(tdict_batch_size(deep)[2], 2);
  assert_int_equal(tdict_tensor_ndim(td_leaf(out, "n.m.u")), 4);
  td_release(out);
  /* an empty child may have any batch size */
  tdict_tree *empty = TREE(4);
  td_put_tree(empty, "x", TREE(4, 9));
  td_ok(tdict_unsqueeze(empty, 0, &out, err));
  assert_int_equal(tdict_batch_ndim(td_child(out, "x")), 3);
  td_release(out, empty);
  /* the result would have more batch dimensions than a tree may have */
  int64_t ones[TDICT_MAX_BATCH_NDIM];
  for (int i = 0; i < TDICT_MAX_BATCH_NDIM; i++) ones[i] = 1;
  ones[0] = 4;
  td_fails(TDICT_ESHAPE, "17 batch", tdict_reshape_view(td, TDICT_MAX_BATCH_NDIM, ones, &out, err));
}

DEVICE_CASE(shape_keeps_locks) {
  scoped_rig r = rig_open();
  scoped_tree td = rig_tree(&r, SAMPLE(2, 3)), out = NULL;
  tdict_lock(td);
  td_ok(tdict_merge_dims(td, 0, 1, &out, err));
  assert_true(tdict_is_locked(out) && tdict_is_locked(td_child(out, "n.m")));
  tdict_release(out);
  td_ok(tdict_permute(td, 2, (const int[]){1, 0}, &out, err));
  assert_true(tdict_is_locked(out));
  td_ok(tdict_unlock(out, err));
  assert_true(tdict_is_locked(td));
  tdict_release(out);
  tdict_tree *rows[2];
  size_t count = 2;
  td_ok(tdict_unbind(td, 0, rows, &count, err));
  assert_false(tdict_is_locked(rows[0]) || tdict_is_locked(rows[1]));
  td_release(rows[0], rows[1]);
  td_ok(tdict_unlock(td, err));
  tdict_lock(td_child(td, "n")); /* locks only this child */
  td_ok(tdict_unsqueeze(td, 0, &out, err));
  assert_false(tdict_is_locked(out));
  assert_true(tdict_is_locked(td_child(out, "n")) && tdict_is_locked(td_child(out, "n.m")));
}

DEVICE_CASE(shape_views_share) {
  scoped_rig r = rig_open();
  scoped_tree td = rig_tree(&r, SAMPLE(4, 3)), out = NULL;
  tdict_tensor_desc was = tdict_tensor_desc_default(), is = was;
  td_ok(tdict_unsqueeze(td, 1, &out, err));
  tdict_tensor_get_desc(td_leaf(td, "n.b"), &was);
  tdict_tensor_get_desc(td_leaf(out, "n.b"), &is);
  assert_ptr_equal(was.data, is.data);
  td_ok(tdict_fill(out, NULL, 0, NULL, err)); /* also writes the elements of `td` */
  tdict_release(out);
  m_tree *t = SAMPLE(4, 3), *zero = m_tree_make(2, t->bs);
  m_put(zero, "a", m_array_make(TDICT_F32, 2, t->bs), NULL);
  m_array_zero(zero->entries[0].array);
  const char *const paths[] = {"a"};
  td_ok(tdict_select(td, paths, 1, true, &out, err));
  rig_check(&r, zero, out);
}

/* Views of tensors with equal shapes have the strides, address and storage of their own source. */
CASE(shape_views_of_equal_shapes_keep_their_strides) {
  static const int turn[] = {1, 0};
  scoped_tree td = TREE(4), out = NULL;
  scoped_tensor wide = TENSOR(3, 4);
  td_put(td, "a", TENSOR(4, 3));
  td_put(td, "b", TENSOR(4, 3));
  td_put(td, "turned", td_made(tensor, tdict_tensor_permute(wide, 2, turn, &made, err)));
  td_put(td, "c", TENSOR(4, 3));
  td_ok(tdict_unsqueeze(td, 0, &out, err));
  const char *const paths[] = {"a", "b", "turned", "c"};
  for (size_t i = 0; i < 4; i++) {
    tdict_tensor *from = td_leaf(td, paths[i]), *view = td_leaf(out, paths[i]);
    assert_true(tdict_tensor_shares_storage(from, view));
    assert_ptr_equal(tdict_tensor_data(from), tdict_tensor_data(view));
    assert_memory_equal(tdict_tensor_strides(view) + 1, tdict_tensor_strides(from), 2 * sizeof(int64_t));
  }
}

/* Neighbors with the same layout get their views in one loop. Empty slots, objects and children end the loop. */
CASE(shape_views_of_neighbours) {
  static const char *const paths[] = {"a", "b", "c", "d", "n.a", "n.b", "e", "f"};
  enum { NUM_PATHS = sizeof paths / sizeof *paths };
  scoped_tree td = TREE(4);
  tdict_tree *parts[2];
  size_t count = 2;
  for (size_t i = 0; i < NUM_PATHS; i++) {
    td_put(td, paths[i], TENSOR(4, 3));
    if (i == 1) td_put(td, "gone", TENSOR(4, 3));
    if (i == 2) td_ok(tdict_set_text(td, "note", "text", err));
  }
  td_ok(tdict_delete(td, "gone", err));
  td_ok(tdict_split_every(td, 0, 2, parts, &count, err));
  for (size_t part = 0; part < 2; part++) {
    assert_int_equal(tdict_num_leaves(parts[part]), tdict_num_leaves(td));
    for (size_t i = 0; i < NUM_PATHS; i++) {
      const tdict_tensor *from = td_leaf(td, paths[i]), *view = td_leaf(parts[part], paths[i]);
      assert_true(tdict_tensor_shares_storage(from, view));
      assert_ptr_equal(tdict_tensor_const_data(view), (const float *)tdict_tensor_const_data(from) + part * 6);
      assert_int_equal(tdict_tensor_numel(view), 6);
    }
    tdict_release(parts[part]);
  }
}

/* All tensors together take one allocation, however many there are. Each node takes two. */
CASE(shape_costs_one_slab) {
  scoped_tree few = TREE(4, 2), many = TREE(4, 2);
  tdict_tree *out = NULL;
  const int64_t flat[] = {8};
  for (int i = 0; i < 500; i++) td_put(i < 10 ? few : many, td_text("k%d", i), TENSOR(4, 2, 3));
  for (int way = 0; way < 3; way++)
    for (int i = 0; i < 2; i++) {
      const tdict_tree *td = i ? many : few;
      td_fail_alloc(INT64_MAX, false);
      td_ok(way == 0   ? tdict_transpose(td, 0, 1, &out, err)
            : way == 1 ? tdict_reshape_view(td, 1, flat, &out, err)
                       : tdict_unsqueeze(td, 0, &out, err));
      assert_int_equal(td_allocs_seen(), 3); /* the slab, the node, and its list of leaves */
      td_fail_alloc_stop();
      tdict_release(out);
    }
}

CASE(shape_refuses) {
  tdict_tree *td = TREE(2, 3), *out = NULL, *many[3];
  size_t room = 3;
  td_fails(TDICT_EINVAL, "NULL", tdict_reshape_view(NULL, COUNTS(6), &out, err));
  td_fails(TDICT_EINVAL, "NULL", tdict_reshape_view(td, COUNTS(6), NULL, err));
  td_fails(TDICT_EINVAL, "NULL", tdict_reshape(td, 1, NULL, &out, err));
  td_fails(TDICT_EINVAL, "17 dimensions", tdict_reshape(td, 17, NULL, &out, err));
  td_fails(TDICT_EINVAL, "-2", tdict_reshape_view(td, COUNTS(-2, 3), &out, err));
  td_fails(TDICT_EINVAL, "an earlier count is -1", tdict_reshape_view(td, COUNTS(-1, -1), &out, err));
  td_fails(TDICT_EINVAL, "dimension 2", tdict_merge_dims(td, 0, 2, &out, err));
  td_fails(TDICT_EINVAL, "dimension -3", tdict_split_dim(td, -3, COUNTS(1), &out, err));
  td_fails(TDICT_EINVAL, "dimension 4", tdict_unsqueeze(td, 4, &out, err));
  td_fails(TDICT_EINVAL, "dimension 2", tdict_squeeze(td, 2, &out, err));
  td_fails(TDICT_EINVAL, "NULL", tdict_permute(td, tdict_batch_ndim(td), NULL, &out, err));
  td_fails(TDICT_EINVAL, "dimension 7", tdict_transpose(td, 7, 0, &out, err));
  td_fails(TDICT_EINVAL, "dimension 2", tdict_unbind(td, 2, many, &room, err));
  assert_null(out);
  tdict_release(td);
}

CASE(shape_survives_enomem) {
  tdict_tree *td = ops_tree(SAMPLE(2, 3)), *out = NULL, *turned = NULL, *many[3];
  size_t room = 3;
  RIG_WITHOUT_MEMORY(td, tdict_reshape_view(td, COUNTS(6), &out, err));
  tdict_release(out);
  RIG_WITHOUT_MEMORY(td, tdict_transpose(td, 0, 1, &turned, err));
  RIG_WITHOUT_MEMORY(td, tdict_reshape(turned, COUNTS(6), &out, err));
  RIG_WITHOUT_MEMORY(td, tdict_unbind(td, 1, many, &room, err));
  for (int i = 0; i < 3; i++) tdict_release(many[i]);
  td_release(out, turned, td);
}

/* The tree has no elements, but the product of the sizes that are not 0 would overflow. */
CASE(shape_refuses_sizes_that_overflow) {
  const int64_t most = (int64_t)1 << 40;
  scoped_tree td = td_tree("[0] x:f32[0,3]"), out = NULL;
  td_fails_at(TDICT_EOVERFLOW, "reshape", "x", tdict_reshape(td, COUNTS(0, most, most), &out, err));
  td_fails(TDICT_EOVERFLOW, "view", tdict_reshape_view(td, COUNTS(0, most, most), &out, err));
  assert_null(out);
}
