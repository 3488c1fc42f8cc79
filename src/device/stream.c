/* Implements the public calls that create, destroy and wait for a stream, and checks streams that a program passes. The
 * program owns its streams. Thread rule: safe from any thread. */
#include "device/stream.h"

#include <stdio.h>

#include "core/base/error.h"
#include "device/counted.h"

/* Writes which devices have the streams of a context, such as "cuda:0 to cuda:3". */
static char *format_range(const tdict_stream_range *range, char *buffer, size_t bytes) {
  const char *kinds[] = {"cuda", "sim"};
  const int32_t counts[] = {range->num_cuda, range->num_sim};
  size_t at = 0;
  buffer[0] = 0;
  for (int i = 0; i < 2 && at < bytes; i++) {
    if (counts[i] < 1) continue;
    at += (size_t)snprintf(buffer + at, bytes - at, at ? " or %s:0" : "%s:0", kinds[i]);
    if (counts[i] > 1 && at < bytes)
      at += (size_t)snprintf(buffer + at, bytes - at, " to %s:%d", kinds[i], (int)counts[i] - 1);
  }
  if (!at) snprintf(buffer, bytes, "none, because this context has no device with streams");
  return buffer;
}

tdict_status tdict_stream_check(const tdict_stream_range *range, tdict_stream s, const char *what, tdict_error *err) {
  char wanted[80];
  const int32_t count = s.device.type == TDICT_DEVICE_CUDA  ? range->num_cuda
                        : s.device.type == TDICT_DEVICE_SIM ? range->num_sim
                                                            : 0;
  if (s.device.index < 0 || s.device.index >= count)
    return tdict_fail(err, TDICT_EWRONGDEVICE, "%s: the stream belongs to %s, wanted a stream of %s", what,
                      TDICT_DEVICE_TEXT(s.device), format_range(range, wanted, sizeof wanted));
  if (!tdict_driver_owns_stream(range->sim, range->sim_owner, s))
    return tdict_fail(err, TDICT_EWRONGDEVICE,
                      "%s: the stream's handle is of no %s of this context: simulated devices belong to one context",
                      what, TDICT_DEVICE_TEXT(s.device));
  return TDICT_OK;
}

/* Checks a stream, and enters the scope of its gpu. The caller leaves the scope, also after an error. */
static tdict_status open_and_enter(tdict_devices *devices, tdict_stream s, const char *what, tdict_gpu **out,
                                   tdict_gpu_scope *scope, tdict_error *err) {
  const tdict_stream_range range = tdict_devices_streams(devices);
  scope->entered = false;
  *out = NULL;
  tdict_status status = tdict_devices_check_fork(devices, what, err);
  if (status == TDICT_OK) status = tdict_stream_check(&range, s, what, err);
  if (status == TDICT_OK) status = tdict_devices_gpu(devices, s.device, out, err);
  if (status == TDICT_OK) status = tdict_gpu_enter(*out, scope, err);
  return status == TDICT_OK ? tdict_gpu_refuse_capture(*out, s.handle, what, err) : status;
}

tdict_status tdict_stream_open(tdict_devices *devices, tdict_stream s, const char *what, tdict_gpu **out,
                               tdict_error *err) {
  tdict_gpu *gpu;
  tdict_gpu_scope scope;
  tdict_status status = open_and_enter(devices, s, what, &gpu, &scope, err);
  tdict_gpu_leave(gpu, &scope);
  if (status == TDICT_OK) *out = gpu;
  return status;
}

tdict_status tdict_stream_create(tdict_context *context, tdict_device device, tdict_stream *out, tdict_error *err) {
  tdict_gpu *gpu;
  tdict_gpu_scope scope;
  tdict_cu_stream stream;
  if (!context || !out) return tdict_fail_null(err, "stream", context ? "out" : "context");
  tdict_status status = tdict_devices_gpu(tdict_context_devices(context), device, &gpu, err);
  if (status != TDICT_OK) return status;
  status = tdict_gpu_enter(gpu, &scope, err);
  if (status == TDICT_OK) status = tdict_gpu_create_stream(gpu, &stream, err);
  tdict_gpu_leave(gpu, &scope);
  if (status == TDICT_OK) *out = (tdict_stream){gpu->memory.device, stream};
  return status;
}

void tdict_stream_destroy(tdict_context *context, tdict_stream stream) {
  tdict_gpu *gpu;
  tdict_gpu_scope scope;
  if (!stream.handle || tdict_devices_gpu(tdict_context_devices(context), stream.device, &gpu, NULL) != TDICT_OK)
    return;                                  /* a forked child also returns here: the streams belong to the parent
                                              * process */
  (void)!tdict_gpu_enter(gpu, &scope, NULL); /* destroying a stream needs no current context */
  tdict_counted_stream_destroy(gpu->driver, stream.handle);
  tdict_gpu_leave(gpu, &scope);
}

tdict_status tdict_stream_synchronize(tdict_context *context, tdict_stream stream, tdict_error *err) {
  static const char what[] = "stream_synchronize";
  tdict_gpu *gpu;
  tdict_gpu_scope scope;
  if (!context) return tdict_fail(err, TDICT_EINVAL, "%s: context is NULL", what);
  if (stream.device.type == TDICT_DEVICE_CPU) return TDICT_OK; /* the cpu has no queued work */
  tdict_status status = open_and_enter(tdict_context_devices(context), stream, what, &gpu, &scope, err);
  if (status == TDICT_OK) status = tdict_gpu_sync_stream(gpu, stream.handle, err);
  tdict_gpu_leave(gpu, &scope);
  return status;
}
