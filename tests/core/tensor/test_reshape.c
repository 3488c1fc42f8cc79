/* Tests tdict_tensor_reshape(): views, copies, refused shapes, and failing allocations. */
#include "naive.h"

#include "core/tensor/tensor.h"

/* Makes an int32 tensor with the elements 0, 1, 2, ... in C order. */
static tdict_tensor *counting(int ndim, const int64_t *shape) {
  tdict_tensor *t = td_made(tensor, tdict_tensor_empty(TDICT_I32, ndim, shape, NULL, &made, err));
  int32_t *data = tdict_tensor_data(t);
  for (int64_t i = 0; i < tdict_tensor_numel(t); i++) data[i] = (int32_t)i;
  return t;
}

/* Returns element `number` in C order, using shape and strides. */
static int32_t element(const tdict_tensor *t, int64_t number) {
  int32_t value;
  int64_t at = 0;
  for (int i = tdict_tensor_ndim(t) - 1; i >= 0; i--) {
    at += number % tdict_tensor_shape(t)[i] * tdict_tensor_strides(t)[i];
    number /= tdict_tensor_shape(t)[i];
  }
  memcpy(&value, (const char *)tdict_tensor_const_data(t) + at * (int64_t)sizeof value, sizeof value);
  return value;
}

CASE(tensor_reshape_views_or_copies) {
  const int order[] = {1, 0};
  scoped_tensor t = counting(TDICT_SHAPE(4, 6)), turned = NULL, view = NULL, copy = NULL, again = NULL;
  td_ok(tdict_tensor_reshape(t, TDICT_SHAPE(2, -1, 3), &view, err));
  assert_true(tdict_tensor_shares_storage(t, view));
  assert_true(tdict_tensor_ndim(view) == 3 && tdict_tensor_shape(view)[1] == 4);
  for (int64_t i = 0; i < 24; i++) assert_int_equal(element(view, i), i);
  td_ok(tdict_tensor_permute(t, 2, order, &turned, err));
  td_ok(tdict_tensor_reshape(turned, TDICT_SHAPE(24), &copy, err)); /* a copy: no strides describe it */
  assert_false(tdict_tensor_shares_storage(t, copy));
  for (int64_t i = 0; i < 24; i++) assert_int_equal(element(copy, i), element(turned, i));
  td_ok(tdict_tensor_reshape(turned, TDICT_SHAPE(2, 3, 4), &again, err)); /* a view: strides describe it */
  assert_true(tdict_tensor_shares_storage(t, again));
  for (int64_t i = 0; i < 24; i++) assert_int_equal(element(again, i), element(turned, i));
}

CASE(tensor_reshape_scalars_and_empty) {
  scoped_tensor one = counting(TDICT_SHAPE(1, 1)), scalar = NULL, row = NULL, none = counting(TDICT_SHAPE(0, 3));
  td_ok(tdict_tensor_reshape(one, 0, NULL, &scalar, err));
  assert_int_equal(tdict_tensor_ndim(scalar), 0);
  td_ok(tdict_tensor_reshape(scalar, TDICT_SHAPE(-1), &row, err));
  assert_true(tdict_tensor_ndim(row) == 1 && tdict_tensor_shape(row)[0] == 1);
  tdict_tensor_release(row);
  td_ok(tdict_tensor_reshape(none, TDICT_SHAPE(5, 0, 7), &row, err));
  assert_int_equal(tdict_tensor_numel(row), 0);
}

CASE(tensor_reshape_refuses) {
  scoped_tensor t = counting(TDICT_SHAPE(4, 6)), empty = counting(TDICT_SHAPE(0));
  tdict_tensor *mark = t, *out = mark;
  const int64_t shape[TDICT_MAX_NDIM + 1] = {24};
  td_fails(TDICT_ESHAPE, "24 elements in the shape [5, 5]", tdict_tensor_reshape(t, TDICT_SHAPE(5, 5), &out, err));
  td_fails(TDICT_ESHAPE, "24 elements in the shape [5, -1]", tdict_tensor_reshape(t, TDICT_SHAPE(5, -1), &out, err));
  td_fails(TDICT_EINVAL, "an earlier count is -1", tdict_tensor_reshape(t, TDICT_SHAPE(-1, -1), &out, err));
  td_fails(TDICT_EINVAL, "count 1 of the shape is -2", tdict_tensor_reshape(t, TDICT_SHAPE(24, -2), &out, err));
  td_fails(TDICT_ESHAPE, "[0, -1]", tdict_tensor_reshape(empty, TDICT_SHAPE(0, -1), &out, err));
  const int64_t most = (int64_t)1 << 40;
  td_fails(TDICT_EOVERFLOW, "reshape", tdict_tensor_reshape(empty, TDICT_SHAPE(0, most, most), &out, err));
  td_fails(TDICT_EINVAL, "33 dimensions", tdict_tensor_reshape(t, TDICT_MAX_NDIM + 1, shape, &out, err));
  td_fails(TDICT_EINVAL, "-1 dimensions", tdict_tensor_reshape(t, -1, shape, &out, err));
  td_fails(TDICT_EINVAL, "shape is NULL", tdict_tensor_reshape(t, 1, NULL, &out, err));
  td_fails(TDICT_EINVAL, "tensor is NULL", tdict_tensor_reshape(NULL, 1, shape, &out, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_tensor_reshape(t, 1, shape, NULL, err));
  assert_ptr_equal(out, mark);
}

CASE(tensor_reshape_survives_no_memory) {
  const int order[] = {1, 0};
  scoped_tensor t = counting(TDICT_SHAPE(4, 6)), turned = NULL;
  td_ok(tdict_tensor_permute(t, 2, order, &turned, err));
  tdict_tensor *out = t;
  int failures = 0;
  TD_SWEEP(s) {
    if (!td_refused(s, tdict_tensor_reshape(turned, TDICT_SHAPE(24), &out, err))) break;
    assert_ptr_equal(out, t);
    failures++;
  }
  tdict_tensor_release(out);
  assert_int_equal(failures, 4); /* the storage's record, its bytes, the tensor of the copy, and the new view */
}
