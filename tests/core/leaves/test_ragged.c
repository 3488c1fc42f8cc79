/* Tests creating ragged leaves and reading their rows. Compares the leaves with plain arrays of rows. */
#include "rows.h"

static tdict_tensor *integers(tdict_dtype dtype, int count, const int64_t *values) {
  tdict_tensor *t = NULL;
  int32_t narrow[16];
  for (int i = 0; i < count; i++) narrow[i] = (int32_t)values[i];
  td_ok(tdict_tensor_from_array(dtype, COUNTS(count), dtype == TDICT_I64 ? (const void *)values : narrow, &t, err));
  return t;
}
#define INTEGERS(...) integers(TDICT_I64, COUNTS(__VA_ARGS__))

DEVICE_CASE(ragged_create_shares) {
  scoped_place w = open_place();
  tdict_memory *memory = w.gpu ? w.memory : NULL;
  for (int i = 0; i < 12; i++) {
    scoped_rows r = rows_random(i, 1 + i % 3);
    tdict_ragged *leaf = rows_make(&r, i % 2 ? TDICT_I32 : TDICT_I64, memory);
    rows_check(&w, &r, leaf);
    scoped_tensor values = tdict_tensor_retain(tdict_ragged_get_info(leaf).values);
    scoped_tensor offsets = tdict_tensor_retain(tdict_ragged_get_info(leaf).offsets);
    scoped_ragged again = td_made(ragged, tdict_ragged_create(values, offsets, &made, err));
    assert_ptr_equal(tdict_ragged_get_info(again).values, values);
    assert_ptr_equal(tdict_ragged_get_info(again).offsets, offsets);
    tdict_ragged_release(leaf);
    rows_check(&w, &r, again); /* `again` has its own references to the tensors */
    assert_ptr_equal(tdict_ragged_retain(again), again);
    tdict_ragged_release(again);
    rows_check(&w, &r, again);
  }
  tdict_ragged_release(NULL);
}

CASE(ragged_create_takes_any_layout) {
  /* the values are a permuted view, and the offsets have a stride of 2 */
  scoped_tensor base = TENSOR(2, 5), values = NULL, all = INTEGERS(0, 7, 2, 7, 2, 7, 5, 7), offsets = NULL;
  scoped_ragged leaf = NULL;
  td_ok(tdict_tensor_permute(base, 2, (const int[]){1, 0}, &values, err));
  td_ok(tdict_tensor_slice(all, &(tdict_tensor_range){0, 0, 4, 2}, &offsets, err));
  td_ok(tdict_ragged_create(values, offsets, &leaf, err));
  assert_int_equal(tdict_ragged_get_info(leaf).num_rows, 3);
  const int64_t lengths[] = {2, 0, 3};
  const float *data = tdict_tensor_const_data(base);
  for (int64_t i = 0, at = 0; i < 3; at += lengths[i++]) {
    scoped_tensor row = NULL;
    assert_int_equal(tdict_ragged_row_length(leaf, i), lengths[i]);
    td_ok(tdict_ragged_get_row(leaf, i, &row, err));
    assert_int_equal(tdict_tensor_shape(row)[0], lengths[i]);
    assert_true(tdict_tensor_shares_storage(row, base));
    const int64_t *strides = tdict_tensor_strides(row);
    for (int64_t k = 0; k < lengths[i]; k++)
      for (int64_t d = 0; d < 2; d++) {
        const float *got = (const float *)tdict_tensor_const_data(row) + k * strides[0] + d * strides[1];
        assert_memory_equal(got, data + d * 5 + at + k, sizeof *got);
      }
  }
}

/* Checks that creating a leaf of five elements with these offsets fails. */
static void refuse_offsets(tdict_status wanted, const char *text, tdict_tensor *offsets) {
  tdict_tensor *values = TENSOR(5, 2);
  tdict_ragged *leaf = NULL;
  td_fails(wanted, text, tdict_ragged_create(values, offsets, &leaf, err));
  assert_null(leaf);
  td_release(values, offsets);
}

CASE(ragged_create_refuses) {
  scoped_tensor values = TENSOR(5), offsets = INTEGERS(0, 5), scalar = NULL;
  tdict_ragged *leaf = NULL;
  td_fails(TDICT_EINVAL, "values is NULL", tdict_ragged_create(NULL, offsets, &leaf, err));
  td_fails(TDICT_EINVAL, "offsets is NULL", tdict_ragged_create(values, NULL, &leaf, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_ragged_create(values, offsets, NULL, err));
  td_ok(tdict_tensor_empty(TDICT_F32, 0, NULL, NULL, &scalar, err));
  td_fails(TDICT_ESHAPE, "values has no dimension", tdict_ragged_create(scalar, offsets, &leaf, err));
  td_fails(TDICT_ESHAPE, "offsets has shape []", tdict_ragged_create(values, scalar, &leaf, err));
  tdict_tensor *far = help_tensor_on(tdict_sim(7), COUNTS(5));
  td_fails(TDICT_EWRONGDEVICE, "values is on sim:7, but offsets is on cpu",
           tdict_ragged_create(far, offsets, &leaf, err));
  td_release(far, scalar, offsets);
  refuse_offsets(TDICT_EDTYPE, "offsets is float32, wanted int64 or int32", tdict_tensor_retain(values));
  refuse_offsets(TDICT_ESHAPE, "offsets has shape [0]", integers(TDICT_I64, 0, NULL));
  refuse_offsets(TDICT_EINVAL, "offsets[0] is 1, wanted 0", INTEGERS(1, 5));
  refuse_offsets(TDICT_EINVAL, "offsets[0] is -1, wanted 0", integers(TDICT_I32, COUNTS(-1, 5)));
  refuse_offsets(TDICT_EINVAL, "offsets[2] is 2, less than its predecessor 3", INTEGERS(0, 3, 2, 5));
  refuse_offsets(TDICT_EINVAL, "offsets[3] is 5, less than its predecessor 6", INTEGERS(0, 2, 6, 5));
  refuse_offsets(TDICT_ESHAPE, "offsets[2] is 4, but values has 5 elements", INTEGERS(0, 2, 4));
  refuse_offsets(TDICT_ESHAPE, "offsets[2] is 6, but values has 5 elements", INTEGERS(0, 2, 6));
  refuse_offsets(TDICT_ESHAPE, "offsets[0] is 0, but values has 5 elements", INTEGERS(0));
}

DEVICE_CASE(ragged_from_rows_copies) {
  scoped_place w = open_place();
  tdict_memory *memory = w.gpu ? w.memory : NULL;
  for (int i = 1; i < 9; i++) {
    scoped_rows r = rows_random(i, 2);
    tdict_tensor *each[9];
    for (int k = 0; k < i; k++) each[k] = rows_tensor(&r, k, memory);
    tdict_ragged_options o = td_with(tdict_ragged_options, offsets_dtype = i % 2 ? TDICT_I32 : TDICT_I64);
    scoped_ragged leaf = td_made(ragged, tdict_ragged_from_rows(each, (size_t)i, i % 2 ? &o : NULL, &made, err));
    rows_check(&w, &r, leaf);
    assert_int_equal(tdict_tensor_dtype(tdict_ragged_get_info(leaf).offsets), o.offsets_dtype);
    assert_true(tdict_device_equal(tdict_tensor_device(tdict_ragged_get_info(leaf).values), w.device));
    for (int k = 0; k < i; k++) {
      assert_false(tdict_tensor_shares_storage(each[k], tdict_ragged_get_info(leaf).values));
      tdict_tensor_release(each[k]);
    }
  }
}

GPU_CASE(ragged_from_rows_takes_a_memory) {
  scoped_place w = open_place();
  scoped_rows r = rows_random(5, 3);
  tdict_tensor *each[5];
  for (int k = 0; k < 5; k++) each[k] = rows_tensor(&r, k, NULL);
  tdict_memory *const memories[] = {w.memory, w.pinned};
  for (int i = 0; i < 2; i++) {
    scoped_ragged leaf = NULL;
    td_ok(tdict_ragged_from_rows(each, 5, td_options(tdict_ragged_options, memory = memories[i]), &leaf, err));
    rows_check(&w, &r, leaf);
    assert_int_equal(tdict_tensor_is_pinned(tdict_ragged_get_info(leaf).values), i == 1);
    assert_int_equal(tdict_tensor_is_pinned(tdict_ragged_get_info(leaf).offsets), i == 1);
    assert_int_equal(tdict_tensor_device(tdict_ragged_get_info(leaf).offsets).type,
                     i ? TDICT_DEVICE_CPU : w.device.type);
  }
  for (int k = 0; k < 5; k++) tdict_tensor_release(each[k]);
}

CASE(ragged_from_rows_refuses) {
  scoped_tensor a = TENSOR(2, 3), b = TENSOR(4, 2), other = NULL, scalar = NULL;
  tdict_tensor *far = help_tensor_on(tdict_sim(7), COUNTS(0, 3)), *far_f32 = NULL, *all[3] = {a, NULL, a};
  tdict_ragged_options o = tdict_ragged_options_default();
  tdict_ragged *leaf = NULL;
  td_fails(TDICT_EINVAL, "out is NULL", tdict_ragged_from_rows(all, 1, NULL, NULL, err));
  td_fails(TDICT_EINVAL, "no rows", tdict_ragged_from_rows(NULL, 1, NULL, &leaf, err));
  td_fails(TDICT_EINVAL, "no rows", tdict_ragged_from_rows(all, 0, NULL, &leaf, err));
  td_fails(TDICT_EINVAL, "row 1 is NULL", tdict_ragged_from_rows(all, 3, NULL, &leaf, err));
  all[1] = b;
  td_fails(TDICT_ESHAPE, "tensor 1 has shape [4, 2], tensor 0 has [2, 3]",
           tdict_ragged_from_rows(all, 3, NULL, &leaf, err));
  td_ok(tdict_tensor_empty(TDICT_I64, COUNTS(1, 3), NULL, &other, err));
  all[1] = other;
  td_fails(TDICT_EDTYPE, "tensor 1 is int64, tensor 0 is float32", tdict_ragged_from_rows(all, 3, NULL, &leaf, err));
  td_ok(tdict_tensor_empty(TDICT_F32, 0, NULL, NULL, &scalar, err));
  all[1] = scalar;
  td_fails(TDICT_ESHAPE, "tensor 1 has no dimension", tdict_ragged_from_rows(all, 3, NULL, &leaf, err));
  const int64_t none[] = {0, 3};
  tdict_tensor_desc view = td_with(tdict_tensor_desc, device = tdict_sim(7), dtype = TDICT_F32, ndim = 2, shape = none);
  td_ok(tdict_tensor_from_data(&view, NULL, NULL, &far_f32, err));
  all[1] = far_f32;
  td_fails(TDICT_EWRONGDEVICE, "tensor 1 is on sim:7, tensor 0 is on cpu",
           tdict_ragged_from_rows(all, 3, NULL, &leaf, err));
  td_fails(TDICT_EWRONGDEVICE, "belongs to the program", tdict_ragged_from_rows(&far, 1, NULL, &leaf, err));
  o.offsets_dtype = TDICT_U32;
  td_fails(TDICT_EDTYPE, "offsets_dtype is uint32", tdict_ragged_from_rows(&a, 1, &o, &leaf, err));
  o = tdict_ragged_options_default();
  o.struct_size = 1;
  td_fails(TDICT_EINVAL, "ragged options", tdict_ragged_from_rows(&a, 1, &o, &leaf, err));
  assert_null(leaf);
  td_release(far_f32, far);
}

CASE(ragged_offsets_must_fit) {
  /* 2^31 elements of 0 bytes, which need no memory */
  const int64_t huge[] = {INT64_C(1) << 31, 0}, most[] = {INT64_MAX, 0}, strides[] = {0, 1};
  tdict_ragged_options o = tdict_ragged_options_default();
  tdict_ragged *leaf = NULL;
  tdict_tensor_desc view = td_with(tdict_tensor_desc, dtype = TDICT_U8, ndim = 2, shape = huge, strides = strides);
  scoped_tensor t = td_made(tensor, tdict_tensor_from_data(&view, NULL, NULL, &made, err));
  td_ok(tdict_ragged_from_rows(&t, 1, &o, &leaf, err));
  assert_int_equal(tdict_ragged_row_length(leaf, 0), huge[0]);
  td_release(leaf);
  o.offsets_dtype = TDICT_I32;
  td_fails(TDICT_EOVERFLOW, "2147483648, which int32 cannot hold", tdict_ragged_from_rows(&t, 1, &o, &leaf, err));
  tdict_tensor_release(t);
  view.shape = most;
  td_ok(tdict_tensor_from_data(&view, NULL, NULL, &t, err));
  tdict_tensor *const both[] = {t, t};
  td_fails(TDICT_EOVERFLOW, "sum of the lengths", tdict_ragged_from_rows(both, 2, NULL, &leaf, err));
  assert_null(leaf);
}

DEVICE_CASE(ragged_rows_are_views) {
  scoped_place w = open_place();
  scoped_rows r = rows_random(7, 2);
  scoped_ragged leaf = rows_make(&r, TDICT_I64, w.gpu ? w.memory : NULL);
  for (int64_t i = 0; i < 7; i++) {
    scoped_tensor row = td_made(tensor, tdict_ragged_get_row(leaf, i, &made, err));
    rows_check_row(&w, &r, i, row);
    assert_true(tdict_tensor_shares_storage(row, tdict_ragged_get_info(leaf).values));
  }
  tdict_tensor *row = NULL;
  assert_int_equal(tdict_ragged_row_length(leaf, 7), -1);
  assert_int_equal(tdict_ragged_row_length(leaf, -1), -1);
  td_fails(TDICT_EINVAL, "row 7 of 7", tdict_ragged_get_row(leaf, 7, &row, err));
  td_fails(TDICT_EINVAL, "row -1 of 7", tdict_ragged_get_row(leaf, -1, &row, err));
  td_fails(TDICT_EINVAL, "ragged is NULL", tdict_ragged_get_row(NULL, 0, &row, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_ragged_get_row(leaf, 0, NULL, err));
  assert_null(row);
}

CASE(ragged_survives_enomem) {
  scoped_rows r = rows_of(2, COUNTS(3, 0, 2));
  tdict_tensor *each[3], *row = NULL;
  for (int k = 0; k < 3; k++) each[k] = rows_tensor(&r, k, NULL);
  tdict_ragged *leaf = NULL, *again = NULL;
  TD_WITHOUT_MEMORY(tdict_ragged_from_rows(each, 3, NULL, &leaf, err));
  TD_WITHOUT_MEMORY(tdict_ragged_create(tdict_ragged_get_info(leaf).values,
                                        (tdict_tensor *)(uintptr_t)tdict_ragged_get_info(leaf).offsets, &again, err));
  TD_WITHOUT_MEMORY(tdict_ragged_get_row(again, 0, &row, err));
  td_release(row, leaf, again);
  for (int k = 0; k < 3; k++) tdict_tensor_release(each[k]);
}
