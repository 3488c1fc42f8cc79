/* Tests contexts of the simulated driver: each thread has its own current context. */
#include "device/sim/table.h"
#include "support/threads.h"

typedef struct visitor {
  tdict_driver *d;
  tdict_cu_context context;
  int failures;
} visitor;

#define EXPECT(wanted, entry, ...) v->failures += v->d->ops->entry(v->d, __VA_ARGS__) != TDICT_CU_##wanted

static void *visit(void *user) {
  visitor *v = user;
  tdict_cu_context current = v->context;
  tdict_cu_stream s;
  tdict_cu_event e;
  void *p;
  char host[16];
  int mode = TDICT_CU_CAPTURE_RELAXED;
  EXPECT(SUCCESS, ctx_current, &current);
  v->failures += current != NULL;
  EXPECT(INVALID_CONTEXT, ctx_pop, &current);
  EXPECT(INVALID_CONTEXT, mem_alloc, &p, 16);
  EXPECT(INVALID_CONTEXT, host_alloc, &p, 16, 0);
  EXPECT(INVALID_CONTEXT, host_register, host, 16, 0);
  EXPECT(INVALID_CONTEXT, host_unregister, host, 16);
  EXPECT(INVALID_CONTEXT, stream_create, &s, 0);
  EXPECT(INVALID_CONTEXT, event_create, &e, 0);
  EXPECT(INVALID_CONTEXT, copy_h2d_async, host, host, 16, NULL);
  EXPECT(INVALID_CONTEXT, copy_d2h_async, host, host, 16, NULL);
  EXPECT(INVALID_CONTEXT, stream_synchronize, NULL);
  EXPECT(SUCCESS, capture_mode, &mode);
  v->failures += mode != TDICT_CU_CAPTURE_GLOBAL;
  EXPECT(SUCCESS, capture_mode, &mode);
  v->failures += mode != TDICT_CU_CAPTURE_RELAXED;
  EXPECT(SUCCESS, ctx_push, v->context);
  EXPECT(SUCCESS, mem_alloc, &p, 16);
  EXPECT(SUCCESS, mem_free, p);
  return NULL; /* the thread exits while a context is current */
}

CASE(sim_new_thread_has_no_context) {
  scoped_table d = open_plain();
  visitor v = {.d = d};
  pthread_t thread;
  CU(SUCCESS, ctx_current, &v.context);
  assert_non_null(v.context);
  for (int i = 0; i < 3; i++) {
    thread = td_start(visit, &v);
    pthread_join(thread, NULL);
  }
  assert_int_equal(v.failures, 0);
}

CASE(sim_contexts_are_a_stack) {
  tdict_sim_options o = sim_options(false);
  o.num_devices = 2;
  scoped_table d = open_table(&o);
  tdict_cu_context first, second, other, popped;
  CU(SUCCESS, ctx_current, &first);
  CU(INVALID_DEVICE, ctx_retain, 2, &second);
  CU(INVALID_DEVICE, ctx_retain, -1, &second);
  CU(SUCCESS, ctx_retain, 1, &second);
  CU(SUCCESS, ctx_retain, 1, &other);
  assert_ptr_equal(other, second);
  assert_ptr_not_equal(other, first);
  CU(SUCCESS, ctx_push, second);
  CU(SUCCESS, ctx_push, first);
  CU(SUCCESS, ctx_pop, &popped);
  assert_ptr_equal(popped, first);
  CU(SUCCESS, ctx_current, &popped);
  assert_ptr_equal(popped, second);
  CU(SUCCESS, ctx_pop, &popped);
  assert_ptr_equal(popped, second);
  CU(INVALID_CONTEXT, ctx_push, NULL);
  CU(SUCCESS, ctx_release, 1);
  CU(SUCCESS, ctx_release, 1);
  CU(INVALID_CONTEXT, ctx_release, 1);
  CU(INVALID_CONTEXT, ctx_push, second);
  CU(SUCCESS, ctx_pop, &popped);
  CU(INVALID_CONTEXT, ctx_pop, &popped);
  CU(SUCCESS, ctx_push, first);
}

CASE(sim_stream_of_another_device_is_refused) {
  tdict_sim_options o = sim_options(false);
  o.num_devices = 2;
  scoped_table d = open_table(&o);
  tdict_cu_context second;
  tdict_cu_stream here = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  tdict_cu_event e = make_event(d);
  void *dev = make_device(d, 16);
  unsigned char *host = make_pinned(d, 16, 1);
  CU(SUCCESS, ctx_retain, 1, &second);
  CU(SUCCESS, ctx_push, second);
  tdict_cu_stream there = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  CU(INVALID_HANDLE, copy_h2d_async, dev, host, 16, here);
  CU(INVALID_HANDLE, fill_async, dev, 0, 16, here);
  CU(INVALID_HANDLE, event_record, e, there);
  CU(SUCCESS, event_record, e, here);
  CU(SUCCESS, stream_wait_event, there, e); /* a stream can wait for an event of another device */
  CU(SUCCESS, stream_synchronize, there);
  CU(SUCCESS, ctx_pop, &second);
}

CASE(sim_capture_mode_is_exchanged) {
  scoped_table d = open_plain();
  tdict_cu_stream s = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  int mode = TDICT_CU_CAPTURE_RELAXED, status = -1;
  CU(SUCCESS, capture_mode, &mode);
  assert_int_equal(mode, TDICT_CU_CAPTURE_GLOBAL);
  mode = TDICT_CU_CAPTURE_THREAD_LOCAL;
  CU(SUCCESS, capture_mode, &mode);
  assert_int_equal(mode, TDICT_CU_CAPTURE_RELAXED);
  mode = 3;
  CU(INVALID_VALUE, capture_mode, &mode);
  CU(SUCCESS, stream_capture_status, s, &status);
  assert_int_equal(status, TDICT_CU_CAPTURE_STATUS_NONE);
}
