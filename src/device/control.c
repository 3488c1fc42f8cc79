/* Implements the public calls for default devices, memories, caches and counts. Threads: see tdict/context.h. */
#include "core/base/device.h"
#include "core/base/error.h"
#include "core/base/options.h"
#include "core/memory/pinned_pool.h"
#include "device/allocator_memory.h"
#include "device/devices.h"
#include "tdict/memory.h"

tdict_memory *tdict_pinned_memory(tdict_context *context) {
  return tdict_devices_pinned(tdict_context_devices(context));
}

tdict_memory *tdict_device_memory(tdict_context *context, tdict_device device) {
  return tdict_devices_memory(tdict_context_devices(context), device);
}

tdict_status tdict_memory_create(tdict_context *context, const tdict_allocator *allocator, tdict_memory **out,
                                 tdict_error *err) {
  tdict_allocator a = tdict_allocator_default();
  if (!context || !allocator || !out)
    return tdict_fail_null(err, "memory", !context ? "context" : !allocator ? "allocator" : "out");
  tdict_status status = tdict_options_read(&a, sizeof a, allocator, "allocator", err);
  if (status != TDICT_OK) return status;
  if (!a.allocate || !a.release) return tdict_fail(err, TDICT_EINVAL, "memory: allocate or release is NULL");
  /* Find the gpu of the memory. Host memory has no gpu. */
  if (a.device.type == TDICT_DEVICE_AUTO) a.device = tdict_devices_default(tdict_context_devices(context), NULL);
  status = tdict_device_check(a.device, "memory", err);
  if (status != TDICT_OK) return status;
  tdict_gpu *gpu = NULL;
  if (a.device.type != TDICT_DEVICE_CPU) {
    if (a.pinned) return tdict_fail(err, TDICT_EINVAL, "memory: pinned is for memory of the cpu");
    status = tdict_devices_gpu(tdict_context_devices(context), a.device, &gpu, err);
    if (status != TDICT_OK) return status;
  }
  return tdict_allocator_memory_create(&a, gpu, out, err);
}

tdict_device tdict_context_device(const tdict_context *context, tdict_error *why) {
  return tdict_devices_default(tdict_context_devices(context), why);
}

void tdict_context_trim(tdict_context *context, tdict_device device, size_t keep_bytes) {
  tdict_devices *devices = tdict_context_devices(context);
  tdict_gpu *gpu;
  if (device.type == TDICT_DEVICE_AUTO) device = tdict_devices_default(devices, NULL);
  if (tdict_device_equal(device, tdict_cpu()))
    tdict_pinned_pool_trim(tdict_devices_pinned(devices), keep_bytes);
  else if (tdict_devices_gpu(devices, device, &gpu, NULL) == TDICT_OK)
    tdict_gpu_trim(gpu, keep_bytes);
}

tdict_status tdict_context_get_counts(tdict_context *context, tdict_device device, tdict_device_counts *out,
                                      tdict_error *err) {
  tdict_gpu *gpu;
  if (!context || !out) return tdict_fail_null(err, "counts", context ? "out" : "context");
  tdict_status status = tdict_devices_gpu(tdict_context_devices(context), device, &gpu, err);
  if (status != TDICT_OK) return status;
  tdict_memory_counts memory;
  tdict_memory_get_counts(&gpu->memory, &memory);
  const tdict_driver *d = gpu->driver;
  out->pinned_bytes = atomic_load_explicit(&d->pinned_bytes, memory_order_relaxed);
  out->peak_pinned_bytes = atomic_load_explicit(&d->peak_pinned_bytes, memory_order_relaxed);
  out->device_bytes = memory.live_bytes;
  out->num_streams = atomic_load_explicit(&d->num_streams, memory_order_relaxed);
  out->num_events = atomic_load_explicit(&d->num_events, memory_order_relaxed);
  return TDICT_OK;
}
