/* Runs works on a gpu. The first run loads the module with the kernels. A run passes the table of the work as
 * parameters or in a buffer, launches the kernel and reads the results. The gpu owns the module and the buffers, and
 * frees them. Thread rule: safe from any thread. */
#include <string.h>

#include "core/base/error.h"
#include "device/gpu.h"
#include "device/kernels/image.h"
#include "device/use.h"
#include "tdict/context.h"

/* Returns true for codes with which a driver refuses the kernels: its compiler is missing, disabled or too old. */
static bool means_no_compiler(tdict_cu result) {
  switch (result) {
  case TDICT_CU_NO_BINARY_FOR_GPU:
  case TDICT_CU_INVALID_PTX:
  case TDICT_CU_JIT_COMPILER_NOT_FOUND:
  case TDICT_CU_UNSUPPORTED_PTX_VERSION:
  case TDICT_CU_JIT_COMPILATION_DISABLED:
  case TDICT_CU_NOT_SUPPORTED:
    return true;
  default:
    return false;
  }
}

static tdict_status check_load(tdict_gpu *gpu, tdict_cu result, const char *call, tdict_error *err) {
  if (!means_no_compiler(result)) return tdict_gpu_check(gpu, result, call, err);
  const char *name = "?", *text = "?";
  gpu->driver->ops->error_text(gpu->driver, result, &name, &text);
  return tdict_fail_native(err, TDICT_ENOTSUP, result,
                           "%s: the driver cannot compile the library's kernels: %s returned %d, %s: %s",
                           TDICT_DEVICE_TEXT(gpu->memory.device), call, result, name, text);
}

/* Loads the module and finds its functions. The caller holds the lock. */
static tdict_status load_module(tdict_gpu *gpu, tdict_error *err) {
  tdict_driver *d = gpu->driver;
  tdict_kernel_state *k = &gpu->kernels;
  tdict_cu_module module = NULL;
  tdict_cu result = d->ops->module_load ? d->ops->module_load(d, tdict_kernel_image, &module) : TDICT_CU_NOT_SUPPORTED;
  tdict_status status = check_load(gpu, result, "cuModuleLoadData", err);
  if (status != TDICT_OK) return status;
  for (int op = 0; op < TDICT_KERNEL_NUM_OPS && status == TDICT_OK; op++) {
    result = d->ops->module_function(d, module, tdict_kernel_name((tdict_kernel_op)op), &k->functions[op]);
    status = check_load(gpu, result, "cuModuleGetFunction", err);
  }
  if (status == TDICT_OK)
    k->module = module;
  else
    d->ops->module_unload(d, module);
  return status;
}

/* Logs the first failure to load the kernels: some calls then work without kernels and return no error. The caller
 * holds the lock. */
static void log_failure(tdict_gpu *gpu, const tdict_error *cause) {
  tdict_log *log = tdict_forkmark_log(gpu->mark);
  if (!log || gpu->kernels.logged_failure) return;
  gpu->kernels.logged_failure = true;
  tdict_log_write(log, TDICT_LOG_WARNING, "calls that can do without kernels are slower: %s", cause->message);
}

/* Finds the kernel of an operation. Loads the module at the first call. */
static tdict_status find_function(tdict_gpu *gpu, tdict_kernel_op op, tdict_cu_function *out, tdict_error *err) {
  tdict_kernel_state *k = &gpu->kernels;
  tdict_error cause;
  pthread_mutex_lock(&k->lock);
  tdict_status status = k->module ? TDICT_OK : load_module(gpu, &cause);
  if (status == TDICT_OK) {
    *out = k->functions[op];
  } else {
    log_failure(gpu, &cause);
    if (err) *err = cause;
  }
  pthread_mutex_unlock(&k->lock);
  return status;
}

typedef struct launch {
  tdict_gpu *gpu;
  tdict_kernel_work *work;
  tdict_cu_stream stream;
  tdict_launch_table table; /* bytes is 0 if no buffer is used */
  size_t table_bytes;       /* bytes of the work's table in the buffer; the results follow */
  tdict_kernel_params params;
} launch;

static size_t results_bytes(const launch *l) {
  return l->work->has_results ? l->work->num_entries * sizeof(uint64_t) : 0;
}

/* Writes the table to the parameters if the table fits. Otherwise writes it to a buffer, and queues its copy to the
 * device. The kernel writes results to the pinned half of the buffer, so results need no copy. */
static tdict_status prepare_table(launch *l, tdict_error *err) {
  const size_t words = tdict_kernel_table_words(l->work);
  const bool fits = words <= TDICT_KERNEL_PARAM_WORDS;
  l->params.num_entries = l->work->num_entries;
  l->table_bytes = fits ? 0 : words * sizeof(uint64_t);
  const size_t bytes = l->table_bytes + results_bytes(l);
  if (fits) tdict_kernel_write_table(l->work, l->params.words);
  if (bytes == 0) return TDICT_OK;
  tdict_status status = tdict_gpu_take_table(l->gpu, bytes, &l->table, err);
  if (status != TDICT_OK) {
    l->table.bytes = 0;
    return status;
  }
  if (!fits) tdict_kernel_write_table(l->work, l->table.host);
  memset((char *)l->table.host + l->table_bytes, 0xff, results_bytes(l)); /* TDICT_KERNEL_NO_RESULT */
  if (l->work->has_results) l->params.results = (uint64_t)(uintptr_t)l->table.host + l->table_bytes;
  if (fits) return TDICT_OK;
  l->params.table = (uint64_t)(uintptr_t)l->table.device;
  return tdict_gpu_check(
      l->gpu,
      l->gpu->driver->ops->copy_h2d_async(l->gpu->driver, l->table.device, l->table.host, l->table_bytes, l->stream),
      "cuMemcpyHtoDAsync", err);
}

/* Waits for the launch. If the work has results, copies the results from the buffer to the work. */
static tdict_status await_results(launch *l, tdict_error *err) {
  tdict_status status = tdict_gpu_sync_stream(l->gpu, l->stream, err);
  if (status == TDICT_OK && l->table.bytes && l->work->has_results)
    memcpy(l->work->results, (const char *)l->table.host + l->table_bytes, results_bytes(l));
  return status;
}

/* Queues the table, if in a buffer, and the launch. Does not wait. After a failure, the table may be queued. */
static tdict_status queue_launch(launch *l, tdict_error *err) {
  tdict_driver *d = l->gpu->driver;
  tdict_cu_launch kernel = {.blocks = (unsigned)l->work->num_blocks,
                            .threads = TDICT_KERNEL_THREADS,
                            .params = &l->params,
                            .params_bytes = sizeof l->params};
  for (size_t i = 0; i < l->work->num_entries; i++) l->work->results[i] = TDICT_KERNEL_NO_RESULT;
  if (l->work->num_blocks == 0) return TDICT_OK;
  tdict_status status = find_function(l->gpu, l->work->op, &kernel.function, err);
  if (status == TDICT_OK) status = prepare_table(l, err);
  if (status == TDICT_OK)
    status = tdict_gpu_check(l->gpu, d->ops->launch(d, &kernel, l->stream), "cuLaunchKernel", err);
  return status;
}

/* Gives the buffer back. If the launch may still be running, records the event after which the buffer is idle. */
static void end_table(launch *l, bool is_done) {
  tdict_launch_table *t = &l->table;
  if (t->bytes == 0) return;
  const bool recorded = is_done || tdict_gpu_take_recorded(l->gpu, l->stream, &t->event, NULL) == TDICT_OK;
  if (!recorded) (void)!tdict_gpu_sync_stream(l->gpu, l->stream, NULL);
  tdict_gpu_give_table(l->gpu, t);
}

/* Queues the launch on a caller's stream, waits for results, if any, and gives the buffer back. */
static tdict_status queue_and_end(launch *l, tdict_error *err) {
  tdict_status status = queue_launch(l, err);
  const bool waits = status == TDICT_OK && l->work->has_results;
  if (waits) status = await_results(l, err);
  end_table(l, waits && status == TDICT_OK);
  return status;
}

/* Runs the work on a stream of the gpu, after the work that is queued on the legacy stream, and waits. */
static tdict_status run_and_wait(launch *l, tdict_error *err) {
  tdict_status status = tdict_gpu_take_stream(l->gpu, &l->stream, err);
  if (status != TDICT_OK) return status;
  status = tdict_gpu_follow(l->gpu, l->stream, NULL, err);
  if (status == TDICT_OK) status = queue_launch(l, err);
  tdict_status end = await_results(l, status == TDICT_OK ? err : NULL);
  end_table(l, true);
  tdict_gpu_give_stream(l->gpu, l->stream);
  return status == TDICT_OK ? end : status;
}

/* Queues the work on a stream of the program. */
static tdict_status run_on_stream(launch *l, tdict_run_order *order, tdict_error *err) {
  if (!tdict_stream_is_of(order->stream, l->gpu))
    return tdict_fail(err, TDICT_EWRONGDEVICE, "%s: the stream belongs to %s, wanted a stream of %s", order->what,
                      TDICT_DEVICE_TEXT(order->stream.device), l->gpu->name);
  l->stream = order->stream.handle;
  tdict_status status = tdict_gpu_refuse_capture(l->gpu, l->stream, order->what, err);
  if (status == TDICT_OK && order->after)
    status = tdict_fences_wait_on_stream(order->after, order->what, l->gpu, l->stream, err);
  if (status != TDICT_OK) return status;
  status = queue_and_end(l, err);
  order->use = NULL;
  if (status == TDICT_OK && !l->work->has_results) /* otherwise the launch is done */
    status = tdict_use_create(l->gpu, l->stream, NULL, &order->use, err);
  if (status != TDICT_OK) (void)!tdict_gpu_sync_stream(l->gpu, l->stream, NULL); /* leave nothing queued */
  return status;
}

tdict_status tdict_gpu_load_kernels(tdict_gpu *gpu, tdict_error *err) {
  tdict_gpu_scope scope;
  tdict_cu_function function;
  pthread_mutex_lock(&gpu->kernels.lock);
  const bool loaded = gpu->kernels.module != NULL;
  pthread_mutex_unlock(&gpu->kernels.lock);
  if (loaded) return TDICT_OK; /* entering the scope needs driver calls */
  tdict_status status = tdict_gpu_enter(gpu, &scope, err);
  if (status == TDICT_OK) status = find_function(gpu, TDICT_KERNEL_CONVERT, &function, err);
  tdict_gpu_leave(gpu, &scope);
  return status;
}

tdict_status tdict_gpu_queue_work(tdict_gpu *gpu, tdict_kernel_work *work, tdict_cu_stream stream, tdict_error *err) {
  launch l = {.gpu = gpu, .work = work, .stream = stream};
  return queue_and_end(&l, err);
}

tdict_status tdict_gpu_run(tdict_gpu *gpu, tdict_kernel_work *work, tdict_run_order *order, tdict_error *err) {
  tdict_gpu_scope scope;
  launch l = {.gpu = gpu, .work = work};
  tdict_status status = tdict_gpu_enter(gpu, &scope, err);
  if (status == TDICT_OK) status = order ? run_on_stream(&l, order, err) : run_and_wait(&l, err);
  tdict_gpu_leave(gpu, &scope);
  return status;
}
