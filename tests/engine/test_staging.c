/* Tests that transfers stay within the staging ring, whose bytes the wrapped driver counts, and leak no resources. */
#include <dirent.h>

#include "trees.h"
#include "wrap.h"

/* The bytes of all leaves. Fewer with a sanitizer, which slows down the checks. */
#define TREE_BYTES ((size_t)(SANITIZED ? 40 : 100) << 20)
static tdict_tree *large_tree(void) {
  tdict_tree *td = new_tree();
  size_t left = TREE_BYTES;
  for (int i = 0; left > 0; i++) {
    static const size_t sizes[] = {33 << 20, 1 << 20, 3000001, 70000, 511, 9 << 20, 65536};
    size_t bytes = sizes[i % 7] < left ? sizes[i % 7] : left;
    td_put(td, td_text("l%d", i), random_tensor(TDICT_U8, SHAPE((int64_t)bytes), NULL));
    left -= bytes;
  }
  return td;
}

static void check_staging(size_t staging, bool all_ways) {
  place w = open_wrapped(td_options(tdict_context_options, staging_bytes = staging));
  tdict_tree *src = large_tree();
  poison(&w, w.memory, line_bytes(src));
  const int step = !all_ways ? NUM_WAYS : THREAD_SANITIZED ? 14 : SANITIZED ? 9 : 6;
  for (int i = 3; i < NUM_WAYS; i += step) { /* i / 10 is the mode; i = 3 means auto, 1 thread, asynchronous */
    way v = way_at(i);
    scoped_tree there = move_tree(&w, src, w.device, &v);
    if (i == 3) check_tree(&w, src, there);
    assert_in_range(atomic_load(&wrap.peak_pinned), v.o.mode == TDICT_MODE_AUTO ? 1 : 0, staging);
    tdict_tree *back = move_tree(&w, there, tdict_cpu(), &v);
    check_tree(&w, src, back);
    assert_in_range(atomic_load(&wrap.peak_pinned), 1, staging);
    tdict_release(back);
    spoil_tree(&w, there);
  }
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  way v = way_at(0);
  v.o.stats = &stats;
  v.o.num_threads = 8;
  tdict_tree *there = move_tree(&w, src, w.device, &v);
  check_tree(&w, src, there);
  assert_int_equal(stats.total_bytes, TREE_BYTES);
  assert_in_range(stats.peak_staging_bytes, staging / 32, staging);
  tdict_device_counts counts = td_device_counts(w.c, w.device);
  assert_int_equal(counts.pinned_bytes, atomic_load(&wrap.pinned));
  assert_int_equal(counts.peak_pinned_bytes, atomic_load(&wrap.peak_pinned));
  td_release(there, src);
  place_close(&w);
  assert_int_equal(atomic_load(&wrap.pinned), 0); /* all pinned memory was freed */
}

GPU_CASE(staging_never_exceeds) { check_staging(STAGING, true); }
GPU_CASE(staging_never_exceeds_other_sizes) {
  check_staging((size_t)64 << 10, false);
  /* from 2 MiB up, the library maps and registers pages instead of calling cuMemHostAlloc() */
  check_staging((size_t)5 << 20, false);
  check_staging(((size_t)3 << 20) + 12345, false);
}

/* The ring is created only when a transfer needs slots. */
GPU_CASE(staging_is_made_when_needed) {
  scoped_place w = open_wrapped(NULL);
  scoped_tree src = batch_tree(NULL), there = NULL;
  way v = way_at(0);
  v.o.mode = TDICT_MODE_BLOCKING;
  there = move_tree(&w, src, w.device, &v);
  assert_int_equal(atomic_load(&wrap.peak_pinned), 0);
  v.o.mode = TDICT_MODE_AUTO;
  scoped_tree staged = move_tree(&w, src, w.device, &v);
  assert_int_equal(atomic_load(&wrap.peak_pinned), STAGING);
  check_tree(&w, src, there);
  check_tree(&w, src, staged);
}

/* While the device still reads a slot, the slot is not filled again, even if the transfer's thread is done. */
SIM_CASE(staging_slots_in_flight_are_not_reused) {
  scoped_place w = open_wrapped(NULL);
  tdict_tree *src[4], *out[4] = {NULL};
  tdict_future *f[4] = {NULL};
  tdict_transfer_options o = threads(0);
  for (int i = 0; i < 4; i++) {
    src[i] = new_tree();
    td_put(src[i], "x", random_tensor(TDICT_U8, SHAPE(STAGING / 4), NULL)); /* a quarter of the ring */
  }
  tdict_release(to_device(&w, src[0], w.device));
  poison(&w, w.memory, STAGING / 4);
  td_ok(tdict_sim_hold(w.c, err));
  for (int i = 0; i < 4; i++) td_ok(tdict_to_device_async(w.c, src[i], w.device, &o, &f[i], err));
  expect_pending(STAGING / SLOT);
  td_ok(tdict_sim_resume(w.c, err));
  for (int i = 0; i < 4; i++) {
    td_ok(tdict_future_wait(f[i], &out[i], err));
    tdict_future_release(f[i]);
  }
  for (int i = 0; i < 4; i++) {
    check_tree(&w, src[i], out[i]);
    td_release(out[i], src[i]);
  }
}

/* If no pinned memory is available for the ring, the transfer uses ordinary memory. */
GPU_CASE(staging_without_pinned_memory) {
  scoped_place w = open_wrapped(NULL);
  scoped_tree src = batch_tree(NULL);
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  way v = way_at(0);
  v.o.stats = &stats;
  fail_call(CALL_PIN, -1); /* both ways of pinning fail */
  scoped_tree there = move_tree(&w, src, w.device, &v);
  assert_int_equal(stats.pin_path, TDICT_PIN_PAGEABLE);
  assert_int_equal(atomic_load(&wrap.peak_pinned), 0);
  check_tree(&w, src, there);
  check_and_release(&w, src, move_tree(&w, there, tdict_cpu(), &v));
  v.o.conversions = td_options(tdict_conversion, pattern = "**", dtype = TDICT_F64);
  v.o.num_conversions = 1;
  scoped_tree bytes = bytes_tree("a", 3000, NULL), wide = NULL, want = NULL;
  wide = move_tree(&w, bytes, w.device, &v); /* kernels cannot read a ring in ordinary memory */
  td_ok(tdict_to_dtype(bytes, TDICT_F64, NULL, NULL, &want, err));
  check_tree(&w, want, wide);
}

static int count_entries(const char *folder) {
  DIR *d = opendir(folder);
  int count = 0;
  assert_non_null(d);
  while (readdir(d)) count++;
  closedir(d);
  return count;
}

typedef struct usage {
  tdict_device_counts device;
  tdict_memory_counts memory, pinned;
  int threads, descriptors;
} usage;
static usage measure(const place *w) {
  usage u = {0};
  td_ok(tdict_context_get_counts(w->c, w->device, &u.device, err));
  tdict_memory_get_counts(w->memory, &u.memory);
  tdict_memory_get_counts(w->pinned, &u.pinned);
  u.threads = count_entries("/proc/self/task");
  u.descriptors = count_entries("/proc/self/fd");
  return u;
}
static void check_usage(const usage *a, const usage *b) {
  assert_int_equal(a->device.pinned_bytes, b->device.pinned_bytes);
  assert_int_equal(a->device.peak_pinned_bytes, b->device.peak_pinned_bytes);
  assert_int_equal(a->device.device_bytes, b->device.device_bytes);
  assert_int_equal(a->device.num_streams, b->device.num_streams);
  assert_int_equal(a->device.num_events, b->device.num_events);
  assert_int_equal(a->memory.live_bytes, b->memory.live_bytes);
  assert_int_equal(a->memory.cached_bytes, b->memory.cached_bytes);
  assert_int_equal(a->pinned.live_bytes, b->pinned.live_bytes);
  assert_int_equal(a->pinned.cached_bytes, b->pinned.cached_bytes);
  assert_int_equal(a->threads, b->threads);
  assert_int_equal(a->descriptors, b->descriptors);
}

/* Makes small transfers to the device, back and into `kept`, and pins the tree. Transfers use one thread, because the
 * number of lanes varies with more threads. */
static void transfer_once(const place *w, tdict_tree *src, tdict_tree *kept, int i) {
  way v = way_at(i % 10 * 13 % NUM_WAYS);        /* ten ways with all modes */
  if (v.o.num_threads != 0) v.o.num_threads = 1; /* -1 can mean several threads */
  scoped_tree there = move_tree(w, src, w->device, &v);
  v.o.pinned_result = i % 2;
  scoped_tree back = move_tree(w, there, tdict_cpu(), &v);
  v.o.pinned_result = false;
  copy_tree(w, back, kept, &v);
  if (i % 100 == 0) check_tree(w, src, back);
  scoped_tree pinned = td_made(tree, tdict_pin_memory(w->c, src, NULL, &made, err));
}

GPU_CASE(context_counts_are_stable) {
  scoped_place w = open_place();
  tdict_tree *src = batch_tree(NULL), *kept = to_device(&w, src, w.device);
  usage first = {0};
  for (int i = 0; i < (SANITIZED ? 200 : 1000); i++) {
    transfer_once(&w, src, kept, i);
    usage now = measure(&w);
    if (i == 9) first = now;
    if (i > 9 && i % 10 == 9) check_usage(&first, &now);
  }
  assert_int_equal(first.memory.live_bytes, (line_bytes(src) + 255) / 256 * 256); /* only the bytes of `kept` */
  assert_int_equal(first.pinned.live_bytes, 0);
  check_and_release(&w, src, kept);
  tdict_release(src);
  usage last = measure(&w);
  assert_int_equal(last.device.device_bytes, 0);
}

/* With many threads, the counts of streams and events are limited by the number of lanes that can be open at once. */
GPU_CASE(context_counts_are_bounded) {
  scoped_place w = open_place();
  scoped_tree src = batch_tree(NULL);
  tdict_device_counts before = td_device_counts(w.c, w.device);
  for (int i = 0; i < 200; i++) {
    way v = way_at(i % NUM_WAYS);
    scoped_tree there = move_tree(&w, src, w.device, &v), back = move_tree(&w, there, tdict_cpu(), &v);
    if (i % 50 == 0) check_tree(&w, src, back);
  }
  tdict_device_counts after = td_device_counts(w.c, w.device);
  assert_int_equal(after.device_bytes, before.device_bytes);
  assert_in_range(after.num_streams, before.num_streams, before.num_streams + tdict_context_num_threads(w.c) + 1);
  assert_in_range(after.num_events, before.num_events,
                  before.num_events + 16 + 5 * (tdict_context_num_threads(w.c) + 1));
  assert_int_equal(after.pinned_bytes, before.pinned_bytes + STAGING);
}
