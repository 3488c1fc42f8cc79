/* Tests creating and describing tensors, reference counts, accessors that wait, and failing allocations. */
#include "naive.h"

#include "core/tensor/tensor.h"
#include "slow_fence.h"
#include "support/threads.h"

/* Functions that make tensors. They are tested in a loop, because they all return the same errors. */
static const unsigned char an_element[16 * 8] = {1, 2, 3};
static tdict_status make_empty(tdict_dtype d, int n, const int64_t *shape, tdict_tensor **out, tdict_error *err) {
  return tdict_tensor_empty(d, n, shape, NULL, out, err);
}
static tdict_status make_zeros(tdict_dtype d, int n, const int64_t *shape, tdict_tensor **out, tdict_error *err) {
  return tdict_tensor_zeros(d, n, shape, NULL, out, err);
}
static tdict_status make_full(tdict_dtype d, int n, const int64_t *shape, tdict_tensor **out, tdict_error *err) {
  return tdict_tensor_full(d, n, shape, an_element, out, err);
}
static tdict_status make_from_array(tdict_dtype d, int n, const int64_t *shape, tdict_tensor **out, tdict_error *err) {
  return tdict_tensor_from_array(d, n, shape, an_element, out, err);
}
typedef tdict_status (*maker)(tdict_dtype d, int n, const int64_t *shape, tdict_tensor **out, tdict_error *err);
static const maker makers[] = {make_empty, make_zeros, make_full, make_from_array};
enum { NUM_MAKERS = sizeof makers / sizeof *makers };

static tdict_tensor *const mark = (tdict_tensor *)(uintptr_t)0xA5A5;

static void check_bad_shapes(maker make) {
  tdict_tensor *t = mark;
  const int64_t shape[] = {2, 3}, negative[] = {2, -1}, lowest[] = {INT64_MIN, 0};
  td_fails(TDICT_EINVAL, "ndim is -1", make(TDICT_F32, -1, shape, &t, err));
  td_fails(TDICT_EINVAL, "ndim is 33", make(TDICT_F32, TDICT_MAX_NDIM + 1, shape, &t, err));
  td_fails(TDICT_EINVAL, "NULL", make(TDICT_F32, 1, NULL, &t, err));
  td_fails(TDICT_EINVAL, "shape[1] is -1", make(TDICT_F32, 2, negative, &t, err));
  td_fails(TDICT_EINVAL, "shape[0]", make(TDICT_F32, 2, lowest, &t, err));
  td_fails(TDICT_EINVAL, "out is NULL", make(TDICT_F32, 2, shape, NULL, err));
  assert_ptr_equal(t, mark);
}
static void check_unknown_dtype(maker make) {
  tdict_tensor *t = mark;
  const int64_t shape[] = {2, 3};
  td_fails(TDICT_EDTYPE, "0x0", make(0, 2, shape, &t, err));
  td_fails(TDICT_EDTYPE, "unknown", make(TDICT_DTYPE(2, 24, 1), 2, shape, &t, err));
  td_fails(TDICT_EDTYPE, "unknown", make(TDICT_DTYPE(2, 32, 0), 2, shape, &t, err));
  assert_ptr_equal(t, mark);
}
static void check_overflow(maker make) {
  tdict_tensor *t = mark;
  const int64_t shape[] = {(int64_t)1 << 31, (int64_t)1 << 31, 2}, most[] = {INT64_MAX};
  td_fails(TDICT_EOVERFLOW, "tensor", make(TDICT_U8, 3, shape, &t, err));
  td_fails(TDICT_EOVERFLOW, "tensor", make(TDICT_F32, 2, shape, &t, err));
  td_fails(TDICT_EOVERFLOW, "tensor", make(TDICT_F64, 1, most, &t, err));
  assert_ptr_equal(t, mark);
}

CASE(tensor_empty_refuses_bad_shapes) { check_bad_shapes(make_empty); }
CASE(tensor_empty_refuses_unknown_dtype) { check_unknown_dtype(make_empty); }
CASE(tensor_empty_refuses_overflow) { check_overflow(make_empty); }

CASE(tensor_makers_share_errors) {
  for (int i = 0; i < NUM_MAKERS; i++) {
    check_bad_shapes(makers[i]);
    check_unknown_dtype(makers[i]);
    check_overflow(makers[i]);
  }
  tdict_tensor *t = mark;
  const int64_t shape[] = {2, 3};
  td_fails(TDICT_EINVAL, "element is NULL", tdict_tensor_full(TDICT_F32, 2, shape, NULL, &t, err));
  td_fails(TDICT_EINVAL, "data is NULL", tdict_tensor_from_array(TDICT_F32, 2, shape, NULL, &t, err));
  assert_ptr_equal(t, mark);
}

CASE(tensor_from_array_copies) {
  int16_t array[2][3] = {{1, -2, 3}, {-4, 5, -6}}, kept[2][3];
  scoped_tensor t = NULL, empty = NULL;
  memcpy(kept, array, sizeof array);
  td_ok(tdict_tensor_from_array(TDICT_I16, TDICT_SHAPE(2, 3), array, &t, err));
  memset(array, 0, sizeof array); /* the tensor has copied the elements */
  assert_memory_equal(tdict_tensor_const_data(t), kept, sizeof kept);
  assert_int_equal(tdict_tensor_dtype(t), TDICT_I16);
  assert_int_equal(tdict_tensor_bytes(t), sizeof kept);
  td_ok(tdict_tensor_from_array(TDICT_I16, TDICT_SHAPE(2, 0), NULL, &empty, err));
  assert_int_equal(tdict_tensor_numel(empty), 0);
}

CASE(shape_macro_counts) {
  const int64_t rows = 5;
  scoped_tensor t = td_made(tensor, tdict_tensor_zeros(TDICT_U8, TDICT_SHAPE(rows, 2, 7), NULL, &made, err));
  assert_int_equal(tdict_tensor_ndim(t), 3);
  assert_true(tdict_tensor_shape(t)[0] == 5 && tdict_tensor_shape(t)[1] == 2 && tdict_tensor_shape(t)[2] == 7);
  tdict_tensor_release(t);
  td_ok(tdict_tensor_zeros(TDICT_U8, TDICT_SHAPE(9), NULL, &t, err));
  assert_true(tdict_tensor_ndim(t) == 1 && tdict_tensor_shape(t)[0] == 9);
}

CASE(tensor_makers_survive_no_memory) {
  const int64_t shape[] = {2, 3};
  for (int i = 0; i < NUM_MAKERS; i++) {
    int failures = 0;
    tdict_tensor *t = mark;
    TD_SWEEP(s) {
      if (!td_refused(s, makers[i](TDICT_F32, 2, shape, &t, err))) break;
      assert_int_equal(s.error.status, TDICT_ENOMEM);
      assert_ptr_equal(t, mark);
      failures++;
    }
    tdict_tensor_release(t);
    assert_int_equal(failures, 3); /* the storage's record, its bytes, and the tensor */
  }
}

CASE(tensor_empty_is_aligned) {
  const int64_t shapes[] = {1, 3, 64, 1000, 100000};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    scoped_tensor t = naive_tensor(TDICT_U8, 1, &shapes[i], i);
    assert_int_equal((uintptr_t)tdict_tensor_data(t) % 256, 0);
  }
}

CASE(tensor_zeros_are_zero) {
  const int64_t shape[] = {37, 11};
  for (int round = 0; round < 20; round++) { /* probably reuses the memory of the released random tensor */
    tdict_tensor_release(naive_tensor(TDICT_F32, 2, shape, (uint64_t)round));
    scoped_tensor t = td_made(tensor, tdict_tensor_zeros(TDICT_F32, 2, shape, NULL, &made, err));
    const unsigned char *data = tdict_tensor_const_data(t);
    assert_int_equal(tdict_tensor_bytes(t), 37 * 11 * 4);
    for (size_t i = 0; i < tdict_tensor_bytes(t); i++) assert_int_equal(data[i], 0);
  }
}

CASE(tensor_full_repeats_element) {
  static const tdict_dtype dtypes[] = {
      TDICT_U8, TDICT_BF16, TDICT_F32, TDICT_F64, TDICT_C128, TDICT_DTYPE(1, 8, 3), TDICT_DTYPE(2, 32, 5)};
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
    for (int64_t count = 0; count < 70; count++) {
      unsigned char element[32];
      size_t item = tdict_dtype_bytes(dtypes[i]);
      td_fill_random(element, sizeof element, 100 * i + (uint64_t)count);
      scoped_tensor t = td_made(tensor, tdict_tensor_full(dtypes[i], 1, &count, element, &made, err));
      assert_int_equal(tdict_tensor_bytes(t), (size_t)count * item);
      const unsigned char *data = tdict_tensor_const_data(t);
      for (int64_t e = 0; e < count; e++) assert_memory_equal(data + (size_t)e * item, element, item);
    }
}

CASE(tensor_arange_counts) {
  scoped_tensor t = td_made(tensor, tdict_tensor_arange(TDICT_F64, 0.5, -0.1, 1000, &made, err));
  assert_int_equal(tdict_tensor_ndim(t), 1);
  assert_int_equal(tdict_tensor_numel(t), 1000);
  for (int i = 0; i < 1000; i++) assert_true(((const double *)tdict_tensor_const_data(t))[i] == 0.5 + i * -0.1);
  tdict_tensor_release(t);
  td_ok(tdict_tensor_arange(TDICT_I64, 7, 3, 100, &t, err));
  for (int i = 0; i < 100; i++) assert_int_equal(((const int64_t *)tdict_tensor_const_data(t))[i], 7 + 3 * i);
  tdict_tensor_release(t);
  td_ok(tdict_tensor_arange(TDICT_I16, -1.75, 0.5, 8, &t, err));
  static const int16_t truncated[] = {-1, -1, 0, 0, 0, 0, 1, 1};
  assert_memory_equal(tdict_tensor_const_data(t), truncated, sizeof truncated);
  tdict_tensor_release(t);
  td_ok(tdict_tensor_arange(TDICT_U8, 0, 1, 256, &t, err));
  for (int i = 0; i < 256; i++) assert_int_equal(((const uint8_t *)tdict_tensor_const_data(t))[i], i);
  tdict_tensor_release(t);
  td_ok(tdict_tensor_arange(TDICT_F32, 1e300, 0, 1, &t, err));
  assert_true(*(const float *)tdict_tensor_const_data(t) > 3.4e38f);
  tdict_tensor_release(t);
  static const uint16_t halves[] = {0x3c00, 0x3e00, 0x4000}, brains[] = {0x3f80, 0x3fc0, 0x4000};
  td_ok(tdict_tensor_arange(TDICT_F16, 1, 0.5, 3, &t, err));
  assert_memory_equal(tdict_tensor_const_data(t), halves, sizeof halves);
  tdict_tensor_release(t);
  td_ok(tdict_tensor_arange(TDICT_BF16, 1, 0.5, 3, &t, err));
  assert_memory_equal(tdict_tensor_const_data(t), brains, sizeof brains);
  tdict_tensor_release(t);
  static const uint8_t eighths[] = {0x38, 0x3c, 0x40};
  td_ok(tdict_tensor_arange(TDICT_F8E4M3, 1, 0.5, 3, &t, err));
  assert_memory_equal(tdict_tensor_const_data(t), eighths, sizeof eighths);
  tdict_tensor_release(t);
  td_ok(tdict_tensor_arange(TDICT_I32, 1e300, 1, 0, &t, err));
  assert_int_equal(tdict_tensor_numel(t), 0);
}

CASE(tensor_arange_refuses) {
  tdict_tensor *t = mark;
  static const tdict_dtype others[] = {TDICT_BOOL, TDICT_C64, TDICT_C128, TDICT_DTYPE(2, 32, 2)};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    td_fails(TDICT_ENOTSUP, tdict_dtype_name(others[i]), tdict_tensor_arange(others[i], 0, 1, 3, &t, err));
  td_fails(TDICT_EOVERFLOW, "element 256", tdict_tensor_arange(TDICT_U8, 0, 1, 257, &t, err));
  td_fails(TDICT_EOVERFLOW, "element 1", tdict_tensor_arange(TDICT_U64, 0, -1, 2, &t, err));
  td_fails(TDICT_EOVERFLOW, "int64", tdict_tensor_arange(TDICT_I64, 9223372036854775808.0, 0, 1, &t, err));
  td_fails(TDICT_EINVAL, "-1", tdict_tensor_arange(TDICT_F32, 0, 1, -1, &t, err));
  td_fails(TDICT_EOVERFLOW, "tensor", tdict_tensor_arange(TDICT_F32, 0, 1, INT64_MAX, &t, err));
  td_fails(TDICT_EDTYPE, "unknown", tdict_tensor_arange(0, 0, 1, 3, &t, err));
  assert_ptr_equal(t, mark);
  td_fails(TDICT_EINVAL, "out is NULL", tdict_tensor_arange(TDICT_F32, 0, 1, 3, NULL, err));
}

static void count_release(void *user) { ++*(int *)user; }

CASE(tensor_from_data_shares) {
  float data[6] = {0, 1, 2, 3, 4, 5};
  const int64_t shape[] = {2, 3}, back[] = {-3, -1};
  tdict_tensor_desc v = td_with(tdict_tensor_desc, data = data, dtype = TDICT_F32, ndim = 2, shape = shape);
  scoped_tensor t = td_made(tensor, tdict_tensor_from_data(&v, NULL, NULL, &made, err));
  assert_ptr_equal(tdict_tensor_data(t), data);
  assert_ptr_equal(tdict_tensor_const_data(t), data);
  assert_int_equal(tdict_tensor_strides(t)[0], 3);
  assert_int_equal(t->storage->bytes, sizeof data);
  tdict_tensor_release(t);
  /* the strides are negative, so the storage begins before `data` */
  v.data = &data[5];
  v.strides = back;
  td_ok(tdict_tensor_from_data(&v, NULL, NULL, &t, err));
  assert_ptr_equal(tdict_tensor_data(t), &data[5]);
  assert_ptr_equal(t->storage->data, data);
  assert_int_equal(t->storage->bytes, sizeof data);
  tdict_tensor *whole = NULL;
  tdict_tensor_desc layout = v;
  layout.strides = NULL;
  td_ok(tdict_tensor_as_strided(t, &layout, -5, &whole, err));
  assert_ptr_equal(tdict_tensor_data(whole), data);
  tdict_tensor_release(whole);
  td_fails(TDICT_ESHAPE, "storage", tdict_tensor_as_strided(t, &layout, -6, &whole, err));
  tdict_tensor_release(t);
  /* a header's older, shorter struct and a storage larger than needed; then a shape without elements */
  v = (tdict_tensor_desc){offsetof(tdict_tensor_desc, flags), data, tdict_cpu(), TDICT_F32, 1, shape, NULL, 24, 0xFF};
  td_ok(tdict_tensor_from_data(&v, NULL, NULL, &t, err));
  assert_int_equal(t->storage->bytes, 24);
  assert_int_equal(tdict_tensor_bytes(t), 8);
  tdict_tensor_release(t);
  const int64_t none[] = {0, 3};
  v = (tdict_tensor_desc){sizeof v, NULL, tdict_cpu(), TDICT_F32, 2, none, NULL, 0, 0};
  td_ok(tdict_tensor_from_data(&v, NULL, NULL, &t, err));
  assert_null(tdict_tensor_data(t));
  assert_int_equal(tdict_tensor_numel(t), 0);
}

CASE(tensor_from_data_releases_once) {
  int data[4] = {1, 2, 3, 4}, released = 0;
  const int64_t four = 4;
  tdict_tensor_desc v = td_with(tdict_tensor_desc, data = data, dtype = TDICT_I32, ndim = 1, shape = &four);
  tdict_tensor *t = td_made(tensor, tdict_tensor_from_data(&v, count_release, &released, &made, err)), *part = NULL;
  const tdict_tensor_range range = {0, 1, 2, 1};
  td_ok(tdict_tensor_slice(t, &range, &part, err));
  tdict_tensor_release(tdict_tensor_retain(t));
  tdict_tensor_release(t);
  assert_int_equal(released, 0);
  assert_int_equal(((const int *)tdict_tensor_const_data(part))[0], 2);
  tdict_tensor_release(part);
  assert_int_equal(released, 1);
}

CASE(tensor_from_data_failure_leaves_ownership) {
  int data[4] = {1, 2, 3, 4}, released = 0;
  const int64_t four = 4;
  tdict_tensor_desc v =
      td_with(tdict_tensor_desc, data = data, dtype = TDICT_I32, ndim = 1, shape = &four, storage_bytes = 15);
  tdict_tensor *t = mark;
  td_fails(TDICT_ESHAPE, "15", tdict_tensor_from_data(&v, count_release, &released, &t, err));
  v.storage_bytes = 16;
  int failures = 0;
  TD_SWEEP(s) {
    if (!td_refused(s, tdict_tensor_from_data(&v, count_release, &released, &t, err))) break;
    assert_ptr_equal(t, mark);
    assert_int_equal(released, 0);
    failures++;
  }
  assert_int_equal(failures, 2);
  tdict_tensor_release(t);
  assert_int_equal(released, 1);
}

static void refuse_view(tdict_status status, const char *text, const tdict_tensor_desc *v) {
  int released = 0;
  tdict_tensor *t = mark;
  td_fails(status, text, tdict_tensor_from_data(v, count_release, &released, &t, err));
  assert_ptr_equal(t, mark);
  assert_int_equal(released, 0);
}

CASE(tensor_from_data_refuses) {
  float data[16] = {0};
  const int64_t shape[] = {2, 3}, negative[] = {2, -3}, back[] = {-3, 1}, wide[] = {14, 1}, far[] = {INT64_MAX / 2, 1};
  const tdict_tensor_desc good = {sizeof good, data, tdict_cpu(), TDICT_F32, 2, shape, NULL, sizeof data, 0};
  tdict_tensor_desc v;
  td_fails(TDICT_EINVAL, "view is NULL", tdict_tensor_from_data(NULL, NULL, NULL, &(tdict_tensor *){NULL}, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_tensor_from_data(&good, NULL, NULL, NULL, err));
  refuse_view(TDICT_EINVAL, "struct_size", (v = good, v.struct_size = 0, &v));
  refuse_view(TDICT_EINVAL, "data is NULL", (v = good, v.data = NULL, &v));
  refuse_view(TDICT_EINVAL, "shape is NULL", (v = good, v.shape = NULL, &v));
  refuse_view(TDICT_EINVAL, "shape[1] is -3", (v = good, v.shape = negative, &v));
  refuse_view(TDICT_EINVAL, "ndim is -1", (v = good, v.ndim = -1, &v));
  refuse_view(TDICT_EINVAL, "ndim is 33", (v = good, v.ndim = 33, &v));
  refuse_view(TDICT_EINVAL, "flags", (v = good, v.flags = 4, &v));
  refuse_view(TDICT_EINVAL, "flags", (v = good, v.flags = 0x80000001u, &v));
  refuse_view(TDICT_EINVAL, "cannot hold memory", (v = good, v.device.type = TDICT_DEVICE_AUTO, &v));
  refuse_view(TDICT_EINVAL, "cannot hold memory", (v = good, v.device = tdict_cuda(-1), &v));
  refuse_view(TDICT_EINVAL, "cpu", (v = good, v.device.index = 1, &v));
  refuse_view(TDICT_EDTYPE, "unknown", (v = good, v.dtype = TDICT_DTYPE(9, 9, 9), &v));
  refuse_view(TDICT_EOVERFLOW, "63 bits", (v = good, v.strides = far, &v));
  refuse_view(TDICT_ESHAPE, "below data", (v = good, v.strides = back, &v));
  refuse_view(TDICT_ESHAPE, "reach byte 68", (v = good, v.strides = wide, &v));
  refuse_view(TDICT_ESHAPE, "23", (v = good, v.storage_bytes = 23, &v));
  refuse_view(TDICT_EOVERFLOW, "address", (v = good, v.storage_bytes = SIZE_MAX - 8, &v));
  refuse_view(TDICT_EOVERFLOW, "address", (v = good, v.strides = back, v.storage_bytes = 0, v.data = (void *)8, &v));
  /* layouts that just fit the storage */
  tdict_tensor *t = NULL;
  td_ok(tdict_tensor_from_data((v = good, v.strides = wide, v.storage_bytes = 0, &v), NULL, NULL, &t, err));
  assert_int_equal(t->storage->bytes, 68);
  tdict_tensor_release(t);
  td_ok(tdict_tensor_from_data((v = good, v.storage_bytes = 24, &v), NULL, NULL, &t, err));
  tdict_tensor_release(t);
  struct {
    tdict_tensor_desc view;
    uint64_t later;
  } newer = {good, 1};
  newer.view.struct_size = sizeof newer;
  refuse_view(TDICT_ENOTSUP, "tdict_tensor_desc", &newer.view);
}

typedef struct counter {
  tdict_tensor *t;
  bool data_was_null;
} counter;
static void *retain_and_release(void *user) {
  counter *c = user;
  for (int i = 0; i < 20000; i++) {
    scoped_tensor t = tdict_tensor_retain(c->t);
    if (!tdict_tensor_const_data(t)) c->data_was_null = true;
  }
  return NULL;
}

CASE(tensor_counts) {
  int data[4] = {1, 2, 3, 4}, released = 0;
  const int64_t four = 4;
  tdict_tensor_desc v = {sizeof v, data, tdict_cpu(), TDICT_I32, 1, &four, NULL, 0, 0};
  tdict_tensor *t = td_made(tensor, tdict_tensor_from_data(&v, count_release, &released, &made, err));
  assert_ptr_equal(tdict_tensor_retain(t), t);
  tdict_tensor_release(t);
  pthread_t threads[4];
  counter counters[4];
  for (int i = 0; i < 4; i++) {
    counters[i] = (counter){t, false};
    threads[i] = td_start(retain_and_release, &counters[i]);
  }
  for (int i = 0; i < 4; i++) {
    pthread_join(threads[i], NULL);
    assert_false(counters[i].data_was_null);
  }
  assert_int_equal(released, 0);
  tdict_tensor_release(t);
  assert_int_equal(released, 1);
  tdict_tensor_release(NULL);
}

CASE(tensor_describes_itself) {
  const int64_t shape[] = {2, 0, 3}, filled[] = {4, 5};
  scoped_tensor t = td_made(tensor, tdict_tensor_empty(TDICT_BF16, 3, shape, NULL, &made, err)), turned = NULL;
  assert_int_equal(tdict_tensor_ndim(t), 3);
  assert_memory_equal(tdict_tensor_shape(t), shape, sizeof shape);
  assert_int_equal(tdict_tensor_numel(t), 0);
  assert_int_equal(tdict_tensor_bytes(t), 0);
  assert_null(tdict_tensor_data(t));
  td_release(t);
  td_ok(tdict_tensor_empty(TDICT_DTYPE(2, 32, 3), 2, filled, NULL, &t, err));
  assert_true(tdict_tensor_dtype(t) == TDICT_DTYPE(2, 32, 3));
  assert_true(tdict_device_equal(tdict_tensor_device(t), tdict_cpu()));
  assert_int_equal(tdict_tensor_numel(t), 20);
  assert_int_equal(tdict_tensor_bytes(t), 240);
  assert_int_equal(tdict_tensor_nbytes(t), 240);
  const int turn[] = {1, 0};
  td_ok(tdict_tensor_permute(t, 2, turn, &turned, err));
  assert_int_equal(tdict_tensor_strides(turned)[0], 1);
  assert_int_equal(tdict_tensor_strides(turned)[1], 5);
  assert_int_equal(tdict_tensor_shape(turned)[0], 5);
  assert_int_equal(tdict_tensor_bytes(turned), 240);
  td_release(turned, t);
  td_ok(tdict_tensor_empty(TDICT_F64, 0, NULL, NULL, &t, err));
  assert_int_equal(tdict_tensor_numel(t), 1);
  assert_int_equal(tdict_tensor_bytes(t), 8);
  assert_non_null(tdict_tensor_data(t));
}

CASE(tensor_contiguity) {
  float data[64];
  static const struct {
    int64_t shape[3], strides[3];
    bool contiguous;
  } layouts[] = {{{2, 3, 4}, {12, 4, 1}, true}, {{2, 3, 4}, {12, 1, 3}, false}, {{1, 3, 4}, {-9, 4, 1}, true},
                 {{2, 1, 4}, {4, 50, 1}, true}, {{2, 3, 4}, {16, 4, 1}, false}, {{2, 3, 1}, {3, 1, 0}, true},
                 {{0, 3, 4}, {1, 1, 1}, true},  {{2, 3, 4}, {0, 4, 1}, false},  {{1, 1, 1}, {5, 6, 7}, true}};
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
    scoped_tensor t = NULL;
    tdict_tensor_desc v = {sizeof v, data, tdict_cpu(), TDICT_F32, 3, layouts[i].shape, layouts[i].strides, 0, 0};
    td_ok(tdict_tensor_from_data(&v, NULL, NULL, &t, err));
    assert_int_equal(tdict_tensor_is_contiguous(t), layouts[i].contiguous);
  }
}

CASE(tensor_read_only) {
  const int32_t data[2] = {1, 2};
  const int64_t two = 2;
  tdict_tensor_desc v = {sizeof v, (void *)(uintptr_t)data, tdict_cpu(), TDICT_I32, 1, &two, NULL,
                         0,        TDICT_DESC_READ_ONLY};
  scoped_tensor t = td_made(tensor, tdict_tensor_from_data(&v, NULL, NULL, &made, err)), part = NULL;
  assert_null(tdict_tensor_data(t));
  assert_ptr_equal(tdict_tensor_const_data(t), data);
  const tdict_tensor_range range = {0, 1, 1, 1};
  td_ok(tdict_tensor_slice(t, &range, &part, err));
  assert_null(tdict_tensor_data(part));
  assert_ptr_equal(tdict_tensor_const_data(part), &data[1]);
}

CASE(data_waits_for_readers) {
  const int64_t shape[] = {8};
  scoped_tensor t = naive_tensor(TDICT_F32, 1, shape, 1);
  slow_fence reader;
  void *data = tdict_tensor_data(t);
  begin_use(&reader, t->storage, false);
  assert_ptr_equal(tdict_tensor_const_data(t), data); /* readers do not wait for readers */
  assert_false(reader.ended);
  reader.thread = td_start(end_later, &reader);
  assert_ptr_equal(tdict_tensor_data(t), data);
  assert_true(reader.ended);
  end_use(&reader);
  scoped_slow_fence writer;
  begin_use(&writer, t->storage, true);
  writer.thread = td_start(end_later, &writer);
  assert_ptr_equal(tdict_tensor_data(t), data);
  assert_true(writer.ended);
}

CASE(const_data_waits_for_writer) {
  const int64_t shape[] = {8};
  scoped_tensor t = naive_tensor(TDICT_F32, 1, shape, 1);
  scoped_slow_fence writer;
  void *data = tdict_tensor_data(t);
  begin_use(&writer, t->storage, true);
  writer.thread = td_start(end_later, &writer);
  assert_ptr_equal(tdict_tensor_const_data(t), data);
  assert_true(writer.ended);
}

CASE(device_address_does_not_wait) {
  const int64_t four = 4;
  void *address = (void *)((uintptr_t)1 << 62);
  tdict_tensor_desc v = {sizeof v, address, tdict_cuda(1), TDICT_F32, 1, &four, NULL, 0, 0};
  scoped_tensor t = td_made(tensor, tdict_tensor_from_data(&v, NULL, NULL, &made, err));
  scoped_slow_fence writer;
  begin_use(&writer, t->storage, true);
  assert_ptr_equal(tdict_tensor_data(t), address);
  assert_ptr_equal(tdict_tensor_const_data(t), address);
  assert_false(writer.ended);
  writer.thread = td_start(end_later, &writer);
}
