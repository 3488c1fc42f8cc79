/* Tests lanes: how many slots a transfer leaves to other transfers, waiting for slots, and failures. */
#include "engine/lane.h"

#include "engine/lanes.h"
#include "engine/trees.h"
#include "engine/wrap.h"

enum { THREADS = 17 };
static const int64_t PATIENCE = 20 * INT64_C(1000000000);

static place open_large(void) {
  tdict_context_options o = tdict_context_options_default();
  o.staging_bytes = STAGING; /* 32 slots of 32 KiB */
  o.num_threads = THREADS;
  return open_wrapped(&o);
}

/* A transfer with more chunks than slots, in either direction and on 5 or 16 threads, waits for a stopped stream.
 * Another transfer must still end. */
SIM_CASE(lane_keeps_slots_free_for_others) {
  scoped_place w = open_large();
  scoped_tree src = bytes_tree("x", 2500000, NULL), other = bytes_tree("y", 300001, NULL);
  scoped_tree device = to_device(&w, src, w.device), there = NULL;
  for (int i = 0; i < 12; i++) {
    const bool out = i % 2;
    held_stream held;
    hold_stream(&w, &held);
    tdict_transfer_options o = behind(&held), one = tdict_transfer_options_default();
    tdict_future *first = NULL, *second = NULL;
    o.num_threads = i % 4 < 2 ? 5 : 16;
    one.num_threads = 1;
    td_ok(tdict_to_device_async(w.c, out ? device : src, out ? tdict_cpu() : w.device, &o, &first, err));
    while (atomic_load(&transfer_of(first)->slots_held) == 0) usleep(100);
    td_rest(); /* until the transfer takes no more slots */
    td_ok(tdict_to_device_async(w.c, other, w.device, &one, &second, err));
    td_ok(tdict_future_wait_for(second, PATIENCE, &there, err));
    check_tree(&w, other, there);
    assert_false(tdict_future_is_ready(first));
    assert_in_range(atomic_load(&transfer_of(first)->slots_held), 1,
                    29); /* 28 slots, plus the slot of a thread that asked earlier */
    td_release(there, second);
    atomic_store(&held.open, true);
    check_result(&w, src, first);
    tdict_stream_destroy(w.c, held.s);
  }
}

/* Each time a slot is returned, the held slots of this transfer are compared with the taken slots of the ring. */
static _Atomic(tdict_future *) counted;
static atomic_int num_returned, num_counted_twice;
void __real_tdict_ring_give(tdict_ring *ring, tdict_slot *slot, bool busy);
void __wrap_tdict_ring_give(tdict_ring *ring, tdict_slot *slot, bool busy);
void __wrap_tdict_ring_give(tdict_ring *ring, tdict_slot *slot, bool busy) {
  __real_tdict_ring_give(ring, slot, busy);
  tdict_future *f = atomic_load(&counted);
  if (!f) return;
  pthread_mutex_lock(&ring->lock);
  int taken = ring->num_slots - ring->num_idle;
  for (const tdict_slot *s = ring->oldest_busy; s; s = s->next) taken--;
  if (atomic_load(&transfer_of(f)->slots_held) > taken) atomic_fetch_add(&num_counted_twice, 1);
  pthread_mutex_unlock(&ring->lock);
  atomic_fetch_add(&num_returned, 1);
}

/* A returned slot no longer counts as held by its transfer, so the count never exceeds the number of taken slots. */
SIM_CASE(lane_counts_returned_slots_no_more) {
  scoped_place w = open_large();
  tdict_tree *src = new_tree(), *there = NULL;
  held_stream held;
  td_put(src, "x", random_tensor(TDICT_U8, SHAPE(2500000), NULL));
  hold_stream(&w, &held);
  tdict_transfer_options o = behind(&held);
  o.num_threads = 1;
  tdict_future *f = move_async(&w, src, w.device, &o);
  while (atomic_load(&transfer_of(f)->slots_held) == 0) usleep(100);
  atomic_store(&counted, f);
  atomic_store(&held.open, true);
  td_ok(tdict_future_wait(f, &there, err));
  atomic_store(&counted, NULL);
  assert_true(atomic_load(&num_returned) > 0);
  assert_int_equal(atomic_load(&num_counted_twice), 0);
  check_and_release(&w, src, there);
  tdict_future_release(f);
  tdict_stream_destroy(w.c, held.s);
  tdict_release(src);
}

/* The test holds all slots except one. A transfer that asks for its first slot gets it, although some slots are
 * reserved for other transfers. */
GPU_CASE(lane_takes_the_last_slot) {
  scoped_place w = open_large();
  tdict_ring *ring = NULL;
  tdict_slot *slots[64];
  TD_STREAM(s, w.c, w.device);
  const int taken = take_all_but(&w, 1, &ring, slots);
  scoped_tree src = bytes_tree("x", 700001, NULL);
  for (int n = 1; n < 6; n++) {
    tdict_transfer_options o = td_with(tdict_transfer_options, num_threads = n, after = s);
    scoped_future f = move_async(&w, src, w.device, &o);
    check_and_release(&w, src, td_made(tree, tdict_future_wait_for(f, PATIENCE, &made, err)));
  }
  give_slots(ring, taken, slots);
}

/* A cancelled transfer does not wait for a slot, although the test holds all slots. */
GPU_CASE(lane_waits_no_longer_than_its_transfer) {
  scoped_place w = open_large();
  tdict_ring *ring = NULL;
  tdict_slot *slots[64];
  const int taken = take_all_but(&w, 0, &ring, slots);
  scoped_tree src = bytes_tree("x", 2500000, NULL);
  for (int n = 1; n < 4; n++) {
    tdict_transfer_options o = threads(n);
    scoped_future f = move_async(&w, src, w.device, &o);
    td_rest();
    assert_false(tdict_future_is_ready(f));
    tdict_future_cancel(f);
    td_fails(TDICT_ECANCELLED, "", tdict_future_wait_for(f, PATIENCE, NULL, err));
  }
  give_slots(ring, taken, slots);
}

static _Atomic(int) stopped;
static atomic_bool goes_on;
/* Replaces stream_wait_event(): waits until the test sets `goes_on`, and then fails. */
static tdict_cu wait_fails(tdict_driver *d, tdict_cu_stream s, tdict_cu_event e) {
  (void)d;
  (void)s;
  (void)e;
  atomic_fetch_add(&stopped, 1);
  while (!atomic_load(&goes_on)) usleep(100);
  return TDICT_CU_UNKNOWN;
}
SIM_CASE(lane_ends_when_slots_never_come) {
  scoped_place w = open_large();
  scoped_tree src = bytes_tree("x", 2500000, NULL), there = NULL;
  tdict_stream s;
  td_ok(tdict_stream_create(w.c, w.device, &s, err));
  there = to_device(&w, src, w.device);
  td_release(there);
  tdict_transfer_options o = td_with(tdict_transfer_options, num_threads = THREADS, after = s);
  wrap.ops.stream_wait_event = wait_fails;
  tdict_future *f = move_async(&w, src, w.device, &o);
  while (atomic_load(&stopped) == 0) usleep(100);
  td_rest(); /* until the other threads have filled slots, or wait for one */
  atomic_store(&goes_on, true);
  td_fails(TDICT_EDEVICE, "cuStreamWaitEvent", tdict_future_wait_for(f, PATIENCE, NULL, err));
  wrap.ops.stream_wait_event = wrap_wait;
  tdict_future_release(f);
  for (int i = 0; i < 3; i++) { /* succeeds only if the failed transfer returned all slots */
    check_and_release(&w, src, to_device(&w, src, w.device));
  }
  tdict_stream_destroy(w.c, s);
}

/* If a transfer fails while the device is stopped, the transfer waits for its queued copies, because they read the
 * program's memory. */
SIM_CASE(lane_waits_for_driver_copies_of_a_failed_transfer) {
  scoped_place w = open_large();
  scoped_tree src = new_tree();
  for (int i = 0; i < 3; i++) {
    const char key[2] = {(char)('a' + i), 0};
    td_put(src, key,
           random_tensor(TDICT_U8, SHAPE(9 << 20), w.pinned)); /* too large to share a copy with another leaf */
  }
  tdict_transfer_options o = threads(1);
  td_ok(tdict_sim_hold(w.c, err));
  fail_call(CALL_COPY, 3);
  scoped_future f = move_async(&w, src, w.device, &o);
  for (int i = 0; i < 50000 && atomic_load(&wrap.calls[CALL_COPY]) < 3; i++) usleep(100);
  td_rest();
  assert_int_equal(atomic_load(&wrap.calls[CALL_COPY]), 3);
  assert_false(tdict_future_is_ready(f));
  td_ok(tdict_sim_resume(w.c, err));
  td_fails_at(TDICT_EDEVICE, "999", "c", tdict_future_wait_for(f, PATIENCE, NULL, err));
}

/* The lane returns the event of a large copy without a slot, so the number of events does not grow. */
GPU_CASE(lane_returns_its_events) {
  scoped_place w = open_place();
  scoped_tree src = new_tree();
  tdict_device_counts first, last;
  td_put(src, "x", random_tensor(TDICT_U8, SHAPE(3 << 20), w.pinned));
  for (int i = 0; i < 50; i++) {
    check_result(&w, src, move_async(&w, src, w.device, NULL));
    td_ok(tdict_context_get_counts(w.c, w.device, i < 10 ? &first : &last, err));
  }
  assert_int_equal(last.num_events, first.num_events);
}

/* If querying a copy's event fails, tdict_lane_return_finished() returns the error, and the transfer fails. */
SIM_CASE(lane_reports_a_lost_device) {
  scoped_place w = open_large();
  const size_t line = 200000;
  const int64_t bytes = (int64_t)line;
  uint32_t error_item = 0;
  scoped_tensor to = td_made(tensor, tdict_tensor_empty(TDICT_U8, 1, &bytes, w.memory, &made, err));
  tdict_transfer *t = planned(&w, &line, 1);
  td_ok(tdict_plan_cut(&t->plan, &(tdict_cut){.first_bytes = SLOT, .chunk_bytes = SLOT}, err));
  t->how.max_slots = 4;
  t->plan.items[0].dst_data = to->data;
  t->plan.items[0].dst_plain = true;
  tdict_lane lane = {.worker = &t->workers[0]};
  tdict_slot *slot = NULL;
  td_ok(tdict_lane_open(&lane, gpu_of(&w), err));
  td_ok(tdict_lane_take_slot(&lane, &slot, err));
  assert_non_null(slot);
  td_ok(tdict_sim_hold(w.c, err));
  td_ok(tdict_lane_submit(&lane, slot, &t->plan.chunks[0], &error_item, err));
  td_ok(tdict_lane_return_finished(&lane, err)); /* the copy has not ended yet */
  assert_int_equal(lane.count, 1);
  assert_false(tdict_future_has_failed(&t->future));
  fail_call(CALL_QUERY, 1);
  fail_call(CALL_SYNC, 1);
  td_fails(TDICT_EDEVICE, "cuEventSynchronize", tdict_lane_return_finished(&lane, err));
  assert_true(tdict_future_has_failed(&t->future));
  td_ok(tdict_sim_resume(w.c, err));
  (void)!tdict_lane_close(&lane, true, NULL);
  drop(t);
}
