/* Tests writing elements in place on each device. */
#include "rig.h"

static m_array *array_at(m_tree *t, int i) {
  m_array *all[8];
  m_arrays(t, all, NULL, 8);
  return all[i];
}
static void take_values(m_array *to, const m_array *from) {
  for (int64_t k = 0; k < to->n; k++) m_write(to->cells[k], m_value(from->cells[k % from->n]));
}

DEVICE_CASE(write_keeps_address) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(4, 3);
  scoped_tree td = rig_tree(&r, t);
  m_array *new = rig_new_array(array_at(t, 1), NULL);
  scoped_tensor value = ops_tensor(new);
  char *before = help_snapshot(td);
  rig_check(&r, t, td);
  td_ok(tdict_write(td, "n.b", NULL, value, err));
  take_values(array_at(t, 1), new);
  rig_check(&r, t, td);
  td_ok(tdict_write(td, "n.b", NULL, td_leaf(td, "n.b"), err)); /* the destination itself */
  rig_check(&r, t, td);
  help_unchanged(td, before);
}

DEVICE_CASE(write_refuses) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(4);
  scoped_tree td = rig_tree(&r, t);
  scoped_tensor f32 = TENSOR(4, 3), row = TENSOR(3), whole = TENSOR(4);
  rig_check(&r, t, td);
  td_fails(TDICT_EINVAL, "NULL", tdict_write(td, "a", NULL, NULL, err));
  td_fails(TDICT_EINVAL, "NULL", tdict_write(td, NULL, NULL, f32, err));
  td_fails(TDICT_ENOTFOUND, "not a key", tdict_write(td, "q", NULL, f32, err));
  td_fails(TDICT_ETYPE, "tree", tdict_write(td, "n", NULL, f32, err));
  td_fails(TDICT_EDTYPE, "float32", tdict_write(td, "n.b", NULL, f32, err));
  td_fails_at(TDICT_ESHAPE, "[3]", "a", tdict_write(td, "a", NULL, row, err));
  static const float fixed[4];
  tdict_tensor_desc v = td_with(tdict_tensor_desc, data = (void *)(uintptr_t)fixed, dtype = TDICT_F32, ndim = 1,
                                shape = t->bs, flags = TDICT_DESC_READ_ONLY);
  td_put(td, "c", td_made(tensor, tdict_tensor_from_data(&v, NULL, NULL, &made, err)));
  td_fails(TDICT_EREADONLY, "is read-only", tdict_write(td, "c", NULL, whole, err));
  td_ok(tdict_delete(td, "c", err));
  td_put(td, "d", help_tensor_on(tdict_sim(7), 1, t->bs));
  td_fails(TDICT_EDTYPE, "uint8", tdict_write(td, "d", NULL, whole, err));
  td_ok(tdict_delete(td, "d", err));
  rig_check(&r, t, td);
}

DEVICE_CASE(write_at_writes_elements) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(4);
  scoped_tree td = rig_tree(&r, t);
  m_array *b = array_at(t, 1); /* [4, 3] */
  m_map map = m_map_whole(2, b->shape);
  rig_cut(&map, 1, 1, 1, 2);
  rig_cut(&map, 0, 2, 0, -1);
  m_array *part = m_array_map(b, &map), *new = rig_new_array(part, NULL);
  scoped_tensor value = ops_tensor(new);
  rig_check(&r, t, td);
  td_ok(tdict_write(td, "n.b", TDICT_INDEX(TDICT_AT(2), TDICT_RANGE(1, TDICT_NONE, 1)), value, err));
  take_values(part, new);
  rig_check(&r, t, td);
  map = m_map_whole(2, b->shape); /* the value has fewer dimensions, so it is repeated */
  rig_cut(&map, 1, 0, 2, 2);
  td_ok(tdict_write(td, "n.b", TDICT_INDEX(TDICT_REST, TDICT_RANGE(0, 3, 2)), value, err));
  take_values(m_array_map(b, &map), new);
  rig_check(&r, t, td);
}

DEVICE_CASE(write_at_refuses) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(4);
  scoped_tree td = rig_tree(&r, t);
  scoped_tensor one = TENSOR(1), none = help_tensor(0, NULL);
  rig_check(&r, t, td);
  td_fails(TDICT_EINVAL, "NULL", tdict_write(td, NULL, TDICT_INDEX(TDICT_AT(0)), one, err));
  td_fails(TDICT_ENOTFOUND, "not a key", tdict_write(td, "q", TDICT_INDEX(TDICT_AT(0)), one, err));
  td_fails_at(TDICT_EINVAL, "position 4", "a", tdict_write(td, "a", TDICT_INDEX(TDICT_AT(4)), none, err));
  td_fails(TDICT_ESHAPE, "[1]", tdict_write(td, "a", TDICT_INDEX(TDICT_AT(0)), one, err));
  td_fails(TDICT_EDTYPE, "float32", tdict_write(td, "n.b", TDICT_INDEX(TDICT_AT(0)), one, err));
  rig_check(&r, t, td);
}

CASE(fill_fills) {
  scoped_tree td = TREE(2);
  static const tdict_dtype dtypes[] = {TDICT_U8,  TDICT_I16,  TDICT_F16, TDICT_F32,
                                       TDICT_F64, TDICT_BOOL, TDICT_C64, TDICT_C128};
  static const unsigned char bytes[][16] = {{3},
                                            {3},
                                            {0, 0x42},
                                            {0, 0, 0x40, 0x40},
                                            {0, 0, 0, 0, 0, 0, 8, 0x40},
                                            {1},
                                            {0, 0, 0x40, 0x40},
                                            {0, 0, 0, 0, 0, 0, 8, 0x40}};
  for (int i = 0; i < 8; i++) {
    const char *path = td_text("n.k%d", i);
    tdict_tensor *t = td_made(tensor, tdict_tensor_empty(dtypes[i], COUNTS(2, 5), NULL, &made, err));
    memset(tdict_tensor_data(t), 0xA5, tdict_tensor_bytes(t));
    td_put(td, path, t);
  }
  td_ok(tdict_fill(td, NULL, 3, NULL, err));
  for (int i = 0; i < 8; i++) {
    const char *path = td_text("n.k%d", i);
    size_t item = tdict_dtype_bytes(dtypes[i]);
    for (size_t k = 0; k < 10; k++)
      assert_memory_equal((const char *)tdict_const_data(td, path) + k * item, bytes[i], item);
  }
  td_ok(tdict_fill(td, "n.k1", -1, NULL, err)); /* write one tensor, then a child tree */
  td_ok(tdict_delete(td, "n.k0", err));
  assert_int_equal(((const int16_t *)tdict_const_data(td, "n.k1"))[9], -1);
  assert_true(((const float *)tdict_const_data(td, "n.k3"))[9] == 3);
  td_ok(tdict_fill(td, "n", -2, NULL, err));
  assert_true(((const float *)tdict_const_data(td, "n.k3"))[9] == -2);
  /* write only one row of a tensor */
  scoped_tree part = NULL;
  td_put(td, "m", TENSOR(2, 3));
  float was = ((const float *)tdict_const_data(td, "m"))[0];
  td_ok(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_AT(1)), NULL, &part, err));
  td_ok(tdict_fill(part, NULL, 8, NULL, err));
  assert_memory_equal(tdict_const_data(td, "m"), &was, sizeof was);
  assert_true(((const float *)tdict_const_data(td, "m"))[3] == 8);
}

DEVICE_CASE(fill_zero) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(4, 3);
  scoped_tree td = rig_tree(&r, t), turned = NULL;
  rig_check(&r, t, td);
  m_array *all[8];
  int count = m_arrays(t, all, NULL, 8);
  m_map map = m_map_whole(t->nb, t->bs);
  rig_cut(&map, 1, 1, 0, -1);
  td_ok(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_ALL, TDICT_AT(1)), NULL, &turned, err)); /* bytes with gaps */
  td_ok(tdict_fill(turned, NULL, 0, NULL, err));
  for (int i = 0; i < count; i++) {
    m_array *part = m_array_map(all[i], &map);
    for (int64_t k = 0; k < part->n; k++) m_write(part->cells[k], 0);
  }
  rig_check(&r, t, td);
  tdict_lock(td);
  t->locked = true;
  td_ok(tdict_fill(td, NULL, 0, NULL, err));
  for (int i = 0; i < count; i++)
    for (int64_t k = 0; k < all[i]->n; k++) m_write(all[i]->cells[k], 0);
  rig_check(&r, t, td);
}

/* The wanted bytes come from PyTorch's fill_() in float8_e4m3fn and float8_e5m2. Some values must be rounded. */
DEVICE_CASE(fill_converts_to_8_bit_floats) {
  static const tdict_dtype dtypes[] = {TDICT_F8E4M3, TDICT_F8E5M2};
  static const double values[] = {3, -0.75, 0.1, 447, -0.0, 0.0009765625};
  static const unsigned char wanted[][2] = {{68, 66}, {180, 186}, {29, 46}, {126, 95}, {128, 128}, {0, 20}};
  scoped_rig r = rig_open();
  for (int d = 0; d < 2; d++) {
    scoped_tree td = TREE(5);
    tdict_tensor *t = td_made(tensor, tdict_tensor_zeros(dtypes[d], COUNTS(5, 3), r.memory, &made, err));
    td_put(td, "n.x", t);
    for (int i = 0; i < 6; i++) {
      td_ok(tdict_fill(td, i % 2 ? "n.x" : NULL, values[i], NULL, err));
      scoped_tensor host = td_made(tensor, tdict_tensor_clone(td_leaf(td, "n.x"), NULL, &made, err));
      const unsigned char *found = tdict_tensor_const_data(host);
      for (int k = 0; k < 15; k++) assert_int_equal(found[k], wanted[i][d]);
    }
  }
}

DEVICE_CASE(fill_refuses) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(4);
  scoped_tree td = rig_tree(&r, t);
  rig_check(&r, t, td);
  td_fails(TDICT_EINVAL, "NULL", tdict_fill(NULL, NULL, 0, NULL, err));
  td_fails(TDICT_ENOTFOUND, "not a key", tdict_fill(td, "q", 0, NULL, err));
  td_fails(TDICT_EINVAL, "empty key", tdict_fill(td, "", 0, NULL, err));
  if (!r.context) {
    td_fails_at(TDICT_EOVERFLOW, "does not hold 256", "n.m.u", tdict_fill(td, NULL, 256, NULL, err));
    td_put(td, "two", td_made(tensor, tdict_tensor_zeros(TDICT_DTYPE(2, 16, 2), 1, t->bs, NULL, &made, err)));
    td_fails(TDICT_ENOTSUP, "with 0 only", tdict_fill(td, NULL, 1, NULL, err));
    td_ok(tdict_delete(td, "two", err));
  }
  td_put(td, "d", help_tensor_on(tdict_sim(7), 1, t->bs));
  td_fails(TDICT_EWRONGDEVICE, "no context", tdict_fill(td, NULL, 0, NULL, err));
  td_ok(tdict_delete(td, "d", err));
  rig_check(&r, t, td); /* the call was refused before it wrote an element */
}

static void take_tree(m_tree *to, m_tree *from) {
  m_array *a[8], *b[8];
  int count = m_arrays(to, a, NULL, 8);
  m_arrays(from, b, NULL, 8);
  for (int i = 0; i < count; i++) take_values(a[i], b[i]);
}

DEVICE_CASE(copy_copies_every_element) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(4, 3), *value = rig_like(t);
  scoped_tree td = rig_tree(&r, t), from = ops_tree(value), back = ops_tree(SAMPLE(4, 3));
  rig_check(&r, t, td);
  td_ok(tdict_copy(td, from, NULL, err));
  take_tree(t, value);
  rig_check(&r, t, td);
  td_ok(tdict_copy(back, td, NULL, err)); /* copies from the device */
  tdict_difference found;
  td_ok(tdict_get_difference(back, from, td_options(tdict_difference_options, nan_equal = true), &found, err));
  if (found.differs) fail_msg("%s: %s", found.path, found.message);
}

CASE(copy_refuses) {
  m_tree *t = SAMPLE(4);
  scoped_tree td = ops_tree(t), from = ops_tree(rig_like(t));
  rig r = {NULL, NULL};
  rig_check(&r, t, td);
  td_fails(TDICT_EINVAL, "src is NULL", tdict_copy(td, NULL, NULL, err));
  td_put(td, "more", TENSOR(4));
  td_fails(TDICT_ENOTFOUND, "has 4 keys", tdict_copy(td, from, NULL, err));
  td_ok(tdict_delete(td, "more", err));
  td_put(from, "n.m.x", TENSOR(4, 2));
  td_fails_at(TDICT_ENOTFOUND, "the destination has no such key; keys: ", "n.m.x", tdict_copy(td, from, NULL, err));
  td_ok(tdict_delete(from, "n.m.x", err));
  td_put(from, "e", TENSOR(4));
  td_fails(TDICT_ETYPE, "in the destination", tdict_copy(td, from, NULL, err));
  rig_check(&r, t, td);
}

DEVICE_CASE(update_in_place_writes) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(4, 3), *value = rig_like(t);
  scoped_tree td = rig_tree(&r, t), from = rig_tree(&r, value);
  rig_check(&r, t, td);
  const char *const paths[] = {"n.m", "a"};
  td_ok(tdict_update_in_place(td, from, paths, 2, err));
  take_values(array_at(t, 0), array_at(value, 0));
  take_values(array_at(t, 2), array_at(value, 2));
  rig_check(&r, t, td);
  td_ok(tdict_update_in_place(td, from, NULL, 0, err));
  take_tree(t, value);
  rig_check(&r, t, td);
  td_ok(tdict_update_in_place(td, td, NULL, 0, err));
  rig_check(&r, t, td);
}

DEVICE_CASE(update_in_place_refuses) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(4);
  scoped_tree td = rig_tree(&r, t), from = rig_tree(&r, rig_like(t));
  const char *const missing[] = {"a", "n.q"};
  rig_check(&r, t, td);
  td_fails(TDICT_EINVAL, "NULL", tdict_update_in_place(td, NULL, NULL, 0, err));
  td_fails_at(TDICT_ENOTFOUND, "not a key", "n.q", tdict_update_in_place(td, from, missing, 2, err));
  td_put(from, "z", TENSOR(4));
  td_fails_at(TDICT_ENOTFOUND, "no such key", "z", tdict_update_in_place(td, from, NULL, 0, err));
  td_ok(tdict_delete(from, "z", err));
  td_put(from, "n.b", TENSOR(4, 2));
  td_fails(TDICT_ESHAPE, "[4, 2]", tdict_update_in_place(td, from, NULL, 0, err));
  rig_check(&r, t, td);
}

DEVICE_CASE(write_allowed_when_locked) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(2), *value = rig_like(t);
  scoped_tree td = rig_tree(&r, t), from = rig_tree(&r, value), row = NULL;
  rig_check(&r, t, td);
  tdict_lock(td);
  td_ok(tdict_index_get(NULL, from, TDICT_INDEX(TDICT_AT(1)), NULL, &row, err));
  td_ok(tdict_write(td, "a", NULL, td_leaf(from, "a"), err));
  td_ok(tdict_write(td, "a", TDICT_INDEX(TDICT_AT(1)), td_leaf(row, "a"), err));
  td_ok(tdict_fill(td, "n", 0, NULL, err));
  td_ok(tdict_index_set(NULL, td, TDICT_INDEX(TDICT_AT(1)), row, NULL, err));
  td_ok(tdict_copy(td, from, NULL, err));
  take_tree(t, value);
  t->locked = true;
  rig_check(&r, t, td);
  td_fails(TDICT_ELOCKED, "locked", tdict_update(td, from, NULL, 0, err));
}
