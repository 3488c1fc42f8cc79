/* Tests the staging ring: taking and returning slots, and that no slot is reused before its copy has ended. */
#include <stdatomic.h>

#include "device/fake_sysfs.h"
#include "engine/engine.h"
#include "engine/ring.h"
#include "engine/trees.h"
#include "engine/wrap.h"
#include "support/threads.h"

typedef struct bench {
  place w;
  tdict_gpu *gpu;
  tdict_gpu_scope scope;
  tdict_ring *ring;
} bench;
static bench open_bench(size_t staging_bytes) {
  bench b = {.w = open_wrapped(NULL)};
  td_ok(tdict_devices_gpu(tdict_context_engine(b.w.c)->config.devices, b.w.device, &b.gpu, err));
  td_ok(tdict_gpu_enter(b.gpu, &b.scope, err));
  td_ok(tdict_ring_create(b.gpu, NULL, staging_bytes, &b.ring, err));
  return b;
}
static void close_bench(bench *b) {
  tdict_ring_destroy(b->ring);
  assert_int_equal(atomic_load(&wrap.pinned), 0);
  tdict_gpu_leave(b->gpu, &b->scope);
  place_close(&b->w);
}
#define scoped_bench TD_SCOPED(close_bench, bench)

/* Takes a slot. Waits as long as necessary. */
static tdict_status take_one(tdict_ring *ring, tdict_slot **out, tdict_error *why) {
  tdict_status status;
  do status = tdict_ring_take(ring, 0, true, out, why);
  while (status == TDICT_OK && !*out);
  return status;
}

CASE(ring_slot_sizes) {
  const size_t staging[] = {64 << 10, 100000, 1 << 20, 5 << 20, 64 << 20, (size_t)1 << 30, (size_t)1 << 40};
  for (size_t i = 0; i < sizeof staging / sizeof *staging; i++) {
    size_t slot = tdict_ring_slot_bytes(staging[i]);
    assert_int_equal(slot % 4096, 0);
    assert_in_range(slot, 4096, (size_t)4 << 20);
    assert_true(staging[i] / slot >= 15);
  }
  assert_int_equal(tdict_ring_slot_bytes((size_t)64 << 20), (size_t)2 << 20);
}

/* Each ring is on the NUMA node of its device. In this case's fake machine, the devices are on different nodes. */
CASE(ring_lies_on_its_devices_node) {
  scoped_machine m = make_machine("0-1\n", NULL);
  put_nodes(&m, 1, 0);
  tdict_devices *devices = open_on(&m);
  for (int i = 0; i < 2; i++) {
    bench b = {0};
    td_ok(tdict_devices_gpu(devices, tdict_sim(i), &b.gpu, err));
    td_ok(tdict_gpu_enter(b.gpu, &b.scope, err));
    td_ok(tdict_ring_create(b.gpu, NULL, (size_t)4 << 20, &b.ring, err));
    assert_int_equal(b.ring->pages.node, 1 - i);
    tdict_ring_destroy(b.ring);
    tdict_gpu_leave(b.gpu, &b.scope);
  }
  tdict_devices_destroy(devices);
}

GPU_CASE(ring_gives_each_slot_once) {
  const size_t staging[] = {64 << 10, 100000, STAGING, (size_t)5 << 20};
  for (size_t k = 0; k < 4; k++) {
    scoped_bench b = open_bench(staging[k]);
    tdict_slot *slots[64], *none = NULL;
    const int count = b.ring->num_slots;
    assert_in_range((size_t)count * b.ring->slot_bytes, staging[k] - 16 * 4096, staging[k]);
    assert_in_range(atomic_load(&wrap.pinned), 1, staging[k]);
    for (int i = 0; i < count; i++) {
      td_ok(tdict_ring_take(b.ring, 0, i % 2, &slots[i], err));
      assert_non_null(slots[i]);
      memset(slots[i]->data, i, b.ring->slot_bytes); /* no other slot has these bytes */
    }
    for (int i = 0; i < count; i++)
      for (size_t at = 0; at < b.ring->slot_bytes; at += 511) assert_int_equal((unsigned char)slots[i]->data[at], i);
    td_ok(tdict_ring_take(b.ring, 0, false, &none, err));
    assert_null(none);
    tdict_ring_give(b.ring, slots[3], false);
    tdict_ring_give(b.ring, slots[5], false);
    td_ok(tdict_ring_take(b.ring, 0, true, &none, err));
    assert_ptr_equal(none, slots[5]); /* the most recently returned slot is taken first */
    td_ok(tdict_ring_take(b.ring, 0, true, &none, err));
    assert_ptr_equal(none, slots[3]);
    for (int i = 0; i < count; i++) tdict_ring_give(b.ring, slots[i], false);
  }
}

/* Queues a copy from the slot, and returns the slot to the ring while the copy is pending. */
static void give_busy(bench *b, tdict_slot *slot, tdict_cu_stream stream, void *device) {
  tdict_driver *d = b->gpu->driver;
  assert_int_equal(d->ops->copy_h2d_async(d, device, slot->data, 4096, stream), TDICT_CU_SUCCESS);
  assert_int_equal(d->ops->event_record(d, slot->event, stream), TDICT_CU_SUCCESS);
  tdict_ring_give(b->ring, slot, true);
}

/* Returns a destination and a stream for give_busy(). */
static tdict_tensor *open_target(bench *b, tdict_cu_stream *stream) {
  const int64_t bytes = 4096;
  tdict_tensor *t = td_made(tensor, tdict_tensor_empty(TDICT_U8, 1, &bytes, b->w.memory, &made, err));
  td_ok(tdict_gpu_take_stream(b->gpu, stream, err));
  return t;
}

typedef struct taker {
  bench *b;
  pthread_t thread;
  tdict_slot *slot;
  _Atomic(int) stage;
} taker;
static void *take(void *argument) {
  taker *t = argument;
  tdict_gpu_scope scope;
  tdict_slot *slot = NULL;
  tdict_status status = tdict_gpu_enter(t->b->gpu, &scope, NULL);
  atomic_store(&t->stage, 1);
  if (status == TDICT_OK) status = take_one(t->b->ring, &slot, NULL);
  tdict_gpu_leave(t->b->gpu, &scope);
  t->slot = status == TDICT_OK ? slot : NULL;
  atomic_store(&t->stage, 2);
  return NULL;
}
static void start_taking(taker *t, bench *b) {
  *t = (taker){.b = b};
  t->thread = td_start(take, t);
  while (atomic_load(&t->stage) == 0) usleep(100);
  td_rest();
}

SIM_CASE(ring_waits_for_busy_slots) {
  scoped_bench b = open_bench(64 << 10);
  const int count = b.ring->num_slots;
  const int64_t bytes = 4096 * (int64_t)count;
  tdict_slot *slots[64], *got = NULL;
  tdict_cu_stream streams[2];
  scoped_tensor t = td_made(tensor, tdict_tensor_empty(TDICT_U8, 1, &bytes, b.w.memory, &made, err));
  for (int i = 0; i < 2; i++) td_ok(tdict_gpu_take_stream(b.gpu, &streams[i], err));
  for (int i = 0; i < count; i++) td_ok(tdict_ring_take(b.ring, 0, true, &slots[i], err));
  td_ok(tdict_sim_hold(b.w.c, err));
  for (int i = 0; i < count; i++) {
    memset(slots[i]->data, i, 4096);
    give_busy(&b, slots[i], streams[i % 2], (char *)t->data + 4096 * i);
  }
  td_ok(tdict_ring_take(b.ring, 0, false, &got, err));
  assert_null(got); /* no copy has ended */
  taker waiting;
  start_taking(&waiting, &b);
  assert_int_equal(atomic_load(&waiting.stage), 1);
  td_ok(tdict_sim_step(b.w.c, 1, err));
  pthread_join(waiting.thread, NULL);
  assert_ptr_equal(waiting.slot, slots[0]); /* the slot that was returned first */
  td_ok(tdict_sim_step(b.w.c, 2, err));
  td_ok(tdict_ring_take(b.ring, 0, false, &got, err));
  assert_ptr_equal(got, slots[1]); /* its copy has ended, so it is taken without a wait */
  memset(got->data, POISON, 4096);
  td_ok(tdict_ring_take(b.ring, 0, false, &got, err));
  assert_ptr_equal(got, slots[2]);
  td_ok(tdict_ring_take(b.ring, 0, false, &got, err));
  assert_null(got);
  tdict_ring_give(b.ring, slots[1], false);
  td_ok(tdict_ring_take(b.ring, 0, false, &got, err));
  assert_ptr_equal(got, slots[1]); /* an idle slot is preferred to busy slots */
  td_ok(tdict_sim_resume(b.w.c, err));
  tdict_slot *rest[64];
  for (int i = 3; i < count; i++) td_ok(take_one(b.ring, &rest[i], err));
  unsigned char *found = read_elements(&b.w, t);
  for (int i = 0; i < count; i++)
    for (int k = 0; k < 4096; k++) assert_int_equal(found[4096 * i + k], i);
  free(found);
  for (int i = 3; i < count; i++) tdict_ring_give(b.ring, rest[i], false);
  for (int i = 0; i < 3; i++) tdict_ring_give(b.ring, slots[i], false);
  for (int i = 0; i < 2; i++) tdict_gpu_give_stream(b.gpu, streams[i]);
}

/* If all slots are taken, each waiting thread gets a slot that is returned later. */
GPU_CASE(ring_waits_for_slots_of_others) {
  scoped_bench b = open_bench(64 << 10);
  tdict_slot *slots[64];
  for (int i = 0; i < b.ring->num_slots; i++) td_ok(tdict_ring_take(b.ring, 0, true, &slots[i], err));
  taker waiting[4];
  for (int i = 0; i < 4; i++) start_taking(&waiting[i], &b);
  for (int i = 0; i < 4; i++) assert_int_equal(atomic_load(&waiting[i].stage), 1);
  for (int i = 0; i < 4; i++) tdict_ring_give(b.ring, slots[i], false);
  for (int i = 0; i < 4; i++) pthread_join(waiting[i].thread, NULL);
  for (int i = 0; i < 4; i++) assert_non_null(waiting[i].slot);
  for (int i = 0; i < b.ring->num_slots; i++) tdict_ring_give(b.ring, i < 4 ? waiting[i].slot : slots[i], false);
}

/* One slot is busy on a stopped device, and the test holds the others. A waiting thread gets the first free slot. */
SIM_CASE(ring_waits_for_whichever_comes_first) {
  scoped_bench b = open_bench(64 << 10);
  tdict_slot *slots[64];
  tdict_cu_stream stream;
  scoped_tensor t = open_target(&b, &stream);
  for (int i = 0; i < b.ring->num_slots; i++) td_ok(take_one(b.ring, &slots[i], err));
  td_ok(tdict_sim_hold(b.w.c, err));
  give_busy(&b, slots[0], stream, t->data);
  taker waiting;
  start_taking(&waiting, &b);
  assert_int_equal(atomic_load(&waiting.stage), 1);
  tdict_ring_give(b.ring, slots[1], false);
  pthread_join(waiting.thread, NULL); /* the device is still stopped */
  assert_ptr_equal(waiting.slot, slots[1]);
  td_ok(tdict_sim_resume(b.w.c, err));
  for (int i = 1; i < b.ring->num_slots; i++) tdict_ring_give(b.ring, slots[i], false);
  tdict_gpu_give_stream(b.gpu, stream);
}

/* A caller that must leave LEAVE slots free gets no slot beyond that, even when busy slots become free. */
SIM_CASE(ring_keeps_slots_free) {
  enum { LEAVE = 3 };
  scoped_bench b = open_bench(64 << 10);
  const int count = b.ring->num_slots;
  tdict_slot *slots[64], *none = NULL;
  tdict_cu_stream stream;
  scoped_tensor t = open_target(&b, &stream);
  for (int i = 0; i < count - LEAVE; i++) td_ok(tdict_ring_take(b.ring, LEAVE, i % 2, &slots[i], err));
  for (int wait = 0; wait < 2; wait++) {
    td_ok(tdict_ring_take(b.ring, LEAVE, wait, &none, err));
    assert_null(none);
  }
  for (int i = count - LEAVE; i < count; i++) {
    td_ok(tdict_ring_take(b.ring, 0, false, &slots[i], err));
    assert_non_null(slots[i]);
  }
  for (int i = 0; i <= LEAVE; i++) {
    td_ok(tdict_ring_take(b.ring, LEAVE, false, &none, err));
    assert_null(none);
    give_busy(&b, slots[i], stream, t->data);
    assert_int_equal(b.gpu->driver->ops->stream_synchronize(b.gpu->driver, stream), TDICT_CU_SUCCESS);
  }
  td_ok(tdict_ring_take(b.ring, LEAVE, false, &none, err));
  assert_non_null(none);
  tdict_ring_give(b.ring, none, false);
  for (int i = LEAVE + 1; i < count; i++) tdict_ring_give(b.ring, slots[i], false);
  tdict_gpu_give_stream(b.gpu, stream);
}

/* If the wait for a copy fails, the copy's slot stays in the ring. */
SIM_CASE(ring_keeps_slots_when_waiting_fails) {
  scoped_bench b = open_bench(64 << 10);
  tdict_slot *slots[64], *got = NULL;
  tdict_cu_stream stream;
  scoped_tensor t = open_target(&b, &stream);
  for (int i = 0; i < b.ring->num_slots; i++) td_ok(tdict_ring_take(b.ring, 0, true, &slots[i], err));
  td_ok(tdict_sim_hold(b.w.c, err));
  for (int i = 0; i < b.ring->num_slots; i++) give_busy(&b, slots[i], stream, t->data);
  for (int wait = 0; wait < 2; wait++) {
    fail_call(CALL_QUERY, 1);
    fail_call(CALL_SYNC, 1);
    td_fails(TDICT_EDEVICE, "cuEventSynchronize", tdict_ring_take(b.ring, 0, wait, &got, err));
    assert_null(got);
  }
  td_ok(tdict_sim_resume(b.w.c, err));
  for (int i = 0; i < b.ring->num_slots; i++) td_ok(take_one(b.ring, &slots[i], err)); /* no slot was lost */
  td_ok(tdict_ring_take(b.ring, 0, false, &got, err));
  assert_null(got);
  for (int i = 0; i < b.ring->num_slots; i++) tdict_ring_give(b.ring, slots[i], false);
  tdict_gpu_give_stream(b.gpu, stream);
}

GPU_CASE(ring_create_fails_without_leaks) {
  for (int n = 1; n < 20; n++) {
    scoped_bench b = open_bench(64 << 10);
    tdict_ring *second = NULL;
    tdict_device_counts before = td_device_counts(b.w.c, b.w.device);
    fail_call(CALL_EVENT, n);
    tdict_status status = tdict_ring_create(b.gpu, NULL, 64 << 10, &second, NULL);
    assert_int_equal(status == TDICT_OK, n > 16);
    if (status != TDICT_OK) assert_null(second);
    tdict_ring_destroy(second);
    fail_call(CALL_EVENT, 0);
    tdict_device_counts after = td_device_counts(b.w.c, b.w.device);
    assert_int_equal(after.pinned_bytes, before.pinned_bytes);
  }
}
