/* Chunks that several threads fill: the parts, who queues the whole, who waits for a slot, and what a failure leaves. */
#include "transfer/share.h"
#include "trees.h"
#include "wrap.h"

static tdict_gpu *gpu_of(const world *w) {
  tdict_gpu *gpu = NULL;
  td_ok(tdict_devices_gpu(tdict_engine_devices(tdict_context_engine(w->c)), w->device, &gpu, err));
  return gpu;
}

/* Leaves of so many bytes, one behind the other on the line. */
static tdict_future *planned(const world *w, const size_t *bytes, uint32_t count, uint32_t parts) {
  tdict_future *t = NULL;
  td_ok(tdict_transfer_create(tdict_context_engine(w->c), 2, &t, err));
  t->plan.items = calloc(count, sizeof *t->plan.items);
  t->plan.nodes = calloc(count, sizeof *t->plan.nodes);
  t->plan.borrows = true;
  assert_non_null(t->plan.items);
  for (uint32_t i = 0; i < count; i++) {
    t->plan.items[i].offset = (t->plan.line_bytes + 255) / 256 * 256;
    t->plan.items[i].bytes = bytes[i];
    t->plan.items[i].gpu = gpu_of(w);
    t->plan.line_bytes = t->plan.items[i].offset + bytes[i];
  }
  t->plan.num_items = t->plan.cap_items = count;
  t->plan.way_bytes[TDICT_WAY_STAGE_IN] = t->plan.line_bytes;
  t->num_parts = parts;
  return t;
}
static void drop(tdict_future *t) {
  t->plan.num_items = 0;
  tdict_future_release(t);
}

/* The parts follow one another, cover the chunk, begin on multiples of 256 with the item that lies there. */
GPU_CASE(share_parts_cover_the_chunk) {
  world w = open_world();
  const size_t sizes[] = {40000, 1, 0, 255, 256, 257, 170000, 0, 1, 40000, 4096, 300001, 65536, 7};
  const uint32_t count = sizeof sizes / sizeof *sizes;
  for (uint32_t parts = 2; parts <= 8; parts++) {
    tdict_future *t = planned(&w, sizes, count, parts);
    const size_t line = t->plan.line_bytes;
    for (size_t begin = 0; begin < line; begin += 256 * 97)
      for (size_t end = begin + 256; end < line + 256 * 32; end += 256 * 31) {
        tdict_chunk chunk = {.begin = begin, .end = end < line ? end : line};
        while (t->plan.items[chunk.first].offset + t->plan.items[chunk.first].bytes <= begin) chunk.first++;
        const uint32_t num = tdict_share_count(t, &chunk);
        assert_in_range(num, 1, parts);
        if (num < parts) assert_true((chunk.end - begin) / (num + 1) < TDICT_PART_BYTES);
        if (num > 1) assert_true((chunk.end - begin) / num >= TDICT_PART_BYTES * 3 / 4);
        size_t at = begin;
        for (uint32_t n = 0; n < num; n++) {
          const tdict_chunk part = tdict_share_part(t, &chunk, n);
          assert_int_equal(part.begin, at);
          assert_true(part.begin < part.end);
          at = part.end;
          assert_int_equal(part.begin % 256, 0);
          uint32_t first = 0; /* looked for one by one */
          while (t->plan.items[first].offset + t->plan.items[first].bytes <= part.begin) first++;
          assert_int_equal(part.first, first);
        }
        assert_int_equal(at, chunk.end);
      }
    drop(t);
  }
  close_world(&w);
}

/* Trees whose chunks have parts, by any number of threads: every byte, and no more copies than chunks. */
GPU_CASE(share_queues_full_slots_once) {
  memset(&wrap, 0, sizeof wrap);
  world w = open_wrapped(NULL);
  const int64_t sizes[] = {70000, 300001, 1105920, 2500000};
  for (int round = 0; round < 5; round++)
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
      tdict_tree *src = new_tree(), *there = NULL;
      give(src, "a", random_tensor(TDICT_U8, SHAPE(sizes[i]), NULL));
      for (int k = 0; k < 40; k++) {
        char key[8];
        snprintf(key, sizeof key, "k%d", k);
        give(src, key, random_tensor(TDICT_U8, SHAPE(4000 + 7 * k), NULL));
      }
      const int strides[] = {1, 0};
      give(src, "t", permuted(random_tensor(TDICT_U8, SHAPE(300, 411), NULL), strides));
      poison(&w, w.memory, line_bytes(src));
      tdict_transfer_options o = tdict_transfer_options_default();
      tdict_transfer_stats stats = {.struct_size = sizeof stats};
      o.num_threads = 2 + round % 4;
      o.stats = &stats;
      const int64_t before = atomic_load(&wrap.calls[CALL_COPY]);
      td_ok(tdict_to_device(w.c, src, w.device, &o, &there, err));
      assert_int_equal(atomic_load(&wrap.calls[CALL_COPY]) - before, stats.num_chunks);
      check_tree(&w, src, there);
      spoil_tree(&w, there);
      tdict_release(there);
      tdict_release(src);
    }
  close_world(&w);
}

/* Takes all slots but some, or those that are there, without waiting. */
static int take_slots(tdict_ring *ring, int count, tdict_slot **out) {
  for (int i = 0; i < count; i++) {
    td_ok(tdict_ring_take(ring, false, &out[i], err));
    if (!out[i]) return i;
  }
  return count;
}

/* One slot for all threads, of one transfer or of three at once: who waits for it to be taken must not sit on it. A hang is
 * the failure. */
GPU_CASE(share_waits_without_a_slot) {
  enum { AT_ONCE = 3 };
  tdict_context_options several = tdict_context_options_default();
  several.staging_bytes = 4 * STAGING;
  several.num_threads = 8;
  world w = world_over(td_context(&several));
  tdict_ring *ring = NULL;
  tdict_gpu_scope scope;
  tdict_slot *slots[64];
  td_ok(tdict_gpu_enter(gpu_of(&w), &scope, err));
  td_ok(tdict_engine_ring(tdict_context_engine(w.c), gpu_of(&w), &ring, err));
  const int taken = take_slots(ring, ring->num_slots - 1, slots);
  tdict_gpu_leave(gpu_of(&w), &scope);
  tdict_tree *src = new_tree();
  give(src, "x", random_tensor(TDICT_U8, SHAPE(1500001), NULL));
  tdict_transfer_options o = tdict_transfer_options_default();
  o.num_threads = 4;
  for (int i = 0; i < 30; i++) {
    tdict_tree *there = NULL;
    poison(&w, w.memory, line_bytes(src));
    td_ok(tdict_to_device(w.c, src, w.device, &o, &there, err));
    check_tree(&w, src, there);
    spoil_tree(&w, there);
    tdict_release(there);
    tdict_future *futures[AT_ONCE];
    for (int k = 0; k < AT_ONCE; k++) td_ok(tdict_to_device_async(w.c, src, w.device, &o, &futures[k], err));
    if (i % 2) tdict_future_cancel(futures[i % AT_ONCE]);
    for (int k = 0; k < AT_ONCE; k++) {
      const bool cancelled = i % 2 && k == i % AT_ONCE;
      tdict_error why;
      there = NULL;
      if (tdict_future_wait(futures[k], &there, &why) == TDICT_OK)
        check_tree(&w, src, there);
      else
        assert_true(cancelled);
      tdict_release(there);
      tdict_future_release(futures[k]);
    }
  }
  for (int i = 0; i < taken; i++) tdict_ring_give(ring, slots[i], false);
  tdict_release(src);
  close_world(&w);
}

/* One lane takes slots and another queues all their copies, on a device that stands still. */
typedef struct taking {
  tdict_future *t;
  tdict_gpu *gpu;
  void *to;
  _Atomic(int) queued;
  tdict_status status;
} taking;
static tdict_status queue_for_another(taking *k, tdict_lane *opens, tdict_lane *queues) {
  tdict_driver *d = k->gpu->driver;
  tdict_slot *slot;
  tdict_status status = tdict_lane_slot(opens, &slot, NULL);
  if (status != TDICT_OK) return status;
  tdict_lane_hand_over(opens);
  status = tdict_lane_take_over(queues, NULL);
  if (status == TDICT_OK) d->ops->copy_h2d_async(d, k->to, slot->data, 256, queues->stream);
  return status == TDICT_OK ? tdict_lane_launch(queues, slot, &k->t->plan.chunks[0], false, NULL) : status;
}
static void *take_and_queue(void *user) {
  taking *k = user;
  tdict_lane opens = {.worker = &k->t->workers[0]}, queues = {.worker = &k->t->workers[1]};
  k->status = tdict_lane_open(&opens, k->gpu, NULL);
  if (k->status == TDICT_OK) k->status = tdict_lane_open(&queues, k->gpu, NULL);
  for (int i = 0; i < 14 && k->status == TDICT_OK; i++) {
    k->status = queue_for_another(k, &opens, &queues);
    atomic_fetch_add(&k->queued, 1);
  }
  (void)!tdict_lane_close(&queues, false, NULL);
  (void)!tdict_lane_close(&opens, false, NULL);
  return NULL;
}

/* Four slots for each of two workers, whoever of them queues the copies: the others are for other transfers. */
SIM_CASE(share_leaves_slots_to_others) {
  enum { SLOTS = 4 };
  world w = open_world();
  const size_t line = 4000000;
  const int64_t bytes = 256;
  tdict_tensor *to = NULL;
  pthread_t thread;
  td_ok(tdict_tensor_empty(TDICT_U8, 1, &bytes, w.memory, &to, err));
  taking k = {.t = planned(&w, &line, 1, 2), .gpu = gpu_of(&w), .to = to->data};
  td_ok(tdict_plan_cut(&k.t->plan, 65536, 65536, err));
  k.t->row.slots = SLOTS;
  for (int i = 0; i < 2; i++) k.t->workers[i].transfer = k.t;
  td_ok(tdict_sim_hold(w.c, err));
  assert_int_equal(pthread_create(&thread, NULL, take_and_queue, &k), 0);
  while (atomic_load(&k.queued) < 2 * SLOTS) usleep(100);
  usleep(50000);
  assert_int_equal(atomic_load(&k.queued), 2 * SLOTS);
  td_ok(tdict_sim_resume(w.c, err));
  pthread_join(thread, NULL);
  td_ok(k.status);
  assert_int_equal(atomic_load(&k.queued), 14);
  drop(k.t);
  tdict_tensor_release(to);
  close_world(&w);
}

/* One chunk that several threads fill behind a stream that does not come to it: one of them queues the copy, and the
 * streams of the others wait for nothing, since the next transfers get them. A hang is the failure. */
SIM_CASE(share_leaves_streams_to_others) {
  tdict_context_options o = tdict_context_options_default();
  o.num_threads = 8;
  world w = world_over(td_context(&o));
  tdict_tree *src = new_tree(), *there = NULL;
  give(src, "x", random_tensor(TDICT_U8, SHAPE(350000), NULL));
  for (int i = 0; i < 20; i++) {
    held_stream held;
    hold_stream(&w, &held);
    tdict_transfer_options after = behind(&held);
    after.num_threads = 3;
    tdict_future *f = NULL;
    td_ok(tdict_to_device_async(w.c, src, w.device, &after, &f, err));
    tdict_latch_wait(&f->queued, INT64_MAX);
    usleep(2000); /* lanes without a copy are closed */
    for (int k = 0; k < 3; k++) {
      td_ok(tdict_to_device(w.c, src, w.device, NULL, &there, err));
      check_tree(&w, src, there);
      tdict_release(there);
    }
    assert_false(tdict_future_is_ready(f));
    atomic_store(&held.open, true);
    td_ok(tdict_future_wait(f, &there, err));
    check_tree(&w, src, there);
    tdict_release(there);
    tdict_future_release(f);
    tdict_stream_destroy(w.c, held.s);
  }
  tdict_release(src);
  close_world(&w);
}

/* A transfer that stopped before a slot was full leaves it with its share: it goes back, and so do those of transfers whose
 * driver fails at any of their copies. */
GPU_CASE(share_gives_back_what_a_failure_leaves) {
  memset(&wrap, 0, sizeof wrap);
  world w = open_wrapped(NULL);
  tdict_engine *engine = tdict_context_engine(w.c);
  tdict_ring *ring = NULL;
  tdict_gpu_scope scope;
  tdict_slot *slots[64];
  td_ok(tdict_gpu_enter(gpu_of(&w), &scope, err));
  td_ok(tdict_engine_ring(engine, gpu_of(&w), &ring, err));
  const size_t sizes[] = {100000, 100000};
  tdict_future *t = planned(&w, sizes, 2, 4);
  td_ok(tdict_plan_cut(&t->plan, 65536, 65536, err));
  td_ok(tdict_shares_create(t, err));
  for (int i = 0; i < 2; i++) {
    td_ok(tdict_ring_take(ring, true, &slots[i], err));
    atomic_store(&t->shares[i].slot, slots[i]);
  }
  tdict_shares_close(t);
  int there = take_slots(ring, ring->num_slots, slots);
  assert_int_equal(there, ring->num_slots);
  for (int i = 0; i < there; i++) tdict_ring_give(ring, slots[i], false);
  drop(t);
  tdict_tree *src = new_tree();
  give(src, "x", random_tensor(TDICT_U8, SHAPE(700001), NULL));
  for (int n = 1; n <= 24; n++) {
    tdict_transfer_options o = tdict_transfer_options_default();
    tdict_tree *moved = NULL;
    o.num_threads = 3;
    atomic_store(&wrap.fail_after[n % 2 ? CALL_COPY : CALL_RECORD], 1 + n / 2);
    tdict_status status = tdict_to_device(w.c, src, w.device, &o, &moved, NULL);
    for (int k = 0; k < NUM_CALL_KINDS; k++) atomic_store(&wrap.fail_after[k], 0);
    if (status == TDICT_OK) check_tree(&w, src, moved);
    tdict_release(moved);
    there = take_slots(ring, ring->num_slots, slots);
    assert_int_equal(there, ring->num_slots);
    for (int i = 0; i < there; i++) tdict_ring_give(ring, slots[i], false);
  }
  tdict_gpu_leave(gpu_of(&w), &scope);
  tdict_release(src);
  close_world(&w);
}
