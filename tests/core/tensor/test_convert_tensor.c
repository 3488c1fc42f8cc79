/* Tests conversions of whole tensors: strides, waits and errors. Compares elements with the results of C casts. */
#include <math.h>

#include "core/tensor/tensor.h"
#include "naive_convert.h"
#include "slow_fence.h"
#include "support/float_env.h"
#include "support/threads.h"

/* Makes a tensor of the given layout in new memory filled with 0xA5. Sets *memory to the lowest element's address. */
static tdict_tensor *tensor_over(const naive_layout *layout, tdict_dtype dtype, char **memory) {
  const size_t item = tdict_dtype_bytes(dtype);
  *memory = malloc((size_t)(layout->end - layout->low + 1) * item);
  assert_non_null(*memory);
  memset(*memory, 0xA5, (size_t)(layout->end - layout->low + 1) * item);
  tdict_tensor_desc view = td_with(tdict_tensor_desc, data = *memory - layout->low * (int64_t)item, dtype = dtype,
                                   ndim = layout->ndim, shape = layout->shape, strides = layout->strides);
  return td_made(tensor, tdict_tensor_from_data(&view, NULL, NULL, &made, err));
}

/* Converts int32 to double with random strides on both sides. Also checks that no other bytes change. */
CASE(convert_any_strides) {
  naive_random r = {0x57e1de};
  int64_t elements = 0;
  for (int round = 0; round < 2000; round++) {
    naive_layout from, to;
    scoped_chars src_memory = NULL, dst_memory = NULL;
    naive_shape(&r, 5, &from);
    if (round % 50 == 0) { /* several chunks */
      from.ndim = 2, from.shape[0] = 40, from.shape[1] = 70;
      from.numel = 2800;
    }
    to = from;
    naive_strides(&r, true, &from);
    naive_strides(&r, false, &to);
    scoped_tensor src = tensor_over(&from, TDICT_I32, &src_memory), dst = tensor_over(&to, TDICT_F64, &dst_memory);
    td_fill_random(src_memory, (size_t)(from.end - from.low) * 4 + 1, naive_next(&r));
    const size_t bytes = (size_t)(to.end - to.low + 1) * 8;
    scoped_chars wanted = td_alloc(bytes);
    memcpy(wanted, dst_memory, bytes);
    int64_t index[8] = {0};
    do {
      int32_t value;
      if (from.numel == 0) break;
      memcpy(&value, src_memory + (naive_offset(from.ndim, from.strides, index) - from.low) * 4, 4);
      const double wide = value;
      memcpy(wanted + (naive_offset(to.ndim, to.strides, index) - to.low) * 8, &wide, 8);
    } while (naive_step(from.ndim, from.shape, index));
    td_ok(tdict_convert(dst, src, err));
    assert_memory_equal(dst_memory, wanted, bytes);
    elements += from.numel;
  }
  assert_true(elements > 50000);
}

CASE(convert_makes_tensors) {
  const float numbers[6] = {1.5f, -2, 3.99f, -4.5f, 5, 6};
  const int order[2] = {1, 0};
  scoped_tensor t = NULL, turned = NULL, out = NULL;
  td_ok(tdict_tensor_from_array(TDICT_F32, TDICT_SHAPE(2, 3), numbers, &t, err));
  td_ok(tdict_tensor_permute(t, 2, order, &turned, err));
  td_ok(tdict_tensor_to_dtype(turned, TDICT_I16, NULL, &out, err));
  assert_true(tdict_tensor_dtype(out) == TDICT_I16 && tdict_tensor_is_contiguous(out));
  assert_memory_equal(tdict_tensor_const_data(out), ((const int16_t[]){1, -4, -2, 5, 3, 6}), 12);
  tdict_tensor *same = td_made(tensor, tdict_tensor_to_dtype(turned, TDICT_F32, NULL, &made, err));
  assert_ptr_equal(same, turned);
  tdict_tensor_release(same);
  td_ok(tdict_convert(t, t, err)); /* with equal dtypes, the elements are copied */
  assert_memory_equal(tdict_tensor_const_data(t), numbers, sizeof numbers);
  scoped_tensor none = td_made(tensor, tdict_tensor_empty(TDICT_I64, TDICT_SHAPE(3, 0), NULL, &made, err));
  scoped_tensor empty = td_made(tensor, tdict_tensor_to_dtype(none, TDICT_BF16, NULL, &made, err));
  assert_int_equal(tdict_tensor_shape(empty)[0], 3);
}

/* Checks that converting a tensor with `number` as element [3, 4] fails, and that the message contains `text`. */
static void refuse_number(double number, tdict_dtype from, tdict_dtype to, const char *text) {
  scoped_tensor wide = NULL, t = NULL, cut = NULL;
  tdict_tensor *out = NULL;
  double *numbers;
  td_ok(tdict_tensor_zeros(TDICT_F64, TDICT_SHAPE(40, 80), NULL, &wide, err));
  numbers = tdict_tensor_data(wide);
  numbers[7 * 80 + 9] = number; /* element [3, 4] of the slice below, which takes every second row and column */
  numbers[20 * 80 + 20] = number;
  td_ok(tdict_tensor_to_dtype(wide, from, NULL, &t, err));
  td_ok(tdict_tensor_slice(t, &(tdict_tensor_range){0, 1, 20, 2}, &cut, err));
  tdict_tensor_release(t);
  td_ok(tdict_tensor_slice(cut, &(tdict_tensor_range){1, 1, 40, 2}, &t, err));
  td_fails(TDICT_EOVERFLOW, text, tdict_tensor_to_dtype(t, to, NULL, &out, err));
  assert_null(out);
}

CASE(convert_names_the_element) {
  refuse_number(300, TDICT_F64, TDICT_I8, "to_dtype: element [3, 4] is 300, wanted -128 to 127 (int8)");
  refuse_number(-1, TDICT_I64, TDICT_U32, "to_dtype: element [3, 4] is -1, wanted 0 to 4294967295 (uint32)");
  refuse_number(0x1p63, TDICT_U64, TDICT_I64,
                "element [3, 4] is 9223372036854775808, wanted -9223372036854775808 to 9223372036854775807 (int64)");
  refuse_number(0x1p40, TDICT_I64, TDICT_I32, "element [3, 4] is 1099511627776, wanted -2147483648 to 2147483647");
  refuse_number(-5, TDICT_I8, TDICT_U64, "element [3, 4] is -5, wanted 0 to 18446744073709551615 (uint64)");
  refuse_number((double)NAN, TDICT_F32, TDICT_I32, "element [3, 4] is nan, wanted");
  refuse_number((double)-INFINITY, TDICT_BF16, TDICT_U8, "element [3, 4] is -inf, wanted 0 to 255 (uint8)");
}

CASE(convert_refuses) {
  scoped_tensor f = naive_tensor(TDICT_F32, TDICT_SHAPE(2, 3), 1), i = naive_tensor(TDICT_I16, TDICT_SHAPE(3, 2), 2);
  scoped_tensor c = naive_tensor(TDICT_C64, TDICT_SHAPE(2, 3), 3);
  tdict_tensor *out = NULL;
  scoped_tensor constant = NULL, lanes = NULL;
  const int16_t numbers[6] = {0};
  tdict_tensor_desc view = tdict_tensor_desc_default();
  tdict_tensor_get_desc(i, &view);
  view.data = (void *)(uintptr_t)numbers;
  view.flags = TDICT_DESC_READ_ONLY;
  td_ok(tdict_tensor_from_data(&view, NULL, NULL, &constant, err));
  td_ok(tdict_tensor_zeros(TDICT_DTYPE(2, 32, 2), TDICT_SHAPE(2, 3), NULL, &lanes, err));
  td_fails(TDICT_EINVAL, "to_dtype: tensor is NULL", tdict_tensor_to_dtype(NULL, TDICT_F32, NULL, &out, err));
  td_fails(TDICT_EINVAL, "to_dtype: out is NULL", tdict_tensor_to_dtype(f, TDICT_F32, NULL, NULL, err));
  td_fails(TDICT_EINVAL, "convert: dst is NULL", tdict_convert(NULL, f, err));
  td_fails(TDICT_EINVAL, "convert: src is NULL", tdict_convert(f, NULL, err));
  td_fails(TDICT_ESHAPE, "from shape [2, 3] to shape [3, 2]", tdict_convert(i, f, err));
  td_fails(TDICT_EREADONLY, "is read-only", tdict_convert(constant, i, err));
  td_fails(TDICT_EDTYPE, "0x99 is unknown", tdict_tensor_to_dtype(f, 0x99, NULL, &out, err));
  td_fails(TDICT_ENOTSUP, "from complex64 to float32", tdict_convert(f, c, err));
  td_fails(TDICT_ENOTSUP, "from complex64 to bool", tdict_tensor_to_dtype(c, TDICT_BOOL, NULL, &out, err));
  td_fails(TDICT_ENOTSUP, "from float32 x 2 to float32", tdict_convert(f, lanes, err));
  td_fails(TDICT_ENOTSUP, "from float32 to float32 x 2", tdict_convert(lanes, f, err));
  assert_null(out);
}

GPU_CASE(convert_refuses_devices) {
  scoped_context context = td_context(NULL);
  tdict_memory *memory = tdict_device_memory(context, td_device());
  scoped_tensor host = naive_tensor(TDICT_F32, TDICT_SHAPE(4), 1), device = NULL, out = NULL, pinned = NULL;
  td_ok(tdict_tensor_zeros(TDICT_I32, TDICT_SHAPE(4), memory, &device, err));
  td_fails(TDICT_EWRONGDEVICE, "tdict_to_dtype() converts on devices", tdict_convert(host, device, err));
  td_fails(TDICT_EWRONGDEVICE, "wanted host memory", tdict_convert(device, host, err));
  td_fails(TDICT_EWRONGDEVICE, "cpu",
           tdict_tensor_to_dtype(device, TDICT_F32, TD_IN(tdict_pinned_memory(context)), &out, err));
  td_fails(TDICT_EWRONGDEVICE, "wanted host memory", tdict_tensor_to_dtype(host, TDICT_F64, TD_IN(memory), &out, err));
  assert_null(out);
  td_ok(tdict_tensor_to_dtype(device, TDICT_I32, NULL, &out, err)); /* the dtype is the same, so nothing is converted */
  assert_ptr_equal(out, device);
  td_ok(tdict_tensor_to_dtype(host, TDICT_F64, TD_IN(tdict_pinned_memory(context)), &pinned, err));
  assert_true(tdict_tensor_is_pinned(pinned));
  const double *wide = tdict_tensor_const_data(pinned);
  const float *single = tdict_tensor_const_data(host);
  for (int i = 0; i < 4; i++) assert_true(wide[i] == (double)single[i] || single[i] != single[i]);
}

CASE(convert_waits_for_transfers) {
  scoped_tensor src = naive_tensor(TDICT_I8, TDICT_SHAPE(5), 1), dst = naive_tensor(TDICT_F32, TDICT_SHAPE(5), 2);
  for (int way = 0; way < 3; way++) {
    scoped_slow_fence transfer;
    begin_use(&transfer, way ? dst->storage : src->storage, way < 2);
    transfer.thread = td_start(end_later, &transfer);
    td_ok(tdict_convert(dst, src, err));
    assert_true(transfer.ended);
  }
}

CASE(convert_refuses_lost_bytes) {
  scoped_tensor src = naive_tensor(TDICT_I8, TDICT_SHAPE(5), 1), dst = naive_tensor(TDICT_U8, TDICT_SHAPE(5), 2);
  memset(tdict_tensor_data(src), 0xff, 5);
  tdict_storage_lose_all(dst->storage);
  td_fails(TDICT_EOVERFLOW, "element [0] is -1", tdict_convert(dst, src, err));
  assert_null(tdict_tensor_const_data(dst)); /* still lost */
  memset(tdict_tensor_data(src), 1, 5);
  td_ok(tdict_convert(dst, src, err));
  assert_memory_equal(tdict_tensor_const_data(dst), tdict_tensor_const_data(src), 5);
  tdict_storage_lose_all(src->storage);
  td_fails(TDICT_EINVAL, "transfer into them failed", tdict_convert(dst, src, err));
  assert_int_equal(*(const char *)tdict_tensor_const_data(dst), 1);
}

CASE(convert_survives_enomem) {
  scoped_tensor t = naive_tensor(TDICT_U8, TDICT_SHAPE(5), 1), out = NULL;
  int64_t refused = 0;
  TD_SWEEP(s) {
    if (!td_refused(s, tdict_tensor_to_dtype(t, TDICT_F32, NULL, &out, NULL))) break;
    assert_null(out);
    refused++;
  }
  assert_true(refused >= 2);
}

/* Converts in the floating-point environment `i` (-1: the default environment), which the call must not change. */
static void convert_in_env(int i, tdict_tensor *dst, const tdict_tensor *src) {
  const td_float_env set = i < 0 ? td_float_env_get() : td_float_env_set(i);
  const tdict_status status = tdict_convert(dst, src, NULL);
  const td_float_env left = td_float_env_get();
  td_float_env_reset();
  assert_int_equal(status, TDICT_OK);
  assert_true(td_float_env_equal(left, set));
}
static tdict_tensor *fitting_tensor(naive_random *r, const naive_dtype *to, const naive_dtype *from, int64_t count) {
  tdict_tensor *t = td_made(tensor, tdict_tensor_empty(from->dtype, TDICT_SHAPE(count), NULL, &made, err));
  for (int64_t i = 0; i < count; i++) {
    uint64_t bits = naive_bits(r, from), unused;
    while (!naive_convert(to, from, bits, &unused)) bits = naive_bits(r, from);
    naive_store(from, t->data, (size_t)i, bits);
  }
  return t;
}

/* Converts between all pairs of dtypes in every floating-point environment, in C order and with strides. */
CASE(convert_in_any_float_env) {
  enum { MOST = 800 };
  naive_random r = {0xf10a7};
  td_float_env_reset();
  for (int pair = 0; pair < NAIVE_DTYPES * NAIVE_DTYPES; pair++) {
    const naive_dtype *to = &naive_dtypes[pair / NAIVE_DTYPES], *from = &naive_dtypes[pair % NAIVE_DTYPES];
    scoped_tensor src = fitting_tensor(&r, to, from, MOST), strided = NULL;
    tdict_tensor *found = NULL;
    char wanted[MOST * 8];
    td_ok(tdict_tensor_slice(src, &(tdict_tensor_range){0, MOST - 1, MOST / 2, -2}, &strided, err));
    for (int i = -1; i < TD_FLOAT_ENVS; i++) {
      td_ok(tdict_tensor_zeros(to->dtype, TDICT_SHAPE(MOST), NULL, &found, err));
      convert_in_env(i, found, src);
      if (i < 0) memcpy(wanted, found->data, tdict_tensor_bytes(found));
      assert_memory_equal(found->data, wanted, tdict_tensor_bytes(found));
      tdict_tensor_release(found);
      td_ok(tdict_tensor_zeros(to->dtype, TDICT_SHAPE(MOST / 2), NULL, &found, err));
      convert_in_env(i, found, strided);
      for (int k = 0; k < MOST / 2; k++)
        assert_true(naive_equal(to, naive_load(to, found->data, (size_t)k),
                                naive_load(to, wanted, (size_t)(MOST - 1 - 2 * k))));
      tdict_tensor_release(found);
    }
  }
}
