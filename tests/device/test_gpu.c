/* Tests one GPU: the current context of a thread, the reuse and order of streams and events, page-locked memory, and
 * failures to open the GPU. */
#include "device/gpu.h"

#include "device/counted.h"
#include "device/gpu_help.h"
#include "support/threads.h"

static int exchange_mode(tdict_driver *d, int mode) {
  CU(SUCCESS, capture_mode, &mode);
  return mode;
}

static const char *scope_leaves(tdict_gpu *gpu, tdict_cu_context outside) {
  tdict_driver *d = gpu->driver;
  tdict_gpu_scope outer, inner;
  tdict_cu_context current;
  int mode = TDICT_CU_CAPTURE_THREAD_LOCAL;
  d->ops->capture_mode(d, &mode);
  if (tdict_gpu_enter(gpu, &outer, NULL) != TDICT_OK) return "not entered";
  if (d->ops->ctx_current(d, &current) || current != gpu->context) return "not current inside";
  if (exchange_mode(d, TDICT_CU_CAPTURE_RELAXED) != TDICT_CU_CAPTURE_RELAXED) return "not relaxed inside";
  if (tdict_gpu_enter(gpu, &inner, NULL) != TDICT_OK) return "not entered twice";
  tdict_gpu_leave(gpu, &inner);
  if (d->ops->ctx_current(d, &current) || current != gpu->context) return "not current after the inner scope";
  if (exchange_mode(d, TDICT_CU_CAPTURE_RELAXED) != TDICT_CU_CAPTURE_RELAXED) return "the inner scope reset the mode";
  tdict_gpu_leave(gpu, &outer);
  if (d->ops->ctx_current(d, &current) || current != outside) return "another context is current afterwards";
  if (exchange_mode(d, mode) != TDICT_CU_CAPTURE_THREAD_LOCAL) return "another mode afterwards";
  return NULL;
}

static void *scope_on_a_new_thread(void *user) { return (void *)(uintptr_t)scope_leaves(user, NULL); }

GPU_CASE(gpu_scope_leaves_the_thread_as_found) {
  scoped_fixture b = fixture_open(NULL);
  const char *wrong = scope_leaves(b.gpu, b.gpu->context); /* the context of the fixture is current */
  assert_null(wrong);
  tdict_gpu_leave(b.gpu, &b.scope);
  tdict_gpu_leave(b.gpu, &b.scope); /* without enter, leave does nothing */
  wrong = scope_leaves(b.gpu, NULL);
  assert_null(wrong);
  void *result = b.gpu;
  pthread_t thread = td_start(scope_on_a_new_thread, b.gpu);
  pthread_join(thread, &result);
  assert_null(result);
}

static tdict_cu refuse_push(tdict_driver *d, tdict_cu_context context) {
  (void)d, (void)context;
  return TDICT_CU_INVALID_HANDLE;
}

SIM_CASE(gpu_enter_fails_with_the_drivers_code) {
  scoped_fixture b = fixture_open(NULL);
  tdict_gpu_scope scope;
  tdict_block block = {0};
  tdict_memory_counts before = fixture_memory(&b);
  shim s;
  shim_begin(&s, b.d);
  s.ops.ctx_push = refuse_push;
  td_fails(TDICT_EDEVICE, "cuCtxPushCurrent", tdict_gpu_enter(b.gpu, &scope, err));
  assert_int_equal(td_last_error.native, TDICT_CU_INVALID_HANDLE);
  assert_non_null(strstr(td_last_error.message, "sim:0"));
  tdict_gpu_leave(b.gpu, &scope);
  td_fails(TDICT_EDEVICE, "cuCtxPushCurrent", b.memory->ops->allocate(b.memory, 10, &block, err));
  shim_end(&s, b.d);
  tdict_memory_counts after = fixture_memory(&b);
  assert_memory_equal(&before, &after, sizeof before);
}

GPU_CASE(gpu_check_separates_out_of_memory) {
  scoped_fixture b = fixture_open(NULL);
  td_ok(tdict_gpu_check(b.gpu, TDICT_CU_SUCCESS, "cuX", err));
  td_fails(TDICT_ENOMEM, "cuX", tdict_gpu_check(b.gpu, TDICT_CU_OUT_OF_MEMORY, "cuX", err));
  assert_int_equal(td_last_error.native, TDICT_CU_OUT_OF_MEMORY);
  td_fails(TDICT_EDEVICE, "cuY", tdict_gpu_check(b.gpu, TDICT_CU_INVALID_VALUE, "cuY", err));
  assert_non_null(strstr(td_last_error.message, "INVALID_VALUE"));
  td_fails(TDICT_EDEVICE, "12345", tdict_gpu_check(b.gpu, 12345, "cuZ", err)); /* a code that no driver knows */
}

GPU_CASE(gpu_keeps_idle_streams_and_events) {
  enum { COUNT = 40 };
  scoped_fixture b = fixture_open(NULL);
  tdict_cu_stream streams[COUNT];
  tdict_cu_event events[COUNT];
  tdict_device_counts begin = fixture_counts(&b), most;
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < COUNT; i++) {
      td_ok(tdict_gpu_take_stream(b.gpu, &streams[i], err));
      td_ok(tdict_gpu_take_event(b.gpu, &events[i], err));
      for (int k = 0; k < i; k++) assert_true(streams[k] != streams[i] && events[k] != events[i]);
    }
    if (round == 0) most = fixture_counts(&b);
    assert_int_equal(fixture_counts(&b).num_streams, most.num_streams);
    assert_int_equal(fixture_counts(&b).num_events, most.num_events);
    for (int i = 0; i < COUNT; i++) {
      tdict_gpu_give_stream(b.gpu, streams[i]);
      tdict_gpu_give_event(b.gpu, events[i]);
    }
  }
  assert_in_range(most.num_streams, begin.num_streams, begin.num_streams + COUNT);
  assert_int_equal(fixture_counts(&b).num_streams, most.num_streams);
  assert_int_equal(fixture_counts(&b).num_events, most.num_events);
}

GPU_CASE(gpu_give_survives_enomem) {
  scoped_fixture b = fixture_open(NULL);
  tdict_device_counts begin = fixture_counts(&b);
  tdict_cu_stream stream;
  tdict_cu_event event;
  assert_int_equal(b.gpu->num_streams + b.gpu->num_events, 0);
  td_ok(tdict_gpu_take_stream(b.gpu, &stream, err));
  td_ok(tdict_gpu_take_event(b.gpu, &event, err));
  td_fail_alloc(0, true); /* no memory for the list, so the objects are destroyed */
  tdict_gpu_give_stream(b.gpu, stream);
  tdict_gpu_give_event(b.gpu, event);
  td_fail_alloc_stop();
  assert_int_equal(fixture_counts(&b).num_streams, begin.num_streams);
  assert_int_equal(fixture_counts(&b).num_events, begin.num_events);
}

typedef struct barrier {
  atomic_bool entered, open;
} barrier;
static void hold_stream(void *user) {
  barrier *g = user;
  atomic_store(&g->entered, true);
  while (!atomic_load(&g->open)) usleep(100);
}

/* Work on `stream` waits for the work that is queued on `after`, but not for later work. */
SIM_CASE(gpu_follow_orders_two_streams) {
  scoped_fixture b = fixture_open(NULL);
  tdict_driver *d = b.d;
  tdict_cu_stream after, stream;
  barrier first = {false, false}, later = {false, false};
  void *host;
  tdict_block block = fixture_take(&b, 4096);
  CU(SUCCESS, host_alloc, &host, 4096, TDICT_CU_HOST_PORTABLE);
  td_ok(tdict_gpu_take_stream(b.gpu, &after, err));
  td_ok(tdict_gpu_take_stream(b.gpu, &stream, err));
  td_ok(tdict_sim_launch((tdict_stream){td_device(), after}, hold_stream, &first, err));
  td_ok(tdict_gpu_follow(b.gpu, stream, after, err));
  td_ok(tdict_gpu_follow(b.gpu, after, stream, err)); /* may reuse the event, whose state the first wait captured */
  td_ok(tdict_sim_launch((tdict_stream){td_device(), after}, hold_stream, &later, err));
  CU(SUCCESS, copy_h2d_async, block.data, host, 4096, stream);
  while (!atomic_load(&first.entered)) usleep(100);
  td_rest();
  CU(NOT_READY, stream_query, stream);
  atomic_store(&first.open, true);
  CU(SUCCESS, stream_synchronize, stream);
  CU(NOT_READY, stream_query, after);
  atomic_store(&later.open, true);
  CU(SUCCESS, stream_synchronize, after);
  assert_int_equal(b.gpu->num_events, 1);
  tdict_gpu_give_stream(b.gpu, stream);
  tdict_gpu_give_stream(b.gpu, after);
  CU(SUCCESS, host_free, host, 4096);
  fixture_give(&b, &block);
}

static tdict_storage *wrap(void *data, size_t bytes, uint32_t flags) {
  return td_made(storage, tdict_storage_wrap(data, bytes, tdict_cpu(), flags, &made, err));
}

GPU_CASE(gpu_is_pinned_asks_the_driver) {
  enum { BYTES = 3 << 20 };
  scoped_fixture b = fixture_open(NULL);
  tdict_storage *own = NULL, *plain = NULL, *claimed, *lied, *silent;
  scoped_chars pages = aligned_alloc(4096, 2 * 4096), pageable = malloc(4096);
  assert_true(pages && pageable);
  assert_int_equal(tdict_counted_host_register(b.d, pages, 4096), TDICT_CU_SUCCESS);
  td_ok(tdict_storage_create(tdict_pinned_memory(b.context), BYTES, false, &own, err));
  td_ok(tdict_storage_create(NULL, BYTES, false, &plain, err));
  claimed = wrap(pages, 2 * 4096, TDICT_STORAGE_CLAIMED);
  silent = wrap(pages, 4096, 0);
  lied = wrap(pageable, 4096, TDICT_STORAGE_CLAIMED);
  char *p = own->data;
  assert_true(tdict_gpu_is_pinned(b.gpu, own, p, BYTES));
  assert_true(tdict_gpu_is_pinned(b.gpu, own, p + 12345, 1));
  assert_true(tdict_gpu_is_pinned(b.gpu, own, p + BYTES - 1, 1));
  assert_false(tdict_gpu_is_pinned(b.gpu, own, p + BYTES - 1, 2));
  assert_false(tdict_gpu_is_pinned(b.gpu, own, p + 1, SIZE_MAX)); /* the end of the range would overflow */
  assert_true(tdict_gpu_is_pinned(b.gpu, claimed, pages, 4096));
  assert_true(tdict_gpu_is_pinned(b.gpu, claimed, pages + 100, 3996));
  assert_false(tdict_gpu_is_pinned(b.gpu, claimed, pages, 4097)); /* only 4096 bytes are pinned */
  assert_false(tdict_gpu_is_pinned(b.gpu, claimed, pages + 4096, 1));
  assert_false(tdict_gpu_is_pinned(b.gpu, silent, pages, 4096));
  assert_false(tdict_gpu_is_pinned(b.gpu, lied, pageable, 1));
  assert_false(tdict_gpu_is_pinned(b.gpu, plain, plain->data, 1));
  tdict_block block = fixture_take(&b, 4096);
  assert_false(tdict_gpu_is_pinned(b.gpu, own, block.data, 1)); /* device memory is not pinned memory */
  fixture_give(&b, &block);
  tdict_storage *all[] = {own, plain, claimed, lied, silent};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) tdict_storage_release(all[i]);
  assert_int_equal(tdict_counted_host_unregister(b.d, pages, 4096), TDICT_CU_SUCCESS);
}

GPU_CASE(gpu_pinner_registers_and_unregisters) {
  scoped_fixture b = fixture_open(NULL);
  tdict_pinner p = tdict_gpu_pinner(b.gpu, NULL);
  size_t begin = fixture_counts(&b).pinned_bytes;
  void *pages = aligned_alloc(4096, 4096), *own = NULL;
  assert_non_null(pages);
  tdict_gpu_leave(b.gpu, &b.scope); /* the function makes the context current by itself */
  td_ok(p.ops->reg(p.self, pages, 4096, err));
  td_ok(p.ops->allocate(p.self, 8192, &own, err));
  memset(own, 1, 8192);
  assert_int_equal(fixture_counts(&b).pinned_bytes, begin + 3 * 4096);
  p.ops->unreg(p.self, pages, 4096);
  p.ops->free(p.self, own, 8192);
  assert_int_equal(fixture_counts(&b).pinned_bytes, begin);
  free(pages);
  p.ops->retain(p.self);
  assert_int_equal(atomic_load(&b.gpu->refs), 3); /* held by the devices, the pinned pool and this test */
  p.ops->release(p.self);
}

static void count_refusals(void *user, int32_t level, const char *text) {
  if (level == TDICT_LOG_INFO && strstr(text, "binding it to node 1023 failed")) ++*(int *)user;
}
/* If the NUMA node does not exist, pages are still pinned, and the refusal is logged once. */
GPU_CASE(gpu_logs_a_refused_node_once) {
  int lines = 0;
  scoped_fixture b = fixture_open(td_options(tdict_context_options, log = count_refusals, user = &lines));
  b.gpu->node = 1023;
  tdict_pinner p = tdict_gpu_pinner(b.gpu, NULL);
  for (int i = 0; i < 3; i++) {
    tdict_pinned_pages pages;
    td_ok(tdict_pinned_pages_get(&p, (size_t)4 << 20, &pages, err));
    assert_int_equal(pages.way, TDICT_PINNED_REGISTERED);
    memset(pages.data, 0xA5, pages.bytes);
    tdict_pinned_pages_put(&p, &pages);
    assert_int_equal(lines, 1);
  }
}

static void hear_of_kernels(void *user, int32_t level, const char *text) {
  if (strstr(text, "kernels") == NULL) return;
  assert_int_equal(level, TDICT_LOG_WARNING);
  assert_non_null(strstr(text, "calls that can do without kernels are slower: "));
  assert_non_null(strstr(text, "cannot compile the library's kernels: cuModuleLoadData returned 221, "));
  ++*(int *)user;
}
/* Without kernels, some calls fall back to a slower way and return no error. The cause is logged once. */
GPU_CASE(gpu_logs_kernels_that_cannot_be_loaded_once) {
  int lines = 0;
  shim s;
  scoped_fixture b = fixture_open(td_options(tdict_context_options, log = hear_of_kernels, user = &lines));
  shim_begin(&s, b.d);
  s.ops.module_load = refuse_module;
  for (int i = 0; i < 3; i++) {
    td_fails(TDICT_ENOTSUP, "cuModuleLoadData returned 221", tdict_gpu_load_kernels(b.gpu, err));
    assert_int_equal(tdict_gpu_load_kernels(b.gpu, NULL), TDICT_ENOTSUP);
    assert_int_equal(lines, 1);
  }
  shim_end(&s, b.d);
  td_ok(tdict_gpu_load_kernels(b.gpu, err));
}

GPU_CASE(gpu_open_refuses_absent_ordinals) {
  scoped_fixture b = fixture_open(NULL);
  tdict_gpu *gpu = NULL;
  int count = 0;
  b.d->ops->device_count(b.d, &count);
  td_fails(TDICT_ENODEVICE, "absent", tdict_gpu_open(b.d, count, 0, &gpu, err));
  td_fails(TDICT_ENODEVICE, "absent", tdict_gpu_open(b.d, -1, 0, &gpu, err));
  assert_null(gpu);
}

/* Makes one driver call fail while a GPU is opened, after `calls_left` other calls. */
static shim opening;
static int calls_left;
static tdict_cu next_call(tdict_cu result) { return calls_left-- == 0 ? TDICT_CU_UNKNOWN : result; }
static tdict_cu open_attribute(tdict_driver *d, int ordinal, int attribute, int *value) {
  return next_call(opening.real->device_attribute(d, ordinal, attribute, value));
}
static tdict_cu open_retain(tdict_driver *d, int ordinal, tdict_cu_context *out) {
  return calls_left-- == 0 ? TDICT_CU_UNKNOWN : opening.real->ctx_retain(d, ordinal, out);
}
static tdict_cu open_pool(tdict_driver *d, int ordinal, tdict_cu_pool *out) {
  return calls_left-- == 0 ? TDICT_CU_UNKNOWN : opening.real->pool_create(d, ordinal, out);
}
static tdict_cu open_set(tdict_driver *d, tdict_cu_pool pool, int attribute, uint64_t value) {
  return next_call(opening.real->pool_set(d, pool, attribute, value));
}
static tdict_cu open_stream(tdict_driver *d, tdict_cu_stream *out, unsigned flags) {
  return calls_left-- == 0 ? TDICT_CU_UNKNOWN : opening.real->stream_create(d, out, flags);
}

CASE(gpu_open_leaks_nothing_when_it_fails) {
  scoped_driver d = open_sim();
  tdict_gpu *gpu = NULL;
  tdict_driver_sim_count n;
  shim_begin(&opening, d);
  opening.ops.device_attribute = open_attribute;
  opening.ops.ctx_retain = open_retain;
  opening.ops.pool_create = open_pool;
  opening.ops.pool_set = open_set;
  opening.ops.stream_create = open_stream;
  for (int i = 0; i < 8; i++) { /* the calls: retain, two attributes, pool, two settings, two streams */
    tdict_cu_context current = (tdict_cu_context)(void *)&gpu;
    calls_left = i;
    td_fails(TDICT_EDEVICE, "cu", tdict_gpu_open(d, 0, 0, &gpu, err));
    assert_int_equal(td_last_error.native, TDICT_CU_UNKNOWN);
    assert_null(gpu);
    tdict_driver_sim_counts(d, 0, &n);
    assert_int_equal(n.num_streams + n.num_events + n.num_allocations, 0);
    assert_int_equal(atomic_load(&d->num_streams) + atomic_load(&d->num_events), 0);
    assert_int_equal(atomic_load(&d->refs), 1);
    CU(SUCCESS, ctx_current, &current);
    assert_null(current);
    CU(INVALID_CONTEXT, ctx_release, 0); /* the context has no reference left */
  }
  calls_left = 8;
  td_ok(tdict_gpu_open(d, 0, 0, &gpu, err));
  tdict_gpu_release(gpu);
  shim_end(&opening, d);
}

static int num_unordered_frees;
static tdict_cu count_free(tdict_driver *d, void *memory) {
  num_unordered_frees++;
  return opening.real->mem_free(d, memory);
}

/* Memory of a pool must be freed on a stream. compute-sanitizer --track-stream-ordered-races reports cuMemFree() of
 * such memory. */
CASE(gpu_open_frees_in_the_order_of_the_stream) {
  scoped_driver d = open_sim();
  tdict_gpu *gpu = NULL;
  tdict_driver_sim_count n;
  shim_begin(&opening, d);
  opening.ops.mem_free = count_free;
  td_ok(tdict_gpu_open(d, 0, SIZE_MAX, &gpu, err));
  tdict_driver_sim_counts(d, 0, &n);
  assert_int_equal(n.num_allocations, 0);
  assert_int_equal(n.device_bytes, 0);
  tdict_gpu_release(gpu);
  assert_int_equal(num_unordered_frees, 0);
  shim_end(&opening, d);
}

static tdict_cu_stream created, waited_for;
static tdict_cu note_create(tdict_driver *d, tdict_cu_stream *out, unsigned flags) {
  tdict_cu result = opening.real->stream_create(d, out, flags);
  created = *out;
  waited_for = NULL;
  return result;
}
static tdict_cu note_wait(tdict_driver *d, tdict_cu_stream stream) {
  waited_for = stream;
  return (void)d, TDICT_CU_OUT_OF_MEMORY; /* this failure does not matter: the host has waited before */
}

/* compute-sanitizer --track-stream-ordered-races reports each use of a block on a stream that was created after the
 * host waited for the allocation, unless the host waits again. */
CASE(gpu_waits_for_allocations_after_creating_a_stream) {
  scoped_driver d = open_sim();
  tdict_gpu *gpu = NULL;
  tdict_gpu_scope scope;
  tdict_cu_stream stream;
  td_ok(tdict_gpu_open(d, 0, SIZE_MAX, &gpu, err));
  td_ok(tdict_gpu_enter(gpu, &scope, err));
  shim_begin(&opening, d);
  opening.ops.stream_create = note_create;
  opening.ops.stream_synchronize = note_wait;
  td_ok(tdict_gpu_take_stream(gpu, &stream, err));
  shim_end(&opening, d);
  assert_ptr_equal(created, stream);
  assert_ptr_equal(waited_for, gpu->alloc_stream);
  tdict_gpu_give_stream(gpu, stream);
  tdict_gpu_leave(gpu, &scope);
  tdict_gpu_release(gpu);
}

static tdict_cu no_pools(tdict_driver *d, int ordinal, int attribute, int *value) {
  tdict_cu result = opening.real->device_attribute(d, ordinal, attribute, value);
  if (attribute == TDICT_CU_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) *value = 0;
  return result;
}

CASE(gpu_open_needs_memory_pools) {
  scoped_driver d = open_sim();
  tdict_gpu *gpu = NULL;
  shim_begin(&opening, d);
  opening.ops.device_attribute = no_pools;
  td_fails(TDICT_ENODEVICE, "memory pools", tdict_gpu_open(d, 0, 0, &gpu, err));
  shim_end(&opening, d);
  assert_null(gpu);
}

CASE(gpu_open_survives_enomem) {
  scoped_driver d = open_sim();
  tdict_gpu *gpu = NULL;
  bool refused = true;
  int rounds = 0;
  for (; refused; rounds++) {
    tdict_driver_sim_count n;
    tdict_error err = {0};
    td_fail_alloc(rounds, false);
    tdict_status status = tdict_gpu_open(d, 0, 0, &gpu, &err);
    refused = td_fail_alloc_stop();
    assert_true(status == TDICT_OK || (refused && status == TDICT_ENOMEM));
    if (!refused) break;
    tdict_gpu_release(gpu); /* not NULL if the open succeeded: it ignores a failed warm-up allocation from the pool */
    gpu = NULL;
    tdict_driver_sim_counts(d, 0, &n);
    assert_int_equal(n.num_streams + n.num_events + n.num_allocations, 0);
    assert_int_equal(atomic_load(&d->refs), 1);
  }
  assert_true(rounds >= 3);
  tdict_gpu_retain(gpu);
  tdict_gpu_release(gpu);
  assert_int_equal(atomic_load(&d->refs), 2);
  tdict_gpu_release(gpu);
  assert_int_equal(atomic_load(&d->refs), 1);
  tdict_gpu_release(NULL);
}

CASE(gpu_release_destroys_what_it_created) {
  scoped_driver d = open_sim();
  tdict_gpu *gpu = NULL;
  tdict_gpu_scope scope;
  tdict_cu_stream stream;
  char host[64] = {0};
  td_ok(tdict_gpu_open(d, 0, SIZE_MAX, &gpu, err));
  tdict_storage *s = td_made(storage, tdict_storage_create(&gpu->memory, 4096, true, &made, err));
  td_ok(gpu->memory.ops->copy(&gpu->memory, &(tdict_rect){host, s->data, 64, 64, 64, 1}, TDICT_COPY_OUT, err));
  td_ok(tdict_gpu_enter(gpu, &scope, err));
  td_ok(tdict_gpu_take_stream(gpu, &stream, err));
  tdict_gpu_give_stream(gpu, stream);
  tdict_gpu_leave(gpu, &scope);
  tdict_gpu_release(gpu); /* the storage keeps the GPU open */
  assert_true(atomic_load(&d->num_streams) >= 3);
  tdict_storage_release(s);
  tdict_driver_sim_count n;
  tdict_driver_sim_counts(d, 0, &n);
  assert_int_equal(n.num_streams + n.num_events + n.num_allocations, 0);
  assert_int_equal(n.pinned_bytes + n.device_bytes, 0);
  assert_int_equal(atomic_load(&d->num_streams) + atomic_load(&d->num_events), 0);
  assert_int_equal(atomic_load(&d->pinned_bytes), 0);
  assert_int_equal(atomic_load(&d->refs), 1);
}

static void *take_and_give(void *user) {
  tdict_gpu *gpu = user;
  tdict_gpu_scope scope;
  if (tdict_gpu_enter(gpu, &scope, NULL) != TDICT_OK) return user;
  for (int i = 0; i < 200; i++) {
    tdict_cu_stream a, b;
    if (tdict_gpu_take_stream(gpu, &a, NULL) != TDICT_OK || tdict_gpu_take_stream(gpu, &b, NULL) != TDICT_OK)
      return user;
    if (a == b || tdict_gpu_follow(gpu, a, b, NULL) != TDICT_OK) return user;
    tdict_gpu_give_stream(gpu, a);
    tdict_gpu_give_stream(gpu, b);
  }
  tdict_gpu_leave(gpu, &scope);
  return NULL;
}

GPU_CASE(gpu_from_many_threads) {
  scoped_fixture b = fixture_open(NULL);
  tdict_device_counts begin = fixture_counts(&b), end;
  assert_null(td_in_threads(4, take_and_give, b.gpu, 0));
  end = fixture_counts(&b);
  assert_true(end.num_streams <= begin.num_streams + 8);
  assert_true(end.num_events <= begin.num_events + 4);
}
