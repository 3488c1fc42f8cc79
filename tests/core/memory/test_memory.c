/* Tests the public functions that describe a memory, for each kind of memory of a context. */

#include "core/memory/memory.h"
#include "support/test.h"

CASE(memory_counts_ask_the_memory_or_are_zero) {
  tdict_memory_counts counts;
  memset(&counts, 0xA5, sizeof counts);
  tdict_memory_get_counts(NULL, &counts);
  static const tdict_memory_counts zero;
  assert_memory_equal(&counts, &zero, sizeof counts);
}

GPU_CASE(memory_devices) {
  scoped_context c = td_context(NULL);
  assert_true(tdict_device_equal(tdict_memory_device(NULL), tdict_cpu()));
  assert_true(tdict_device_equal(tdict_memory_device(tdict_pinned_memory(c)), tdict_cpu()));
  assert_true(tdict_device_equal(tdict_memory_device(tdict_device_memory(c, tdict_cpu())), tdict_cpu()));
  assert_true(tdict_device_equal(tdict_memory_device(tdict_device_memory(c, td_device())), td_device()));
  tdict_device absent = {td_device().type, 63};
  assert_true(tdict_device_equal(tdict_memory_device(tdict_device_memory(c, absent)), absent));
}

/* Creates and releases pinned tensors, and checks the live, cached and peak bytes and the numbers of allocations. */
GPU_CASE(pinned_pool_counts) {
  scoped_context c = td_context(NULL);
  tdict_memory *memory = tdict_pinned_memory(c);
  tdict_memory_counts n;
  tdict_tensor *a = NULL, *b = NULL;
  int64_t shape[1] = {5000}, large[1] = {3 << 20};
  tdict_memory_get_counts(memory, &n);
  assert_int_equal(n.live_bytes + n.cached_bytes + n.peak_bytes, 0);
  assert_int_equal(n.num_allocations + n.num_reused, 0);
  td_ok(tdict_tensor_empty(TDICT_U8, 1, shape, memory, &a, err));
  td_ok(tdict_tensor_empty(TDICT_U8, 1, large, memory, &b, err));
  tdict_memory_get_counts(memory, &n);
  assert_int_equal(n.live_bytes, 8192 + (3 << 20));
  assert_int_equal(n.cached_bytes, 0);
  assert_int_equal(n.peak_bytes, 8192 + (3 << 20));
  assert_int_equal(n.num_allocations, 2);
  void *bytes = tdict_tensor_data(b);
  tdict_tensor_release(b);
  tdict_memory_get_counts(memory, &n);
  assert_int_equal(n.live_bytes, 8192);
  assert_int_equal(n.cached_bytes, 3 << 20);
  td_ok(tdict_tensor_empty(TDICT_U8, 1, large, memory, &b, err));
  assert_ptr_equal(tdict_tensor_data(b), bytes);
  tdict_memory_get_counts(memory, &n);
  assert_int_equal(n.live_bytes, 8192 + (3 << 20));
  assert_int_equal(n.cached_bytes, 0);
  assert_int_equal(n.num_allocations, 3);
  assert_int_equal(n.num_reused, 1);
  td_release(a, b);
  tdict_context_trim(c, tdict_cpu(), 0);
  tdict_memory_get_counts(memory, &n);
  assert_int_equal(n.live_bytes + n.cached_bytes, 0);
  assert_int_equal(n.peak_bytes, 8192 + (3 << 20));
  tdict_memory_get_counts(NULL, &n);
  assert_int_equal(n.live_bytes + n.cached_bytes + n.peak_bytes, 0);
}
