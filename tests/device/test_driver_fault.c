/* Tests the driver that fails on demand: which calls it forwards, refuses and delays, and what it counts. */
#include "support/driver_fault.h"

#include "context.h"
#include "device/sim/table.h"
#include "support/threads.h"

typedef struct pair {
  tdict_driver *inner, *d;
} pair;

static pair open_pair(void) {
  tdict_sim_options o = sim_options(false);
  tdict_cu_context context;
  pair p = {0};
  td_ok(tdict_driver_sim_open(&o, &p.inner, err));
  td_ok(tdict_driver_fault_open(p.inner, &p.d, err));
  tdict_driver *d = p.d;
  CU(SUCCESS, ctx_retain, 0, &context);
  CU(SUCCESS, ctx_push, context);
  return p;
}
static void close_pair(pair *p) {
  tdict_driver *d = p->d;
  tdict_cu_context context;
  tdict_fault_live live, none = {0};
  tdict_driver_fault_arm(d, NULL);
  CU(SUCCESS, ctx_pop, &context);
  CU(SUCCESS, ctx_release, 0);
  tdict_driver_fault_get_live(d, &live);
  assert_memory_equal(&live, &none, sizeof live);
  tdict_driver_release(d);
  assert_int_equal(atomic_load(&p->inner->refs), 1); /* its reference to the inner driver is released */
  tdict_driver_release(p->inner);
}
#define scoped_pair TD_SCOPED(close_pair, pair)

static void arm(tdict_driver *d, tdict_fault_kind kind, int64_t n, bool lasts) {
  const tdict_fault fault = {.kinds = TDICT_FAULT_BIT(kind), .n = n, .code = TDICT_CU_UNKNOWN, .lasts = lasts};
  tdict_driver_fault_arm(d, &fault);
}

CASE(driver_fault_forwards_every_call) {
  scoped_pair p = open_pair();
  tdict_driver *d = p.d;
  assert_int_equal(d->device_type, TDICT_DEVICE_SIM);
  assert_int_equal(atomic_load(&p.inner->refs), 2);
  enum { BYTES = 6000 };
  tdict_cu_stream s = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  tdict_cu_event a = make_event(d), b = make_event(d);
  unsigned char *from = make_pinned(d, BYTES, 1), *to = make_pinned(d, BYTES, 0);
  char *device = make_device(d, 2 * BYTES);
  const tdict_cu_rect rect = {TDICT_CU_D2D, device + BYTES, device, 100, 100, 60, BYTES / 100};
  float ms;
  int number;
  CU(SUCCESS, event_record, a, s);
  CU(SUCCESS, copy_h2d_async, device, from, BYTES, s);
  CU(SUCCESS, fill_async, device + BYTES, 0xA5, BYTES, s);
  CU(SUCCESS, copy_rect_async, &rect, s);
  CU(SUCCESS, copy_d2h_async, to, device + BYTES, BYTES, s);
  CU(SUCCESS, event_record, b, s);
  CU(SUCCESS, stream_wait_event, s, b);
  CU(SUCCESS, event_synchronize, b);
  CU(SUCCESS, stream_synchronize, s);
  CU(SUCCESS, stream_query, s);
  CU(SUCCESS, event_query, b);
  CU(SUCCESS, event_elapsed, &ms, a, b);
  CU(SUCCESS, stream_capture_status, s, &number);
  for (size_t i = 0; i < BYTES; i++) assert_int_equal(to[i], i % 100 < 60 ? from[i] : 0xA5);
  CU(SUCCESS, copy_d2d_async, device + BYTES, device, BYTES, s);
  CU(SUCCESS, stream_synchronize, s);
  CU(SUCCESS, copy_d2h_async, to, device + BYTES, BYTES, NULL);
  CU(SUCCESS, stream_synchronize, NULL);
  assert_memory_equal(to, from, BYTES);
  CU(SUCCESS, device_count, &number);
  assert_int_equal(number, 1);
  CU(INVALID_DEVICE, device_attribute, 7, TDICT_CU_ATTRIBUTE_PCI_BUS_ID, &number); /* errors are forwarded, too */
  tdict_fault_live live;
  tdict_driver_fault_get_live(d, &live);
  assert_int_equal(live.streams, 1);
  assert_int_equal(live.events, 2);
  assert_int_equal(live.host_blocks, 2);
  assert_int_equal(live.device_blocks, 1);
  assert_int_equal(live.contexts, 1);
  CU(SUCCESS, event_destroy, a);
  CU(SUCCESS, event_destroy, b);
  CU(SUCCESS, stream_destroy, s);
  CU(SUCCESS, host_free, from, BYTES);
  CU(SUCCESS, host_free, to, BYTES);
  CU(SUCCESS, mem_free, device);
}

CASE(driver_fault_nth_call_fails) {
  scoped_pair p = open_pair();
  tdict_driver *d = p.d;
  tdict_cu_event events[4];
  tdict_cu_stream s = NULL;
  arm(d, TDICT_FAULT_EVENT_CREATE, 3, false);
  for (int i = 0; i < 2; i++) CU(SUCCESS, event_create, &events[i], TDICT_CU_EVENT_DEFAULT);
  CU(SUCCESS, stream_create, &s, TDICT_CU_STREAM_DEFAULT); /* another kind of call is not counted */
  assert_false(tdict_driver_fault_fired(d));
  CU(UNKNOWN, event_create, &events[2], TDICT_CU_EVENT_DEFAULT);
  assert_true(tdict_driver_fault_fired(d));
  CU(SUCCESS, event_create, &events[2], TDICT_CU_EVENT_DEFAULT);
  assert_int_equal(tdict_driver_fault_calls(d, TDICT_FAULT_EVENT_CREATE), 4);
  assert_int_equal(tdict_driver_fault_calls(d, TDICT_FAULT_STREAM_CREATE), 1);
  arm(d, TDICT_FAULT_EVENT_CREATE, 1, true); /* resets the counts */
  assert_false(tdict_driver_fault_fired(d));
  for (int i = 0; i < 3; i++) CU(UNKNOWN, event_create, &events[3], TDICT_CU_EVENT_DEFAULT);
  assert_int_equal(tdict_driver_fault_calls(d, TDICT_FAULT_EVENT_CREATE), 3);
  tdict_driver_fault_arm(d, NULL);
  CU(SUCCESS, event_create, &events[3], TDICT_CU_EVENT_DEFAULT);
  const tdict_fault two = {.kinds =
                               TDICT_FAULT_BIT(TDICT_FAULT_EVENT_RECORD) | TDICT_FAULT_BIT(TDICT_FAULT_EVENT_QUERY),
                           .n = 2,
                           .code = TDICT_CU_OUT_OF_MEMORY};
  tdict_driver_fault_arm(d, &two); /* several kinds at once */
  CU(SUCCESS, event_record, events[0], s);
  CU(OUT_OF_MEMORY, event_query, events[0]);
  CU(SUCCESS, event_record, events[0], s);
  for (int i = 0; i < 4; i++) CU(SUCCESS, event_destroy, events[i]);
  CU(SUCCESS, stream_destroy, s);
}

/* A call that fails has no effect, except that calls that wait or release something do so before they fail. */
CASE(driver_fault_fails_before_or_after_the_call) {
  scoped_pair p = open_pair();
  tdict_driver *d = p.d;
  tdict_driver_sim_count counts;
  unsigned char *host = make_pinned(d, 4096, 3);
  char *device = make_device(d, 4096);
  tdict_cu_stream s = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  void *made = NULL;
  arm(d, TDICT_FAULT_HOST_ALLOC, 1, true);
  CU(UNKNOWN, host_alloc, &made, 4096, TDICT_CU_HOST_PORTABLE);
  assert_null(made);
  arm(d, TDICT_FAULT_COPY_IN, 1, true);
  CU(UNKNOWN, copy_h2d_async, device, host, 4096, s);
  CU(UNKNOWN, copy_h2d_async, device, host, 4096, NULL);
  tdict_driver_sim_counts(p.inner, 0, &counts);
  assert_int_equal(counts.num_finished + counts.num_pending, 0);
  tdict_driver_fault_arm(d, NULL);
  gate g;
  block_stream(s, &g);
  CU(SUCCESS, copy_h2d_async, device, host, 4096, s);
  open_gate(&g);
  arm(d, TDICT_FAULT_STREAM_SYNC, 1, false);
  CU(UNKNOWN, stream_synchronize, s);
  tdict_driver_sim_counts(p.inner, 0, &counts);
  assert_int_equal(counts.num_pending, 0); /* the failed call has waited */
  arm(d, TDICT_FAULT_END, 1, true);
  CU(UNKNOWN, stream_destroy, s);
  CU(UNKNOWN, host_free, host, 4096);
  CU(UNKNOWN, mem_free, device);
  tdict_driver_sim_counts(p.inner, 0, &counts);
  assert_int_equal(counts.num_streams, 0);
  assert_int_equal(counts.pinned_bytes, 0);
  assert_int_equal(counts.num_allocations, 0);
}

typedef struct caller {
  tdict_driver *d;
  tdict_cu_context context;
  tdict_cu_event event;
  pthread_t thread;
  _Atomic(int) result; /* -1 until the call has returned */
} caller;
static void *run_caller(void *argument) {
  caller *c = argument;
  atomic_store(&c->result, c->d->ops->event_query(c->d, c->event));
  return NULL;
}

CASE(driver_fault_stalls_until_released) {
  scoped_pair p = open_pair();
  tdict_driver *d = p.d;
  caller c = {.d = d, .event = make_event(d)};
  for (int round = 0; round < 3; round++) {
    const tdict_cu code = round == 0 ? TDICT_CU_SUCCESS : TDICT_CU_UNKNOWN;
    const tdict_fault stall = {.kinds = TDICT_FAULT_BIT(TDICT_FAULT_EVENT_QUERY), .n = 1, .code = code, .stalls = true};
    atomic_init(&c.result, -1);
    tdict_driver_fault_arm(d, &stall);
    c.thread = td_start(run_caller, &c);
    while (!tdict_driver_fault_is_stalled(d) && atomic_load(&c.result) == -1) usleep(1000);
    td_rest();
    assert_int_equal(atomic_load(&c.result), -1);
    CU(SUCCESS, event_query, c.event); /* other calls are not delayed */
    if (round < 2)
      tdict_driver_fault_release(d);
    else
      tdict_driver_fault_arm(d, NULL); /* also ends the delay */
    pthread_join(c.thread, NULL);
    assert_int_equal(atomic_load(&c.result), code);
    assert_false(tdict_driver_fault_is_stalled(d));
  }
  CU(SUCCESS, event_destroy, c.event);
}

static _Thread_local int depth;
static int most, calls;
static void around(bool begins) {
  depth += begins ? 1 : -1;
  calls += begins;
  if (depth > most) most = depth;
}
CASE(driver_fault_calls_the_around_hook) {
  scoped_pair p = open_pair();
  tdict_driver *d = p.d;
  tdict_cu_event e;
  tdict_driver_fault_set_around(d, around);
  e = make_event(d);
  CU(SUCCESS, event_query, e);
  arm(d, TDICT_FAULT_EVENT_QUERY, 1, false);
  CU(UNKNOWN, event_query, e); /* a call that fails does not reach the hook */
  CU(SUCCESS, event_destroy, e);
  assert_int_equal(calls, 3);
  assert_int_equal(most, 1);
  assert_int_equal(depth, 0);
  tdict_driver_fault_set_around(d, NULL);
}

/* The controls of the simulated device also apply to a wrapped driver. Here it is wrapped twice. */
CASE(driver_fault_wraps_a_held_device) {
  tdict_sim_options sim = sim_options(false);
  scoped_driver inner = NULL, middle = NULL, d = NULL;
  tdict_driver_sim_count counts;
  tdict_stream s;
  void *host;
  char *there;
  tdict_cu_context context;
  tdict_context_options o = td_with(tdict_context_options, device = tdict_sim(0));
  td_ok(tdict_driver_sim_open(&sim, &inner, err));
  td_ok(tdict_driver_fault_open(inner, &middle, err));
  td_ok(tdict_driver_fault_open(middle, &d, err));
  assert_ptr_equal(tdict_driver_innermost(d), inner);
  scoped_context c = td_made(context, tdict_context_create_over(&o, d, &made, err));
  td_ok(tdict_stream_create(c, o.device, &s, err));
  CU(SUCCESS, ctx_retain, 0, &context);
  CU(SUCCESS, ctx_push, context);
  host = make_pinned(d, 64, 1);
  there = make_device(d, 64);
  td_ok(tdict_sim_hold(c, err));
  CU(SUCCESS, copy_h2d_async, there, host, 64, s.handle);
  CU(SUCCESS, copy_h2d_async, there, host, 64, s.handle);
  tdict_driver_sim_counts(inner, 0, &counts);
  assert_int_equal(counts.num_pending, 2);
  td_ok(tdict_sim_step(c, 1, err));
  tdict_driver_sim_counts(inner, 0, &counts);
  assert_int_equal(counts.num_pending, 1);
  td_ok(tdict_sim_resume(c, err));
  CU(SUCCESS, stream_synchronize, s.handle);
  CU(SUCCESS, mem_free, there);
  CU(SUCCESS, host_free, host, 64);
  CU(SUCCESS, ctx_pop, &context);
  CU(SUCCESS, ctx_release, 0);
  tdict_stream_destroy(c, s);
}

/* A context whose default device is the cpu pins memory through a GPU. If this GPU cannot be opened, pinning errors
 * contain the reason. */
CASE(pinned_memory_is_absent_for_a_reason) {
  tdict_sim_options sim = sim_options(false);
  scoped_driver inner = td_made(driver, tdict_driver_sim_open(&sim, &made, err)), d = NULL;
  td_ok(tdict_driver_fault_open(inner, &d, err));
  scoped_context context = NULL;
  tdict_tensor *t = NULL;
  tdict_context_options o = td_with(tdict_context_options, device = tdict_cpu(), num_threads = 1);
  arm(d, TDICT_FAULT_POOL, 1, true);
  td_ok(tdict_context_create_over(&o, d, &context, err));
  td_fails(TDICT_ENODEVICE, "pinned memory needs a device that reads it: ",
           tdict_tensor_empty(TDICT_U8, 1, (int64_t[]){64}, tdict_pinned_memory(context), &t, err));
  assert_non_null(strstr(td_last_error.message, "cuMemPoolCreate returned 999"));
  assert_int_equal(td_last_error.native, TDICT_CU_UNKNOWN);
}

CASE(driver_fault_under_a_context) {
  tdict_sim_options sim = sim_options(false);
  scoped_driver inner = td_made(driver, tdict_driver_sim_open(&sim, &made, err)), d = NULL;
  td_ok(tdict_driver_fault_open(inner, &d, err));
  tdict_context *context = NULL;
  tdict_context_options o = td_with(tdict_context_options, device = tdict_sim(0), num_threads = 1);
  arm(d, TDICT_FAULT_POOL, 1, false);
  td_fails(TDICT_EDEVICE, "cuMemPoolCreate returned 999", tdict_context_create_over(&o, d, &context, err));
  assert_int_equal(td_last_error.native, TDICT_CU_UNKNOWN);
  assert_null(context);
  tdict_context_destroy(td_made(context, tdict_context_create_over(&o, d, &made, err)));
  assert_int_equal(atomic_load(&d->refs), 1);
  tdict_fault_live live, none = {0};
  tdict_driver_fault_get_live(d, &live);
  assert_memory_equal(&live, &none, sizeof live);
  for (int i = 0; i < TDICT_NUM_FAULT_KINDS; i++)
    for (int k = 0; k < i; k++)
      assert_string_not_equal(tdict_fault_kind_name((tdict_fault_kind)i), tdict_fault_kind_name((tdict_fault_kind)k));
  assert_string_equal(tdict_fault_kind_name(TDICT_FAULT_END), "end");
  assert_string_equal(tdict_fault_kind_name(TDICT_NUM_FAULT_KINDS), "?");
}
