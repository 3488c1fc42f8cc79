/* Tests the operation `run` of device memory, which launches kernels: its order, its buffers, and failures. */
#include "core/kernel/work.h"
#include "device/blocked_stream.h"
#include "device/gpu.h"
#include "device/kernels/image.h"
#include "support/driver_fault.h"

enum { ROWS = 700, BYTES = ROWS * 8 };

/* Makes `work` gather int64 rows in reverse order. The table of 700 positions does not fit into the parameters of a
 * launch, so it needs a buffer. If `small` is true, there are only 3 rows. */
static void make_gather(tdict_kernel_work *work, void *dst, const void *src, bool small) {
  const int64_t count = small ? 3 : ROWS, shape[] = {count}, strides[] = {8};
  int64_t positions[ROWS];
  for (int64_t i = 0; i < count; i++) positions[i] = count - 1 - i;
  tdict_kernel_list list = {.size = ROWS, .stride = 8};
  const tdict_kernel_move move = {.dst = dst,
                                  .src = src,
                                  .ndim = 1,
                                  .shape = shape,
                                  .dst_strides = strides,
                                  .src_strides = strides,
                                  .item_bytes = 8,
                                  .num_lists = 1,
                                  .lists = &list};
  tdict_kernel_work_init(work, TDICT_KERNEL_COPY);
  td_ok(tdict_kernel_add_positions(work, positions, count, &list.positions, err));
  td_ok(tdict_kernel_add_copy(work, &move, err));
}

/* Makes `work` a conversion that reports results. Element 5 of the source is the first that does not fit int8. */
static void make_conversion(tdict_kernel_work *work, void *dst, const void *src) {
  const int64_t shape[] = {ROWS}, to[] = {1}, from[] = {8};
  const tdict_kernel_move move = {
      .dst = dst, .src = src, .ndim = 1, .shape = shape, .dst_strides = to, .src_strides = from};
  tdict_kernel_work_init(work, TDICT_KERNEL_CONVERT);
  td_ok(tdict_kernel_add_convert(work, &move, &(tdict_cast){.to = TDICT_I8, .from = TDICT_I64}, err));
}

typedef struct run_case {
  fixture b;
  raw_memory *raw;
  tdict_block src, dst;
  tdict_stream stream;
  int64_t source[ROWS], old[ROWS];
} run_case;
static void open_case(run_case *c, const tdict_context_options *options) {
  memset(c, 0, sizeof *c);
  c->b = fixture_open(options);
  c->raw = raw_open(c->b.context, td_device());
  c->src = fixture_take(&c->b, BYTES);
  c->dst = fixture_take(&c->b, BYTES);
  td_ok(tdict_stream_create(c->b.context, td_device(), &c->stream, err));
  for (int i = 0; i < ROWS; i++) {
    c->source[i] = i == 5 || i == 99 ? 1000 + i : i % 100;
    c->old[i] = -7;
  }
  raw_write(c->raw, c->src.data, c->source, BYTES);
  raw_write(c->raw, c->dst.data, c->old, BYTES);
}
static void close_case(run_case *c) {
  tdict_stream_destroy(c->b.context, c->stream);
  raw_close(c->raw);
  fixture_give(&c->b, &c->src);
  fixture_give(&c->b, &c->dst);
  fixture_close(&c->b);
}
#define scoped_run_case TD_SCOPED(close_case, run_case)
static tdict_status run(const run_case *c, tdict_kernel_work *work, tdict_run_order *order, tdict_error *err) {
  return c->b.memory->ops->run(c->b.memory, work, order, err);
}
static void check_gathered(const run_case *c, bool small) {
  int64_t found[ROWS], wanted[ROWS];
  const int count = small ? 3 : ROWS;
  for (int i = 0; i < ROWS; i++) wanted[i] = i < count ? c->source[count - 1 - i] : c->old[i];
  raw_read(c->raw, found, c->dst.data, BYTES);
  assert_memory_equal(found, wanted, BYTES);
}

GPU_CASE(run_returns_when_the_work_is_done) {
  for (int small = 0; small < 2; small++) {
    scoped_run_case c;
    tdict_kernel_work work;
    open_case(&c, NULL);
    make_gather(&work, c.dst.data, c.src.data, small);
    td_ok(run(&c, &work, NULL, err));
    check_gathered(&c, small);
    tdict_kernel_work_reset(&work);
  }
}

/* A run on a stream reads what an earlier copy on the stream wrote, and a later copy reads the result of the run. */
GPU_CASE(run_on_a_stream_is_ordered_with_its_work) {
  scoped_run_case c;
  tdict_kernel_work work;
  tdict_run_order order = {.what = "test"};
  open_case(&c, NULL);
  tdict_driver *d = c.b.d;
  void *host = NULL;
  CU(SUCCESS, host_alloc, &host, 2 * BYTES, TDICT_CU_HOST_PORTABLE);
  memset(host, 0, 2 * BYTES);
  for (int i = 0; i < ROWS; i++) ((int64_t *)host)[i] = c.source[i] = 31 * i;
  order.stream = c.stream;
  make_gather(&work, c.dst.data, c.src.data, false);
  CU(SUCCESS, copy_h2d_async, c.src.data, host, BYTES, c.stream.handle);
  td_ok(run(&c, &work, &order, err));
  tdict_kernel_work_reset(&work); /* the run has copied what it needs */
  CU(SUCCESS, copy_d2h_async, (char *)host + BYTES, c.dst.data, BYTES, c.stream.handle);
  assert_true(order.use->ops->wait(order.use, INT64_MAX));
  CU(SUCCESS, stream_synchronize, c.stream.handle);
  for (int i = 0; i < ROWS; i++) assert_int_equal(((int64_t *)host)[ROWS + i], c.source[ROWS - 1 - i]);
  order.use->ops->release(order.use);
  CU(SUCCESS, host_free, host, 2 * BYTES);
}

/* The run returns at once. Its table is copied and its kernel runs when the test steps the simulator. */
SIM_CASE(run_on_a_stream_returns_before_the_work) {
  for (int small = 0; small < 2; small++) {
    scoped_run_case c;
    tdict_kernel_work work;
    tdict_run_order order = {.what = "test"};
    open_case(&c, NULL);
    order.stream = c.stream;
    make_gather(&work, c.dst.data, c.src.data, small);
    td_ok(run(&c, &work, NULL, err)); /* loads the module and allocates the buffer */
    raw_write(c.raw, c.dst.data, c.old, BYTES);
    td_ok(tdict_sim_hold(c.b.context, err));
    td_ok(run(&c, &work, &order, err));
    tdict_kernel_work_reset(&work);
    assert_false(order.use->ops->poll(order.use));
    if (!small) td_ok(tdict_sim_step(c.b.context, 1, err));
    assert_false(order.use->ops->poll(order.use));
    td_ok(tdict_sim_step(c.b.context, 1, err));
    assert_true(order.use->ops->poll(order.use));
    order.use->ops->release(order.use);
    td_ok(tdict_sim_resume(c.b.context, err));
    check_gathered(&c, small);
  }
}

/* A fence that records its calls. */
typedef struct noted_fence {
  tdict_fence fence; /* first */
  int waits;
  void *device, *stream; /* the arguments of wait_on_stream */
} noted_fence;
static bool noted_poll(tdict_fence *fence) { return fence == NULL; }
static void note_reference(tdict_fence *fence) { (void)fence; }
static bool noted_wait(tdict_fence *fence, int64_t deadline_ns) {
  assert_true(deadline_ns == INT64_MAX);
  ((noted_fence *)fence)->waits++;
  return true;
}
static tdict_status noted_wait_on_stream(tdict_fence *fence, void *device, void *stream, tdict_error *error) {
  noted_fence *f = (noted_fence *)fence;
  (void)error;
  f->device = device;
  f->stream = stream;
  return TDICT_OK;
}

/* The stream waits for the fences of the run's order. The host waits only for fences that a stream cannot wait for. If
 * the list of fences is incomplete, nothing is launched. */
GPU_CASE(run_waits_for_the_fences_of_its_order) {
  static const tdict_fence_ops queued = {noted_poll, noted_wait, noted_wait_on_stream, note_reference, note_reference};
  static const tdict_fence_ops waited = {noted_poll, noted_wait, NULL, note_reference, note_reference};
  scoped_run_case c;
  tdict_kernel_work work;
  noted_fence f[] = {{.fence = {&queued}}, {.fence = {&waited}}};
  tdict_fences after = {0};
  open_case(&c, NULL);
  for (int i = 0; i < 2; i++) tdict_fences_add(&after, &f[i].fence);
  tdict_run_order order = {.what = "test", .stream = c.stream, .after = &after};
  make_gather(&work, c.dst.data, c.src.data, true);
  after.no_memory = true;
  td_fails(TDICT_ENOMEM, "test: no host memory for the work to wait for", run(&c, &work, &order, err));
  assert_null(f[0].device);
  after.no_memory = false;
  td_ok(run(&c, &work, &order, err));
  assert_ptr_equal(f[0].device, c.b.gpu);
  assert_ptr_equal(f[0].stream, c.stream.handle);
  assert_int_equal(f[0].waits, 0);
  assert_int_equal(f[1].waits, 1);
  assert_true(order.use->ops->wait(order.use, INT64_MAX));
  check_gathered(&c, true);
  order.use->ops->release(order.use);
  tdict_kernel_work_reset(&work);
  tdict_fences_reset(&after);
}

/* A run without an order waits for the legacy stream, as copies do. */
SIM_CASE(run_follows_the_legacy_stream) {
  scoped_run_case c;
  tdict_kernel_work work;
  blocked_stream blocked;
  tdict_sim_options sim = td_with(tdict_sim_options, num_devices = 2);
  open_case(&c, td_options(tdict_context_options, sim = &sim));
  tdict_driver *d = c.b.d;
  void *host = NULL;
  CU(SUCCESS, host_alloc, &host, BYTES, TDICT_CU_HOST_PORTABLE);
  for (int i = 0; i < ROWS; i++) ((int64_t *)host)[i] = c.source[i] = 13 * i;
  block_stream(&c.b, &blocked);
  CU(SUCCESS, copy_h2d_async, c.src.data, host, BYTES, NULL);
  make_gather(&work, c.dst.data, c.src.data, true);
  open_blocked_stream(&blocked);
  td_ok(run(&c, &work, NULL, err));
  end_blocked_stream(&c.b, &blocked);
  check_gathered(&c, true);
  tdict_kernel_work_reset(&work);
  CU(SUCCESS, host_free, host, BYTES);
}

/* When the run returns, its results are on the host, even if it runs on a stream. */
GPU_CASE(run_waits_for_results) {
  for (int on_stream = 0; on_stream < 2; on_stream++) {
    scoped_run_case c;
    tdict_kernel_work work;
    open_case(&c, NULL);
    tdict_run_order order = {.what = "test", .stream = c.stream};
    make_conversion(&work, c.dst.data, c.src.data);
    td_ok(run(&c, &work, on_stream ? &order : NULL, err));
    assert_int_equal(work.results[0], 5);
    int8_t found[ROWS];
    raw_read(c.raw, found, c.dst.data, ROWS);
    for (int i = 0; i < ROWS; i++)
      if (i != 5 && i != 99) assert_int_equal(found[i], c.source[i]);
    assert_null(order.use); /* the run has waited, so later work need not wait */
    tdict_kernel_work_reset(&work);
  }
}

static struct wait_shim {
  shim s;
  int waits;
} waiting;
static tdict_cu counted_wait(tdict_driver *d, tdict_cu_stream s) {
  waiting.waits++;
  return waiting.s.real->stream_synchronize(d, s);
}

/* A run without an order waits for its stream once, even if it has results. */
GPU_CASE(run_waits_once) {
  for (int results = 0; results < 2; results++) {
    scoped_run_case c;
    tdict_kernel_work work;
    open_case(&c, NULL);
    if (results)
      make_conversion(&work, c.dst.data, c.src.data);
    else
      make_gather(&work, c.dst.data, c.src.data, false);
    td_ok(run(&c, &work, NULL, err)); /* the buffer is allocated before the waits are counted */
    shim_begin(&waiting.s, c.b.d);
    waiting.s.ops.stream_synchronize = counted_wait;
    waiting.waits = 0;
    td_ok(run(&c, &work, NULL, err));
    assert_int_equal(waiting.waits, 1);
    shim_end(&waiting.s, c.b.d);
    if (!results) check_gathered(&c, false);
    if (results) assert_int_equal(work.results[0], 5);
    tdict_kernel_work_reset(&work);
  }
}

/* A work without elements launches nothing, but its order still gets a use. */
GPU_CASE(run_of_an_empty_work) {
  scoped_run_case c;
  tdict_kernel_work work;
  open_case(&c, NULL);
  tdict_run_order order = {.what = "test", .stream = c.stream};
  tdict_kernel_work_init(&work, TDICT_KERNEL_COPY);
  td_ok(run(&c, &work, NULL, err));
  td_ok(run(&c, &work, &order, err));
  assert_true(order.use->ops->wait(order.use, INT64_MAX));
  order.use->ops->release(order.use);
}

static struct load_shim {
  shim s;
  int loads, unloads;
  tdict_cu result; /* returned by module_load; SUCCESS: the call is forwarded */
  int capture;     /* reported by stream_capture_status */
} loading;
static tdict_cu counted_load(tdict_driver *d, const char *image, tdict_cu_module *out) {
  loading.loads++;
  assert_ptr_equal(image, tdict_kernel_image);
  return loading.result ? loading.result : loading.s.real->module_load(d, image, out);
}
static tdict_cu counted_unload(tdict_driver *d, tdict_cu_module module) {
  loading.unloads++;
  return loading.s.real->module_unload(d, module);
}
static tdict_cu reported_capture(tdict_driver *d, tdict_cu_stream s, int *status) {
  tdict_cu result = loading.s.real->stream_capture_status(d, s, status);
  *status = loading.capture;
  return result;
}

GPU_CASE(run_loads_the_kernels_once) {
  run_case c;
  tdict_kernel_work work;
  open_case(&c, NULL);
  scoped_driver d = tdict_driver_retain(c.b.d);
  shim_begin(&loading.s, d);
  loading.s.ops.module_load = counted_load;
  loading.s.ops.module_unload = counted_unload;
  make_gather(&work, c.dst.data, c.src.data, true);
  assert_int_equal(loading.loads, 0); /* kernels are loaded when the first work runs */
  for (int i = 0; i < 3; i++) td_ok(run(&c, &work, NULL, err));
  assert_int_equal(loading.loads, 1);
  tdict_kernel_work_reset(&work);
  close_case(&c);
  assert_int_equal(loading.unloads, 1);
  shim_end(&loading.s, d);
}

/* If the driver lacks a compiler, only kernels are refused. Once loading succeeds, kernels run. */
GPU_CASE(run_without_a_compiler) {
  static const tdict_cu codes[] = {TDICT_CU_NO_BINARY_FOR_GPU,        TDICT_CU_INVALID_PTX,
                                   TDICT_CU_JIT_COMPILER_NOT_FOUND,   TDICT_CU_UNSUPPORTED_PTX_VERSION,
                                   TDICT_CU_JIT_COMPILATION_DISABLED, TDICT_CU_NOT_SUPPORTED};
  scoped_run_case c;
  tdict_kernel_work work;
  open_case(&c, NULL);
  tdict_run_order order = {.what = "test", .stream = c.stream};
  shim_begin(&loading.s, c.b.d);
  loading.s.ops.module_load = counted_load;
  make_gather(&work, c.dst.data, c.src.data, false);
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
    char text[80];
    loading.result = codes[i];
    snprintf(text, sizeof text, "the driver cannot compile the library's kernels: cuModuleLoadData returned %d",
             codes[i]);
    td_fails(TDICT_ENOTSUP, text, run(&c, &work, i % 2 ? &order : NULL, err));
    assert_int_equal(td_last_error.native, codes[i]);
    assert_null(order.use);
  }
  loading.result = TDICT_CU_UNKNOWN;
  td_fails(TDICT_EDEVICE, "cuModuleLoadData", run(&c, &work, NULL, err));
  int64_t found[ROWS];
  const tdict_rect rect = {found, c.dst.data, BYTES, BYTES, BYTES, 1};
  td_ok(c.b.memory->ops->copy(c.b.memory, &rect, TDICT_COPY_OUT, err)); /* copies need no kernel */
  assert_memory_equal(found, c.old, BYTES);
  loading.result = TDICT_CU_SUCCESS;
  td_ok(run(&c, &work, NULL, err));
  check_gathered(&c, false);
  shim_end(&loading.s, c.b.d);
  tdict_kernel_work_reset(&work);
}

GPU_CASE(run_refuses_streams) {
  scoped_run_case c;
  tdict_kernel_work work;
  open_case(&c, NULL);
  make_gather(&work, c.dst.data, c.src.data, true);
  tdict_run_order order = {.what = "index_get", .stream = {tdict_cpu(), NULL}};
  td_fails(TDICT_EWRONGDEVICE, "index_get: the stream belongs to cpu", run(&c, &work, &order, err));
  order.stream = (tdict_stream){{td_device().type, 7}, c.stream.handle};
  td_fails(TDICT_EWRONGDEVICE, "index_get: the stream belongs to", run(&c, &work, &order, err));
  order.stream = c.stream;
  shim_begin(&loading.s, c.b.d);
  loading.s.ops.stream_capture_status = reported_capture;
  loading.capture = TDICT_CU_CAPTURE_STATUS_ACTIVE;
  td_fails(TDICT_ECAPTURE, "index_get: the stream is being captured", run(&c, &work, &order, err));
  shim_end(&loading.s, c.b.d);
  assert_null(order.use);
  int64_t found[ROWS];
  raw_read(c.raw, found, c.dst.data, BYTES);
  assert_memory_equal(found, c.old, BYTES);
  tdict_kernel_work_reset(&work);
}

/* Each run that waits on a stream has its own buffer. Later runs reuse the buffers, and trimming frees them. */
SIM_CASE(run_reuses_buffers_after_their_launch) {
  enum { RUNS = TDICT_KEPT_TABLES };
  scoped_run_case c;
  tdict_kernel_work work;
  tdict_run_order order = {.what = "test"};
  open_case(&c, NULL);
  order.stream = c.stream;
  const size_t before = fixture_counts(&c.b).pinned_bytes;
  make_gather(&work, c.dst.data, c.src.data, false);
  td_ok(run(&c, &work, NULL, err));
  const size_t each = fixture_counts(&c.b).pinned_bytes - before;
  assert_true(each >= tdict_kernel_table_words(&work) * 8);
  for (int i = 0; i < 3; i++) td_ok(run(&c, &work, NULL, err));
  assert_int_equal(fixture_counts(&c.b).pinned_bytes, before + each);
  gate g = {false};
  td_ok(tdict_sim_launch(c.stream, pass_gate, &g, err));
  for (int i = 0; i < RUNS; i++) {
    td_ok(run(&c, &work, &order, err));
    order.use->ops->release(order.use);
    assert_int_equal(fixture_counts(&c.b).pinned_bytes, before + (size_t)(i + 1) * each);
  }
  tdict_gpu_trim(c.b.gpu, 0); /* frees no buffer that is in use */
  assert_int_equal(fixture_counts(&c.b).pinned_bytes, before + RUNS * each);
  open_gate(&g);
  td_ok(tdict_stream_synchronize(c.b.context, c.stream, err));
  check_gathered(&c, false);
  td_ok(run(&c, &work, &order, err));
  order.use->ops->release(order.use);
  assert_int_equal(fixture_counts(&c.b).pinned_bytes, before + RUNS * each);
  td_ok(tdict_stream_synchronize(c.b.context, c.stream, err));
  tdict_gpu_trim(c.b.gpu, 0);
  assert_int_equal(fixture_counts(&c.b).pinned_bytes, before);
  tdict_kernel_work_reset(&work);
}

/* Starts more runs than the number of buffers that the GPU keeps for reuse. */
GPU_CASE(run_with_more_buffers_than_are_kept) {
  enum { RUNS = 3 * TDICT_KEPT_TABLES };
  scoped_run_case c;
  tdict_kernel_work work;
  tdict_run_order order = {.what = "test"};
  open_case(&c, NULL);
  order.stream = c.stream;
  make_gather(&work, c.dst.data, c.src.data, false);
  for (int i = 0; i < RUNS; i++) {
    td_ok(run(&c, &work, &order, err));
    order.use->ops->release(order.use);
  }
  td_ok(tdict_stream_synchronize(c.b.context, c.stream, err));
  check_gathered(&c, false);
  tdict_kernel_work_reset(&work);
}

static void *take_block(void *user, size_t bytes) {
  (void)bytes;
  return ((const run_case *)user)->dst.data;
}
static void release_block(void *user, void *data, size_t bytes) {
  (void)user;
  (void)data;
  (void)bytes;
}
/* Kernels can also run on memory from the program's allocator. */
GPU_CASE(run_in_memory_of_an_allocator) {
  scoped_run_case c;
  tdict_kernel_work work;
  open_case(&c, NULL);
  tdict_allocator a = {
      .struct_size = sizeof a, .device = td_device(), .allocate = take_block, .release = release_block, .user = &c};
  tdict_memory *memory = td_made(memory, tdict_memory_create(c.b.context, &a, &made, err));
  make_gather(&work, c.dst.data, c.src.data, false);
  td_ok(memory->ops->run(memory, &work, NULL, err));
  check_gathered(&c, false);
  tdict_memory_release(memory);
  tdict_kernel_work_reset(&work);
}

/* A GPU over a driver whose calls fail on demand. */
typedef struct fault_case {
  tdict_driver *inner, *d;
  tdict_gpu *gpu;
  tdict_gpu_scope scope;
  tdict_cu_stream stream;
  tdict_block src, dst;
} fault_case;
static void open_fault(fault_case *c) {
  memset(c, 0, sizeof *c);
  c->inner = open_sim();
  td_ok(tdict_driver_fault_open(c->inner, &c->d, err));
  td_ok(tdict_gpu_open(c->d, 0, 0, &c->gpu, err));
  td_ok(tdict_gpu_enter(c->gpu, &c->scope, err));
  td_ok(c->gpu->memory.ops->allocate(&c->gpu->memory, BYTES, &c->src, err));
  td_ok(c->gpu->memory.ops->allocate(&c->gpu->memory, BYTES, &c->dst, err));
  assert_int_equal(c->d->ops->stream_create(c->d, &c->stream, TDICT_CU_STREAM_NON_BLOCKING), TDICT_CU_SUCCESS);
  int64_t source[ROWS];
  for (int i = 0; i < ROWS; i++) source[i] = i == 5 ? 1000 : i % 100;
  assert_int_equal(c->d->ops->copy_h2d_async(c->d, c->src.data, source, BYTES, NULL), TDICT_CU_SUCCESS);
  assert_int_equal(c->d->ops->stream_synchronize(c->d, NULL), TDICT_CU_SUCCESS);
}
static void close_fault(fault_case *c) {
  tdict_fault_live live, none = {0};
  tdict_driver_fault_arm(c->d, NULL);
  c->gpu->memory.ops->free(&c->gpu->memory, &c->src, NULL, 0);
  c->gpu->memory.ops->free(&c->gpu->memory, &c->dst, NULL, 0);
  c->d->ops->stream_destroy(c->d, c->stream);
  tdict_gpu_leave(c->gpu, &c->scope);
  tdict_gpu_release(c->gpu);
  tdict_driver_fault_get_live(c->d, &live);
  assert_memory_equal(&live, &none, sizeof live); /* nothing leaks */
  td_release(c->d, c->inner);
}

/* Waits for the queued work of an order, and releases its use. */
static void end_order(tdict_run_order *order) {
  if (!order->use) return;
  assert_true(order->use->ops->wait(order->use, INT64_MAX));
  order->use->ops->release(order->use);
  order->use = NULL;
}

/* Makes each driver call of a run fail once. The run must then return an error and leave nothing queued, or succeed
 * without this call. The next run must succeed. */
static int sweep_calls(bool results, bool on_stream) {
  int failed = 0;
  for (int64_t n = 1;; n++) {
    fault_case c;
    tdict_kernel_work work;
    tdict_driver_sim_count counts;
    open_fault(&c);
    if (results)
      make_conversion(&work, c.dst.data, c.src.data);
    else
      make_gather(&work, c.dst.data, c.src.data, false);
    tdict_run_order order = {.what = "test", .stream = {c.gpu->memory.device, c.stream}};
    tdict_error e = {0};
    const tdict_fault fault = {.kinds = TDICT_FAULT_ALL, .n = n, .code = TDICT_CU_UNKNOWN};
    tdict_driver_fault_arm(c.d, &fault);
    tdict_status status = tdict_gpu_run(c.gpu, &work, on_stream ? &order : NULL, &e);
    const bool fired = tdict_driver_fault_fired(c.d);
    tdict_driver_fault_arm(c.d, NULL);
    if (status != TDICT_OK) {
      assert_int_equal(status, TDICT_EDEVICE);
      assert_int_equal(e.status, TDICT_EDEVICE);
      assert_null(order.use);
      tdict_driver_sim_counts(c.inner, 0, &counts);
      assert_int_equal(counts.num_pending, 0);
      failed++;
    }
    end_order(&order);
    td_ok(tdict_gpu_run(c.gpu, &work, on_stream ? &order : NULL, err));
    if (results) assert_int_equal(work.results[0], 5);
    end_order(&order);
    tdict_kernel_work_reset(&work);
    close_fault(&c);
    if (!fired) return failed;
  }
}
SIM_CASE(run_with_failing_calls) {
  for (int i = 0; i < 4; i++) {
    const int failed = sweep_calls(i & 1, i & 2);
    if (failed < 12) fail_msg("only %d runs failed", failed);
  }
}

SIM_CASE(run_without_host_memory) {
  for (int i = 0; i < 4; i++) {
    int failed = 0;
    fault_case c;
    tdict_kernel_work work;
    open_fault(&c);
    if (i & 1)
      make_conversion(&work, c.dst.data, c.src.data);
    else
      make_gather(&work, c.dst.data, c.src.data, false);
    tdict_run_order order = {.what = "test", .stream = {c.gpu->memory.device, c.stream}};
    TD_SWEEP(s) { /* without an event for the buffer, the run waits and succeeds */
      failed += td_sweep_call(s, tdict_gpu_run(c.gpu, &work, i & 2 ? &order : NULL, err)) != TDICT_OK;
      end_order(&order);
    }
    assert_true(failed >= (i == 3 ? 3 : 4)); /* a run with results waits, so its order gets no use */
    tdict_kernel_work_reset(&work);
    close_fault(&c);
  }
}
