/* Code that the tests of streams share: streams that wait at a gate, copies of a consumer, kernels of a producer, and
 * calls on other threads. The test must end everything that these functions start. Thread rule: the main thread, except
 * run_export(), run_import() and run_delete_without_memory(). */
#ifndef TDICT_TESTS_SERVICES_INTEROP_DLPACK_STREAMS_H
#define TDICT_TESTS_SERVICES_INTEROP_DLPACK_STREAMS_H

#include "engine/promises.h"
#include "rig.h"
#include "support/threads.h"

static inline tdict_dlpack_export_options consumer_on(tdict_stream s) {
  return td_with(tdict_dlpack_export_options, stream = s);
}
static inline tdict_dlpack_import_options producer_on(tdict_stream s) {
  return td_with(tdict_dlpack_import_options, stream = s);
}
static inline tdict_tree *arena(const place *w, uint64_t number) {
  tdict_tree *src = numbered_tree(w, NULL, number), *out = moved(w, src, w->device);
  tdict_release(src);
  return out;
}

/* A stream whose kernel waits until a gate is opened. */
typedef struct stopped {
  gate gate;
  kernel k;
  tdict_stream s;
} stopped;
static inline void stop_stream(const place *w, stopped *at, const tdict_tensor *t) {
  memset(at, 0, sizeof *at);
  at->s = new_stream(w);
  kernel_launch(&at->k, at->s, t, &at->gate, NULL);
  gate_await(&at->gate, 1);
}
static inline void go_on(const place *w, stopped *at) {
  gate_open(&at->gate);
  sync_stream(w, at->s);
  tdict_stream_destroy(w->c, at->s);
  kernel_end(&at->k);
}
/* Starts a transfer whose copies wait for the stopped stream. */
static inline tdict_future *stopped_copy(const place *w, const tdict_tree *src, tdict_tree *dst, const stopped *at) {
  tdict_transfer_options o = td_with(tdict_transfer_options, after = at->s);
  return copy_async(w, src, dst, &o);
}

/* A consumer's copy between the host and a tensor on the device, on the consumer's stream. A kernel would prove
 * nothing: a simulated device runs one kernel at a time, so the kernel at the gate would delay it anyway. */
typedef struct consumer_copy {
  tdict_tensor *host;
  tdict_stream s;
  tdict_cu_event event;
} consumer_copy;
static inline void queue_copy(const place *w, consumer_copy *c, tdict_cu_kind kind, const tdict_tensor *device) {
  const size_t bytes = tdict_tensor_bytes(device);
  const bool out = kind == TDICT_CU_D2H;
  const tdict_rect rect = {.dst = out ? c->host->data : device->data,
                           .src = out ? device->data : c->host->data,
                           .width = bytes,
                           .height = 1};
  tdict_gpu_scope scope;
  td_ok(tdict_gpu_enter(w->gpu, &scope, err));
  td_ok(tdict_gpu_queue_rect(w->gpu, kind, &rect, c->s.handle, err));
  td_ok(tdict_gpu_take_event(w->gpu, &c->event, err));
  td_ok(tdict_gpu_record(w->gpu, c->event, c->s.handle, err));
  tdict_gpu_leave(w->gpu, &scope);
}
static inline void start_read(const place *w, consumer_copy *c, tdict_stream s, const tdict_tensor *t) {
  *c = (consumer_copy){new_bytes((int64_t)tdict_tensor_bytes(t), w->pinned), s, NULL};
  memset(c->host->data, PROMISE_POISON, tdict_tensor_bytes(t));
  queue_copy(w, c, TDICT_CU_D2H, t);
}
static inline void start_write(const place *w, consumer_copy *c, tdict_stream s, const tdict_tensor *t,
                               uint64_t number) {
  *c = (consumer_copy){new_bytes((int64_t)tdict_tensor_bytes(t), w->pinned), s, NULL};
  put_number(w, c->host, number);
  queue_copy(w, c, TDICT_CU_H2D, t);
}
static inline bool is_copied(const place *w, const consumer_copy *c) {
  tdict_gpu_scope scope;
  td_ok(tdict_gpu_enter(w->gpu, &scope, err));
  const bool done = tdict_gpu_query_event(w->gpu, c->event) != TDICT_CU_NOT_READY;
  tdict_gpu_leave(w->gpu, &scope);
  return done;
}
/* Waits for the copy. Returns true if it copied the bytes of `number`. */
static inline bool end_copy(const place *w, consumer_copy *c, uint64_t number) {
  sync_stream(w, c->s);
  const bool same = has_number(w, c->host, number);
  tdict_gpu_give_event(w->gpu, c->event);
  tdict_tensor_release(c->host);
  return same;
}

/* A call on another thread. */
typedef struct call {
  tdict_context *c;
  const tdict_tensor *tensor;
  tdict_dlpack_export_options export_options;
  tdict_dlpack_import_options import_options;
  struct DLManagedTensorVersioned *managed;
  tdict_tensor *made;
  tdict_status status;
  atomic_bool done;
  pthread_t thread;
} call;
static inline void *run_export(void *user) {
  call *c = user;
  c->status = export_versioned(c->c, c->tensor, &c->export_options, &c->managed, NULL);
  atomic_store(&c->done, true);
  return NULL;
}
static inline void *run_import(void *user) {
  call *c = user;
  c->status = import_versioned(c->c, &c->managed, &c->import_options, &c->made, NULL);
  atomic_store(&c->done, true);
  return NULL;
}
static inline void *run_delete_without_memory(void *user) {
  call *c = user;
  td_fail_alloc(0, true);
  delete_versioned_of(c->managed);
  td_fail_alloc_stop();
  atomic_store(&c->done, true);
  return NULL;
}
/* Starts a call, and checks that it waits. */
static inline void start_waiting(call *c, void *(*run)(void *call)) {
  atomic_store(&c->done, false);
  c->thread = td_start(run, c);
  td_rest();
  assert_false(atomic_load(&c->done));
}
static inline void finish_waiting(call *c) {
  pthread_join(c->thread, NULL);
  assert_int_equal(c->status, TDICT_OK);
}

/* Makes a producer's tensor that shares the device memory of the leaf `t`. */
static inline void produce_leaf(produced *p, const tdict_tensor *t) {
  const naive_layout layout = naive_layout_of(t);
  produce(p, t->data, (tdict_dl_device){t->storage->device.type, t->storage->device.index}, t->dtype, &layout);
}
/* A producer's stream that waits at a gate before it writes `number` to the leaf. */
typedef struct writer {
  gate gate;
  kernel k;
  tdict_stream s;
  unsigned char *bytes;
} writer;
static inline void start_writer(const place *w, writer *at, const tdict_tensor *t, uint64_t number) {
  memset(at, 0, sizeof *at);
  at->s = new_stream(w);
  at->bytes = td_alloc(tdict_tensor_bytes(t));
  td_fill_random(at->bytes, tdict_tensor_bytes(t), number);
  kernel_launch(&at->k, at->s, t, &at->gate, at->bytes);
  gate_await(&at->gate, 1);
}
static inline void end_writer(const place *w, writer *at) {
  sync_stream(w, at->s);
  tdict_stream_destroy(w->c, at->s);
  kernel_end(&at->k);
  free(at->bytes);
}

#endif
