/* Implements the driver of driver_fault.h, which retains the wrapped driver. Thread rule: see the header. */
#include "support/driver_fault.h"

#include <pthread.h>
#include <stdlib.h>

#include "core/base/error.h"

typedef struct fault_driver {
  tdict_driver base; /* first, so that a fault_driver * is also a tdict_driver * */
  void (*around)(bool begins);
  bool (*must_fail)(tdict_fault_kind kind);
  pthread_mutex_t lock; /* guards: all fields below */
  pthread_cond_t changed;
  tdict_fault fault;
  bool armed, fired, stalled, released;
  uint64_t arm_number;  /* counts tdict_driver_fault_arm() calls, so that a stalled call detects the next one */
  int64_t num_matching; /* number of calls whose kind is in fault.kinds */
  int64_t calls[TDICT_NUM_FAULT_KINDS];
  tdict_fault_live live;
} fault_driver;

static fault_driver *fault_of(tdict_driver *d) { return (fault_driver *)d; }

/* Blocks until tdict_driver_fault_release() or tdict_driver_fault_arm() is called. The caller holds the lock. */
static void stall(fault_driver *f) {
  uint64_t arm_number = f->arm_number;
  f->stalled = true;
  pthread_cond_broadcast(&f->changed);
  while (!f->released && f->arm_number == arm_number) pthread_cond_wait(&f->changed, &f->lock);
  if (f->arm_number == arm_number) f->stalled = false;
}

/* Counts a call, and stalls it if the fault requires it. Returns the fault's code if the call must fail. */
static tdict_cu count_call(fault_driver *f, tdict_fault_kind kind) {
  tdict_cu code = TDICT_CU_SUCCESS;
  pthread_mutex_lock(&f->lock);
  f->calls[kind]++;
  if (f->armed && f->fault.kinds & TDICT_FAULT_BIT(kind)) {
    f->num_matching++;
    if (f->num_matching == f->fault.n || (f->fault.lasts && f->num_matching > f->fault.n)) {
      code = f->fault.code;
      f->fired = true;
      if (f->fault.stalls && !f->released) stall(f);
    }
  }
  pthread_mutex_unlock(&f->lock);
  return f->must_fail && f->must_fail(kind) ? TDICT_CU_INVALID_HANDLE : code;
}

static void around(const fault_driver *f, bool begins) {
  if (f->around) f->around(begins);
}

/* Adds `by` to a live count if the call succeeded: 1 for a created resource, -1 for a destroyed one. */
static tdict_cu count(fault_driver *f, int64_t *what, int by, tdict_cu result) {
  if (result != TDICT_CU_SUCCESS) return result;
  pthread_mutex_lock(&f->lock);
  *what += by;
  pthread_mutex_unlock(&f->lock);
  return result;
}

/* Calls `entry` of the wrapped driver and stores its return value in `result`. */
#define CALL_INNER(f, result, entry, ...)                           \
  do {                                                              \
    around(f, true);                                                \
    result = f->base.inner->ops->entry(f->base.inner, __VA_ARGS__); \
    around(f, false);                                               \
  } while (0)
/* Declares `f` and `result`. Calls the wrapped driver unless the call must fail. */
#define FAIL_OR_CALL(kind, entry, ...)                 \
  fault_driver *f = fault_of(d);                       \
  tdict_cu result = count_call(f, TDICT_FAULT_##kind); \
  if (result == TDICT_CU_SUCCESS) CALL_INNER(f, result, entry, __VA_ARGS__)
/* Like FAIL_OR_CALL, but also return the result. FAIL_OR_COUNT also counts the created resource. */
#define FAIL_OR_RETURN(kind, entry, ...)  \
  FAIL_OR_CALL(kind, entry, __VA_ARGS__); \
  return result
#define FAIL_OR_COUNT(kind, things, entry, ...) \
  FAIL_OR_CALL(kind, entry, __VA_ARGS__);       \
  return count(f, &f->live.things, 1, result)
/* Always calls the wrapped driver. Declares `result`, the driver's code, and `code`, the fault's code. */
#define CALL_THEN_FAIL(kind, entry, ...)                     \
  fault_driver *f = fault_of(d);                             \
  tdict_cu code = count_call(f, TDICT_FAULT_##kind), result; \
  CALL_INNER(f, result, entry, __VA_ARGS__)

static tdict_cu first_failure(tdict_cu result, tdict_cu code) { return result != TDICT_CU_SUCCESS ? result : code; }

/* Destroys a resource that FAIL_OR_COUNT created, and decrements its count. */
#define END_AND_COUNT(things, entry, ...)  \
  CALL_THEN_FAIL(END, entry, __VA_ARGS__); \
  return first_failure(count(f, &f->live.things, -1, result), code)

static void fault_close(tdict_driver *d) {
  fault_driver *f = fault_of(d);
  tdict_driver_release(f->base.inner);
  pthread_cond_destroy(&f->changed);
  pthread_mutex_destroy(&f->lock);
  free(f);
}

static tdict_cu error_text(tdict_driver *d, tdict_cu result, const char **name, const char **text) {
  return fault_of(d)->base.inner->ops->error_text(fault_of(d)->base.inner, result, name, text);
}
static tdict_cu device_count(tdict_driver *d, int *number) { FAIL_OR_RETURN(DEVICE, device_count, number); }
static tdict_cu device_name(tdict_driver *d, int ordinal, char *buffer, int bytes) {
  FAIL_OR_RETURN(DEVICE, device_name, ordinal, buffer, bytes);
}
static tdict_cu device_attribute(tdict_driver *d, int ordinal, int attribute, int *value) {
  FAIL_OR_RETURN(DEVICE, device_attribute, ordinal, attribute, value);
}
static tdict_cu device_can_reach(tdict_driver *d, int ordinal, int peer, int *can) {
  FAIL_OR_RETURN(DEVICE, device_can_reach, ordinal, peer, can);
}

static tdict_cu ctx_retain(tdict_driver *d, int ordinal, tdict_cu_context *out) {
  FAIL_OR_COUNT(CTX_RETAIN, contexts, ctx_retain, ordinal, out);
}
static tdict_cu ctx_release(tdict_driver *d, int ordinal) { END_AND_COUNT(contexts, ctx_release, ordinal); }
static tdict_cu ctx_push(tdict_driver *d, tdict_cu_context context) { FAIL_OR_RETURN(CTX_PUSH, ctx_push, context); }
static tdict_cu ctx_pop(tdict_driver *d, tdict_cu_context *out) {
  CALL_THEN_FAIL(END, ctx_pop, out);
  return first_failure(result, code);
}
static tdict_cu ctx_current(tdict_driver *d, tdict_cu_context *out) {
  return fault_of(d)->base.inner->ops->ctx_current(fault_of(d)->base.inner, out);
}
static tdict_cu ctx_allow_peer(tdict_driver *d, tdict_cu_context peer) { FAIL_OR_RETURN(POOL, ctx_allow_peer, peer); }
static tdict_cu capture_mode(tdict_driver *d, int *mode) { FAIL_OR_RETURN(CAPTURE, capture_mode, mode); }

static tdict_cu pool_create(tdict_driver *d, int ordinal, tdict_cu_pool *out) {
  FAIL_OR_COUNT(POOL, pools, pool_create, ordinal, out);
}
static tdict_cu pool_destroy(tdict_driver *d, tdict_cu_pool pool) { END_AND_COUNT(pools, pool_destroy, pool); }
static tdict_cu pool_trim(tdict_driver *d, tdict_cu_pool pool, size_t keep_bytes) {
  FAIL_OR_RETURN(POOL, pool_trim, pool, keep_bytes);
}
static tdict_cu pool_set(tdict_driver *d, tdict_cu_pool pool, int attribute, uint64_t value) {
  FAIL_OR_RETURN(POOL, pool_set, pool, attribute, value);
}
static tdict_cu pool_get(tdict_driver *d, tdict_cu_pool pool, int attribute, uint64_t *value) {
  FAIL_OR_RETURN(POOL, pool_get, pool, attribute, value);
}
static tdict_cu pool_allow_peer(tdict_driver *d, tdict_cu_pool pool, int ordinal) {
  FAIL_OR_RETURN(POOL, pool_allow_peer, pool, ordinal);
}
static tdict_cu mem_alloc_async(tdict_driver *d, void **out, size_t bytes, tdict_cu_pool pool, tdict_cu_stream stream) {
  FAIL_OR_COUNT(DEVICE_ALLOC, device_blocks, mem_alloc_async, out, bytes, pool, stream);
}
static tdict_cu mem_free_async(tdict_driver *d, void *device, tdict_cu_stream stream) {
  END_AND_COUNT(device_blocks, mem_free_async, device, stream);
}
static tdict_cu mem_alloc(tdict_driver *d, void **out, size_t bytes) {
  FAIL_OR_COUNT(DEVICE_ALLOC, device_blocks, mem_alloc, out, bytes);
}
static tdict_cu mem_free(tdict_driver *d, void *device) { END_AND_COUNT(device_blocks, mem_free, device); }

static tdict_cu host_alloc(tdict_driver *d, void **out, size_t bytes, unsigned flags) {
  FAIL_OR_COUNT(HOST_ALLOC, host_blocks, host_alloc, out, bytes, flags);
}
static tdict_cu host_free(tdict_driver *d, void *host, size_t bytes) {
  END_AND_COUNT(host_blocks, host_free, host, bytes);
}
static tdict_cu host_register(tdict_driver *d, void *host, size_t bytes, unsigned flags) {
  FAIL_OR_COUNT(HOST_REGISTER, registrations, host_register, host, bytes, flags);
}
static tdict_cu host_unregister(tdict_driver *d, void *host, size_t bytes) {
  END_AND_COUNT(registrations, host_unregister, host, bytes);
}
static tdict_cu pointer(tdict_driver *d, const void *address, tdict_cu_pointer *out) {
  FAIL_OR_RETURN(POINTER, pointer, address, out);
}

static tdict_cu copy_h2d_async(tdict_driver *d, void *device, const void *host, size_t bytes, tdict_cu_stream s) {
  FAIL_OR_RETURN(COPY_IN, copy_h2d_async, device, host, bytes, s);
}
static tdict_cu copy_d2h_async(tdict_driver *d, void *host, const void *device, size_t bytes, tdict_cu_stream s) {
  FAIL_OR_RETURN(COPY_OUT, copy_d2h_async, host, device, bytes, s);
}
static tdict_cu copy_d2d_async(tdict_driver *d, void *dst, const void *src, size_t bytes, tdict_cu_stream s) {
  FAIL_OR_RETURN(COPY_WITHIN, copy_d2d_async, dst, src, bytes, s);
}
static tdict_cu copy_peer_async(tdict_driver *d, const tdict_cu_rect *rect, tdict_cu_context to, tdict_cu_context from,
                                tdict_cu_stream s) {
  FAIL_OR_RETURN(COPY_WITHIN, copy_peer_async, rect, to, from, s);
}
static tdict_cu copy_rect_async(tdict_driver *d, const tdict_cu_rect *rect, tdict_cu_stream s) {
  static const tdict_fault_kind kinds[] = {[TDICT_CU_H2D] = TDICT_FAULT_COPY_IN,
                                           [TDICT_CU_D2H] = TDICT_FAULT_COPY_OUT,
                                           [TDICT_CU_D2D] = TDICT_FAULT_COPY_WITHIN};
  fault_driver *f = fault_of(d);
  tdict_cu result = count_call(f, kinds[rect->kind]);
  if (result == TDICT_CU_SUCCESS) CALL_INNER(f, result, copy_rect_async, rect, s);
  return result;
}
static tdict_cu copy_batch_async(tdict_driver *d, tdict_cu_kind kind, const tdict_cu_copy *lines, size_t count,
                                 tdict_cu_stream s) {
  fault_driver *f = fault_of(d);
  tdict_cu result = count_call(f, kind == TDICT_CU_H2D ? TDICT_FAULT_COPY_IN : TDICT_FAULT_COPY_OUT);
  if (result == TDICT_CU_SUCCESS) CALL_INNER(f, result, copy_batch_async, kind, lines, count, s);
  return result;
}
static tdict_cu fill_async(tdict_driver *d, void *device, unsigned char byte, size_t bytes, tdict_cu_stream s) {
  FAIL_OR_RETURN(FILL, fill_async, device, byte, bytes, s);
}

static tdict_cu module_load(tdict_driver *d, const char *image, tdict_cu_module *out) {
  FAIL_OR_COUNT(MODULE, modules, module_load, image, out);
}
static tdict_cu module_unload(tdict_driver *d, tdict_cu_module module) {
  END_AND_COUNT(modules, module_unload, module);
}
static tdict_cu module_function(tdict_driver *d, tdict_cu_module module, const char *name, tdict_cu_function *out) {
  FAIL_OR_RETURN(MODULE, module_function, module, name, out);
}
static tdict_cu launch(tdict_driver *d, const tdict_cu_launch *l, tdict_cu_stream s) {
  FAIL_OR_RETURN(LAUNCH, launch, l, s);
}

static tdict_cu stream_create(tdict_driver *d, tdict_cu_stream *out, unsigned flags) {
  FAIL_OR_COUNT(STREAM_CREATE, streams, stream_create, out, flags);
}
static tdict_cu stream_destroy(tdict_driver *d, tdict_cu_stream s) { END_AND_COUNT(streams, stream_destroy, s); }
static tdict_cu stream_query(tdict_driver *d, tdict_cu_stream s) { FAIL_OR_RETURN(STREAM_SYNC, stream_query, s); }
static tdict_cu stream_synchronize(tdict_driver *d, tdict_cu_stream s) {
  CALL_THEN_FAIL(STREAM_SYNC, stream_synchronize, s);
  return first_failure(result, code);
}
static tdict_cu stream_wait_event(tdict_driver *d, tdict_cu_stream s, tdict_cu_event e) {
  FAIL_OR_RETURN(STREAM_WAIT, stream_wait_event, s, e);
}
static tdict_cu stream_capture_status(tdict_driver *d, tdict_cu_stream s, int *status) {
  FAIL_OR_RETURN(CAPTURE, stream_capture_status, s, status);
}

static tdict_cu event_create(tdict_driver *d, tdict_cu_event *out, unsigned flags) {
  FAIL_OR_COUNT(EVENT_CREATE, events, event_create, out, flags);
}
static tdict_cu event_destroy(tdict_driver *d, tdict_cu_event e) { END_AND_COUNT(events, event_destroy, e); }
static tdict_cu event_record(tdict_driver *d, tdict_cu_event e, tdict_cu_stream s) {
  FAIL_OR_RETURN(EVENT_RECORD, event_record, e, s);
}
static tdict_cu event_query(tdict_driver *d, tdict_cu_event e) { FAIL_OR_RETURN(EVENT_QUERY, event_query, e); }
static tdict_cu event_synchronize(tdict_driver *d, tdict_cu_event e) {
  CALL_THEN_FAIL(EVENT_SYNC, event_synchronize, e);
  return first_failure(result, code);
}
static tdict_cu event_elapsed(tdict_driver *d, float *milliseconds, tdict_cu_event from, tdict_cu_event to) {
  FAIL_OR_RETURN(EVENT_QUERY, event_elapsed, milliseconds, from, to);
}

#define FILL(entry) .entry = entry,
static const tdict_driver_ops fault_ops = {.close = fault_close, TDICT_DRIVER_ENTRIES(FILL)};
#undef FILL

tdict_status tdict_driver_fault_open(tdict_driver *inner, tdict_driver **out, tdict_error *err) {
  fault_driver *f = calloc(1, sizeof *f);
  if (!f) return tdict_fail(err, TDICT_ENOMEM, "fault driver: no host memory for its record");
  f->base.ops = &fault_ops;
  f->base.device_type = inner->device_type;
  atomic_init(&f->base.refs, 1);
  pthread_mutex_init(&f->lock, NULL);
  pthread_cond_init(&f->changed, NULL);
  f->base.inner = tdict_driver_retain(inner);
  *out = &f->base;
  return TDICT_OK;
}

void tdict_driver_fault_arm(tdict_driver *d, const tdict_fault *fault) {
  fault_driver *f = fault_of(d);
  pthread_mutex_lock(&f->lock);
  f->armed = fault != NULL;
  if (fault) f->fault = *fault;
  f->fired = f->stalled = f->released = false;
  f->arm_number++;
  f->num_matching = 0;
  for (int i = 0; i < TDICT_NUM_FAULT_KINDS; i++) f->calls[i] = 0;
  pthread_cond_broadcast(&f->changed);
  pthread_mutex_unlock(&f->lock);
}

bool tdict_driver_fault_fired(tdict_driver *d) {
  fault_driver *f = fault_of(d);
  pthread_mutex_lock(&f->lock);
  bool fired = f->fired;
  pthread_mutex_unlock(&f->lock);
  return fired;
}

int64_t tdict_driver_fault_calls(tdict_driver *d, tdict_fault_kind kind) {
  fault_driver *f = fault_of(d);
  pthread_mutex_lock(&f->lock);
  int64_t calls = f->calls[kind];
  pthread_mutex_unlock(&f->lock);
  return calls;
}

bool tdict_driver_fault_is_stalled(tdict_driver *d) {
  fault_driver *f = fault_of(d);
  pthread_mutex_lock(&f->lock);
  bool stalled = f->stalled;
  pthread_mutex_unlock(&f->lock);
  return stalled;
}

void tdict_driver_fault_release(tdict_driver *d) {
  fault_driver *f = fault_of(d);
  pthread_mutex_lock(&f->lock);
  f->released = true;
  pthread_cond_broadcast(&f->changed);
  pthread_mutex_unlock(&f->lock);
}

void tdict_driver_fault_get_live(tdict_driver *d, tdict_fault_live *out) {
  fault_driver *f = fault_of(d);
  pthread_mutex_lock(&f->lock);
  *out = f->live;
  pthread_mutex_unlock(&f->lock);
}

void tdict_driver_fault_set_chooser(tdict_driver *d, bool (*must_fail)(tdict_fault_kind kind)) {
  fault_of(d)->must_fail = must_fail;
}
void tdict_driver_fault_set_around(tdict_driver *d, void (*fn)(bool begins)) { fault_of(d)->around = fn; }

const char *tdict_fault_kind_name(tdict_fault_kind kind) {
  static const char *const names[TDICT_NUM_FAULT_KINDS] = {
      "device",       "ctx_retain",    "ctx_push",    "capture",       "pool",        "device_alloc",
      "host_alloc",   "host_register", "pointer",     "copy_in",       "copy_out",    "copy_within",
      "fill",         "module",        "launch",      "stream_create", "stream_wait", "stream_sync",
      "event_create", "event_record",  "event_query", "event_sync",    "end"};
  return kind >= 0 && kind < TDICT_NUM_FAULT_KINDS ? names[kind] : "?";
}
