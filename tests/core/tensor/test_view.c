/* Tests views of a tensor's storage: descriptions, tdict_tensor_as_strided(), slices and permutations. */
#include "naive.h"

#include "core/tensor/tensor.h"
#include "support/guarded.h"

static tdict_tensor *const mark = (tdict_tensor *)(uintptr_t)0xA5A5;

static int32_t element(const tdict_tensor *t, const int64_t *index) {
  int32_t value;
  const unsigned char *data = tdict_tensor_const_data(t);
  int64_t at = naive_offset(tdict_tensor_ndim(t), tdict_tensor_strides(t), index);
  memcpy(&value, data + at * (int64_t)sizeof value, sizeof value);
  return value;
}

/* Makes an int32 tensor with the elements 0, 1, 2, ... in C order. */
static tdict_tensor *counting(int ndim, const int64_t *shape) {
  tdict_tensor *t = td_made(tensor, tdict_tensor_empty(TDICT_I32, ndim, shape, NULL, &made, err));
  int32_t *data = tdict_tensor_data(t);
  for (int64_t i = 0; i < tdict_tensor_numel(t); i++) data[i] = (int32_t)i;
  return t;
}

CASE(tensor_views_share_storage) {
  const int64_t shape[] = {3, 4};
  tdict_tensor *t = counting(2, shape), *other = counting(2, shape), *views[3] = {NULL, NULL, NULL};
  const tdict_tensor_range range = {0, 1, 2, 1};
  const int turn[] = {1, 0};
  td_ok(tdict_tensor_slice(t, &range, &views[0], err));
  td_ok(tdict_tensor_permute(t, 2, turn, &views[1], err));
  td_ok(tdict_tensor_as_strided(t, td_options(tdict_tensor_desc, ndim = 2, shape = shape), 0, &views[2], err));
  assert_true(tdict_tensor_shares_storage(t, t));
  assert_false(tdict_tensor_shares_storage(t, other));
  ((int32_t *)tdict_tensor_data(t))[4] = -77;
  for (int i = 0; i < 3; i++) {
    assert_true(tdict_tensor_shares_storage(t, views[i]));
    assert_true(tdict_tensor_dtype(views[i]) == TDICT_I32);
  }
  tdict_tensor_release(t); /* the views keep the storage */
  const int64_t first[] = {0, 0}, turned[] = {0, 1}, second[] = {1, 0};
  assert_int_equal(element(views[0], first), -77);
  assert_int_equal(element(views[1], turned), -77);
  assert_int_equal(element(views[2], second), -77);
  for (int i = 0; i < 3; i++) tdict_tensor_release(views[i]);
  tdict_tensor_release(other);
}

CASE(tensor_get_desc) {
  const int64_t shape[] = {3, 4};
  scoped_tensor t = counting(2, shape), part = NULL, again = NULL;
  const tdict_tensor_range range = {1, 3, 2, -2};
  td_ok(tdict_tensor_slice(t, &range, &part, err));
  tdict_tensor_desc v;
  memset(&v, 0xA5, sizeof v);
  v.struct_size = sizeof v;
  tdict_tensor_get_desc(part, &v);
  assert_int_equal(v.struct_size, sizeof v);
  assert_ptr_equal(v.data, (int32_t *)tdict_tensor_data(t) + 3);
  assert_true(tdict_device_equal(v.device, tdict_cpu()));
  assert_true(v.dtype == TDICT_I32);
  assert_int_equal(v.ndim, 2);
  assert_ptr_equal(v.shape, tdict_tensor_shape(part));
  assert_ptr_equal(v.strides, tdict_tensor_strides(part));
  assert_int_equal(v.storage_bytes, 48 - 12);
  assert_int_equal(v.flags, 0);
  td_release(part);
  tdict_tensor_get_desc(t, &v);
  assert_int_equal(v.storage_bytes, 48);
  v.flags = TDICT_DESC_READ_ONLY | TDICT_DESC_PINNED;
  td_ok(tdict_tensor_from_data(&v, NULL, NULL, &again, err));
  tdict_tensor_get_desc(again, &v);
  assert_int_equal(v.flags, TDICT_DESC_READ_ONLY | TDICT_DESC_PINNED);
  assert_ptr_equal(v.data, tdict_tensor_const_data(t));
  td_release(again, t);
  const int64_t none[] = {0};
  t = counting(1, none);
  tdict_tensor_get_desc(t, &v);
  assert_int_equal(v.storage_bytes, 0);
  assert_null(v.data);
  struct {
    tdict_tensor_desc v;
    unsigned char after[8];
  } old;
  memset(&old, 0xA5, sizeof old);
  old.v.struct_size = offsetof(tdict_tensor_desc, storage_bytes); /* as in a program built with an older header */
  tdict_tensor_get_desc(t, &old.v);
  assert_int_equal(old.v.ndim, 1);
  assert_int_equal(old.v.flags, 0xA5A5A5A5u);
}

static tdict_tensor_desc layout_of(int ndim, const int64_t *shape, const int64_t *strides) {
  tdict_tensor_desc v = tdict_tensor_desc_default();
  v.data = (void *)(uintptr_t)0xA5A5; /* must not be used; only shape and strides matter */
  v.dtype = 0;
  v.flags = 0xFFu;
  v.device.type = 99;
  v.ndim = ndim;
  v.shape = shape;
  v.strides = strides;
  return v;
}

CASE(tensor_as_strided_views) {
  const int64_t ten[] = {10}, windows[] = {4, 3}, overlapping[] = {2, 1}, back[] = {-2, -1};
  scoped_tensor t = counting(1, ten), v = NULL, w = NULL;
  tdict_tensor_desc layout = layout_of(2, windows, overlapping);
  td_ok(tdict_tensor_as_strided(t, &layout, 1, &v, err));
  for (int64_t i = 0; i < 4; i++)
    for (int64_t j = 0; j < 3; j++) assert_int_equal(element(v, (const int64_t[]){i, j}), 1 + 2 * i + j);
  /* offsets are relative to the first element of `v`, not to the storage */
  layout = layout_of(2, windows, back);
  td_ok(tdict_tensor_as_strided(v, &layout, 8, &w, err));
  for (int64_t i = 0; i < 4; i++)
    for (int64_t j = 0; j < 3; j++) assert_int_equal(element(w, (const int64_t[]){i, j}), 9 - 2 * i - j);
  tdict_tensor_release(w);
  layout = layout_of(1, ten, NULL);
  td_ok(tdict_tensor_as_strided(v, &layout, -1, &w, err));
  assert_int_equal(element(w, (const int64_t[]){9}), 9);
  tdict_tensor_release(w);
  layout = layout_of(0, NULL, NULL);
  td_ok(tdict_tensor_as_strided(v, &layout, 8, &w, err));
  assert_int_equal(element(w, NULL), 9);
  tdict_tensor_release(w);
  /* the struct of an older header, which ends before storage_bytes */
  layout = layout_of(1, ten, NULL);
  layout.struct_size = offsetof(tdict_tensor_desc, storage_bytes);
  td_ok(tdict_tensor_as_strided(t, &layout, 0, &w, err));
  tdict_tensor_release(w);
  /* without elements, any offset is allowed */
  const int64_t none[] = {0, 5};
  layout = layout_of(2, none, NULL);
  td_ok(tdict_tensor_as_strided(t, &layout, INT64_MAX, &w, err));
  assert_int_equal(tdict_tensor_numel(w), 0);
}

CASE(tensor_as_strided_refuses) {
  const int64_t ten[] = {10}, eleven[] = {11}, two[] = {2, 5}, negative[] = {-1}, one[] = {1}, three[] = {3};
  const int64_t far[] = {INT64_MAX / 4, 1}, tens[] = {5, 2}, back[] = {-1}, zero[] = {0};
  tdict_tensor *t = counting(1, ten), *v = mark;
  tdict_tensor_desc layout = layout_of(1, eleven, NULL);
  td_fails(TDICT_ESHAPE, "44 of a storage of 40", tdict_tensor_as_strided(t, &layout, 0, &v, err));
  layout = layout_of(1, ten, NULL);
  td_fails(TDICT_ESHAPE, "storage", tdict_tensor_as_strided(t, &layout, 1, &v, err));
  td_fails(TDICT_ESHAPE, "storage", tdict_tensor_as_strided(t, &layout, -1, &v, err));
  td_fails(TDICT_EOVERFLOW, "63 bits", tdict_tensor_as_strided(t, &layout, INT64_MAX, &v, err));
  td_fails(TDICT_EOVERFLOW, "63 bits", tdict_tensor_as_strided(t, &layout, INT64_MIN, &v, err));
  td_fails(TDICT_EOVERFLOW, "63 bits", tdict_tensor_as_strided(t, &layout, INT64_MAX / 4, &v, err));
  layout = layout_of(1, three, back);
  td_fails(TDICT_ESHAPE, "storage", tdict_tensor_as_strided(t, &layout, 1, &v, err));
  layout = layout_of(2, two, far);
  td_fails(TDICT_EOVERFLOW, "63 bits", tdict_tensor_as_strided(t, &layout, 0, &v, err));
  layout = layout_of(2, two, tens);
  td_fails(TDICT_ESHAPE, "storage", tdict_tensor_as_strided(t, &layout, 0, &v, err)); /* the last element would be 13 */
  layout = layout_of(1, negative, NULL);
  td_fails(TDICT_EINVAL, "shape[0] is -1", tdict_tensor_as_strided(t, &layout, 0, &v, err));
  layout = layout_of(33, ten, NULL);
  td_fails(TDICT_EINVAL, "ndim is 33", tdict_tensor_as_strided(t, &layout, 0, &v, err));
  layout = layout_of(1, NULL, NULL);
  td_fails(TDICT_EINVAL, "NULL", tdict_tensor_as_strided(t, &layout, 0, &v, err));
  layout = layout_of(1, ten, NULL);
  layout.struct_size = 3;
  td_fails(TDICT_EINVAL, "struct_size", tdict_tensor_as_strided(t, &layout, 0, &v, err));
  td_fails(TDICT_EINVAL, "layout is NULL", tdict_tensor_as_strided(t, NULL, 0, &v, err));
  layout = layout_of(1, ten, NULL);
  td_fails(TDICT_EINVAL, "tensor is NULL", tdict_tensor_as_strided(NULL, &layout, 0, &v, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_tensor_as_strided(t, &layout, 0, NULL, err));
  assert_ptr_equal(v, mark);
  tdict_tensor_release(t);
  t = counting(1, zero);
  layout = layout_of(1, one, NULL);
  td_fails(TDICT_ESHAPE, "storage of 0", tdict_tensor_as_strided(t, &layout, 0, &v, err));
  tdict_tensor_release(t);
}

CASE(tensor_slice_views) {
  const int64_t shape[] = {4, 6, 3};
  scoped_tensor t = counting(3, shape);
  static const tdict_tensor_range ranges[] = {{0, 0, 4, 1},  {0, 1, 2, 2},  {1, 5, 6, -1},
                                              {1, 4, 2, -3}, {2, 2, 1, 9},  {2, 0, 3, 1},
                                              {1, 3, 1, 7},  {0, 3, 4, -1}, {2, 2, 1, INT64_MIN}};
  for (size_t r = 0; r < sizeof ranges / sizeof *ranges; r++) {
    scoped_tensor v = td_made(tensor, tdict_tensor_slice(t, &ranges[r], &made, err));
    int64_t index[3] = {0}, wanted[3];
    for (int i = 0; i < 3; i++)
      assert_int_equal(tdict_tensor_shape(v)[i], i == ranges[r].dim ? ranges[r].count : shape[i]);
    do {
      memcpy(wanted, index, sizeof wanted);
      if (ranges[r].count > 1 || index[ranges[r].dim])
        wanted[ranges[r].dim] = ranges[r].start + index[ranges[r].dim] * ranges[r].step;
      else
        wanted[ranges[r].dim] = ranges[r].start;
      assert_int_equal(element(v, index), (wanted[0] * 6 + wanted[1]) * 3 + wanted[2]);
    } while (naive_step(3, tdict_tensor_shape(v), index));
  }
  static const tdict_tensor_range nothing[] = {{1, 0, 0, 1}, {1, 6, 0, 1}, {2, -1, 0, INT64_MIN}};
  for (size_t r = 0; r < sizeof nothing / sizeof *nothing; r++) {
    scoped_tensor v = td_made(tensor, tdict_tensor_slice(t, &nothing[r], &made, err));
    assert_int_equal(tdict_tensor_numel(v), 0);
    assert_int_equal(tdict_tensor_shape(v)[0], 4);
  }
}

CASE(tensor_slice_refuses) {
  const int64_t shape[] = {4, 6}, empty[] = {0};
  scoped_tensor t = counting(2, shape), none = counting(1, empty), scalar = counting(0, NULL);
  tdict_tensor *v = mark;
  static const struct {
    tdict_tensor_range range;
    const char *text;
  } bad[] = {{{-1, 0, 1, 1}, "dim is -1"},
             {{2, 0, 1, 1}, "dim is 2"},
             {{0, 0, 1, 0}, "step is 0"},
             {{0, 0, -1, 1}, "count is -1"},
             {{0, 0, 5, 1}, "dimension 0, which has 4"},
             {{0, 4, 1, 1}, "leave"},
             {{0, -1, 1, 1}, "leave"},
             {{1, 1, 3, 3}, "leave"},
             {{1, 1, 3, -1}, "leave"},
             {{1, 1, 3, INT64_MAX}, "leave"},
             {{1, 1, INT64_MAX, -2}, "leave"},
             {{1, INT64_MAX, 2, 1}, "leave"},
             {{1, INT64_MIN, 2, -1}, "leave"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    td_fails(TDICT_EINVAL, bad[i].text, tdict_tensor_slice(t, &bad[i].range, &v, err));
  const tdict_tensor_range first = {0, 0, 1, 1};
  td_fails(TDICT_EINVAL, "leave", tdict_tensor_slice(none, &first, &v, err));
  td_fails(TDICT_EINVAL, "dim is 0", tdict_tensor_slice(scalar, &first, &v, err));
  td_fails(TDICT_EINVAL, "tensor is NULL", tdict_tensor_slice(NULL, &first, &v, err));
  td_fails(TDICT_EINVAL, "range is NULL", tdict_tensor_slice(t, NULL, &v, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_tensor_slice(t, &first, NULL, err));
  assert_ptr_equal(v, mark);
}

CASE(tensor_permute_views) {
  const int64_t shape[] = {2, 3, 4};
  scoped_tensor t = counting(3, shape), scalar = counting(0, NULL), v = NULL;
  static const int orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  for (size_t o = 0; o < sizeof orders / sizeof *orders; o++) {
    td_ok(tdict_tensor_permute(t, 3, orders[o], &v, err));
    int64_t index[3] = {0}, wanted[3];
    for (int i = 0; i < 3; i++) assert_int_equal(tdict_tensor_shape(v)[i], shape[orders[o][i]]);
    do {
      for (int i = 0; i < 3; i++) wanted[orders[o][i]] = index[i];
      assert_int_equal(element(v, index), (wanted[0] * 3 + wanted[1]) * 4 + wanted[2]);
    } while (naive_step(3, tdict_tensor_shape(v), index));
    td_release(v);
  }
  td_ok(tdict_tensor_permute(scalar, 0, NULL, &v, err));
  assert_int_equal(tdict_tensor_ndim(v), 0);
  td_release(v, scalar, t);
  int64_t ones[TDICT_MAX_NDIM];
  int back[TDICT_MAX_NDIM];
  for (int i = 0; i < TDICT_MAX_NDIM; i++) ones[i] = i == 3 ? 7 : 1, back[i] = TDICT_MAX_NDIM - 1 - i;
  t = counting(TDICT_MAX_NDIM, ones);
  td_ok(tdict_tensor_permute(t, TDICT_MAX_NDIM, back, &v, err));
  assert_int_equal(tdict_tensor_shape(v)[28], 7);
}

CASE(tensor_permute_refuses) {
  const int64_t shape[] = {2, 3, 4};
  tdict_tensor *t = counting(3, shape), *v = mark;
  static const int orders[][3] = {{0, 1, 1}, {0, 1, 3}, {0, 1, -1}, {2, 2, 2}, {0, 1, 32}, {0, 1, 1 << 30}};
  for (size_t o = 0; o < sizeof orders / sizeof *orders; o++)
    td_fails(TDICT_EINVAL, "order[", tdict_tensor_permute(t, 3, orders[o], &v, err));
  td_fails(TDICT_EINVAL, "order is NULL", tdict_tensor_permute(t, 3, NULL, &v, err));
  td_fails(TDICT_EINVAL, "order has 2 dimensions, the tensor has 3", tdict_tensor_permute(t, 2, orders[0], &v, err));
  td_fails(TDICT_EINVAL, "order has 4 dimensions", tdict_tensor_permute(t, 4, orders[0], &v, err));
  td_fails(TDICT_EINVAL, "order has -1 dimensions", tdict_tensor_permute(t, -1, orders[0], &v, err));
  td_fails(TDICT_EINVAL, "tensor is NULL", tdict_tensor_permute(NULL, 3, orders[0], &v, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_tensor_permute(t, 3, orders[0], NULL, err));
  assert_ptr_equal(v, mark);
  tdict_tensor_release(t);
}

CASE(tensor_get_desc_keeps_to_its_size) {
  scoped_tensor t = counting(2, (int64_t[]){3, 4});
  tdict_tensor_desc whole = tdict_tensor_desc_default();
  tdict_tensor_get_desc(t, &whole);
  for (size_t size = sizeof size; size <= sizeof whole; size++) {
    guarded *g = guarded_of(size);
    tdict_tensor_get_desc(t, (tdict_tensor_desc *)g);
    check_guarded(g, size, &whole);
  }
  guarded *g = guarded_of(0);
  tdict_tensor_get_desc(t, (tdict_tensor_desc *)g);
  assert_int_equal(g->struct_size, 0);
  check_untouched(g);
}
