/* Opens a GPU: its context, its memory pool, and two streams to allocate and free. The caller owns it. Thread-safe. */
#include "device/gpu.h"

#include <stdlib.h>

#include "core/base/error.h"
#include "device/counted.h"

/* Creates the memory pool. Turns the attribute REUSE_ALLOW_INTERNAL_DEPENDENCIES off. With this attribute, an
 * allocation can reuse memory whose free is still queued, and must then wait for this free. */
static tdict_status create_pool(tdict_gpu *gpu, size_t cache_bytes, tdict_error *err) {
  tdict_driver *d = gpu->driver;
  int supported = 0;
  tdict_status status = tdict_gpu_check(
      gpu, d->ops->device_attribute(d, gpu->ordinal, TDICT_CU_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, &supported),
      "cuDeviceGetAttribute", err);
  if (status != TDICT_OK) return status;
  if (!supported) return tdict_fail(err, TDICT_ENODEVICE, "%s has no stream-ordered memory pools", gpu->name);
  status = tdict_gpu_check(gpu, d->ops->pool_create(d, gpu->ordinal, &gpu->pool), "cuMemPoolCreate", err);
  if (status != TDICT_OK) return status;
  tdict_cu result = d->ops->pool_set(d, gpu->pool, TDICT_CU_POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 0);
  if (result == TDICT_CU_SUCCESS)
    result = d->ops->pool_set(d, gpu->pool, TDICT_CU_POOL_RELEASE_THRESHOLD, (uint64_t)cache_bytes);
  return tdict_gpu_check(gpu, result, "cuMemPoolSetAttribute", err);
}

/* Asks if the gpu reads ordinary host memory itself. */
static tdict_status find_reads_pageable(tdict_gpu *gpu, tdict_error *err) {
  const tdict_driver_ops *ops = gpu->driver->ops;
  int reads = 0;
  const tdict_cu result =
      ops->device_attribute(gpu->driver, gpu->ordinal, TDICT_CU_ATTRIBUTE_READS_HOST_PAGE_TABLES, &reads);
  gpu->reads_pageable = reads == 1;
  return tdict_gpu_check(gpu, result, "cuDeviceGetAttribute", err);
}

/* Allocates and frees a block, since a process's first takes 10 to 20 ms on an H200 and would delay its first transfer.
 * Ignores exhausted memory: a program may never allocate on this GPU. */
static tdict_status use_pool_once(tdict_gpu *gpu, tdict_error *err) {
  tdict_driver *d = gpu->driver;
  void *block;
  tdict_cu result = d->ops->mem_alloc_async(d, &block, 1, gpu->pool, gpu->alloc_stream);
  if (result == TDICT_CU_OUT_OF_MEMORY) return TDICT_OK;
  if (result == TDICT_CU_SUCCESS) {
    /* compute-sanitizer reports a race for cuMemFree(), which is not in the order of the stream */
    if (d->ops->mem_free_async(d, block, gpu->alloc_stream) != TDICT_CU_SUCCESS) d->ops->mem_free(d, block);
    result = d->ops->stream_synchronize(d, gpu->alloc_stream);
    if (result == TDICT_CU_SUCCESS) result = d->ops->pool_trim(d, gpu->pool, 0);
  }
  return tdict_gpu_check(gpu, result, "cuMemAllocFromPoolAsync", err);
}

/* Creates what needs a current context, inside a scope. tdict_gpu_release() destroys it after a failure. */
static tdict_status create_pool_and_streams(tdict_gpu *gpu, size_t cache_bytes, tdict_error *err) {
  tdict_status status = find_reads_pageable(gpu, err);
  if (status == TDICT_OK) status = create_pool(gpu, cache_bytes, err);
  if (status != TDICT_OK) return status;
  status = tdict_gpu_check(gpu, tdict_counted_stream_create(gpu->driver, &gpu->alloc_stream), "cuStreamCreate", err);
  if (status != TDICT_OK) return status;
  status = tdict_gpu_check(gpu, tdict_counted_stream_create(gpu->driver, &gpu->free_stream), "cuStreamCreate", err);
  return status == TDICT_OK ? use_pool_once(gpu, err) : status;
}

tdict_status tdict_gpu_open(tdict_driver *driver, int ordinal, size_t cache_bytes, tdict_gpu **out, tdict_error *err) {
  const char *kind = driver->device_type == TDICT_DEVICE_SIM ? "sim" : "cuda";
  int count = 0;
  tdict_cu counted = driver->ops->device_count(driver, &count);
  if (counted != TDICT_CU_SUCCESS)
    return tdict_fail_native(err, TDICT_EDEVICE, counted, "%s: cuDeviceGetCount returned %d", kind, counted);
  if (ordinal < 0 || ordinal >= count)
    return tdict_fail(err, TDICT_ENODEVICE, "%s:%d is absent: devices of this kind: %d", kind, ordinal, count);
  tdict_gpu *gpu = calloc(1, sizeof *gpu);
  if (!gpu) return tdict_fail(err, TDICT_ENOMEM, "%s:%d: no host memory for its record", kind, ordinal);
  tdict_gpu_memory_init(&gpu->memory, (tdict_device){driver->device_type, ordinal});
  atomic_init(&gpu->refs, 1);
  pthread_mutex_init(&gpu->lock, NULL);
  pthread_mutex_init(&gpu->bounce_lock, NULL);
  pthread_mutex_init(&gpu->queue_lock, NULL);
  pthread_mutex_init(&gpu->kernels.lock, NULL);
  tdict_block_cache_init(&gpu->kept);
  gpu->cache_bytes = cache_bytes;
  gpu->driver = tdict_driver_retain(driver);
  gpu->ordinal = ordinal;
  gpu->node = -1;
  /* Query the device. From here on, a failure releases the gpu. */
  driver->ops->device_name(driver, ordinal, gpu->name, (int)sizeof gpu->name);
  tdict_status status =
      tdict_gpu_check(gpu, driver->ops->ctx_retain(driver, ordinal, &gpu->context), "cuDevicePrimaryCtxRetain", err);
  if (status == TDICT_OK) {
    tdict_gpu_scope scope;
    status = tdict_gpu_enter(gpu, &scope, err);
    if (status == TDICT_OK) status = create_pool_and_streams(gpu, cache_bytes, err);
    tdict_gpu_leave(gpu, &scope);
  }
  return TDICT_HAND_OVER(status, gpu, out, tdict_gpu_release);
}
