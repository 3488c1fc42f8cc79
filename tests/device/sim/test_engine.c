/* Tests the engines of the simulated driver: hold, step and resume, which operations overlap, and how long they
 * take. */
#include "device/sim/table.h"
#include "support/threads.h"

enum { BYTES = 100000 };

static int64_t finished(tdict_driver *d) {
  tdict_driver_sim_count count;
  tdict_driver_sim_counts(d, 0, &count);
  return count.num_finished;
}

static void launch_note(tdict_cu_stream s, trace *t, trace_entry *e, int id) {
  *e = (trace_entry){.trace = t, .id = id};
  td_ok(tdict_sim_launch(public_stream(s), note, e, err));
}

CASE(sim_step_finishes_the_given_count) {
  scoped_table d = open_held();
  tdict_cu_stream a = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING), b = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  tdict_cu_event e = make_event(d);
  unsigned char *src = make_pinned(d, BYTES, 1), *back = make_pinned(d, BYTES, 0);
  void *dev = make_device(d, BYTES);
  trace t = {.count = 0};
  trace_entry entries[4];
  launch_note(a, &t, &entries[0], 0);
  CU(SUCCESS, copy_h2d_async, dev, src, BYTES, a);
  CU(SUCCESS, event_record, e, a);
  CU(SUCCESS, stream_wait_event, b, e);
  launch_note(b, &t, &entries[1], 1);
  CU(SUCCESS, copy_d2h_async, back, dev, BYTES, b);
  launch_note(a, &t, &entries[2], 2);
  td_rest();
  assert_int_equal(finished(d), 0);
  td_ok(tdict_driver_sim_step(d, 0, err));
  assert_int_equal(finished(d), 0);
  td_ok(tdict_driver_sim_step(d, 1, err));
  assert_int_equal(finished(d), 1);
  assert_int_equal(t.count, 1);
  CU(NOT_READY, event_query, e);
  td_ok(tdict_driver_sim_step(d, 1, err)); /* runs the copy; the event after it needs no step */
  CU(SUCCESS, event_query, e);
  assert_int_equal(finished(d), 2);
  td_ok(tdict_driver_sim_step(d, 2, err)); /* runs the function on b, then the copy, as called */
  assert_int_equal(t.count, 2);
  assert_int_equal(t.order[1], 1);
  assert_memory_equal(back, src, BYTES);
  CU(SUCCESS, stream_query, b);
  CU(NOT_READY, stream_query, a);
  td_ok(tdict_driver_sim_step(d, 100, err)); /* only one operation is left */
  assert_int_equal(finished(d), 5);
  CU(SUCCESS, stream_query, a);
  td_ok(tdict_driver_sim_step(d, 1, err));
  launch_note(a, &t, &entries[3], 3); /* unused steps are not kept for later work */
  td_rest();
  assert_int_equal(t.count, 3);
  tdict_driver_sim_resume(d);
  CU(SUCCESS, stream_synchronize, a);
  assert_int_equal(t.count, 4);
}

CASE(sim_steps_follow_the_order_of_calls) {
  scoped_table d = open_held();
  tdict_cu_stream a = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING), b = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  tdict_cu_event e = make_event(d);
  unsigned char *src = make_pinned(d, BYTES, 1);
  void *dev = make_device(d, BYTES);
  trace t = {.count = 0};
  trace_entry entries[2];
  CU(SUCCESS, copy_h2d_async, dev, src, BYTES, a);
  CU(SUCCESS, event_record, e, a);
  CU(SUCCESS, stream_wait_event, b, e);
  launch_note(b, &t, &entries[0], 0);
  launch_note(a, &t, &entries[1], 1);
  tdict_cu_stream c = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  trace_entry last;
  launch_note(c, &t, &last, 2); /* its stream is empty, so nothing delays it */
  td_rest();
  td_ok(tdict_driver_sim_step(d, 4, err));
  for (int i = 0; i < 3; i++) assert_int_equal(t.order[i], i);
}

CASE(sim_step_refuses) {
  scoped_table d = open_plain();
  td_fails(TDICT_EINVAL, "held", tdict_driver_sim_step(d, 1, err));
  tdict_driver_sim_hold(d);
  td_fails(TDICT_EINVAL, "-1", tdict_driver_sim_step(d, -1, err));
  td_ok(tdict_driver_sim_step(d, 1, err));
}

CASE(sim_hold_stops_copies) {
  enum { LARGE = 4 << 20, ROUNDS = 20, COPIES = 20 };
  scoped_table d = open_plain();
  tdict_cu_stream s = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  unsigned char *src = make_pinned(d, LARGE, 2), *back = make_pinned(d, LARGE, 0);
  scoped_bytes seen = make_pageable(LARGE, 0);
  void *dev = make_device(d, LARGE);
  int held_early = 0;
  for (int i = 0; i < ROUNDS; i++) {
    td_fill_random(src, LARGE, (uint64_t)i + 20);
    for (int n = 0; n < COPIES; n++) {
      CU(SUCCESS, fill_async, dev, (unsigned char)n, LARGE, s);
      CU(SUCCESS, copy_d2h_async, back, dev, LARGE, s);
    }
    CU(SUCCESS, copy_h2d_async, dev, src, LARGE, s);
    CU(SUCCESS, copy_d2h_async, back, dev, LARGE, s);
    usleep((useconds_t)(100 * i)); /* while copies run */
    tdict_driver_sim_hold(d);
    bool running = d->ops->stream_query(d, s) == TDICT_CU_NOT_READY;
    int64_t before = finished(d);
    memcpy(seen, back, LARGE);
    td_rest();
    assert_memory_equal(seen, back, LARGE);
    assert_int_equal(finished(d), before);
    held_early += running;
    tdict_driver_sim_resume(d);
    CU(SUCCESS, stream_synchronize, s);
    assert_memory_equal(back, src, LARGE);
  }
  assert_true(held_early > 0);
}

CASE(sim_hold_while_a_function_runs) {
  scoped_table d = open_plain();
  tdict_cu_stream s = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  gate g;
  block_stream(s, &g);
  while (!atomic_load(&g.entered)) usleep(100);
  tdict_driver_sim_hold(d); /* does not wait for the running function */
  open_gate(&g);
  while (!atomic_load(&g.left)) usleep(100);
  td_rest();
  CU(NOT_READY, stream_query, s);
  td_ok(tdict_driver_sim_step(d, 1, err));
  CU(SUCCESS, stream_query, s);
}

typedef struct waiter {
  tdict_driver *d;
  tdict_cu_stream s;
  atomic_int result; /* -1 until the call has returned */
} waiter;
static void *run_waiter(void *user) {
  waiter *w = user;
  atomic_store(&w->result, w->d->ops->stream_synchronize(w->d, w->s));
  return NULL;
}

CASE(sim_synchronize_waits_while_held) {
  scoped_table d = open_held();
  waiter w = {.d = d, .s = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING)};
  void *dev = make_device(d, BYTES);
  atomic_init(&w.result, -1);
  CU(SUCCESS, fill_async, dev, 1, BYTES, w.s);
  pthread_t thread = td_start(run_waiter, &w);
  td_rest();
  assert_int_equal(atomic_load(&w.result), -1);
  td_ok(tdict_driver_sim_step(d, 1, err));
  pthread_join(thread, NULL);
  assert_int_equal(atomic_load(&w.result), TDICT_CU_SUCCESS);
}

CASE(sim_close_finishes_what_is_held) {
  tdict_sim_options o = sim_options(true);
  tdict_driver *d = open_table(&o);
  tdict_cu_stream s = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  trace t = {.count = 0};
  trace_entry entries[3];
  for (int i = 0; i < 3; i++) launch_note(s, &t, &entries[i], i);
  assert_int_equal(t.count, 0);
  close_table(d);
  assert_int_equal(t.count, 3);
}

/* A busy machine can make one try slow, so one fast try out of many is enough. */
enum { TRIES = 50 };

/* Times one copy in each direction, on two streams at once. Returns nanoseconds. */
static int64_t time_both(tdict_driver *d, const tdict_cu_stream *s, unsigned char *const *host, void *const *dev) {
  int64_t begin = tdict_now_ns();
  CU(SUCCESS, copy_h2d_async, dev[0], host[0], BYTES, s[0]);
  CU(SUCCESS, copy_d2h_async, host[1], dev[1], BYTES, s[1]);
  CU(SUCCESS, stream_synchronize, s[0]);
  CU(SUCCESS, stream_synchronize, s[1]);
  return tdict_now_ns() - begin;
}

CASE(sim_directions_overlap) {
  enum { LATENCY_NS = 50000000 };
  tdict_sim_options o = sim_options(false);
  o.latency_ns = LATENCY_NS;
  scoped_table d = open_table(&o);
  tdict_cu_stream s[2] = {make_stream(d, TDICT_CU_STREAM_NON_BLOCKING), make_stream(d, TDICT_CU_STREAM_NON_BLOCKING)};
  unsigned char *host[2] = {make_pinned(d, BYTES, 1), make_pinned(d, BYTES, 2)};
  void *dev[2] = {make_device(d, BYTES), make_device(d, BYTES)};
  int64_t best = INT64_MAX;
  for (int i = 0; i < TRIES && best > LATENCY_NS * 8 / 5; i++) {
    int64_t ns = time_both(d, s, host, dev);
    if (ns < best) best = ns;
  }
  assert_true(best >= LATENCY_NS);
  assert_true(best <= (int64_t)LATENCY_NS * 8 / 5);
}

CASE(sim_rate_sets_the_time) {
  enum { LARGE = 4000000, PARTS = 100 };
  tdict_sim_options o = sim_options(false);
  o.h2d_bytes_per_second = 1e8; /* 40 ms */
  scoped_table d = open_table(&o);
  tdict_cu_stream s = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  unsigned char *src = make_pinned(d, LARGE, 3);
  void *dev = make_device(d, LARGE);
  int64_t best = INT64_MAX, other = INT64_MAX;
  for (int i = 0; i < TRIES && (best > 60000000 || other >= 40000000); i++) {
    int64_t begin = tdict_now_ns();
    for (size_t p = 0; p < PARTS; p++) {
      size_t at = p * (LARGE / PARTS);
      CU(SUCCESS, copy_h2d_async, (char *)dev + at, src + at, LARGE / PARTS, s);
    }
    CU(SUCCESS, stream_synchronize, s);
    int64_t ns = tdict_now_ns() - begin;
    assert_true(ns >= 40000000);
    if (ns < best) best = ns;
    begin = tdict_now_ns();
    CU_NOW(SUCCESS, copy_d2h_async, src, dev, LARGE); /* the rate of this direction is not limited */
    ns = tdict_now_ns() - begin;
    if (ns < other) other = ns;
  }
  assert_true(best <= 60000000);
  assert_true(other < 40000000);
}

/* An hour, much longer than a case may take. */
enum { HOUR_MS = 3600000 };
static tdict_sim_options virtual_options(bool held, int num_devices) {
  tdict_sim_options o = sim_options(held);
  o.virtual_time = true;
  o.num_devices = num_devices;
  o.latency_ns = INT64_C(1000000) * HOUR_MS;
  return o;
}
static void check_elapsed(tdict_driver *d, tdict_cu_event from, tdict_cu_event to, int wanted_ms) {
  float ms = -1;
  CU(SUCCESS, event_elapsed, &ms, from, to);
  assert_true(ms == (float)wanted_ms);
}
static tdict_cu_event record(tdict_driver *d, tdict_cu_stream s) {
  tdict_cu_event e = make_event(d);
  CU(SUCCESS, event_record, e, s);
  return e;
}

/* Simulates a latency but no rate. Each of the stream's three operations takes one virtual hour. */
CASE(sim_virtual_time_jumps) {
  tdict_sim_options o = virtual_options(false, 1);
  scoped_table d = open_table(&o);
  tdict_cu_stream s = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  unsigned char *src = make_pinned(d, BYTES, 5), *back = make_pinned(d, BYTES, 0);
  void *dev = make_device(d, BYTES);
  tdict_cu_event begin = record(d, s);
  CU(SUCCESS, fill_async, dev, 7, BYTES, s);
  CU(SUCCESS, copy_h2d_async, dev, src, BYTES, s);
  CU(SUCCESS, copy_d2h_async, back, dev, BYTES, s);
  tdict_cu_event end = record(d, s);
  CU(SUCCESS, stream_synchronize, s);
  check_elapsed(d, begin, end, 3 * HOUR_MS);
  assert_memory_equal(back, src, BYTES);
}

CASE(sim_times_add_up_in_a_stream) {
  tdict_sim_options o = virtual_options(true, 1);
  scoped_table d = open_table(&o);
  tdict_cu_stream s = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING), other = make_stream(d, 0);
  unsigned char *host = make_pinned(d, BYTES, 4);
  void *dev = make_device(d, BYTES);
  tdict_cu_event begin = record(d, s);
  for (int i = 0; i < 3; i++) { /* alternates the directions, so that both engines advance equally */
    CU(SUCCESS, copy_h2d_async, dev, host, BYTES, s);
    CU(SUCCESS, copy_d2h_async, host, dev, BYTES, s);
  }
  tdict_cu_event e = record(d, s);
  CU(SUCCESS, stream_wait_event, other, e);
  CU(SUCCESS, fill_async, dev, 1, BYTES, other);
  tdict_cu_event end = record(d, other);
  tdict_driver_sim_resume(d);
  CU(SUCCESS, stream_synchronize, other);
  check_elapsed(d, begin, end, 7 * HOUR_MS);
}

static void launch_on(int device, tdict_cu_stream s, trace_entry *e) {
  td_ok(tdict_sim_launch((tdict_stream){tdict_sim(device), s}, note, e, err));
}

/* The engines of two devices get work in one order, and finish it in another. */
CASE(sim_virtual_work_ends_in_the_order_of_its_times) {
  enum { ROUNDS = 20, RATE = 100, SLOW_S = 1000, QUICK_S = 400 };
  tdict_sim_options o = virtual_options(true, 2);
  o.latency_ns = INT64_C(1000000000);
  o.h2d_bytes_per_second = o.d2h_bytes_per_second = RATE;
  scoped_table d = open_table(&o);
  tdict_cu_stream s[4] = {make_stream(d, TDICT_CU_STREAM_NON_BLOCKING), make_stream(d, TDICT_CU_STREAM_NON_BLOCKING)};
  unsigned char *host = make_pinned(d, BYTES, 6), *out = make_pinned(d, BYTES, 0);
  void *dev = make_device(d, BYTES), *dev_out = make_device(d, BYTES), *far;
  tdict_cu_context second, popped;
  CU(SUCCESS, ctx_retain, 1, &second);
  CU(SUCCESS, ctx_push, second);
  far = make_device(d, BYTES);
  for (int i = 2; i < 4; i++) s[i] = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  CU(SUCCESS, ctx_pop, &popped);
  for (int n = 0; n < ROUNDS; n++) {
    trace t = {.count = 0};
    trace_entry e[4] = {{&t, 0}, {&t, 1}, {&t, 2}, {&t, 3}};
    tdict_cu_event begin = record(d, s[0]);
    CU(SUCCESS, copy_h2d_async, dev, host, SLOW_S * RATE, s[0]); /* completes at 1001 s of virtual time */
    launch_on(0, s[0], &e[3]);
    CU(SUCCESS, ctx_push, second);
    CU(SUCCESS, copy_h2d_async, far, host, (SLOW_S - 200) * RATE, s[2]); /* 801 s */
    CU(SUCCESS, ctx_pop, &popped);
    launch_on(1, s[2], &e[2]);
    CU(SUCCESS, copy_d2h_async, out, dev_out, QUICK_S * RATE, s[1]); /* 401 s */
    launch_on(0, s[1], &e[1]);
    launch_on(1, s[3], &e[0]); /* 1 s */
    tdict_cu_event end = record(d, s[0]), end_quick = record(d, s[1]);
    tdict_driver_sim_resume(d);
    for (int i = 0; i < 4; i++) CU(SUCCESS, stream_synchronize, s[i]);
    for (int i = 0; i < 4; i++) assert_int_equal(t.order[i], i);
    check_elapsed(d, begin, end, (SLOW_S + 2) * 1000);
    check_elapsed(d, begin, end_quick, (QUICK_S + 2) * 1000);
    tdict_driver_sim_hold(d);
  }
  tdict_driver_sim_resume(d);
  CU(SUCCESS, ctx_release, 1);
}

CASE(sim_virtual_time_stands_while_held) {
  tdict_sim_options o = virtual_options(true, 1);
  scoped_table d = open_table(&o);
  tdict_cu_stream s = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  void *dev = make_device(d, BYTES);
  tdict_cu_event events[4];
  for (int i = 0; i < 4; i++) {
    events[i] = record(d, s);
    if (i < 3) CU(SUCCESS, fill_async, dev, (unsigned char)i, BYTES, s);
  }
  td_rest();
  assert_int_equal(finished(d), 0);
  td_ok(tdict_driver_sim_step(d, 1, err)); /* a step takes no simulated time */
  td_rest();
  assert_int_equal(finished(d), 1);
  check_elapsed(d, events[0], events[1], 0);
  tdict_driver_sim_resume(d);
  CU(SUCCESS, stream_synchronize, s);
  check_elapsed(d, events[1], events[2], HOUR_MS);
  check_elapsed(d, events[1], events[3], 2 * HOUR_MS);
}

/* Queries the stream `times` times. The work on the stream must not be complete. */
static void query(tdict_driver *d, tdict_cu_stream s, int times) {
  for (int i = 0; i < times; i++) CU(NOT_READY, stream_query, s);
}

/* The function begins at 1 ms and runs until the gate opens. The copy completes at 2 ms. No thread waits, so only
 * queries advance the clock, but not while the function runs or the device is held. */
CASE(sim_virtual_time_waits_for_functions) {
  enum { QUERIES_PER_MS = 1000 };
  tdict_sim_options o = virtual_options(true, 1);
  o.latency_ns = 1000000;
  o.h2d_bytes_per_second = BYTES * 1e3;
  scoped_table d = open_table(&o);
  tdict_cu_stream a = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING), b = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  unsigned char *src = make_pinned(d, BYTES, 7);
  void *dev = make_device(d, BYTES);
  gate g;
  tdict_cu_event begin = record(d, a);
  block_stream(a, &g);
  CU(SUCCESS, copy_h2d_async, dev, src, BYTES, b);
  tdict_cu_event end = record(d, b);
  tdict_driver_sim_resume(d);
  while (!atomic_load(&g.entered)) CU(NOT_READY, stream_query, a);
  query(d, b, 5 * QUERIES_PER_MS);
  tdict_driver_sim_hold(d);
  open_gate(&g);
  while (!atomic_load(&g.left)) usleep(100);
  td_ok(tdict_driver_sim_step(d, 1, err)); /* the function has returned, so now the hold stops the clock */
  td_rest();
  query(d, b, 5 * QUERIES_PER_MS);
  tdict_cu_event held = record(d, a);
  check_elapsed(d, begin, held, 1);
  tdict_driver_sim_resume(d);
  CU(SUCCESS, stream_synchronize, b);
  check_elapsed(d, begin, end, 2);
}

/* If no thread waits and none makes a query, no work completes. */
CASE(sim_virtual_time_waits_for_the_program) {
  tdict_sim_options o = virtual_options(false, 2);
  scoped_table d = open_table(&o);
  tdict_cu_stream s = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  void *dev = make_device(d, BYTES);
  for (int i = 0; i < 3; i++) CU(SUCCESS, fill_async, dev, (unsigned char)i, BYTES, s);
  td_rest();
  assert_int_equal(finished(d), 0);
  CU(SUCCESS, stream_synchronize, s);
  assert_int_equal(finished(d), 3);
}

CASE(sim_small_copies_are_quick) {
  enum { COPIES = 1000 };
  scoped_table d = open_plain();
  tdict_cu_stream s = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  unsigned char *src = make_pinned(d, COPIES * 4000, 4), *back = make_pageable(COPIES * 4000, 0);
  void *dev = make_device(d, COPIES * 4000);
  int64_t best = INT64_MAX;
  for (int n = 0; n < TRIES && best > 1000000000; n++) {
    int64_t begin = tdict_now_ns();
    for (size_t i = 0; i < COPIES; i++) CU(SUCCESS, copy_h2d_async, (char *)dev + i * 4000, src + i * 4000, 4000, s);
    CU(SUCCESS, stream_synchronize, s);
    int64_t ns = tdict_now_ns() - begin;
    if (ns < best) best = ns;
  }
  assert_true(best <= 1000000000);
  CU_NOW(SUCCESS, copy_d2h_async, back, dev, COPIES * 4000);
  assert_memory_equal(back, src, COPIES * 4000);
  free(back);
}
