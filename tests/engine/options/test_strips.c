/* Tests chunks that several threads fill: their strips, the thread that queues them, waits for slots, and failures. */
#include <pthread.h>

#include "engine/lanes.h"
#include "engine/options/strips.h"
#include "engine/trees.h"
#include "engine/wrap.h"

/* Strips cover the chunk without gaps. Each begins at a multiple of 256 bytes and has the index of its first item. */
GPU_CASE(strips_cover_the_chunk) {
  scoped_place w = open_place();
  const size_t sizes[] = {40000, 1, 0, 255, 256, 257, 170000, 0, 1, 40000, 4096, 300001, 65536, 7};
  const uint32_t count = sizeof sizes / sizeof *sizes;
  for (uint32_t strips = 2; strips <= 8; strips++) {
    tdict_transfer *t = planned(&w, sizes, count);
    td_ok(tdict_plan_cut(&t->plan, &(tdict_cut){.first_bytes = 65536, .chunk_bytes = 65536}, err));
    td_ok(tdict_strips_create(t, strips, err));
    const size_t line = t->plan.line_bytes;
    for (size_t begin = 0; begin < line; begin += 256 * 97)
      for (size_t end = begin + 256; end < line + 256 * 32; end += 256 * 31) {
        tdict_chunk chunk = {.begin = begin, .end = end < line ? end : line};
        while (t->plan.items[chunk.first].offset + t->plan.items[chunk.first].bytes <= begin) chunk.first++;
        const uint32_t num = tdict_strips_count(t, &chunk);
        assert_in_range(num, 1, strips);
        if (num < strips) assert_true((chunk.end - begin) / (num + 1) < TDICT_STRIP_BYTES);
        if (num > 1) assert_true((chunk.end - begin) / num >= TDICT_STRIP_BYTES * 3 / 4);
        size_t at = begin;
        for (uint32_t n = 0; n < num; n++) {
          const tdict_chunk strip = tdict_strip_at(t, &chunk, n);
          assert_int_equal(strip.begin, at);
          assert_true(strip.begin < strip.end);
          at = strip.end;
          assert_int_equal(strip.begin % 256, 0);
          uint32_t first = 0; /* finds the first item with a linear search */
          while (t->plan.items[first].offset + t->plan.items[first].bytes <= strip.begin) first++;
          assert_int_equal(strip.first, first);
        }
        assert_int_equal(at, chunk.end);
      }
    drop(t);
  }
}

/* Moves trees whose chunks have strips, with 2 to 5 threads. All bytes arrive, with one copy for each chunk. */
GPU_CASE(strips_queue_full_slots_once) {
  scoped_place w = open_wrapped(NULL);
  const int64_t sizes[] = {70000, 300001, 1105920, 2500000};
  for (int round = 0; round < 5; round++)
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
      tdict_tree *src = bytes_tree("a", sizes[i], NULL), *there = NULL;
      for (int k = 0; k < 40; k++) td_put(src, td_text("k%d", k), random_tensor(TDICT_U8, SHAPE(4000 + 7 * k), NULL));
      const int strides[] = {1, 0};
      td_put(src, "t", permuted(random_tensor(TDICT_U8, SHAPE(300, 411), NULL), strides));
      poison(&w, w.memory, line_bytes(src));
      tdict_transfer_options o = threads(2 + round % 4);
      tdict_transfer_stats stats = {.struct_size = sizeof stats};
      o.stats = &stats;
      const int64_t before = num_copies();
      td_ok(tdict_to_device(w.c, src, w.device, &o, &there, err));
      assert_int_equal(num_copies() - before, stats.num_chunks);
      check_and_spoil(&w, src, there);
      tdict_release(src);
    }
}

/* All threads of one or three transfers share one slot. If a thread kept the slot while it waits, they would
 * deadlock. */
GPU_CASE(strips_wait_without_a_slot) {
  enum { AT_ONCE = 3 };
  scoped_place w = place_sized(4 * STAGING, 8);
  tdict_ring *ring = NULL;
  tdict_slot *slots[64];
  const int taken = take_all_but(&w, 1, &ring, slots);
  scoped_tree src = bytes_tree("x", 1500001, NULL);
  tdict_transfer_options o = threads(4);
  for (int i = 0; i < 30; i++) {
    poison(&w, w.memory, line_bytes(src));
    check_and_spoil(&w, src, move_with(&w, src, w.device, &o));
    tdict_future *futures[AT_ONCE];
    for (int k = 0; k < AT_ONCE; k++) td_ok(tdict_to_device_async(w.c, src, w.device, &o, &futures[k], err));
    if (i % 2) tdict_future_cancel(futures[i % AT_ONCE]);
    for (int k = 0; k < AT_ONCE; k++) {
      const bool cancelled = i % 2 && k == i % AT_ONCE;
      tdict_error why;
      tdict_tree *there = NULL;
      if (tdict_future_wait(futures[k], &there, &why) == TDICT_OK)
        check_tree(&w, src, there);
      else
        assert_true(cancelled);
      td_release(there, futures[k]);
    }
  }
  give_slots(ring, taken, slots);
}

/* Several threads fill one chunk, whose copy must wait for a stopped stream. One thread queues the copy. The streams of
 * the other threads must not wait, because the next transfers use them: if they waited, the case would hang. */
SIM_CASE(strips_queue_waits_only_before_copies) {
  scoped_place w = place_sized(64 << 20, 8);
  scoped_tree src = bytes_tree("x", 350000, NULL);
  for (int i = 0; i < 20; i++) {
    held_stream held;
    hold_stream(&w, &held);
    tdict_transfer_options after = behind(&held);
    after.num_threads = 3;
    tdict_future *f = move_async(&w, src, w.device, &after);
    tdict_latch_wait(&transfer_of(f)->queued, INT64_MAX);
    td_rest(); /* until lanes that queued no copy are closed */
    for (int k = 0; k < 3; k++) check_and_release(&w, src, move_with(&w, src, w.device, NULL));
    assert_false(tdict_future_is_ready(f));
    atomic_store(&held.open, true);
    check_result(&w, src, f);
    tdict_stream_destroy(w.c, held.s);
  }
}

/* If a transfer ends before its slots are full, or because a driver call fails, all slots return to the ring. */
GPU_CASE(strips_give_slots_back_after_a_failure) {
  scoped_place w = open_wrapped(NULL);
  tdict_engine *engine = tdict_context_engine(w.c);
  tdict_ring *ring = NULL;
  tdict_gpu_scope scope;
  tdict_slot *slots[64];
  td_ok(tdict_gpu_enter(gpu_of(&w), &scope, err));
  td_ok(tdict_rings_get(&engine->rings, gpu_of(&w), &ring, err));
  const size_t sizes[] = {100000, 100000};
  tdict_transfer *t = planned(&w, sizes, 2);
  td_ok(tdict_plan_cut(&t->plan, &(tdict_cut){.first_bytes = 65536, .chunk_bytes = 65536}, err));
  td_ok(tdict_strips_create(t, 4, err));
  for (int i = 0; i < 2; i++) {
    td_ok(tdict_ring_take(ring, 0, true, &slots[i], err));
    atomic_store(&t->strips->chunks[i].slot, slots[i]);
  }
  tdict_strips_close(t);
  int there = take_slots(ring, ring->num_slots, slots);
  assert_int_equal(there, ring->num_slots);
  for (int i = 0; i < there; i++) tdict_ring_give(ring, slots[i], false);
  drop(t);
  scoped_tree src = bytes_tree("x", 700001, NULL);
  for (int n = 1; n <= 24; n++) {
    tdict_transfer_options o = threads(3);
    tdict_tree *moved = NULL;
    atomic_store(&wrap.fail_after[n % 2 ? CALL_COPY : CALL_RECORD], 1 + n / 2);
    tdict_status status = tdict_to_device(w.c, src, w.device, &o, &moved, NULL);
    for (int k = 0; k < NUM_CALL_KINDS; k++) atomic_store(&wrap.fail_after[k], 0);
    if (status == TDICT_OK) check_and_release(&w, src, moved);
    there = take_slots(ring, ring->num_slots, slots);
    assert_int_equal(there, ring->num_slots);
    for (int i = 0; i < there; i++) tdict_ring_give(ring, slots[i], false);
  }
  tdict_gpu_leave(gpu_of(&w), &scope);
}

/* A leaf whose last strip is filled by a thread other than the caller. */
enum { LATE_BYTES = 1000000 };
static struct late {
  pthread_t caller;
  atomic_size_t num_read; /* bytes */
  atomic_bool other_came, is_waiting;
  atomic_int copies_of_others;
} late;

static tdict_status read_late(void *user, size_t offset, void *dst, size_t bytes, size_t *done, tdict_error *err) {
  const bool is_caller = pthread_equal(pthread_self(), late.caller);
  (void)user, (void)err;
  while (is_caller && !atomic_load(&late.other_came)) usleep(100);
  if (!is_caller) atomic_store(&late.other_came, true);
  if (!is_caller && !atomic_exchange(&late.is_waiting, true))
    while (atomic_load(&late.num_read) < LATE_BYTES - bytes) usleep(100);
  memset(dst, (int)(offset % 251), bytes);
  atomic_fetch_add(&late.num_read, bytes);
  *done = bytes;
  return TDICT_OK;
}
static void note_copy(void) {
  if (!pthread_equal(pthread_self(), late.caller)) atomic_fetch_add(&late.copies_of_others, 1);
}
static tdict_cu noted_h2d(tdict_driver *d, void *dst, const void *src, size_t bytes, tdict_cu_stream s) {
  note_copy();
  return wrap_h2d(d, dst, src, bytes, s);
}
static tdict_cu noted_batch(tdict_driver *d, tdict_cu_kind kind, const tdict_cu_copy *lines, size_t count,
                            tdict_cu_stream s) {
  note_copy();
  return wrap_batch(d, kind, lines, count, s);
}

/* The caller of a small blocking transfer queues all copies, even from a slot that another thread fills last. */
SIM_CASE(strips_of_small_transfers_are_queued_by_the_caller) {
  if (tdict_cpus_count() < 2) td_skip("one processor: no other thread copies");
  scoped_place w = open_wrapped(td_options(tdict_context_options, staging_bytes = 16 << 20));
  wrap.ops.copy_h2d_async = noted_h2d;
  wrap.ops.copy_batch_async = noted_batch;
  late.caller = pthread_self();
  const tdict_storage_reader reader = {.read = read_late};
  const int64_t shape[] = {LATE_BYTES};
  const tdict_tensor_desc layout = {.dtype = TDICT_U8, .ndim = 1, .shape = shape};
  scoped_storage s = td_made(storage, tdict_storage_create_unloaded(&reader, LATE_BYTES, &made, err));
  scoped_tree src = new_tree();
  td_put(src, "x", td_made(tensor, tdict_tensor_unloaded(s, &layout, 0, &made, err)));
  const int64_t before = num_copies();
  scoped_tree there = td_made(tree, tdict_to_device(w.c, src, w.device, NULL, &made, err));
  assert_int_equal(atomic_load(&late.num_read), LATE_BYTES);
  assert_int_equal(num_copies() - before, 3);
  assert_int_equal(atomic_load(&late.copies_of_others), 0);
}
