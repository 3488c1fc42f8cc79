/* Tests tensors in device memory, in pinned memory, and in the memory of a device that does not exist. */
#include "naive.h"

static tdict_tensor *const mark = (tdict_tensor *)(uintptr_t)0xA5A5;

/* Returns a transposed view of every second element in both dimensions, with the rows in reverse order. */
static tdict_tensor *odd_view(const tdict_tensor *t) {
  const int turn[] = {1, 0};
  scoped_tensor rows = NULL, columns = NULL;
  const tdict_tensor_range back = {0, 8, 5, -2}, some = {1, 1, 3, 2};
  td_ok(tdict_tensor_slice(t, &back, &rows, err));
  td_ok(tdict_tensor_slice(rows, &some, &columns, err));
  return td_made(tensor, tdict_tensor_permute(columns, 2, turn, &made, err));
}

static void check_equal(const tdict_tensor *a, const tdict_tensor *b) {
  assert_int_equal(tdict_tensor_bytes(a), tdict_tensor_bytes(b));
  assert_memory_equal(tdict_tensor_const_data(a), tdict_tensor_const_data(b), tdict_tensor_bytes(a));
}

/* Copies whole tensors and strided views from host to device, within the device, and back to the host. */
static void copy_round(tdict_memory *device, tdict_memory *host_memory, tdict_dtype dtype, uint64_t seed) {
  const int64_t shape[] = {9, 7}, small[] = {3, 5};
  tdict_tensor *random = naive_tensor(dtype, 2, shape, seed), *source = NULL, *there = NULL, *twin = NULL, *back = NULL;
  td_ok(tdict_tensor_clone(random, host_memory, &source, err));
  td_ok(tdict_tensor_zeros(dtype, 2, shape, device, &there, err));
  td_ok(tdict_tensor_copy(there, source, err));
  td_ok(tdict_tensor_clone(there, device, &twin, err));
  td_ok(tdict_tensor_clone(twin, host_memory, &back, err));
  check_equal(back, random);
  /* write other elements to a strided part of the device tensor */
  tdict_tensor *part = odd_view(twin), *wanted = odd_view(random), *fresh = naive_tensor(dtype, 2, small, seed + 1);
  td_ok(tdict_tensor_copy(part, fresh, err));
  td_ok(tdict_tensor_copy(wanted, fresh, err));
  td_ok(tdict_tensor_copy(back, twin, err));
  check_equal(back, random);
  /* copy a strided device view to a strided host view */
  tdict_tensor *gathered = NULL, *spread = odd_view(back), *again = odd_view(random), *plain = NULL;
  memset(tdict_tensor_data(back), 0xA5, tdict_tensor_bytes(back));
  memset(tdict_tensor_data(random), 0xA5, tdict_tensor_bytes(random));
  td_ok(tdict_tensor_copy(spread, part, err));
  td_ok(tdict_tensor_copy(again, fresh, err));
  check_equal(back, random);
  td_ok(tdict_tensor_contiguous(part, &gathered, err));
  assert_true(tdict_device_equal(tdict_tensor_device(gathered), tdict_memory_device(device)));
  td_ok(tdict_tensor_clone(gathered, NULL, &plain, err));
  check_equal(plain, fresh);
  tdict_tensor *all[] = {random, source, there, twin, back, part, wanted, fresh, gathered, spread, again, plain};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) tdict_tensor_release(all[i]);
}

GPU_CASE(tensor_copy_devices) {
  scoped_context context = td_context(NULL);
  tdict_memory *device = tdict_device_memory(context, td_device()), *pinned = tdict_pinned_memory(context);
  static const tdict_dtype dtypes[] = {TDICT_U8, TDICT_F16, TDICT_F32, TDICT_F64, TDICT_C128, TDICT_DTYPE(1, 8, 3)};
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
    copy_round(device, NULL, dtypes[i], 10 * i);
    copy_round(device, pinned, dtypes[i], 10 * i + 5);
  }
  const int64_t zero[] = {0, 4}, shape[] = {2, 2};
  tdict_tensor *none = NULL, *same = NULL, *dev = NULL, *host = naive_tensor(TDICT_F32, 2, shape, 1);
  td_ok(tdict_tensor_empty(TDICT_F32, 2, zero, device, &none, err));
  td_ok(tdict_tensor_clone(none, NULL, &same, err));
  assert_int_equal(tdict_tensor_numel(same), 0);
  td_ok(tdict_tensor_clone(host, device, &dev, err));
  tdict_tensor_desc v = tdict_tensor_desc_default();
  tdict_tensor_get_desc(dev, &v);
  assert_true(tdict_device_equal(v.device, td_device()));
  /* the same memory, wrapped without a context, can be copied on the device, but not to the host */
  tdict_tensor *foreign = td_made(tensor, tdict_tensor_from_data(&v, NULL, NULL, &made, err)), *twin = NULL;
  td_ok(tdict_tensor_clone(foreign, device, &twin, err));
  td_fails(TDICT_EWRONGDEVICE, "no context", tdict_tensor_copy(host, foreign, err));
  tdict_tensor *back = td_made(tensor, tdict_tensor_clone(twin, NULL, &made, err));
  check_equal(back, host);
  tdict_tensor *all[] = {none, same, dev, host, foreign, twin, back};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) tdict_tensor_release(all[i]);
}

GPU_CASE(tensor_is_pinned) {
  scoped_context context = td_context(NULL);
  const int64_t shape[] = {100};
  float claimed[100];
  const tdict_tensor_range range = {0, 10, 5, 2};
  tdict_tensor *plain = naive_tensor(TDICT_F32, 1, shape, 1), *pinned = NULL, *dev = NULL, *mine = NULL, *part = NULL;
  td_ok(tdict_tensor_zeros(TDICT_F32, 1, shape, tdict_pinned_memory(context), &pinned, err));
  td_ok(tdict_tensor_zeros(TDICT_F32, 1, shape, tdict_device_memory(context, td_device()), &dev, err));
  tdict_tensor_desc v = {sizeof v, claimed, tdict_cpu(), TDICT_F32, 1, shape, NULL, 0, TDICT_DESC_PINNED};
  td_ok(tdict_tensor_from_data(&v, NULL, NULL, &mine, err));
  td_ok(tdict_tensor_slice(pinned, &range, &part, err));
  assert_false(tdict_tensor_is_pinned(plain));
  assert_true(tdict_tensor_is_pinned(pinned));
  assert_true(tdict_tensor_is_pinned(part));
  assert_true(tdict_tensor_is_pinned(mine));
  assert_false(tdict_tensor_is_pinned(dev));
  assert_true(tdict_device_equal(tdict_tensor_device(pinned), tdict_cpu()));
  for (int i = 0; i < 100; i++) assert_true(((const float *)tdict_tensor_const_data(pinned))[i] == 0);
  v.flags = 0;
  tdict_tensor_release(mine);
  td_ok(tdict_tensor_from_data(&v, NULL, NULL, &mine, err));
  assert_false(tdict_tensor_is_pinned(mine));
  tdict_tensor *all[] = {plain, pinned, dev, mine, part};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) tdict_tensor_release(all[i]);
}

static void refuse_all(tdict_memory *memory) {
  const int64_t shape[] = {4}, none[] = {0};
  tdict_tensor *t = mark, *host = naive_tensor(TDICT_F32, 1, shape, 1);
  assert_non_null(memory);
  td_fails(TDICT_ENODEVICE, "", tdict_tensor_empty(TDICT_F32, 1, shape, memory, &t, err));
  assert_true(strlen(td_last_error.message) > 10); /* the message has a reason */
  td_fails(TDICT_ENODEVICE, "", tdict_tensor_empty(TDICT_F32, 1, none, memory, &t, err));
  td_fails(TDICT_ENODEVICE, "", tdict_tensor_zeros(TDICT_F32, 1, shape, memory, &t, err));
  td_fails(TDICT_ENODEVICE, "", tdict_tensor_clone(host, memory, &t, err));
  assert_ptr_equal(t, mark);
  tdict_tensor_release(host);
}

CASE(memory_of_absent_device) {
  scoped_context context = td_context(NULL); /* this context has no simulated devices */
  refuse_all(tdict_device_memory(context, tdict_sim(0)));
  refuse_all(tdict_device_memory(context, tdict_cuda(99)));
  refuse_all(tdict_device_memory(context, (tdict_device){77, 0}));
  const int64_t shape[] = {4};
  scoped_tensor t = NULL;
  tdict_error why = {0};
  /* Without a GPU, there is no pinned memory either. */
  if (tdict_tensor_empty(TDICT_F32, 1, shape, tdict_device_memory(context, tdict_cuda(0)), &t, &why) != TDICT_OK) {
    assert_int_equal(why.status, TDICT_ENODEVICE);
    refuse_all(tdict_pinned_memory(context));
  }
  td_release(t);
  td_ok(tdict_tensor_empty(TDICT_F32, 1, shape, tdict_device_memory(context, tdict_cpu()), &t, err));
  assert_true(tdict_device_equal(tdict_tensor_device(t), tdict_cpu()));
}
