/* Tests streams, events and the order of work on the simulated driver through the driver's table. */
#include "device/sim/table.h"
#include "support/threads.h"

enum { BYTES = 100000 };

CASE(sim_unfinished_destination_holds_old_bytes) {
  scoped_table d = open_plain();
  tdict_cu_stream s = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  unsigned char *old = make_pinned(d, BYTES, 1), *new = make_pinned(d, BYTES, 2), *back = make_pinned(d, BYTES, 0);
  void *dev = make_device(d, BYTES);
  CU_NOW(SUCCESS, copy_h2d_async, dev, old, BYTES);
  tdict_driver_sim_hold(d);
  CU(SUCCESS, copy_h2d_async, dev, new, BYTES, s);
  CU(SUCCESS, copy_d2h_async, back, dev, BYTES, s);
  td_rest();
  CU(NOT_READY, stream_query, s);
  assert_memory_equal(tdict_sim_host_pointer(public_stream(s), dev), old, BYTES);
  assert_true(td_all_bytes(back, BYTES, 0xA5));
  td_ok(tdict_driver_sim_step(d, 1, err));
  assert_memory_equal(tdict_sim_host_pointer(public_stream(s), dev), new, BYTES);
  td_rest();
  assert_true(td_all_bytes(back, BYTES, 0xA5));
  tdict_driver_sim_resume(d);
  CU(SUCCESS, stream_synchronize, s);
  assert_memory_equal(back, new, BYTES);
}

CASE(sim_running_copy_has_not_written_yet) {
  tdict_sim_options o = sim_options(false);
  o.latency_ns = INT64_C(600) * 1000000000; /* 600 s, so the copy cannot complete by itself; a step skips the latency */
  scoped_table d = open_table(&o);
  tdict_cu_stream s = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  unsigned char *back = make_pinned(d, BYTES, 0);
  void *dev = make_device(d, BYTES);
  CU(SUCCESS, copy_d2h_async, back, dev, BYTES, s);
  td_rest();
  bool old = td_all_bytes(back, BYTES, 0xA5);
  CU(NOT_READY, stream_query, s);
  assert_true(old);
  tdict_driver_sim_hold(d);
  td_ok(tdict_driver_sim_step(d, 1, err));
  CU(SUCCESS, stream_synchronize, s);
  assert_false(td_all_bytes(back, BYTES, 0xA5));
}

CASE(sim_source_changed_before_its_copy_shows) {
  scoped_table d = open_held();
  tdict_cu_stream s = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  unsigned char *src = make_pinned(d, BYTES, 3);
  scoped_bytes changed = make_pageable(BYTES, 4), back = make_pageable(BYTES, 0);
  void *dev = make_device(d, BYTES);
  CU(SUCCESS, copy_h2d_async, dev, src, BYTES, s);
  td_rest();
  memcpy(src, changed, BYTES);
  tdict_driver_sim_resume(d);
  CU(SUCCESS, stream_synchronize, s);
  CU_NOW(SUCCESS, copy_d2h_async, back, dev, BYTES);
  assert_memory_equal(back, changed, BYTES);
}

CASE(sim_pageable_source_is_read_inside_the_call) {
  scoped_table d = open_held();
  tdict_cu_stream s = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  unsigned char *src = make_pageable(BYTES, 5);
  scoped_bytes kept = make_pageable(BYTES, 5), back = make_pageable(BYTES, 0);
  void *dev = make_device(d, BYTES);
  CU(SUCCESS, copy_h2d_async, dev, src, BYTES, s);
  memset(src, 0xA5, BYTES);
  free(src);
  CU(NOT_READY, stream_query, s);
  tdict_driver_sim_resume(d);
  CU(SUCCESS, stream_synchronize, s);
  CU_NOW(SUCCESS, copy_d2h_async, back, dev, BYTES);
  assert_memory_equal(back, kept, BYTES);
}

CASE(sim_unrecorded_event_does_not_wait) {
  scoped_table d = open_plain();
  tdict_cu_stream a = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING), b = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  tdict_cu_event e = make_event(d);
  unsigned char *src = make_pinned(d, BYTES, 6), *back = make_pinned(d, BYTES, 0);
  void *dev = make_device(d, BYTES);
  gate g;
  CU_NOW(SUCCESS, copy_h2d_async, dev, src, BYTES);
  CU(SUCCESS, event_query, e);
  CU(SUCCESS, event_synchronize, e);
  block_stream(a, &g);
  CU(SUCCESS, stream_wait_event, b, e);
  CU(SUCCESS, event_record, e, a); /* b does not wait for this later record */
  CU(SUCCESS, copy_d2h_async, back, dev, BYTES, b);
  CU(SUCCESS, stream_synchronize, b);
  assert_memory_equal(back, src, BYTES);
  CU(NOT_READY, event_query, e);
  CU(NOT_READY, stream_query, a);
  open_gate(&g);
  CU(SUCCESS, event_synchronize, e);
  CU(SUCCESS, stream_query, a);
}

CASE(sim_recorded_event_orders_two_streams) {
  scoped_table d = open_plain();
  tdict_cu_stream a = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING), b = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  tdict_cu_stream c = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  tdict_cu_event e = make_event(d);
  unsigned char *src = make_pinned(d, BYTES, 7), *back = make_pinned(d, BYTES, 0), *other = make_pinned(d, BYTES, 0);
  void *dev = make_device(d, BYTES);
  gate g;
  CU_NOW(SUCCESS, copy_h2d_async, dev, src, BYTES);
  block_stream(a, &g);
  CU(SUCCESS, event_record, e, a);
  CU(SUCCESS, stream_wait_event, b, e);
  CU(SUCCESS, copy_d2h_async, back, dev, BYTES, b);
  CU(SUCCESS, copy_d2h_async, other, dev, BYTES, c); /* waits for nothing */
  CU(SUCCESS, stream_synchronize, c);
  assert_memory_equal(other, src, BYTES);
  td_rest();
  CU(NOT_READY, stream_query, b);
  assert_true(td_all_bytes(back, BYTES, 0xA5));
  open_gate(&g);
  CU(SUCCESS, stream_synchronize, b);
  assert_memory_equal(back, src, BYTES);
}

CASE(sim_wait_takes_the_latest_record_at_its_call) {
  scoped_table d = open_plain();
  tdict_cu_stream a = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING), b = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  tdict_cu_event e = make_event(d);
  gate first, second;
  block_stream(a, &first);
  CU(SUCCESS, event_record, e, a);
  CU(SUCCESS, stream_wait_event, b, e);
  block_stream(a, &second);
  CU(SUCCESS, event_record, e, a); /* b still waits for the first record */
  open_gate(&first);
  CU(SUCCESS, stream_synchronize, b);
  CU(NOT_READY, event_query, e);
  CU(SUCCESS, stream_wait_event, b, e);
  td_rest();
  CU(NOT_READY, stream_query, b);
  open_gate(&second);
  CU(SUCCESS, stream_synchronize, b);
  CU(SUCCESS, event_query, e);
}

/* Checks that a copy on `s` waits for the stream `blocked` or, if `wanted` is false, that it does not wait. */
static void check_waits(tdict_driver *d, tdict_cu_stream blocked, tdict_cu_stream s, bool wanted) {
  unsigned char *src = make_pinned(d, BYTES, 8), *back = make_pinned(d, BYTES, 0);
  void *dev = make_device(d, BYTES);
  gate g;
  CU_NOW(SUCCESS, copy_h2d_async, dev, src, BYTES);
  block_stream(blocked, &g);
  CU(SUCCESS, copy_d2h_async, back, dev, BYTES, s);
  if (wanted) {
    td_rest();
    CU(NOT_READY, stream_query, s);
    assert_true(td_all_bytes(back, BYTES, 0xA5));
    open_gate(&g);
  }
  CU(SUCCESS, stream_synchronize, s);
  assert_memory_equal(back, src, BYTES);
  open_gate(&g);
  CU(SUCCESS, stream_synchronize, blocked);
  CU(SUCCESS, mem_free, dev);
  CU(SUCCESS, host_free, src, BYTES);
  CU(SUCCESS, host_free, back, BYTES);
}

CASE(sim_legacy_stream_orders_blocking_streams_only) {
  scoped_table d = open_plain();
  tdict_cu_stream legacy = (tdict_cu_stream)(uintptr_t)1, per_thread = (tdict_cu_stream)(uintptr_t)2;
  tdict_cu_stream blocking = make_stream(d, TDICT_CU_STREAM_DEFAULT), other = make_stream(d, TDICT_CU_STREAM_DEFAULT);
  tdict_cu_stream loose = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  check_waits(d, blocking, NULL, true);
  check_waits(d, blocking, legacy, true);
  check_waits(d, blocking, per_thread, false);
  check_waits(d, blocking, other, false);
  check_waits(d, loose, other, false);
  check_waits(d, loose, NULL, false);
}

CASE(sim_blocking_streams_wait_for_the_legacy_stream) {
  scoped_table d = open_plain();
  tdict_cu_stream first = make_stream(d, TDICT_CU_STREAM_DEFAULT), second = make_stream(d, TDICT_CU_STREAM_DEFAULT);
  tdict_cu_stream loose = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  unsigned char *src = make_pinned(d, BYTES, 9), *back[3];
  void *dev = make_device(d, BYTES);
  gate g;
  CU_NOW(SUCCESS, copy_h2d_async, dev, src, BYTES);
  for (int i = 0; i < 3; i++) back[i] = make_pinned(d, BYTES, 0);
  block_stream(first, &g);
  CU(SUCCESS, copy_d2h_async, back[0], dev, BYTES, NULL);   /* the legacy stream waits for `first` */
  CU(SUCCESS, copy_d2h_async, back[1], dev, BYTES, second); /* waits for the legacy stream */
  CU(SUCCESS, copy_d2h_async, back[2], dev, BYTES, loose);
  CU(SUCCESS, stream_synchronize, loose);
  assert_memory_equal(back[2], src, BYTES);
  td_rest();
  assert_true(td_all_bytes(back[0], BYTES, 0xA5) && td_all_bytes(back[1], BYTES, 0xA5));
  CU(NOT_READY, stream_query, second);
  open_gate(&g);
  CU(SUCCESS, stream_synchronize, second);
  assert_memory_equal(back[0], src, BYTES);
  assert_memory_equal(back[1], src, BYTES);
}

CASE(sim_legacy_stream_covers_blocking_streams) {
  scoped_table d = open_plain();
  tdict_cu_stream blocking = make_stream(d, TDICT_CU_STREAM_DEFAULT);
  tdict_cu_stream loose = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  gate g;
  block_stream(blocking, &g);
  CU(NOT_READY, stream_query, NULL);
  open_gate(&g);
  CU(SUCCESS, stream_synchronize, NULL);
  CU(SUCCESS, stream_query, blocking);
  block_stream(loose, &g);
  CU(SUCCESS, stream_query, NULL);
  CU(SUCCESS, stream_synchronize, NULL);
  open_gate(&g);
  CU(SUCCESS, stream_synchronize, loose);
}

CASE(sim_stream_is_first_in_first_out) {
  scoped_table d = open_plain();
  tdict_cu_stream s = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  unsigned char *a = make_pinned(d, BYTES, 10), *b = make_pinned(d, BYTES, 11), *back = make_pinned(d, 2 * BYTES, 0);
  void *dev = make_device(d, BYTES);
  for (int i = 0; i < 50; i++) { /* each copy overwrites bytes that the previous copy reads */
    CU(SUCCESS, copy_h2d_async, dev, i % 2 ? a : b, BYTES, s);
    CU(SUCCESS, copy_d2h_async, back, dev, BYTES, s);
    CU(SUCCESS, fill_async, dev, (unsigned char)i, BYTES, s);
    CU(SUCCESS, copy_d2h_async, back + BYTES, dev, BYTES, s);
    if (i % 10 != 9) continue;
    CU(SUCCESS, stream_synchronize, s);
    assert_memory_equal(back, i % 2 ? a : b, BYTES);
    assert_true(td_all_bytes(back + BYTES, BYTES, (unsigned char)i));
  }
}

CASE(sim_events_report_state_and_time) {
  tdict_sim_options o = sim_options(false);
  o.latency_ns = 20000000;
  o.virtual_time = true;
  scoped_table d = open_table(&o);
  tdict_cu_stream s = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  tdict_cu_event from = make_event(d), to = make_event(d), untimed = NULL;
  void *dev = make_device(d, 16);
  float ms = -1;
  CU(SUCCESS, event_create, &untimed, TDICT_CU_EVENT_DISABLE_TIMING);
  CU(INVALID_HANDLE, event_elapsed, &ms, from, to);
  CU(SUCCESS, event_record, from, s);
  tdict_driver_sim_hold(d); /* otherwise the fill could complete before the query */
  CU(SUCCESS, fill_async, dev, 1, 16, s);
  CU(SUCCESS, event_record, to, s);
  CU(SUCCESS, event_record, untimed, s);
  CU(NOT_READY, event_elapsed, &ms, from, to);
  CU(SUCCESS, event_query, from);
  CU(NOT_READY, event_query, to);
  tdict_driver_sim_resume(d);
  CU(SUCCESS, event_synchronize, to);
  CU(SUCCESS, event_elapsed, &ms, from, to);
  assert_true(ms == 20.0f);
  CU(INVALID_HANDLE, event_elapsed, &ms, from, untimed);
  CU(INVALID_HANDLE, event_query, (tdict_cu_event)(void *)s);
  CU(INVALID_HANDLE, event_record, NULL, s);
  CU(INVALID_VALUE, event_create, &untimed, 64u);
}

CASE(sim_destroyed_stream_and_event_finish_their_work) {
  scoped_table d = open_held();
  tdict_cu_stream a = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING), b = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  tdict_cu_event e = make_event(d);
  unsigned char *src = make_pinned(d, BYTES, 12), *back = make_pinned(d, BYTES, 0);
  void *dev = make_device(d, BYTES);
  tdict_driver_sim_count count;
  CU(SUCCESS, copy_h2d_async, dev, src, BYTES, a);
  CU(SUCCESS, event_record, e, a);
  CU(SUCCESS, stream_wait_event, b, e);
  CU(SUCCESS, copy_d2h_async, back, dev, BYTES, b);
  CU(SUCCESS, event_destroy, e);
  CU(SUCCESS, stream_destroy, a);
  tdict_driver_sim_counts(d, 0, &count);
  assert_int_equal(count.num_streams, 1);
  assert_int_equal(count.num_events, 0);
  assert_int_equal(count.num_pending, 2);
  tdict_driver_sim_resume(d);
  CU(SUCCESS, stream_synchronize, b);
  assert_memory_equal(back, src, BYTES);
  tdict_driver_sim_counts(d, 0, &count);
  assert_int_equal(count.num_pending, 0);
  assert_int_equal(count.num_finished, 2);
  CU(SUCCESS, stream_destroy, b);
  CU(INVALID_HANDLE, stream_destroy, NULL);
}

typedef struct worker {
  tdict_driver *d;
  tdict_cu_context context;
  uint64_t seed;
  atomic_int *failures;
} worker;

/* Repeatedly copies to the device and back on two streams, whose work is ordered by an event. */
static void *run_worker(void *user) {
  worker *w = user;
  tdict_driver *d = w->d;
  const tdict_driver_ops *t = d->ops;
  enum { N = 5000, ROUNDS = 60 };
  int bad = t->ctx_push(d, w->context) != 0;
  tdict_cu_stream in = NULL, out = NULL;
  tdict_cu_event e = NULL;
  void *src = NULL, *back = NULL, *dev = NULL;
  bad += t->stream_create(d, &in, TDICT_CU_STREAM_NON_BLOCKING) != 0;
  bad += t->stream_create(d, &out, w->seed % 2 ? TDICT_CU_STREAM_DEFAULT : TDICT_CU_STREAM_NON_BLOCKING) != 0;
  bad += t->event_create(d, &e, TDICT_CU_EVENT_DISABLE_TIMING) != 0;
  bad += t->host_alloc(d, &src, N, 0) != 0;
  bad += t->host_alloc(d, &back, N, 0) != 0;
  for (uint64_t i = 0; i < ROUNDS && !bad; i++) {
    td_fill_random(src, N, w->seed * 1000 + i);
    memset(back, 0xA5, N);
    bad += t->mem_alloc(d, &dev, N) != 0;
    bad += t->copy_h2d_async(d, dev, src, N, in) != 0;
    bad += t->event_record(d, e, in) != 0;
    bad += t->stream_wait_event(d, out, e) != 0;
    bad += t->copy_d2h_async(d, back, dev, N, out) != 0;
    bad += t->event_record(d, e, out) != 0;
    bad += (i % 2 ? t->event_synchronize(d, e) : t->stream_synchronize(d, out)) != 0;
    bad += memcmp(src, back, N) != 0;
    bad += t->mem_free(d, dev) != 0;
  }
  bad += t->host_free(d, src, N) != 0;
  bad += t->host_free(d, back, N) != 0;
  bad += t->event_destroy(d, e) != 0;
  bad += t->stream_destroy(d, in) != 0;
  bad += t->stream_destroy(d, out) != 0;
  bad += t->ctx_pop(d, NULL) != 0;
  atomic_fetch_add(w->failures, bad);
  return NULL;
}

CASE(sim_threads_share_the_driver) {
  enum { NUM = 6 };
  scoped_table d = open_plain();
  pthread_t threads[NUM];
  worker workers[NUM];
  atomic_int failures;
  tdict_driver_sim_count count;
  atomic_init(&failures, 0);
  for (int i = 0; i < NUM; i++) {
    workers[i] = (worker){.d = d, .seed = (uint64_t)i + 1, .failures = &failures};
    CU(SUCCESS, ctx_current, &workers[i].context);
    threads[i] = td_start(run_worker, &workers[i]);
  }
  for (int i = 0; i < NUM; i++) pthread_join(threads[i], NULL);
  assert_int_equal(atomic_load(&failures), 0);
  tdict_driver_sim_counts(d, 0, &count);
  assert_int_equal(count.num_streams + count.num_events + count.num_allocations + count.num_pending, 0);
  assert_int_equal(count.pinned_bytes + count.device_bytes, 0);
}
