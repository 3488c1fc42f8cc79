/* Tests the option max_bytes_per_second: at every moment of virtual time, a transfer has begun to copy at most the
 * bytes that the rate allows. __wrap_clock_gettime and __wrap_nanosleep are in virtual_clock.h. */
#include "engine/options/pace.h"

#include "engine/trees.h"
#include "engine/wrap.h"
#include "support/virtual_clock.h"

/* The rate is so low that the real time of a transfer does not matter. CHUNK is the chunk size at this rate, in
 * bytes. */
enum { RATE = 1000000, CHUNK = 256 << 10 };

/* Counts the bytes that a transfer has begun to copy, in virtual time. */
static struct watched {
  int64_t begin_ns, rate;
  _Atomic(int64_t) bytes;
  _Atomic(bool) was_too_fast;
} watched;

static int64_t allowed_bytes(int64_t piece) {
  const double seconds = (double)(td_virtual_ns() - watched.begin_ns) / 1e9;
  return (int64_t)(seconds * (double)watched.rate) + piece;
}
/* Counts bytes before they are copied. */
static void watch_bytes(size_t bytes) {
  const int64_t sum = atomic_fetch_add(&watched.bytes, (int64_t)bytes) + (int64_t)bytes;
  if (watched.rate && sum > allowed_bytes(CHUNK)) atomic_store(&watched.was_too_fast, true);
}
static tdict_cu watched_h2d(tdict_driver *d, void *dst, const void *src, size_t bytes, tdict_cu_stream s) {
  watch_bytes(bytes);
  return wrap_h2d(d, dst, src, bytes, s);
}
static tdict_cu watched_d2h(tdict_driver *d, void *dst, const void *src, size_t bytes, tdict_cu_stream s) {
  watch_bytes(bytes);
  return wrap_d2h(d, dst, src, bytes, s);
}
static tdict_cu watched_d2d(tdict_driver *d, void *dst, const void *src, size_t bytes, tdict_cu_stream s) {
  watch_bytes(bytes);
  return wrap_d2d(d, dst, src, bytes, s);
}
static tdict_cu watched_batch(tdict_driver *d, tdict_cu_kind kind, const tdict_cu_copy *lines, size_t count,
                              tdict_cu_stream s) {
  for (size_t i = 0; i < count; i++) watch_bytes(lines[i].bytes);
  return wrap_batch(d, kind, lines, count, s);
}
static tdict_cu watched_rect(tdict_driver *d, const tdict_cu_rect *rect, tdict_cu_stream s) {
  watch_bytes(rect->width * rect->height);
  return wrap_rect(d, rect, s);
}

static place open_watched(void) {
  place w = open_wrapped(td_options(tdict_context_options, staging_bytes = 32 << 20));
  wrap.ops.copy_h2d_async = watched_h2d;
  wrap.ops.copy_d2h_async = watched_d2h;
  wrap.ops.copy_d2d_async = watched_d2d;
  wrap.ops.copy_batch_async = watched_batch;
  wrap.ops.copy_rect_async = watched_rect;
  return w;
}
static void begin_watching(int64_t rate) {
  watched.rate = rate;
  atomic_store(&watched.bytes, 0);
  atomic_store(&watched.was_too_fast, false);
  atomic_store(&td_clock.is_virtual, true);
  watched.begin_ns = td_virtual_ns();
}
/* Checks that the rate was obeyed. Returns the virtual seconds since begin_watching(). */
static double end_watching(void) {
  const double seconds = (double)(td_virtual_ns() - watched.begin_ns) / 1e9;
  atomic_store(&td_clock.is_virtual, false);
  watched.rate = 0;
  assert_false(atomic_load(&watched.was_too_fast));
  return seconds;
}
/* Checks that the copy of `bytes` bytes took at least as long as the rate requires. There is no wait after the last
 * chunk. */
static void check_seconds(double seconds, size_t bytes) { assert_true(seconds >= ((double)bytes - CHUNK) / RATE); }

static tdict_tree *paced_move(const place *w, const tdict_tree *src, tdict_device to, way *v, bool is_paced) {
  v->o.max_bytes_per_second = is_paced ? RATE : 0;
  begin_watching(is_paced ? RATE : 1); /* every transfer exceeds a rate of 1 */
  tdict_tree *out = move_tree(w, src, to, v);
  if (!is_paced) assert_true(atomic_exchange(&watched.was_too_fast, false)); /* shows that the check can fail */
  const int64_t copied = atomic_load(&watched.bytes);
  const double seconds = end_watching();
  if (is_paced) check_seconds(seconds, (size_t)copied);
  check_tree(w, src, out);
  return out;
}

SIM_CASE(pace_holds_in_every_way) {
  scoped_place w = open_watched();
  for (int k = 0; k < 4; k++) {
    scoped_tree td = k == 0   ? bytes_tree("a", (3 << 20) + 77, NULL)
                     : k == 1 ? bytes_tree("a", (3 << 20) + 77, w.pinned)
                     : k == 2 ? strided_tree()
                              : mixed_tree(w.pinned);
    for (int i = sanitized_first(k); i < NUM_WAYS; i += WAYS_STEP) {
      way v = way_at(i);
      scoped_tree there = paced_move(&w, td, w.device, &v, true);
      scoped_tree back = paced_move(&w, there, tdict_cpu(), &v, true);
    }
    way v = way_at(8);
    scoped_tree fast = k < 2 ? paced_move(&w, td, w.device, &v, false) : NULL;
  }
}

/* Copies within the host obey the rate, too. */
CASE(pace_holds_on_the_host) {
  tdict_context *c = NULL;
  td_ok(tdict_context_create(td_options(tdict_context_options, device = tdict_cpu()), &c, err));
  scoped_tree src = bytes_tree("a", 3 << 20, NULL), dst = bytes_tree("a", 3 << 20, NULL);
  tdict_transfer_options o = td_with(tdict_transfer_options, max_bytes_per_second = RATE);
  for (int threads = 0; threads < 3; threads++) {
    o.num_threads = threads;
    begin_watching(RATE);
    td_ok(tdict_transfer_into(c, dst, src, &o, err));
    check_seconds(end_watching(), 3 << 20);
  }
  tdict_context_destroy(c);
}

/* Waits are no longer than the rate requires. After a pause, copies do not exceed the rate to catch up. */
CASE(pace_does_not_catch_up) {
  tdict_pace *pace = NULL;
  td_ok(tdict_pace_create(RATE, &pace, err));
  assert_int_equal(tdict_pace_max_bytes(pace), CHUNK);
  begin_watching(0);
  for (int i = 0; i < 5; i++) assert_true(tdict_pace_wait(pace, RATE, NULL));
  assert_true(td_virtual_ns() - watched.begin_ns >= INT64_C(4000000000));
  assert_true(atomic_load(&td_clock.ahead_ns) <= INT64_C(4000000000));
  const int64_t later = td_virtual_ns() + INT64_C(60000000000);
  td_virtual_reach(later);
  for (int i = 0; i < 3; i++) assert_true(tdict_pace_wait(pace, RATE, NULL));
  assert_true(td_virtual_ns() - later >= INT64_C(2000000000));
  (void)end_watching();
  tdict_pace_free(pace);
}

/* Cancelling a transfer wakes a thread that the rate limit has put to sleep. The clock is real here, so the transfer
 * would take a minute without the cancel. */
SIM_CASE(pace_ends_with_a_cancel) {
  scoped_place w = open_watched();
  for (int k = 0; k < 4; k++) {
    scoped_tree td = bytes_tree("x", 64 << 20, k % 2 ? w.pinned : NULL);
    tdict_transfer_options o =
        td_with(tdict_transfer_options, num_threads = k / 2 ? 3 : 1, max_bytes_per_second = RATE);
    atomic_store(&watched.bytes, 0);
    scoped_future f = move_async(&w, td, w.device, &o);
    while (!atomic_load(&watched.bytes)) sched_yield();
    tdict_future_cancel(f);
    td_fails(TDICT_ECANCELLED, "cancelled", tdict_future_wait(f, NULL, err));
    assert_true(atomic_load(&watched.bytes) < 64 << 20);
  }
}

/* With a low rate, a transfer uses one thread. Higher rates allow more threads. */
SIM_CASE(pace_leaves_threads_to_the_program) {
  scoped_place w = open_watched();
  scoped_tree td = bytes_tree("x", 8 << 20, NULL);
  const int64_t rates[] = {RATE, 0, INT64_MAX};
  for (int i = 0; i < 3; i++) {
    tdict_transfer_stats stats = tdict_transfer_stats_default();
    tdict_transfer_options o =
        td_with(tdict_transfer_options, num_threads = 4, stats = &stats, max_bytes_per_second = rates[i]);
    atomic_store(&td_clock.is_virtual, true);
    check_and_release(&w, td, move_with(&w, td, w.device, &o));
    atomic_store(&td_clock.is_virtual, false);
    assert_true(i ? stats.num_threads <= 4 : stats.num_threads == 1);
  }
  assert_int_equal(tdict_pace_num_threads(RATE), 1);
  assert_int_equal(tdict_pace_num_threads(INT64_C(5000000000)), 3);
  assert_int_equal(tdict_pace_num_threads(INT64_MAX), 16);
}

SIM_CASE(pace_is_checked) {
  scoped_place w = open_place();
  scoped_tree td = tiny_tree(NULL), out = NULL;
  tdict_transfer_options o = tdict_transfer_options_default();
  const int64_t wrong[] = {-1, INT64_MIN, 1, RATE - 1};
  for (int i = 0; i < 4; i++) {
    o.max_bytes_per_second = wrong[i];
    td_fails(TDICT_EINVAL, "max_bytes_per_second", tdict_to_device(w.c, td, w.device, &o, &out, err));
  }
  const int64_t right[] = {0, RATE, INT64_MAX};
  for (int i = 0; i < 3; i++) {
    o.max_bytes_per_second = right[i];
    check_and_release(&w, td, move_with(&w, td, w.device, &o));
  }
}
