/* Tests uses: fences for work that a program has queued on a stream. Here, this work is a function at a gate. */
#include "device/use.h"

#include "context.h"
#include "core/base/clock.h"
#include "device/sim/driver.h"
#include "gpu_help.h"
#include "support/driver_fault.h"
#include "support/gate.h"
#include "support/threads.h"

static tdict_stream busy_stream(const fixture *b, gate *g) {
  tdict_stream s = {0};
  memset(g, 0, sizeof *g);
  td_ok(tdict_stream_create(b->context, td_device(), &s, err));
  td_ok(tdict_sim_launch(s, pass_gate, g, err));
  return s;
}
static tdict_fence *use_of(const fixture *b, tdict_stream s) {
  tdict_fence *use = NULL;
  td_ok(tdict_use_create(b->gpu, s.handle, NULL, &use, err));
  return use;
}

SIM_CASE(use_is_done_when_the_queued_work_is) {
  scoped_fixture b = fixture_open(NULL);
  gate g;
  tdict_stream s = busy_stream(&b, &g);
  tdict_fence *use = use_of(&b, s);
  assert_false(use->ops->poll(use));
  int64_t begin = tdict_now_ns();
  assert_false(use->ops->wait(use, begin + 20 * 1000000)); /* the wait times out */
  assert_true(tdict_now_ns() - begin >= 20 * 1000000);
  assert_false(use->ops->wait(use, 0));
  /* a stream waits instead of the host */
  tdict_driver *d = b.d;
  tdict_block block = fixture_take(&b, 4096);
  void *host = NULL;
  CU(SUCCESS, host_alloc, &host, 4096, TDICT_CU_HOST_PORTABLE);
  TD_STREAM(behind, b.context, td_device());
  td_ok(use->ops->wait_on_stream(use, b.gpu, behind.handle, err));
  CU(SUCCESS, copy_h2d_async, block.data, host, 4096, behind.handle); /* a copy, because functions run one at a time */
  td_rest();
  CU(NOT_READY, stream_query, behind.handle);
  /* work queued later does not belong to the use */
  gate later = {0};
  td_ok(tdict_sim_launch(s, pass_gate, &later, err));
  open_gate(&g);
  assert_true(use->ops->wait(use, INT64_MAX));
  assert_true(atomic_load(&g.left));
  assert_true(use->ops->poll(use));
  assert_true(use->ops->wait(use, 0));
  assert_false(atomic_load(&later.left));
  atomic_store(&later.open, true);
  use->ops->retain(use);
  use->ops->release(use);
  use->ops->release(use);
  CU(SUCCESS, stream_synchronize, s.handle);
  CU(SUCCESS, stream_synchronize, behind.handle);
  CU(SUCCESS, host_free, host, 4096);
  fixture_give(&b, &block);
  tdict_stream_destroy(b.context, s);
}

static void run_slowly(void *user) {
  usleep(30000);
  atomic_store((atomic_bool *)user, true);
}
/* If querying the event or pushing the context fails, poll() and wait() must not report unfinished work as done. */
SIM_CASE(use_is_not_done_when_a_driver_call_fails) {
  static const tdict_fault_kind kinds[] = {TDICT_FAULT_EVENT_QUERY, TDICT_FAULT_CTX_PUSH};
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_driver *inner = NULL, *driver = NULL;
  fixture b = {0};
  td_ok(tdict_driver_sim_open(&sim, &inner, err));
  td_ok(tdict_driver_fault_open(inner, &driver, err));
  tdict_driver_release(inner);
  td_ok(tdict_context_create_over(td_options(tdict_context_options, device = td_device()), driver, &b.context, err));
  td_ok(tdict_devices_gpu(tdict_context_devices(b.context), td_device(), &b.gpu, err));
  for (int i = 0; i < 4; i++) {
    const tdict_fault fault = {.kinds = TDICT_FAULT_BIT(kinds[i / 2]), .n = 1, .code = TDICT_CU_INVALID_HANDLE};
    tdict_gpu_scope scope;
    atomic_bool has_run = false;
    TD_STREAM(s, b.context, td_device());
    td_ok(tdict_sim_launch(s, run_slowly, &has_run, err));
    td_ok(tdict_gpu_enter(b.gpu, &scope, err));
    tdict_fence *use = use_of(&b, s);
    tdict_gpu_leave(b.gpu, &scope);
    tdict_driver_fault_arm(driver, &fault);
    const bool is_done = i % 2 ? use->ops->poll(use) : use->ops->wait(use, INT64_MAX);
    if (is_done) assert_true(atomic_load(&has_run));
    tdict_driver_fault_arm(driver, NULL);
    assert_true(use->ops->wait(use, INT64_MAX));
    use->ops->release(use);
  }
  td_release(b.context, driver);
}

/* The event of a released use is returned to the GPU and reused. The use keeps the GPU open. */
SIM_CASE(use_returns_its_event_to_the_gpu) {
  fixture b = fixture_open(NULL);
  tdict_stream s;
  td_ok(tdict_stream_create(b.context, td_device(), &s, err));
  tdict_fence *use = use_of(&b, s);
  int64_t events = fixture_counts(&b).num_events;
  for (int i = 0; i < 10; i++) {
    use->ops->release(use);
    use = use_of(&b, s);
  }
  assert_int_equal(fixture_counts(&b).num_events, events);
  scoped_driver d = tdict_driver_retain(b.d);
  tdict_stream_destroy(b.context, s);
  fixture_close(&b);
  assert_true(use->ops->poll(use)); /* the context is destroyed, but the GPU still exists */
  use->ops->release(use);
}

/* A stream of another driver cannot wait for the use, so the host waits. */
SIM_CASE(use_cannot_be_queued_on_another_driver) {
  scoped_fixture b = fixture_open(NULL), other = fixture_open(NULL);
  gate g;
  tdict_stream s = busy_stream(&b, &g);
  tdict_fence *use = use_of(&b, s);
  tdict_cu_stream foreign;
  td_ok(tdict_gpu_take_stream(other.gpu, &foreign, err));
  pthread_t opener = td_start(open_gate_at_rest, &g);
  td_ok(use->ops->wait_on_stream(use, other.gpu, foreign, err));
  assert_true(atomic_load(&g.left));
  assert_int_equal(pthread_join(opener, NULL), 0);
  tdict_gpu_give_stream(other.gpu, foreign);
  use->ops->release(use);
  tdict_stream_destroy(b.context, s);
}

static tdict_cu refuse_record(tdict_driver *d, tdict_cu_event e, tdict_cu_stream s) {
  (void)d, (void)e, (void)s;
  return TDICT_CU_UNKNOWN;
}
static tdict_cu refuse_wait(tdict_driver *d, tdict_cu_stream s, tdict_cu_event e) {
  (void)d, (void)s, (void)e;
  return TDICT_CU_UNKNOWN;
}
static tdict_cu event_fault(tdict_driver *d, tdict_cu_event e) {
  (void)d, (void)e;
  return TDICT_CU_ILLEGAL_ADDRESS;
}
SIM_CASE(use_create_fails_without_leaks) {
  scoped_fixture b = fixture_open(NULL);
  shim x;
  tdict_fence *use = NULL;
  TD_STREAM(s, b.context, td_device());
  use = use_of(&b, s); /* creates an event, which the GPU keeps */
  use->ops->release(use);
  use = NULL;
  int64_t events = fixture_counts(&b).num_events;
  shim_begin(&x, b.d);
  x.ops.event_record = refuse_record;
  td_fails(TDICT_EDEVICE, "cuEventRecord", tdict_use_create(b.gpu, s.handle, "test", &use, err));
  x.ops.event_record = x.real->event_record;
  x.ops.stream_capture_status = say_capturing;
  td_fails(TDICT_ECAPTURE, "test: the stream is being captured", tdict_use_create(b.gpu, s.handle, "test", &use, err));
  x.ops.stream_capture_status = x.real->stream_capture_status;
  assert_null(use);
  assert_int_equal(fixture_counts(&b).num_events, events);
  use = use_of(&b, s);
  x.ops.stream_wait_event = refuse_wait;
  td_fails(TDICT_EDEVICE, "cuStreamWaitEvent", use->ops->wait_on_stream(use, b.gpu, s.handle, err));
  x.ops.event_query = event_fault; /* waiting for an event whose query fails would never end */
  x.ops.event_synchronize = event_fault;
  assert_true(use->ops->poll(use));
  assert_true(use->ops->wait(use, INT64_MAX));
  shim_end(&x, b.d);
  use->ops->release(use);
}
