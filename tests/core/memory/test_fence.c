/* Tests sets of fences: adding fences, and waiting for all of them on a stream or in the calling thread. */
#include "core/memory/fakes.h"

enum { COUNT = 100 };

typedef struct queued_fence {
  fake_fence fake; /* first */
  int queued;
} queued_fence;
static tdict_status queue_wait(tdict_fence *fence, void *device, void *stream, tdict_error *error) {
  (void)error;
  assert_string_equal(device, "device");
  assert_string_equal(stream, "stream");
  ((queued_fence *)fence)->queued++;
  return TDICT_OK;
}
static tdict_status fail_wait(tdict_fence *fence, void *device, void *stream, tdict_error *error) {
  (void)queue_wait(fence, device, stream, error);
  return tdict_fail(error, TDICT_EDEVICE, "the wait failed");
}

/* A set keeps each fence once and waits for all fences. If a stream cannot wait, the calling thread waits. */
CASE(fences_wait_for_each_fence) {
  static const tdict_fence_ops kinds[] = {{fake_poll, fake_wait, queue_wait, fake_retain, fake_release},
                                          {fake_poll, fake_wait, NULL, fake_retain, fake_release}};
  queued_fence fences[COUNT];
  tdict_fences set = {0};
  char device[] = "device", stream[] = "stream";
  td_ok(tdict_fences_wait_on_stream(&set, "test", device, stream, err));
  for (int i = 0; i < COUNT; i++) {
    fake_fence_init(&fences[i].fake);
    fences[i].fake.fence.ops = &kinds[i % 2];
    fences[i].queued = 0;
  }
  for (int i = 0; i < 3 * COUNT; i++) tdict_fences_add(&set, &fences[7 * i % COUNT].fake.fence);
  assert_int_equal(set.count, COUNT);
  for (int i = 0; i < COUNT; i++) fake_fence_end(&fences[i].fake);
  td_ok(tdict_fences_wait_on_stream(&set, "test", device, stream, err));
  for (int i = 0; i < COUNT; i++) {
    assert_int_equal(atomic_load(&fences[i].fake.refs), 2);
    assert_int_equal(fences[i].queued, i % 2 == 0);
    assert_int_equal(atomic_load(&fences[i].fake.waits), i % 2);
  }
  tdict_fences_wait(&set);
  for (int i = 0; i < COUNT; i++) assert_int_equal(atomic_load(&fences[i].fake.waits), 1 + i % 2);
  tdict_fences_reset(&set);
  assert_int_equal(set.count, 0);
  for (int i = 0; i < COUNT; i++) tdict_fences_add(&set, &fences[i].fake.fence); /* completed fences are not added */
  assert_int_equal(set.count, 0);
  for (int i = 0; i < COUNT; i++) assert_int_equal(atomic_load(&fences[i].fake.refs), 1);
}

/* If queuing a wait on the stream fails, the call fails. The calling thread must not wait instead. */
CASE(fences_report_failed_waits) {
  static const tdict_fence_ops kind = {fake_poll, fake_wait, fail_wait, fake_retain, fake_release};
  queued_fence fences[3];
  tdict_fences set = {0};
  char device[] = "device", stream[] = "stream";
  for (int i = 0; i < 3; i++) {
    fake_fence_init(&fences[i].fake);
    fences[i].fake.fence.ops = &kind;
    fences[i].queued = 0;
    tdict_fences_add(&set, &fences[i].fake.fence);
  }
  td_fails(TDICT_EDEVICE, "the wait failed", tdict_fences_wait_on_stream(&set, "test", device, stream, err));
  assert_int_equal(fences[0].queued + fences[1].queued + fences[2].queued, 1);
  for (int i = 0; i < 3; i++) assert_int_equal(atomic_load(&fences[i].fake.waits), 0);
  tdict_fences_reset(&set);
}

/* If an allocation fails, the set keeps the fences that it already has, and tdict_fences_wait_on_stream() fails. */
CASE(fences_survive_enomem) {
  fake_fence fences[5];
  for (int left = 0; left < 2; left++) {
    tdict_fences set = {0};
    td_fail_alloc(left, true);
    for (int i = 0; i < 5; i++) {
      fake_fence_init(&fences[i]);
      tdict_fences_add(&set, &fences[i].fence);
    }
    td_fail_alloc_stop();
    assert_true(set.no_memory);
    assert_int_equal(set.count, left ? 4 : 0);
    td_fails(TDICT_ENOMEM, "test: no host memory", tdict_fences_wait_on_stream(&set, "test", NULL, NULL, err));
    for (int i = 0; i < 5; i++) assert_int_equal(atomic_load(&fences[i].waits), 0);
    tdict_fences_reset(&set);
    for (int i = 0; i < 5; i++) assert_int_equal(atomic_load(&fences[i].refs), 1);
  }
}
