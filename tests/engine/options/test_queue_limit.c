/* Tests the option max_queued_bytes by counting the bytes in the queues of the simulated device. */
#include "device/sim/queue.h"
#include "engine/trees.h"
#include "engine/wrap.h"

/* the most bytes in queued copies on all devices, measured after each call that queues copies */
static _Atomic(size_t) most_queued;

/* Returns the number of bytes in all queued copies that are not done. */
static size_t count_queued(void) {
  tdict_sim_driver *d = tdict_sim_driver_of(wrap.driver);
  size_t bytes = 0;
  tdict_sim_lock(d);
  for (int i = 0; i < d->num_devices; i++)
    for (const tdict_sim_stream *s = d->devices[i].streams; s; s = s->next)
      for (const tdict_sim_op *op = s->head; op; op = op->next)
        if (op->kind == TDICT_SIM_OP_COPY && !op->done) bytes += op->work.width * op->work.height;
  tdict_sim_unlock(d);
  return bytes;
}
static tdict_cu note_most_queued(tdict_cu result) {
  const size_t now = count_queued();
  size_t most = atomic_load(&most_queued);
  while (now > most && !atomic_compare_exchange_weak(&most_queued, &most, now)) {}
  return result;
}
static tdict_cu noted_h2d(tdict_driver *d, void *dst, const void *src, size_t bytes, tdict_cu_stream s) {
  return note_most_queued(wrap_h2d(d, dst, src, bytes, s));
}
static tdict_cu noted_d2h(tdict_driver *d, void *dst, const void *src, size_t bytes, tdict_cu_stream s) {
  return note_most_queued(wrap_d2h(d, dst, src, bytes, s));
}
static tdict_cu noted_d2d(tdict_driver *d, void *dst, const void *src, size_t bytes, tdict_cu_stream s) {
  return note_most_queued(wrap_d2d(d, dst, src, bytes, s));
}
static tdict_cu noted_batch(tdict_driver *d, tdict_cu_kind kind, const tdict_cu_copy *lines, size_t count,
                            tdict_cu_stream s) {
  return note_most_queued(wrap_batch(d, kind, lines, count, s));
}
static tdict_cu noted_rect(tdict_driver *d, const tdict_cu_rect *rect, tdict_cu_stream s) {
  return note_most_queued(wrap_rect(d, rect, s));
}

enum { LIMIT = 128 << 10, BIG_SLOTS = 32 << 20 };
/* Opens a place that counts the queued bytes. With `slow`, a copy takes 20 microseconds, so that copies accumulate. */
static place open_counted(size_t staging, bool slow) {
  tdict_context_options o = td_with(tdict_context_options, staging_bytes = staging);
  o.sim = td_options(tdict_sim_options, latency_ns = slow ? 20000 : 0);
  place w = open_wrapped(&o);
  wrap.ops.copy_h2d_async = noted_h2d;
  wrap.ops.copy_d2h_async = noted_d2h;
  wrap.ops.copy_d2d_async = noted_d2d;
  wrap.ops.copy_batch_async = noted_batch;
  wrap.ops.copy_rect_async = noted_rect;
  return w;
}
static tdict_tree *large_tree(tdict_memory *memory) {
  tdict_tree *td = bytes_tree("a", (3 << 20) + 77, memory);
  for (int i = 0; i < 40; i++) {
    const char *path = td_text("n.k%d", i);
    td_put(td, path, random_tensor(TDICT_U8, SHAPE(100 + 997 * (int64_t)(i * i % 37)), i % 3 ? memory : NULL));
  }
  td_put(td, "z", random_tensor(TDICT_F32, SHAPE(300000), memory));
  return td;
}

/* Moves the tree to the device and back with a limit. Returns the largest number of bytes that were queued at once. */
static size_t move_limited(const place *w, const tdict_tree *src, way v, size_t limit, bool pinned) {
  tdict_transfer_stats there = tdict_transfer_stats_default(), back = there;
  atomic_store(&most_queued, 0);
  v.o.max_queued_bytes = limit;
  v.o.stats = v.async ? NULL : &there;
  scoped_tree out = move_tree(w, src, w->device, &v), home = NULL;
  check_tree(w, src, out);
  way home_way = v;
  home_way.o.stats = v.async ? NULL : &back;
  home_way.o.pinned_result = pinned;
  home = move_tree(w, out, tdict_cpu(), &home_way);
  check_tree(w, src, home);
  if (!v.async && limit) {
    assert_true(there.peak_queued_bytes > 0 && there.peak_queued_bytes <= limit);
    assert_true(back.peak_queued_bytes > 0 && back.peak_queued_bytes <= limit);
  } else if (!v.async) {
    assert_int_equal(there.peak_queued_bytes, 0);
  }
  return atomic_load(&most_queued);
}

/* A way takes long here: each chunk waits for another. The step is odd and no multiple of 5, so that all modes and
 * numbers of threads occur. */
enum { LIMITED_STEP = SANITIZED ? WAYS_STEP : 3 };

SIM_CASE(queue_limit_holds_in_every_way) {
  scoped_place w = open_counted(BIG_SLOTS, true);
  for (int k = 0; k < 4; k++) {
    scoped_tree td = k == 0   ? large_tree(NULL)
                     : k == 1 ? large_tree(w.pinned)
                     : k == 2 ? strided_tree()
                              : mixed_tree(w.pinned);
    size_t most = 0;
    for (int i = sanitized_first(k); i < NUM_WAYS; i += LIMITED_STEP) {
      const size_t limit = i % 3 ? LIMIT : LIMIT + 12345;
      const size_t queued = move_limited(&w, td, way_at(i), limit, i % 4 > 1);
      assert_true(queued <= limit);
      most = queued > most ? queued : most;
    }
    if (k != 2) assert_true(most > LIMIT / 2); /* more than half of the limit is used */
    /* Without a limit, more bytes are queued, so the checks above can fail. */
    if (k < 2) assert_true(move_limited(&w, td, way_at(8), 0, true) > LIMIT + 12345);
  }
}

/* The limit holds even if staged copies run out of slots while pinned leaves, which need no slots, are copied. */
SIM_CASE(queue_limit_holds_with_few_slots) {
  scoped_place w = open_counted(STAGING / 4, true);
  scoped_tree td = mixed_tree(w.pinned);
  for (int i = 0; i < NUM_WAYS; i += LIMITED_STEP)
    assert_true(move_limited(&w, td, way_at(i), LIMIT, i % 4 > 1) <= LIMIT);
}

/* Returns the number of queued chunks after `done` chunks have finished. Pinned chunks are queued one by one, and so
 * are all chunks if fewer than four chunks fit within the limit. Otherwise the first chunk is queued alone, and the
 * rest in pairs, as soon as both fit into the limit. */
static int queued_after(int done, int num_queued, bool pinned) {
  return pinned || num_queued < 4 || done % 2 ? num_queued : num_queued - 1;
}

/* Checks that `least` to `most` copies are queued when all threads wait. With several threads, a thread that waits for
 * a slot may queue the burst early, so the number varies. */
static void expect_queued(int least, int most) {
  for (int i = 0; i < 5000 && num_pending() < least; i++) usleep(1000);
  td_rest();
  assert_in_range(num_pending(), least, most);
}

/* Checks how many chunks are queued at first and after each finished chunk, if the limit holds `num_queued` chunks. */
static void expect_queued_chunks(const place *w, size_t limit, int num_queued) {
  for (int k = 0; k < 4; k++) {
    const int num_chunks = 2 * num_queued + 5;
    scoped_tree td = bytes_tree("x", num_chunks * (int64_t)limit / num_queued, k % 2 ? w->pinned : NULL);
    tdict_transfer_options o = td_with(tdict_transfer_options, num_threads = k / 2 ? 3 : 1, max_queued_bytes = limit);
    td_ok(tdict_sim_hold(w->c, err));
    tdict_future *f = move_async(w, td, w->device, &o);
    for (int i = 0; i <= num_chunks - num_queued; i++) {
      const bool shares_slots = k == 2 && num_queued == 4; /* three threads, ordinary memory */
      const int queued = queued_after(i, num_queued, k % 2);
      expect_queued(shares_slots ? num_queued - 1 : queued, shares_slots ? num_queued : queued);
      assert_int_equal(count_queued(), limit / (size_t)num_queued * (size_t)num_pending());
      td_ok(tdict_sim_step(w->c, 1, err));
    }
    td_ok(tdict_sim_resume(w->c, err));
    check_result(w, td, f);
  }
}

SIM_CASE(queue_limit_lets_two_small_chunks_be_queued) {
  scoped_place w = open_counted(BIG_SLOTS, false);
  expect_queued_chunks(&w, LIMIT, 2);
  expect_queued_chunks(&w, 4 * LIMIT, 2);
}

/* With a large limit, four chunks fit into it, so that the link is not idle while a thread fills a chunk. */
SIM_CASE(queue_limit_lets_four_chunks_be_queued) {
  scoped_place w = open_counted(BIG_SLOTS, false);
  expect_queued_chunks(&w, 16 * LIMIT, 4);
  expect_queued_chunks(&w, 24 * LIMIT, 4);
}

/* One call queues several copies from ordinary memory, up to half of the limit: here one copy, then four. The next
 * three copies wait in the burst until a fourth copy fits into the limit. */
SIM_CASE(queue_limit_lets_copies_be_queued_together) {
  enum { SLOT_BYTES = BIG_SLOTS / 32, MOST = 8, CHUNKS = 21 };
  scoped_place w = open_counted(BIG_SLOTS, false);
  scoped_tree td = bytes_tree("x", CHUNKS * SLOT_BYTES, NULL);
  for (int threads = 1; threads <= 3; threads += 2) {
    tdict_transfer_options o =
        td_with(tdict_transfer_options, num_threads = threads, max_queued_bytes = MOST * SLOT_BYTES);
    td_ok(tdict_sim_hold(w.c, err));
    const int64_t calls = atomic_load(&wrap.calls[CALL_COPY]);
    tdict_future *f = move_async(&w, td, w.device, &o);
    expect_queued(5, threads == 1 ? 5 : MOST);
    assert_in_range(atomic_load(&wrap.calls[CALL_COPY]) - calls, 2, threads == 1 ? 2 : 4);
    td_ok(tdict_sim_step(w.c, 1, err));
    expect_queued(threads == 1 ? MOST : 5, MOST);
    assert_in_range(atomic_load(&wrap.calls[CALL_COPY]) - calls, 2, threads == 1 ? 3 : 5);
    assert_true(count_queued() <= MOST * SLOT_BYTES);
    td_ok(tdict_sim_resume(w.c, err));
    check_result(&w, td, f);
  }
}

/* The threads of a cancelled transfer do not wait for the limit. */
SIM_CASE(queue_limit_ends_with_a_cancel) {
  scoped_place w = open_counted(BIG_SLOTS, false);
  for (int k = 0; k < 4; k++) {
    scoped_tree td = bytes_tree("x", 9 * LIMIT, k % 2 ? w.pinned : NULL);
    tdict_transfer_options o = td_with(tdict_transfer_options, num_threads = k / 2 ? 3 : 1, max_queued_bytes = LIMIT);
    td_ok(tdict_sim_hold(w.c, err));
    scoped_future f = move_async(&w, td, w.device, &o);
    expect_pending(2);
    const int64_t copies = num_copies();
    tdict_future_cancel(f);
    td_rest(); /* until all threads have seen the cancel */
    td_ok(tdict_sim_resume(w.c, err));
    td_fails(TDICT_ECANCELLED, "cancelled", tdict_future_wait(f, NULL, err));
    assert_true(num_copies() <= copies);
  }
}

/* If a driver call fails, the transfer ends, and a later transfer can use the whole limit. */
SIM_CASE(queue_limit_survives_failing_copies) {
  scoped_place w = open_counted(BIG_SLOTS, false);
  for (int k = 0; k < 2; k++) {
    scoped_tree td = large_tree(k ? w.pinned : NULL), out = NULL;
    for (int i = 0; i < NUM_WAYS; i += SANITIZED ? 9 : 3) {
      way v = way_at(i);
      v.o.max_queued_bytes = LIMIT;
      for (int kind = CALL_COPY; kind <= CALL_RECORD; kind++) {
        scoped_future f = NULL;
        tdict_error why = {0};
        fail_call((call_kind)kind, 1 + i % 7);
        tdict_status status = tdict_to_device_async(w.c, td, w.device, &v.o, &f, &why);
        if (status == TDICT_OK) status = tdict_future_wait(f, &out, &why);
        fail_call((call_kind)kind, 0);
        assert_true(status == TDICT_OK || status == TDICT_EDEVICE);
        if (status == TDICT_OK) check_tree(&w, td, out);
        if (status == TDICT_OK) td_release(out);
      }
      assert_true(move_limited(&w, td, v, LIMIT, false) <= LIMIT);
    }
  }
}

SIM_CASE(queue_limit_is_checked) {
  scoped_place w = open_place();
  scoped_tree td = tiny_tree(NULL), out = NULL;
  tdict_transfer_options o = tdict_transfer_options_default();
  const size_t wrong[] = {1, 256, LIMIT - 1};
  for (int i = 0; i < 3; i++) {
    o.max_queued_bytes = wrong[i];
    td_fails(TDICT_EINVAL, "max_queued_bytes", tdict_to_device(w.c, td, w.device, &o, &out, err));
  }
  const size_t right[] = {0, LIMIT, SIZE_MAX};
  for (int i = 0; i < 3; i++) {
    o.max_queued_bytes = right[i];
    check_and_release(&w, td, move_with(&w, td, w.device, &o));
  }
}

/* The default limit in bytes, the number of chunks that fit into it, the bytes above which transfers have the limit,
 * and the default bytes of the staging ring. */
enum { DEFAULT_LIMIT = 12 << 20, DEFAULT_CHUNKS = 8, DEFAULT_FROM = 80 << 20, DEFAULT_SLOTS = 64 << 20 };

/* Moves a tree and returns `peak_queued_bytes` of its statistics, which is 0 without a limit. */
static size_t peak_queued(const place *w, const tdict_tree *src, tdict_device to, tdict_transfer_options o) {
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  o.stats = &stats;
  scoped_tree out = move_with(w, src, to, &o);
  check_tree(w, src, out);
  return stats.peak_queued_bytes;
}

/* While no copy finishes, the threads queue as many bytes as the limit allows. Bytes in the burst count as queued. */
SIM_CASE(queue_limit_has_a_default) {
  enum { UNLIMITED_CHUNK = 2 << 20 };
  scoped_place w = open_counted(DEFAULT_SLOTS, false);
  scoped_tree td = bytes_tree("x", DEFAULT_FROM + 1000, NULL);
  const size_t values[] = {0, SIZE_MAX};
  for (int k = 0; k < 2; k++) {
    tdict_transfer_options o = td_with(tdict_transfer_options, num_threads = 8, max_queued_bytes = values[k]);
    atomic_store(&most_queued, 0);
    td_ok(tdict_sim_hold(w.c, err));
    tdict_future *f = move_async(&w, td, w.device, &o);
    expect_queued(k ? DEFAULT_CHUNKS + 1 : DEFAULT_CHUNKS / 2 + 1,
                  k ? DEFAULT_SLOTS / UNLIMITED_CHUNK : DEFAULT_CHUNKS);
    td_ok(tdict_sim_resume(w.c, err));
    check_result(&w, td, f);
    assert_int_equal(atomic_load(&most_queued) <= DEFAULT_LIMIT, k == 0);
  }
}

/* From pinned memory, four chunks fill every limit, also the default one. */
SIM_CASE(queue_limit_is_filled_from_pinned_memory) {
  scoped_place w = open_counted(DEFAULT_SLOTS, false);
  scoped_tree td = bytes_tree("x", 2 * DEFAULT_LIMIT, w.pinned);
  const tdict_transfer_options o = td_with(tdict_transfer_options, num_threads = 1, max_queued_bytes = DEFAULT_LIMIT);
  td_ok(tdict_sim_hold(w.c, err));
  tdict_future *f = move_async(&w, td, w.device, &o);
  expect_queued(4, 4);
  assert_int_equal(count_queued(), DEFAULT_LIMIT);
  td_ok(tdict_sim_resume(w.c, err));
  check_result(&w, td, f);
}

/* The default limit applies only to large transfers from ordinary memory to a device in which nothing is packed. */
SIM_CASE(queue_limit_has_a_default_for_few_transfers) {
  enum { LARGE = DEFAULT_FROM + 1000 };
  scoped_place w = open_counted(DEFAULT_SLOTS, false);
  scoped_tree large = bytes_tree("x", LARGE, NULL), small = bytes_tree("x", DEFAULT_FROM, NULL);
  scoped_tree pinned = bytes_tree("x", LARGE, w.pinned);
  const tdict_transfer_options o = tdict_transfer_options_default();
  assert_in_range(peak_queued(&w, large, w.device, o), 1, DEFAULT_LIMIT);
  assert_int_equal(peak_queued(&w, large, w.device, td_with(tdict_transfer_options, max_queued_bytes = SIZE_MAX)), 0);
  const tdict_transfer_options narrow = td_with(tdict_transfer_options, narrow = true);
  assert_in_range(peak_queued(&w, large, w.device, narrow), 1, DEFAULT_LIMIT); /* uint8 is not packed */
  td_put(large, "ids", random_tensor(TDICT_I64, SHAPE(512), NULL));
  assert_int_equal(peak_queued(&w, large, w.device, narrow), 0);
  assert_int_equal(peak_queued(&w, small, w.device, o), 0);
  assert_int_equal(peak_queued(&w, pinned, w.device, o), 0);
  scoped_tree on_device = move_with(&w, large, w.device, &o);
  assert_int_equal(peak_queued(&w, on_device, tdict_cpu(), o), 0);
}
