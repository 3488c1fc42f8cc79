/* Avoids false reports of compute-sanitizer's initcheck. If the environment variable TDICT_INITCHECK is set:
 * - Each copy is queued by its own call, as with drivers that lack cuMemcpyBatchAsync. compute-sanitizer of CUDA
 *   13 does not know that cuMemcpyBatchAsync writes its destinations, so it reports later reads of these bytes.
 * - While a thread launches a kernel for the first time, no thread queues copies or other launches for a transfer.
 *   compute-sanitizer of CUDA 13 misses some writes at that time. Without this rule, it reported errors in 38 of 392
 *   runs of the case narrow_of_other_trees, although all elements were correct. With this rule, it reported none in 100
 *   runs.
 * A test file may define these functions itself. This file owns no memory. Thread rule: safe from any thread. */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "device/gpu.h"

__attribute__((weak)) tdict_status __wrap_tdict_gpu_queue_copies(tdict_gpu *gpu, tdict_cu_kind kind,
                                                                 const tdict_cu_copy *lines, size_t count,
                                                                 tdict_cu_stream stream, tdict_error *err);
tdict_status __real_tdict_gpu_queue_copies(tdict_gpu *gpu, tdict_cu_kind kind, const tdict_cu_copy *lines, size_t count,
                                           tdict_cu_stream stream, tdict_error *err);
__attribute__((weak)) tdict_status __wrap_tdict_gpu_queue_rect(tdict_gpu *gpu, tdict_cu_kind kind,
                                                               const tdict_rect *rect, tdict_cu_stream stream,
                                                               tdict_error *err);
tdict_status __real_tdict_gpu_queue_rect(tdict_gpu *gpu, tdict_cu_kind kind, const tdict_rect *rect,
                                         tdict_cu_stream stream, tdict_error *err);
__attribute__((weak)) tdict_status __wrap_tdict_gpu_queue_work(tdict_gpu *gpu, tdict_kernel_work *work,
                                                               tdict_cu_stream stream, tdict_error *err);
tdict_status __real_tdict_gpu_queue_work(tdict_gpu *gpu, tdict_kernel_work *work, tdict_cu_stream stream,
                                         tdict_error *err);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* held while a copy or a launch is queued */
static bool was_launched[TDICT_KERNEL_NUM_OPS];          /* guarded by `lock` */

static bool is_checking(void) { return getenv("TDICT_INITCHECK") != NULL; }

tdict_status __wrap_tdict_gpu_queue_copies(tdict_gpu *gpu, tdict_cu_kind kind, const tdict_cu_copy *lines, size_t count,
                                           tdict_cu_stream stream, tdict_error *err) {
  if (!is_checking()) return __real_tdict_gpu_queue_copies(gpu, kind, lines, count, stream, err);
  tdict_status status = TDICT_OK;
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < count && status == TDICT_OK; i++)
    status = __real_tdict_gpu_queue_copies(gpu, kind, lines + i, 1, stream, err);
  pthread_mutex_unlock(&lock);
  return status;
}

tdict_status __wrap_tdict_gpu_queue_rect(tdict_gpu *gpu, tdict_cu_kind kind, const tdict_rect *rect,
                                         tdict_cu_stream stream, tdict_error *err) {
  if (!is_checking()) return __real_tdict_gpu_queue_rect(gpu, kind, rect, stream, err);
  pthread_mutex_lock(&lock);
  tdict_status status = __real_tdict_gpu_queue_rect(gpu, kind, rect, stream, err);
  pthread_mutex_unlock(&lock);
  return status;
}

tdict_status __wrap_tdict_gpu_queue_work(tdict_gpu *gpu, tdict_kernel_work *work, tdict_cu_stream stream,
                                         tdict_error *err) {
  if (!is_checking()) return __real_tdict_gpu_queue_work(gpu, work, stream, err);
  const tdict_kernel_op op = work->op;
  pthread_mutex_lock(&lock);
  tdict_status status = __real_tdict_gpu_queue_work(gpu, work, stream, err);
  if (!was_launched[op] && status == TDICT_OK) status = tdict_gpu_sync_stream(gpu, stream, err);
  was_launched[op] = true;
  pthread_mutex_unlock(&lock);
  return status;
}
