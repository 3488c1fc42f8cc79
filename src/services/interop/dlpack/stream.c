/* Orders streams of other libraries with the work of this library. See stream.h for ownership and threads. */
#include "services/interop/dlpack/stream.h"

#include "core/base/device.h"
#include "core/base/error.h"
#include "device/use.h"
#include "tdict/dlpack.h"

tdict_status tdict_dlpack_stream_open(tdict_context *context, tdict_stream stream, tdict_dlpack_stream *out,
                                      tdict_error *err) {
  *out = (tdict_dlpack_stream){.is_unordered = stream.handle == TDICT_DLPACK_UNORDERED};
  if (out->is_unordered) return TDICT_OK;
  if (!tdict_has_stream(stream)) return tdict_stream_check_device(stream, "dlpack", err);
  if (!context) return tdict_fail(err, TDICT_EINVAL, "dlpack: the options have a stream, and context is NULL");
  out->devices = tdict_context_devices(context);
  out->device = stream.device;
  out->handle = stream.handle;
  return tdict_stream_open(out->devices, stream, "dlpack", &out->gpu, err);
}

tdict_status tdict_dlpack_check_device(const tdict_dlpack_stream *s, const tdict_storage *storage, tdict_error *err) {
  const tdict_device device = storage->device;
  if (!s->gpu || device.type == TDICT_DEVICE_CPU) return TDICT_OK;
  if (!tdict_device_equal(device, s->device))
    return tdict_fail(err, TDICT_EWRONGDEVICE, "dlpack: the stream belongs to %s, and the tensor is on %s",
                      TDICT_DEVICE_TEXT(s->device), TDICT_DEVICE_TEXT(device));
  if (!tdict_devices_own_storage(s->devices, storage))
    return tdict_fail(err, TDICT_EWRONGDEVICE, "dlpack: the tensor is on a simulated device of another context");
  return TDICT_OK;
}

tdict_status tdict_dlpack_order_consumer(const tdict_dlpack_stream *consumer, tdict_storage *const *storages,
                                         size_t count, bool to_write, tdict_error *err) {
  tdict_gpu_scope scope;
  tdict_fences before = {0};
  tdict_status status = TDICT_OK;
  for (size_t i = 0; i < count; i++) {
    tdict_storage *s = storages[i];
    const bool on_host = s->device.type == TDICT_DEVICE_CPU;
    const bool writes = to_write && !(s->flags & TDICT_STORAGE_READ_ONLY);
    if (tdict_storage_is_idle(s) || (consumer->is_unordered && !on_host)) continue;
    if (on_host || !consumer->gpu) {
      (void)tdict_storage_wait(s, writes, INT64_MAX);
      continue;
    }
    tdict_storage_each_before(s, writes, tdict_fences_add, &before);
  }
  if (before.count == 0 && !before.no_memory) return status;
  status = tdict_gpu_enter(consumer->gpu, &scope, err);
  if (status == TDICT_OK) status = tdict_fences_wait_on_stream(&before, "dlpack", consumer->gpu, consumer->handle, err);
  tdict_gpu_leave(consumer->gpu, &scope);
  tdict_fences_reset(&before);
  return status;
}

static bool is_used_by(const tdict_storage *s, const tdict_gpu *gpu) {
  return tdict_device_equal(s->device, gpu->memory.device) ||
         (s->flags & (TDICT_STORAGE_PINNED | TDICT_STORAGE_CLAIMED)) != 0;
}

void tdict_dlpack_record_consumer(tdict_gpu *gpu, tdict_cu_stream handle, tdict_storage *const *storages,
                                  size_t count) {
  tdict_gpu_scope scope;
  tdict_fence *use = NULL;
  bool recorded = tdict_use_create(gpu, handle, "dlpack", &use, NULL) == TDICT_OK;
  for (size_t i = 0; i < count && recorded; i++)
    recorded = !is_used_by(storages[i], gpu) || tdict_storage_add(storages[i], use, TDICT_USE_READS, NULL) == TDICT_OK;
  if (use) use->ops->release(use);
  if (recorded) return;
  /* The host cannot wait for a stream that is lost or being captured, or that belongs to the parent process. */
  if (tdict_gpu_enter(gpu, &scope, NULL) == TDICT_OK &&
      tdict_gpu_refuse_capture(gpu, handle, "dlpack", NULL) == TDICT_OK)
    (void)!tdict_gpu_sync_stream(gpu, handle, NULL);
  tdict_gpu_leave(gpu, &scope);
}

tdict_status tdict_dlpack_note_producer(const tdict_dlpack_stream *producer, tdict_fence **out, tdict_error *err) {
  *out = NULL;
  return producer->gpu ? tdict_use_create(producer->gpu, producer->handle, NULL, out, err) : TDICT_OK;
}
