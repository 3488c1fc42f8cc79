/* Lets initcheck see all copies. compute-sanitizer of CUDA 13 does not know that cuMemcpyBatchAsync writes its destinations,
 * so initcheck reports later reads of these bytes. If TDICT_SINGLE_COPIES is in the environment, each copy is queued by a
 * call of its own, as with drivers that lack cuMemcpyBatchAsync. A test file may replace the same function. It owns
 * nothing. Thread rule: safe from any thread. */
#include <stdlib.h>

#include "device/gpu.h"

__attribute__((weak)) tdict_status __wrap_tdict_gpu_queue_lines(tdict_gpu *gpu, tdict_cu_kind kind,
                                                                const tdict_cu_line *lines, size_t count,
                                                                tdict_cu_stream stream, tdict_error *err);
tdict_status __real_tdict_gpu_queue_lines(tdict_gpu *gpu, tdict_cu_kind kind, const tdict_cu_line *lines, size_t count,
                                          tdict_cu_stream stream, tdict_error *err);

tdict_status __wrap_tdict_gpu_queue_lines(tdict_gpu *gpu, tdict_cu_kind kind, const tdict_cu_line *lines, size_t count,
                                          tdict_cu_stream stream, tdict_error *err) {
  const size_t at_once = getenv("TDICT_SINGLE_COPIES") ? 1 : count;
  tdict_status status = TDICT_OK;
  for (size_t i = 0; i < count && status == TDICT_OK; i += at_once)
    status = __real_tdict_gpu_queue_lines(gpu, kind, lines + i, at_once, stream, err);
  return status;
}
