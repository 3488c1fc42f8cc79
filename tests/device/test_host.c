/* Tests memory objects without a driver: plain host memory, and the memory of an absent device. */
#include "device/host.h"

#include "core/base/error.h"
#include "support/test.h"

/* A fence that counts its calls. */
typedef struct noted_fence {
  tdict_fence fence; /* first */
  int waits, releases;
} noted_fence;
static bool noted_poll(tdict_fence *f) { return f == NULL; }
static bool noted_wait(tdict_fence *f, int64_t deadline_ns) {
  ((noted_fence *)f)->waits += deadline_ns == INT64_MAX;
  return true;
}
static void noted_retain(tdict_fence *f) { ((noted_fence *)f)->releases--; }
static void noted_release(tdict_fence *f) { ((noted_fence *)f)->releases += ((noted_fence *)f)->waits == 1; }

CASE(host_memory_allocates_and_frees) {
  static const tdict_fence_ops ops = {noted_poll, noted_wait, NULL, noted_retain, noted_release};
  tdict_memory *m = tdict_host_memory();
  noted_fence f = {{&ops}, 0, 0};
  tdict_fence *fences[1] = {&f.fence};
  tdict_block block = {0};
  tdict_memory_counts counts;
  assert_true(tdict_device_equal(m->device, tdict_cpu()));
  assert_false(m->pinned);
  for (size_t bytes = 0; bytes < 5000; bytes += 997) {
    td_ok(m->ops->allocate(m, bytes, &block, err));
    assert_int_equal((uintptr_t)block.data % 64, 0);
    assert_int_equal(block.bytes, bytes);
    memset(block.data, 0xA5, bytes);
    f.waits = f.releases = 0;
    m->ops->free(m, &block, fences, 1);
    assert_int_equal(f.waits, 1);
    assert_int_equal(f.releases, 1); /* freeing waits for the fence, then releases it */
  }
  m->ops->retain(m);
  m->ops->release(m);
  m->ops->release(m); /* host memory is never destroyed */
  td_fails(TDICT_ENOMEM, "100 bytes", (td_fail_alloc(0, true), m->ops->allocate(m, 100, &block, err)));
  assert_true(td_fail_alloc_stop());
  memset(&counts, 0xA5, sizeof counts);
  counts = td_memory_counts(m);
  assert_int_equal(counts.live_bytes + counts.cached_bytes + counts.peak_bytes, 0);
}

CASE(absent_memory_reports_its_reason) {
  tdict_error reason = {0};
  assert_int_equal(tdict_fail_native(&reason, TDICT_ENODEVICE, 100, "it rains"), TDICT_ENODEVICE);
  tdict_memory *m = tdict_absent_memory_create(tdict_cuda(3), &reason);
  assert_non_null(m);
  memset(&reason, 0xA5, sizeof reason); /* the memory object has its own copy */
  tdict_block block = {.bytes = 5};
  td_fails(TDICT_ENODEVICE, "it rains", m->ops->allocate(m, 10, &block, err));
  assert_int_equal(td_last_error.native, 100);
  assert_int_equal(m->ops->allocate(m, 10, &block, NULL), TDICT_ENODEVICE);
  assert_int_equal(block.bytes, 5);
  assert_true(tdict_device_equal(m->device, tdict_cuda(3)));
  tdict_memory_counts counts = td_memory_counts(m);
  assert_int_equal(counts.live_bytes + (size_t)counts.num_allocations, 0);
  m->ops->retain(m);
  m->ops->release(m);
  assert_int_equal(m->ops->allocate(m, 10, &block, NULL), TDICT_ENODEVICE);
  m->ops->release(m);
  td_fail_alloc(0, true);
  assert_null(tdict_absent_memory_create(tdict_cuda(3), &reason));
  td_fail_alloc_stop();
}

CASE(no_memory_refuses_every_allocation) {
  tdict_memory *m = tdict_no_memory();
  tdict_block block;
  m->ops->retain(m);
  m->ops->release(m);
  m->ops->release(m);
  td_fails(TDICT_ENOMEM, "no host memory", m->ops->allocate(m, 1, &block, err));
}
