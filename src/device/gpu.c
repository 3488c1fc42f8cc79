/* Implements a GPU's scope, its pools of streams, events and buffers, its blocks of memory, page-locking and its
 * release. gpu_open.c opens a GPU, and gpu_memory.c is its memory. See gpu.h for ownership and threads. */
#include "device/gpu.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/array.h"
#include "core/base/error.h"
#include "core/base/thread.h"
#include "core/memory/pinned_pool.h"
#include "device/counted.h"
#include "tdict/context.h"

enum { MIN_TABLE_BYTES = 64 << 10 };

/* Returns true for the codes after which the device counts as lost. After most of the codes below, every later call on
 * the context fails. NVIDIA's manual explains the codes under CUresult. */
static bool means_lost(tdict_cu result) {
  switch (result) {
  case 4:   /* CUDA_ERROR_DEINITIALIZED */
  case 46:  /* CUDA_ERROR_DEVICE_UNAVAILABLE */
  case 214: /* CUDA_ERROR_ECC_UNCORRECTABLE */
  case 220: /* CUDA_ERROR_NVLINK_UNCORRECTABLE */
  case TDICT_CU_ILLEGAL_ADDRESS:
  case 702: /* CUDA_ERROR_LAUNCH_TIMEOUT */
  case 709: /* CUDA_ERROR_CONTEXT_IS_DESTROYED */
  case 710: /* CUDA_ERROR_ASSERT */
  case 714: /* CUDA_ERROR_HARDWARE_STACK_ERROR */
  case 715: /* CUDA_ERROR_ILLEGAL_INSTRUCTION */
  case 716: /* CUDA_ERROR_MISALIGNED_ADDRESS */
  case 717: /* CUDA_ERROR_INVALID_ADDRESS_SPACE */
  case 718: /* CUDA_ERROR_INVALID_PC */
  case 719: /* CUDA_ERROR_LAUNCH_FAILED */
    return true;
  default:
    return false;
  }
}

static tdict_status status_of(tdict_cu result) {
  return result == TDICT_CU_OUT_OF_MEMORY ? TDICT_ENOMEM : means_lost(result) ? TDICT_ELOST : TDICT_EDEVICE;
}

tdict_status tdict_gpu_check(tdict_gpu *gpu, tdict_cu result, const char *call, tdict_error *err) {
  if (result == TDICT_CU_SUCCESS) return TDICT_OK;
  if (means_lost(result)) atomic_store_explicit(&gpu->lost, result, memory_order_relaxed);
  const char *name = "?", *text = "?";
  gpu->driver->ops->error_text(gpu->driver, result, &name, &text);
  return tdict_fail_native(err, status_of(result), result, "%s: %s returned %d, %s: %s",
                           TDICT_DEVICE_TEXT(gpu->memory.device), call, result, name, text);
}

/* Makes the gpu's context current, and sets capture mode "relaxed". This mode allows calls such as cuMemHostRegister
 * while another thread of the program captures a graph. */
static tdict_status push_context(tdict_gpu *gpu, tdict_gpu_scope *scope, tdict_error *err) {
  tdict_driver *d = gpu->driver;
  tdict_cu result = d->ops->ctx_push(d, gpu->context);
  if (result != TDICT_CU_SUCCESS) return tdict_gpu_check(gpu, result, "cuCtxPushCurrent", err);
  scope->capture_mode = TDICT_CU_CAPTURE_RELAXED;
  d->ops->capture_mode(d, &scope->capture_mode);
  scope->entered = true;
  return TDICT_OK;
}

tdict_status tdict_gpu_enter(tdict_gpu *gpu, tdict_gpu_scope *scope, tdict_error *err) {
  scope->entered = false;
  if (gpu->mark && tdict_forkmark_forked(gpu->mark)) return tdict_forkmark_check(gpu->mark, gpu->name, err);
  int32_t lost = atomic_load_explicit(&gpu->lost, memory_order_relaxed);
  if (lost)
    return tdict_fail_native(err, TDICT_ELOST, lost, "%s was lost: the driver returned %d", gpu->name, (int)lost);
  return push_context(gpu, scope, err);
}

void tdict_gpu_leave(tdict_gpu *gpu, tdict_gpu_scope *scope) {
  if (!scope->entered) return;
  tdict_driver *d = gpu->driver;
  tdict_cu_context popped;
  d->ops->capture_mode(d, &scope->capture_mode);
  d->ops->ctx_pop(d, &popped);
  scope->entered = false;
}

void tdict_gpu_enter_for_cleanup(tdict_gpu *gpu, tdict_gpu_scope *scope) {
  scope->entered = false;
  if (gpu->mark && tdict_forkmark_forked(gpu->mark)) return;
  if (push_context(gpu, scope, NULL) != TDICT_OK) (void)!push_context(gpu, scope, NULL);
}

tdict_gpu *tdict_gpu_retain(tdict_gpu *gpu) {
  atomic_fetch_add_explicit(&gpu->refs, 1, memory_order_relaxed);
  return gpu;
}

void tdict_gpu_free_kept(tdict_gpu *gpu, size_t keep_bytes, int keep_count) {
  tdict_kept_block oldest;
  while (tdict_block_cache_pop(&gpu->kept, keep_bytes, keep_count, &oldest)) tdict_gpu_free_block(gpu, &oldest);
}

/* The minimum size of a large block. For large blocks, the driver's pool takes much longer than cuMemAlloc(): 23 ms
 * instead of 0.5 ms for 8.6 GB on an H200. A block above the limit of the block cache is not large, because each
 * cuMemFree() waits for the device. */
#define LARGE_BYTES ((size_t)512 << 20)
static bool is_large(const tdict_gpu *gpu, size_t bytes) { return bytes >= LARGE_BYTES && bytes <= gpu->cache_bytes; }

static void free_large(tdict_gpu *gpu, const tdict_kept_block *block) {
  tdict_gpu_scope scope;
  if (tdict_gpu_enter(gpu, &scope, NULL) == TDICT_OK) gpu->driver->ops->mem_free(gpu->driver, block->data);
  tdict_gpu_leave(gpu, &scope);
  pthread_mutex_lock(&gpu->lock);
  gpu->large_bytes -= block->bytes;
  pthread_mutex_unlock(&gpu->lock);
}

void tdict_gpu_free_block(tdict_gpu *gpu, const tdict_kept_block *block) {
  if (is_large(gpu, block->bytes))
    free_large(gpu, block);
  else
    gpu->driver->ops->mem_free_async(gpu->driver, block->data, gpu->free_stream);
  if (block->event) tdict_gpu_give_event(gpu, block->event);
}

static tdict_cu try_allocate(tdict_gpu *gpu, size_t bytes, bool large, void **out) {
  tdict_driver *d = gpu->driver;
  return large ? d->ops->mem_alloc(d, out, bytes)
               : d->ops->mem_alloc_async(d, out, bytes, gpu->pool, gpu->alloc_stream);
}

/* Allocates a large block, or a block of the pool. Any stream may use the block at once. */
static tdict_status allocate(tdict_gpu *gpu, size_t bytes, bool large, void **out, tdict_error *err) {
  tdict_driver *d = gpu->driver;
  void *data;
  tdict_cu result = try_allocate(gpu, bytes, large, &data);
  if (result == TDICT_CU_OUT_OF_MEMORY) { /* queued frees may still hold memory, so wait for these frees and retry */
    tdict_gpu_free_kept(gpu, 0, 0);
    d->ops->stream_synchronize(d, gpu->free_stream);
    d->ops->pool_trim(d, gpu->pool, 0);
    result = try_allocate(gpu, bytes, large, &data);
  }
  if (result == TDICT_CU_OUT_OF_MEMORY) {
    pthread_mutex_lock(&gpu->lock);
    size_t live = gpu->counts.live_bytes;
    pthread_mutex_unlock(&gpu->lock);
    return tdict_fail_native(err, TDICT_ENOMEM, result, "%s has no room for %zu bytes beside the %zu that are live",
                             TDICT_DEVICE_TEXT(gpu->memory.device), bytes, live);
  }
  tdict_status status = tdict_gpu_check(gpu, result, large ? "cuMemAlloc" : "cuMemAllocFromPoolAsync", err);
  if (status != TDICT_OK) return status;
  if (large) {
    pthread_mutex_lock(&gpu->lock);
    gpu->large_bytes += bytes;
    pthread_mutex_unlock(&gpu->lock);
    *out = data;
    return TDICT_OK;
  }
  /* Wait, so that any stream may use the block. The wait is short, because this stream only allocates. */
  status = tdict_gpu_sync_stream(gpu, gpu->alloc_stream, err);
  if (status == TDICT_OK)
    *out = data;
  else
    d->ops->mem_free_async(d, data, gpu->alloc_stream);
  return status;
}

tdict_status tdict_gpu_allocate(tdict_gpu *gpu, size_t bytes, void **out, tdict_error *err) {
  return allocate(gpu, bytes, false, out, err);
}

tdict_status tdict_gpu_allocate_block(tdict_gpu *gpu, size_t bytes, void **out, tdict_error *err) {
  return allocate(gpu, bytes, is_large(gpu, bytes), out, err);
}

/* Destroys the gpu's resources, kept blocks first, since that queues work on free_stream. Inside a scope. */
static void destroy_resources(tdict_gpu *gpu) {
  tdict_driver *d = gpu->driver;
  tdict_gpu_free_kept(gpu, 0, 0);
  tdict_gpu_free_tables(gpu, true);
  for (int i = 0; i < gpu->num_streams; i++) tdict_counted_stream_destroy(d, gpu->streams[i]);
  for (int i = 0; i < gpu->num_events; i++) tdict_counted_event_destroy(d, gpu->events[i]);
  if (gpu->alloc_stream) tdict_counted_stream_destroy(d, gpu->alloc_stream);
  if (gpu->free_stream) {
    d->ops->stream_synchronize(d, gpu->free_stream);
    tdict_counted_stream_destroy(d, gpu->free_stream);
  }
  if (gpu->bounce) tdict_counted_host_free(d, gpu->bounce, TDICT_GPU_BOUNCE_BYTES);
  if (gpu->pool) d->ops->pool_destroy(d, gpu->pool);
}

void tdict_gpu_release(tdict_gpu *gpu) {
  if (!gpu || atomic_fetch_sub_explicit(&gpu->refs, 1, memory_order_acq_rel) != 1) return;
  if (gpu->mark && tdict_forkmark_forked(gpu->mark)) return; /* all resources belong to the parent process */
  if (gpu->context) {
    tdict_gpu_scope scope;
    tdict_gpu_enter_for_cleanup(gpu, &scope);
    if (scope.entered) destroy_resources(gpu);
    tdict_gpu_leave(gpu, &scope);
    gpu->driver->ops->ctx_release(gpu->driver, gpu->ordinal);
  }
  pthread_mutex_destroy(&gpu->lock);
  pthread_mutex_destroy(&gpu->bounce_lock);
  pthread_mutex_destroy(&gpu->queue_lock);
  pthread_mutex_destroy(&gpu->kernels.lock);
  tdict_block_cache_reset(&gpu->kept);
  free(gpu->streams);
  free(gpu->events);
  tdict_driver_release(gpu->driver);
  tdict_forkmark_release(gpu->mark);
  free(gpu);
}

tdict_status tdict_gpu_create_stream(tdict_gpu *gpu, tdict_cu_stream *out, tdict_error *err) {
  tdict_status status = tdict_gpu_check(gpu, tdict_counted_stream_create(gpu->driver, out), "cuStreamCreate", err);
  /* The host has waited for all allocations already. compute-sanitizer applies such a wait only to the streams that
   * exist, and so reports every use of earlier blocks by this stream. The second wait avoids these reports. */
  if (status == TDICT_OK) gpu->driver->ops->stream_synchronize(gpu->driver, gpu->alloc_stream);
  return status;
}

tdict_status tdict_gpu_take_stream(tdict_gpu *gpu, tdict_cu_stream *out, tdict_error *err) {
  tdict_cu_stream stream = NULL;
  pthread_mutex_lock(&gpu->lock);
  if (gpu->num_streams > 0) stream = gpu->streams[--gpu->num_streams];
  pthread_mutex_unlock(&gpu->lock);
  if (!stream) {
    tdict_status status = tdict_gpu_create_stream(gpu, &stream, err);
    if (status != TDICT_OK) return status;
  }
  *out = stream;
  return TDICT_OK;
}

void tdict_gpu_give_stream(tdict_gpu *gpu, tdict_cu_stream stream) {
  pthread_mutex_lock(&gpu->lock);
  const bool has_room = TDICT_RESERVE(gpu->streams, gpu->cap_streams, (size_t)gpu->num_streams + 1);
  if (has_room) gpu->streams[gpu->num_streams++] = stream;
  pthread_mutex_unlock(&gpu->lock);
  if (!has_room) tdict_counted_stream_destroy(gpu->driver, stream);
}

tdict_status tdict_gpu_take_event(tdict_gpu *gpu, tdict_cu_event *out, tdict_error *err) {
  tdict_cu_event event = NULL;
  pthread_mutex_lock(&gpu->lock);
  if (gpu->num_events > 0) event = gpu->events[--gpu->num_events];
  pthread_mutex_unlock(&gpu->lock);
  if (!event) {
    tdict_status status = tdict_gpu_check(gpu, tdict_counted_event_create(gpu->driver, &event), "cuEventCreate", err);
    if (status != TDICT_OK) return status;
  }
  *out = event;
  return TDICT_OK;
}

void tdict_gpu_give_event(tdict_gpu *gpu, tdict_cu_event event) {
  pthread_mutex_lock(&gpu->lock);
  const bool has_room = TDICT_RESERVE(gpu->events, gpu->cap_events, (size_t)gpu->num_events + 1);
  if (has_room) gpu->events[gpu->num_events++] = event;
  pthread_mutex_unlock(&gpu->lock);
  if (!has_room) tdict_counted_event_destroy(gpu->driver, event);
}

tdict_status tdict_gpu_record(tdict_gpu *gpu, tdict_cu_event event, tdict_cu_stream stream, tdict_error *err) {
  tdict_cu result = gpu->driver->ops->event_record(gpu->driver, event, stream);
  return result == TDICT_CU_SUCCESS ? TDICT_OK : tdict_gpu_check(gpu, result, "cuEventRecord", err);
}

tdict_status tdict_gpu_stream_wait(tdict_gpu *gpu, tdict_cu_stream stream, tdict_cu_event event, tdict_error *err) {
  tdict_cu result = gpu->driver->ops->stream_wait_event(gpu->driver, stream, event);
  return result == TDICT_CU_SUCCESS ? TDICT_OK : tdict_gpu_check(gpu, result, "cuStreamWaitEvent", err);
}

tdict_status tdict_gpu_sync_stream(tdict_gpu *gpu, tdict_cu_stream stream, tdict_error *err) {
  tdict_cu result = gpu->driver->ops->stream_synchronize(gpu->driver, stream);
  return result == TDICT_CU_SUCCESS ? TDICT_OK : tdict_gpu_check(gpu, result, "cuStreamSynchronize", err);
}

tdict_status tdict_gpu_sync_event(tdict_gpu *gpu, tdict_cu_event event, tdict_error *err) {
  tdict_cu result = gpu->driver->ops->event_synchronize(gpu->driver, event);
  return result == TDICT_CU_SUCCESS ? TDICT_OK : tdict_gpu_check(gpu, result, "cuEventSynchronize", err);
}

tdict_cu tdict_gpu_query_event(tdict_gpu *gpu, tdict_cu_event event) {
  return gpu->driver->ops->event_query(gpu->driver, event);
}

tdict_status tdict_gpu_elapsed(tdict_gpu *gpu, tdict_cu_event from, tdict_cu_event to, float *ms, tdict_error *err) {
  return tdict_gpu_check(gpu, gpu->driver->ops->event_elapsed(gpu->driver, ms, from, to), "cuEventElapsedTime", err);
}

tdict_status tdict_gpu_take_recorded(tdict_gpu *gpu, tdict_cu_stream stream, tdict_cu_event *out, tdict_error *err) {
  tdict_cu_event event;
  tdict_status status = tdict_gpu_take_event(gpu, &event, err);
  if (status != TDICT_OK) return status;
  status = tdict_gpu_record(gpu, event, stream, err);
  if (status == TDICT_OK)
    *out = event;
  else
    tdict_gpu_give_event(gpu, event);
  return status;
}

tdict_status tdict_gpu_follow(tdict_gpu *gpu, tdict_cu_stream stream, tdict_cu_stream after, tdict_error *err) {
  tdict_cu_event event;
  tdict_status status = tdict_gpu_take_recorded(gpu, after, &event, err);
  if (status != TDICT_OK) return status;
  status = tdict_gpu_stream_wait(gpu, stream, event, err);
  tdict_gpu_give_event(gpu, event); /* the wait is queued already, so later records of the event do not change the
                                     * wait */
  return status;
}

tdict_status tdict_gpu_refuse_capture(tdict_gpu *gpu, tdict_cu_stream stream, const char *what, tdict_error *err) {
  int capturing = TDICT_CU_CAPTURE_STATUS_NONE;
  tdict_status status = tdict_gpu_check(gpu, gpu->driver->ops->stream_capture_status(gpu->driver, stream, &capturing),
                                        "cuStreamIsCapturing", err);
  if (status == TDICT_OK && capturing != TDICT_CU_CAPTURE_STATUS_NONE)
    status = tdict_fail(err, TDICT_ECAPTURE, "%s: the stream is being captured into a graph", what);
  return status;
}

static void destroy_table(tdict_gpu *gpu, tdict_launch_table *t) {
  if (t->event) tdict_gpu_give_event(gpu, t->event);
  if (t->device) gpu->driver->ops->mem_free_async(gpu->driver, t->device, gpu->free_stream);
  if (t->host) tdict_counted_host_free(gpu->driver, t->host, t->bytes);
  memset(t, 0, sizeof *t);
}

static tdict_status create_table(tdict_gpu *gpu, size_t bytes, tdict_launch_table *out, tdict_error *err) {
  memset(out, 0, sizeof *out);
  out->bytes = MIN_TABLE_BYTES;
  while (out->bytes < bytes) out->bytes *= 2;
  tdict_status status =
      tdict_gpu_check(gpu, tdict_counted_host_alloc(gpu->driver, &out->host, out->bytes), "cuMemHostAlloc", err);
  if (status == TDICT_OK) status = tdict_gpu_allocate(gpu, out->bytes, &out->device, err);
  if (status != TDICT_OK) destroy_table(gpu, out);
  return status;
}

static bool is_idle(tdict_gpu *gpu, const tdict_launch_table *t) {
  return !t->event || tdict_gpu_query_event(gpu, t->event) == TDICT_CU_SUCCESS;
}

/* Removes a kept buffer of at least `bytes` bytes that no launch uses. Returns false if no kept buffer is suitable. */
static bool take_kept_table(tdict_gpu *gpu, size_t bytes, tdict_launch_table *out) {
  tdict_kernel_state *k = &gpu->kernels;
  int found = -1;
  pthread_mutex_lock(&k->lock);
  for (int i = 0; i < k->num_tables; i++) {
    const tdict_launch_table *t = &k->tables[i];
    if (t->bytes >= bytes && (found < 0 || t->bytes < k->tables[found].bytes) && is_idle(gpu, t)) found = i;
  }
  if (found >= 0) {
    *out = k->tables[found];
    k->tables[found] = k->tables[--k->num_tables];
  }
  pthread_mutex_unlock(&k->lock);
  return found >= 0;
}

tdict_status tdict_gpu_take_table(tdict_gpu *gpu, size_t bytes, tdict_launch_table *out, tdict_error *err) {
  if (!take_kept_table(gpu, bytes, out)) return create_table(gpu, bytes, out, err);
  if (out->event) tdict_gpu_give_event(gpu, out->event);
  out->event = NULL;
  return TDICT_OK;
}

void tdict_gpu_give_table(tdict_gpu *gpu, tdict_launch_table *t) {
  tdict_kernel_state *k = &gpu->kernels;
  pthread_mutex_lock(&k->lock);
  const bool fits = k->num_tables < TDICT_KEPT_TABLES;
  if (fits) k->tables[k->num_tables++] = *t;
  pthread_mutex_unlock(&k->lock);
  if (fits) return;
  if (t->event) (void)!tdict_gpu_sync_event(gpu, t->event, NULL);
  destroy_table(gpu, t);
}

void tdict_gpu_free_tables(tdict_gpu *gpu, bool all) {
  tdict_kernel_state *k = &gpu->kernels;
  pthread_mutex_lock(&k->lock);
  for (int i = k->num_tables; i-- > 0;) {
    tdict_launch_table *t = &k->tables[i];
    if (all && t->event) (void)!tdict_gpu_sync_event(gpu, t->event, NULL);
    if (!all && !is_idle(gpu, t)) continue;
    destroy_table(gpu, t);
    k->tables[i] = k->tables[--k->num_tables];
  }
  if (all && k->module) gpu->driver->ops->module_unload(gpu->driver, k->module);
  if (all) k->module = NULL;
  pthread_mutex_unlock(&k->lock);
}

bool tdict_stream_is_of(tdict_stream s, const tdict_gpu *gpu) {
  const tdict_driver *driver = tdict_driver_innermost(gpu->driver);
  return tdict_device_equal(s.device, gpu->memory.device) &&
         tdict_driver_owns_stream(driver, driver->ops->stream_owner, s);
}

bool tdict_gpu_begin_queue(tdict_gpu *gpu) { return tdict_spin_try(&gpu->queue_lock); }
void tdict_gpu_end_queue(tdict_gpu *gpu, bool locked) {
  if (locked) pthread_mutex_unlock(&gpu->queue_lock);
}

bool tdict_gpu_is_pinned(tdict_gpu *gpu, const tdict_storage *storage, const void *address, size_t bytes) {
  if (!(storage->flags & (TDICT_STORAGE_PINNED | TDICT_STORAGE_CLAIMED))) return false;
  uintptr_t at = (uintptr_t)address, in = at - (uintptr_t)storage->data;
  const tdict_gpu *pinned_by = tdict_pinned_pool_pinner_self(storage->memory);
  bool own = pinned_by && pinned_by->driver == gpu->driver;
  if (own && in <= storage->bytes && bytes <= storage->bytes - in)
    return true; /* this driver pinned the whole storage, so no driver call is needed */
  /* Check the registrations that cover the range, one after another. */
  for (size_t left = bytes;;) {
    tdict_cu_pointer p = {0};
    if (gpu->driver->ops->pointer(gpu->driver, (const void *)at, &p) != TDICT_CU_SUCCESS) return false;
    uintptr_t begin = (uintptr_t)p.range;
    if (!p.known || p.device || at < begin || at - begin > p.range_bytes) return false;
    size_t here = p.range_bytes - (at - begin);
    if (left <= here) return true;
    if (here == 0 || (at + here) % TDICT_PINNED_GRAIN != 0)
      return false; /* tdict_gpu_queue_rect() splits only at multiples of the grain */
    at += here;
    left -= here;
  }
}

/* The next functions implement tdict_pin_ops, see core/memory/pinned_pages.h. `self` is the gpu. */
static tdict_status pin_register(void *self, void *pages, size_t bytes, tdict_error *err) {
  tdict_gpu *gpu = self;
  tdict_gpu_scope scope;
  tdict_status status = tdict_gpu_enter(gpu, &scope, err);
  if (status == TDICT_OK)
    status = tdict_gpu_check(gpu, tdict_counted_host_register(gpu->driver, pages, bytes), "cuMemHostRegister", err);
  tdict_gpu_leave(gpu, &scope);
  return status;
}
static void pin_unregister(void *self, void *pages, size_t bytes) {
  tdict_gpu *gpu = self;
  tdict_gpu_scope scope;
  tdict_gpu_enter_for_cleanup(gpu, &scope);
  if (scope.entered) tdict_counted_host_unregister(gpu->driver, pages, bytes);
  tdict_gpu_leave(gpu, &scope);
}
static tdict_status pin_allocate(void *self, size_t bytes, void **out, tdict_error *err) {
  tdict_gpu *gpu = self;
  tdict_gpu_scope scope;
  tdict_status status = tdict_gpu_enter(gpu, &scope, err);
  if (status == TDICT_OK)
    status = tdict_gpu_check(gpu, tdict_counted_host_alloc(gpu->driver, out, bytes), "cuMemHostAlloc", err);
  tdict_gpu_leave(gpu, &scope);
  return status;
}
static void pin_free(void *self, void *pages, size_t bytes) {
  tdict_gpu *gpu = self;
  tdict_gpu_scope scope;
  tdict_gpu_enter_for_cleanup(gpu, &scope);
  if (scope.entered) tdict_counted_host_free(gpu->driver, pages, bytes);
  tdict_gpu_leave(gpu, &scope);
}
static void pin_unbound(void *self, int node, int code) {
  tdict_gpu *gpu = self;
  tdict_log *log = tdict_forkmark_log(gpu->mark);
  if (!log || atomic_exchange_explicit(&gpu->logged_refused_node, true, memory_order_relaxed)) return;
  tdict_log_write(log, TDICT_LOG_INFO, "pinned memory may be on any node: binding it to node %d failed (errno %d)",
                  node, code);
}
static bool pin_is_gone(void *self) {
  const tdict_gpu *gpu = self;
  return gpu->mark && tdict_forkmark_forked(gpu->mark);
}
static void pin_retain(void *self) { tdict_gpu_retain(self); }
static void pin_release(void *self) { tdict_gpu_release(self); }

tdict_pinner tdict_gpu_pinner(tdict_gpu *gpu, tdict_pool *pool) {
  static const tdict_pin_ops ops = {pin_register, pin_unregister, pin_allocate, pin_free,
                                    pin_unbound,  pin_is_gone,    pin_retain,   pin_release};
  return (tdict_pinner){&ops, gpu, pool, tdict_forkmark_log(gpu->mark), gpu->node, gpu->pin_piece, NULL};
}
