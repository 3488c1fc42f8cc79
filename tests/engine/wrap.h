/* A simulated or CUDA driver whose calls are counted and can be made to fail. There is one such driver at a time, which
 * its context owns. Thread rule: set up on the main thread while no transfer runs; counts and failures are atomic. */
#ifndef TDICT_TESTS_ENGINE_WRAP_H
#define TDICT_TESTS_ENGINE_WRAP_H

#include "context.h"
#include "device/sim/driver.h"
#include "help.h"

typedef enum call_kind {
  CALL_COPY,
  CALL_RECORD,
  CALL_ALLOC,
  CALL_SYNC,  /* event_synchronize */
  CALL_QUERY, /* event_query */
  CALL_STREAM_SYNC,
  CALL_STREAM, /* stream_create */
  CALL_EVENT,  /* event_create */
  CALL_WAIT,   /* stream_wait_event */
  CALL_PIN,    /* host_alloc and host_register */
  NUM_CALL_KINDS
} call_kind;

static struct wrap {
  tdict_driver *driver;
  const tdict_driver_ops *real;
  tdict_driver_ops ops;
  _Atomic(int64_t) calls[NUM_CALL_KINDS];
  _Atomic(int64_t) fail_after[NUM_CALL_KINDS]; /* the call that lowers it from 1 fails; 0: none fails; -1: all fail */
  _Atomic(int64_t) pinned, peak_pinned;        /* bytes allocated and registered, minus bytes freed */
  _Atomic(int64_t) copied_bytes;
  _Atomic(int64_t) beside; /* all copies of batches except the first copy of each batch */
} wrap;

/* Counts a call. Returns true if the call must fail. */
static inline bool wrap_call(call_kind kind) {
  atomic_fetch_add(&wrap.calls[kind], 1);
  int64_t left = atomic_load(&wrap.fail_after[kind]);
  if (left < 0) return true;
  while (left > 0)
    if (atomic_compare_exchange_weak(&wrap.fail_after[kind], &left, left - 1)) return left == 1;
  return false;
}
static inline tdict_cu wrap_pinned(tdict_cu result, int64_t bytes) {
  if (result != TDICT_CU_SUCCESS) return result;
  int64_t now = atomic_fetch_add(&wrap.pinned, bytes) + bytes, peak = atomic_load(&wrap.peak_pinned);
  while (now > peak && !atomic_compare_exchange_weak(&wrap.peak_pinned, &peak, now)) {}
  return result;
}

static inline int64_t num_copies(void) { return atomic_load(&wrap.calls[CALL_COPY]) + atomic_load(&wrap.beside); }

#define WRAP_CALL(kind, call) (wrap_call(kind) ? TDICT_CU_UNKNOWN : (call))
static inline tdict_cu wrap_host_alloc(tdict_driver *d, void **out, size_t bytes, unsigned flags) {
  return wrap_pinned(WRAP_CALL(CALL_PIN, wrap.real->host_alloc(d, out, bytes, flags)), (int64_t)bytes);
}
static inline tdict_cu wrap_host_free(tdict_driver *d, void *host, size_t bytes) {
  return wrap_pinned(wrap.real->host_free(d, host, bytes), -(int64_t)bytes);
}
static inline tdict_cu wrap_host_register(tdict_driver *d, void *host, size_t bytes, unsigned flags) {
  return wrap_pinned(WRAP_CALL(CALL_PIN, wrap.real->host_register(d, host, bytes, flags)), (int64_t)bytes);
}
static inline tdict_cu wrap_host_unregister(tdict_driver *d, void *host, size_t bytes) {
  return wrap_pinned(wrap.real->host_unregister(d, host, bytes), -(int64_t)bytes);
}
static inline tdict_cu wrap_h2d(tdict_driver *d, void *dst, const void *src, size_t bytes, tdict_cu_stream s) {
  atomic_fetch_add(&wrap.copied_bytes, (int64_t)bytes);
  return WRAP_CALL(CALL_COPY, wrap.real->copy_h2d_async(d, dst, src, bytes, s));
}
static inline tdict_cu wrap_d2h(tdict_driver *d, void *dst, const void *src, size_t bytes, tdict_cu_stream s) {
  return WRAP_CALL(CALL_COPY, wrap.real->copy_d2h_async(d, dst, src, bytes, s));
}
static inline tdict_cu wrap_batch(tdict_driver *d, tdict_cu_kind kind, const tdict_cu_copy *lines, size_t count,
                                  tdict_cu_stream s) {
  for (size_t i = 0; i < count && kind == TDICT_CU_H2D; i++)
    atomic_fetch_add(&wrap.copied_bytes, (int64_t)lines[i].bytes);
  atomic_fetch_add(&wrap.beside, (int64_t)count - 1);
  return WRAP_CALL(CALL_COPY, wrap.real->copy_batch_async(d, kind, lines, count, s));
}
static inline tdict_cu wrap_d2d(tdict_driver *d, void *dst, const void *src, size_t bytes, tdict_cu_stream s) {
  return WRAP_CALL(CALL_COPY, wrap.real->copy_d2d_async(d, dst, src, bytes, s));
}
static inline tdict_cu wrap_rect(tdict_driver *d, const tdict_cu_rect *rect, tdict_cu_stream s) {
  return WRAP_CALL(CALL_COPY, wrap.real->copy_rect_async(d, rect, s));
}
static inline tdict_cu wrap_alloc(tdict_driver *d, void **out, size_t bytes, tdict_cu_pool pool, tdict_cu_stream s) {
  return WRAP_CALL(CALL_ALLOC, wrap.real->mem_alloc_async(d, out, bytes, pool, s));
}
static inline tdict_cu wrap_record(tdict_driver *d, tdict_cu_event e, tdict_cu_stream s) {
  return WRAP_CALL(CALL_RECORD, wrap.real->event_record(d, e, s));
}
static inline tdict_cu wrap_sync(tdict_driver *d, tdict_cu_event e) {
  return WRAP_CALL(CALL_SYNC, wrap.real->event_synchronize(d, e));
}
static inline tdict_cu wrap_query(tdict_driver *d, tdict_cu_event e) {
  return WRAP_CALL(CALL_QUERY, wrap.real->event_query(d, e));
}
static inline tdict_cu wrap_stream_sync(tdict_driver *d, tdict_cu_stream s) {
  return WRAP_CALL(CALL_STREAM_SYNC, wrap.real->stream_synchronize(d, s));
}
static inline tdict_cu wrap_stream(tdict_driver *d, tdict_cu_stream *out, unsigned flags) {
  return WRAP_CALL(CALL_STREAM, wrap.real->stream_create(d, out, flags));
}
static inline tdict_cu wrap_event(tdict_driver *d, tdict_cu_event *out, unsigned flags) {
  return WRAP_CALL(CALL_EVENT, wrap.real->event_create(d, out, flags));
}
static inline tdict_cu wrap_wait(tdict_driver *d, tdict_cu_stream s, tdict_cu_event e) {
  return WRAP_CALL(CALL_WAIT, wrap.real->stream_wait_event(d, s, e));
}

static inline tdict_driver *open_driver(const tdict_sim_options *sim) {
  tdict_driver *d = NULL;
  if (td_device().type == TDICT_DEVICE_SIM) {
    td_ok(tdict_driver_sim_open(sim, &d, err));
    return d;
  }
#if TDICT_CUDA
  tdict_error why;
  if (tdict_driver_cuda_open(&d, &why) == TDICT_OK) return d;
  td_skip(why.message);
#else
  td_skip("built without CUDA");
#endif
}

/* Opens a place over the wrapped driver, and sets its counts to 0. `options` may be NULL. */
static inline place open_wrapped(const tdict_context_options *options) {
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options o = td_with(tdict_context_options, staging_bytes = STAGING);
  if (options) o = *options;
  if (o.sim) sim = *o.sim;
  o.device = td_device();
  memset(&wrap, 0, sizeof wrap);
  wrap.driver = open_driver(&sim);
  wrap.real = wrap.driver->ops;
  wrap.ops = *wrap.real;
  wrap.ops.host_alloc = wrap_host_alloc;
  wrap.ops.host_free = wrap_host_free;
  wrap.ops.host_register = wrap_host_register;
  wrap.ops.host_unregister = wrap_host_unregister;
  wrap.ops.copy_h2d_async = wrap_h2d;
  wrap.ops.copy_d2h_async = wrap_d2h;
  wrap.ops.copy_d2d_async = wrap_d2d;
  wrap.ops.copy_batch_async = wrap_batch;
  wrap.ops.copy_rect_async = wrap_rect;
  wrap.ops.mem_alloc_async = wrap_alloc;
  wrap.ops.event_record = wrap_record;
  wrap.ops.event_synchronize = wrap_sync;
  wrap.ops.event_query = wrap_query;
  wrap.ops.stream_synchronize = wrap_stream_sync;
  wrap.ops.stream_create = wrap_stream;
  wrap.ops.event_create = wrap_event;
  wrap.ops.stream_wait_event = wrap_wait;
  wrap.driver->ops = &wrap.ops;
  tdict_context *c = td_made(context, tdict_context_create_over(&o, wrap.driver, &made, err));
  tdict_driver_release(wrap.driver); /* now owned by the context */
  return place_around(c);
}
/* Makes the n-th call of the kind from now on fail once. If n is 0, no call fails. If n is -1, all calls fail. */
static inline void fail_call(call_kind kind, int64_t n) { atomic_store(&wrap.fail_after[kind], n); }

/* Returns the number of queued operations of the simulated device that have not ended. */
static inline int64_t num_pending(void) {
  tdict_driver_sim_count count;
  tdict_driver_sim_counts(wrap.driver, 0, &count);
  return count.num_pending;
}
/* Checks that exactly `wanted` operations are queued when all threads wait. Waits up to 5 seconds for them. */
static inline void expect_pending(int64_t wanted) {
  for (int i = 0; i < 5000 && num_pending() < wanted; i++) usleep(1000);
  td_rest();
  assert_int_equal(num_pending(), wanted);
}

#endif
