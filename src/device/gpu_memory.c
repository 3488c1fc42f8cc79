/* Implements the device memory of a gpu. Blocks come from the gpu's memory pool, and are allocated and freed in stream
 * order. This file also queues copies for transfers. For single tensors, this file copies and fills, and waits until
 * the work is done. Copies of single tensors to the host pass through a pinned buffer, because the driver's copies to
 * pageable memory block other threads. See gpu.h for ownership and threads. */
#include "device/gpu.h"

#include <string.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "device/allocator_memory.h"
#include "device/counted.h"
#include "tdict/memory.h"

enum { ALIGNMENT = 256 };
#define MAX_PITCH ((int64_t)INT32_MAX) /* CU_DEVICE_ATTRIBUTE_MAX_PITCH of every GPU so far: 2 GiB - 1 */

/* Returns live and cached bytes of the gpu: large blocks, and the driver's pool if it reports its bytes. */
static size_t get_held_bytes(tdict_gpu *gpu) {
  uint64_t held = 0;
  tdict_cu result = gpu->driver->ops->pool_get(gpu->driver, gpu->pool, TDICT_CU_POOL_RESERVED_MEM_CURRENT, &held);
  pthread_mutex_lock(&gpu->lock);
  size_t large = gpu->large_bytes;
  pthread_mutex_unlock(&gpu->lock);
  return (result == TDICT_CU_SUCCESS ? (size_t)held : 0) + large;
}

/* Counts an allocation. `held` is what the gpu holds then, but 0 for a block of the block cache. */
static void count_device_allocation(tdict_gpu *gpu, size_t bytes, bool reused, size_t held) {
  pthread_mutex_lock(&gpu->lock);
  tdict_memory_counts *c = &gpu->counts;
  c->live_bytes += bytes;
  c->num_allocations++;
  c->num_reused += reused;
  if (c->live_bytes > gpu->peak_live_bytes) gpu->peak_live_bytes = c->live_bytes;
  if (held < c->live_bytes) held = c->live_bytes;
  if (held > c->peak_bytes) c->peak_bytes = held;
  pthread_mutex_unlock(&gpu->lock);
}

static tdict_status gpu_allocate(tdict_memory *m, size_t wanted, tdict_block *out, tdict_error *err) {
  tdict_gpu *gpu = (tdict_gpu *)m;
  size_t bytes;
  if (!tdict_round_up(wanted ? wanted : 1, ALIGNMENT, &bytes))
    return tdict_fail(err, TDICT_EOVERFLOW, "device memory: %zu bytes do not fit the address space", wanted);
  tdict_gpu_scope scope;
  tdict_kept_block block = {.bytes = bytes};
  tdict_status status = tdict_gpu_enter(gpu, &scope, err);
  if (status != TDICT_OK) return status;
  bool kept = tdict_block_cache_take(&gpu->kept, gpu->driver, bytes, &block);
  if (kept && block.event) tdict_gpu_give_event(gpu, block.event);
  size_t held_before = kept ? 0 : get_held_bytes(gpu), held = 0;
  if (!kept) {
    status = tdict_gpu_allocate_block(gpu, bytes, &block.data, err);
    held = get_held_bytes(gpu);
  }
  tdict_gpu_leave(gpu, &scope);
  if (status != TDICT_OK) return status;
  /* memory was reused if the gpu holds no more than before */
  count_device_allocation(gpu, block.bytes, held <= held_before, held);
  *out = (tdict_block){block.data, block.bytes, NULL};
  return TDICT_OK;
}

/* Makes free_stream wait for the fences, and releases them. If it cannot wait for a fence, this thread waits. *out is
 * an event recorded after these waits, or NULL if free_stream waits for none. Returns false if the device cannot be
 * entered or the event recorded: the caller then must not keep the block. */
static bool order_free_after(tdict_gpu *gpu, tdict_fence **fences, int num_fences, tdict_cu_event *out) {
  tdict_gpu_scope scope;
  bool entered = tdict_gpu_enter(gpu, &scope, NULL) == TDICT_OK, ordered = entered, busy = false;
  for (int i = 0; i < num_fences; i++) {
    const tdict_fence_ops *o = fences[i]->ops;
    bool done = o->poll(fences[i]);
    bool follows =
        !done && entered && o->wait_on_stream && o->wait_on_stream(fences[i], gpu, gpu->free_stream, NULL) == TDICT_OK;
    if (!done && !follows) o->wait(fences[i], INT64_MAX);
    busy |= follows;
    o->release(fences[i]);
  }
  *out = NULL;
  if (ordered && busy) ordered = tdict_gpu_take_recorded(gpu, gpu->free_stream, out, NULL) == TDICT_OK;
  tdict_gpu_leave(gpu, &scope);
  return ordered;
}

/* The cache keeps at most the peak of live memory, because more is unlikely to be reused. If the peak is lower than
 * MIN_CACHE_LIMIT, the cache keeps at most MIN_CACHE_LIMIT. The gpu's cache_bytes may set a lower limit. */
#define MIN_CACHE_LIMIT ((size_t)64 << 20)

/* Keeps the block for reuse. Before that, frees the oldest kept blocks, so that at most limit_bytes are kept in total.
 * A block that is larger than limit_bytes is freed instead. */
static void keep_block(tdict_gpu *gpu, const tdict_kept_block *block, size_t limit_bytes) {
  bool fits = block->bytes <= limit_bytes, kept = false;
  while (fits && !kept) { /* repeat, because another thread may fill the list meanwhile */
    tdict_gpu_free_kept(gpu, limit_bytes - block->bytes, TDICT_KEPT_BLOCKS - 1);
    kept = tdict_block_cache_put(&gpu->kept, block, limit_bytes);
  }
  if (!kept) tdict_gpu_free_block(gpu, block);
}

static void gpu_free(tdict_memory *m, tdict_block *block, tdict_fence **fences, int num_fences) {
  tdict_gpu *gpu = (tdict_gpu *)m;
  if (gpu->mark && tdict_forkmark_forked(gpu->mark)) return;
  tdict_kept_block freed = {.data = block->data, .bytes = block->bytes};
  bool cacheable = !atomic_load_explicit(&gpu->lost, memory_order_relaxed);
  if (num_fences > 0) cacheable &= order_free_after(gpu, fences, num_fences, &freed.event);
  pthread_mutex_lock(&gpu->lock);
  gpu->counts.live_bytes -= block->bytes;
  size_t limit_bytes = gpu->peak_live_bytes > MIN_CACHE_LIMIT ? gpu->peak_live_bytes : MIN_CACHE_LIMIT;
  pthread_mutex_unlock(&gpu->lock);
  if (limit_bytes > gpu->cache_bytes) limit_bytes = gpu->cache_bytes;
  if (cacheable)
    keep_block(gpu, &freed, limit_bytes);
  else
    tdict_gpu_free_block(gpu, &freed); /* needs no current context */
}

/* Lets the gpu access large blocks of the other gpu. Ignores failures. Call inside a scope. */
static void allow_large_blocks(tdict_gpu *gpu, const tdict_gpu *other) {
  tdict_driver *d = gpu->driver;
  tdict_cu_context popped;
  if (d->ops->ctx_push(d, gpu->context) != TDICT_CU_SUCCESS) return;
  d->ops->ctx_allow_peer(d, other->context);
  d->ops->ctx_pop(d, &popped);
}

/* Allows two gpus to access each other's memory. Tries once for each `other`, and never if the ordinal of `other` is 64
 * or more. Ignores failures, because peer copies can go through the host. */
static void allow_peer_access(tdict_gpu *gpu, tdict_gpu *other) {
  tdict_driver *d = gpu->driver;
  uint64_t bit = other->ordinal < 64 ? (uint64_t)1 << other->ordinal : 0;
  int can = 0;
  if (!bit || atomic_fetch_or_explicit(&gpu->peers_asked, bit, memory_order_relaxed) & bit) return;
  if (d->ops->device_can_reach(d, gpu->ordinal, other->ordinal, &can) == TDICT_CU_SUCCESS && can) {
    d->ops->pool_allow_peer(d, other->pool, gpu->ordinal);
    allow_large_blocks(gpu, other);
  }
  if (d->ops->device_can_reach(d, other->ordinal, gpu->ordinal, &can) == TDICT_CU_SUCCESS && can) {
    d->ops->pool_allow_peer(d, gpu->pool, other->ordinal);
    allow_large_blocks(other, gpu);
  }
}

bool tdict_gpu_has_peer_access(tdict_gpu *gpu, tdict_gpu *other) {
  tdict_driver *d = gpu->driver;
  int can = 0, back = 0;
  if (gpu == other || d != other->driver) return false;
  return d->ops->device_can_reach(d, gpu->ordinal, other->ordinal, &can) == TDICT_CU_SUCCESS && can &&
         d->ops->device_can_reach(d, other->ordinal, gpu->ordinal, &back) == TDICT_CU_SUCCESS && back;
}

/* Returns how many of the `bytes` bytes at a host address one driver call may copy. If the registration that contains
 * the address ends inside the range, at a multiple of TDICT_PINNED_GRAIN, returns the bytes up to this end. If the
 * query fails, returns the bytes up to the next multiple of TDICT_PINNED_GRAIN. In all other cases, returns `bytes`. */
static size_t bytes_to_boundary(tdict_gpu *gpu, const void *host, size_t bytes) {
  uintptr_t begin = (uintptr_t)host, last = begin + bytes - 1;
  tdict_cu_pointer p = {0};
  if (bytes == 0 || begin / TDICT_PINNED_GRAIN == last / TDICT_PINNED_GRAIN) return bytes;
  if (gpu->driver->ops->pointer(gpu->driver, host, &p) != TDICT_CU_SUCCESS)
    return TDICT_PINNED_GRAIN - begin % TDICT_PINNED_GRAIN;
  if (!p.known || p.device) return bytes;
  uintptr_t end = (uintptr_t)p.range + p.range_bytes;
  return end > begin && end - begin < bytes && end % TDICT_PINNED_GRAIN == 0 ? end - begin : bytes;
}

/* Queues the copy of contiguous bytes, split at the ends of registrations. `from` is the other gpu whose memory the
 * copy reads. NULL: the copy reads no memory of another gpu. */
static tdict_status queue_contiguous(tdict_gpu *gpu, const tdict_gpu *from, tdict_cu_kind kind,
                                     const tdict_cu_copy *copy, tdict_cu_stream stream, tdict_error *err) {
  tdict_driver *d = gpu->driver;
  tdict_cu result = TDICT_CU_SUCCESS;
  const char *call = "";
  size_t at = 0;
  do {
    char *dst = (char *)copy->dst + at;
    const char *src = (const char *)copy->src + at;
    const size_t left = copy->bytes - at,
                 part = kind == TDICT_CU_D2D ? left : bytes_to_boundary(gpu, kind == TDICT_CU_H2D ? src : dst, left);
    if (from) {
      call = "cuMemcpyPeerAsync";
      const tdict_cu_rect rect = {kind, dst, src, part, part, part, 1};
      result = d->ops->copy_peer_async(d, &rect, gpu->context, from->context, stream);
    } else if (kind == TDICT_CU_H2D) {
      call = "cuMemcpyHtoDAsync";
      result = d->ops->copy_h2d_async(d, dst, src, part, stream);
    } else if (kind == TDICT_CU_D2H) {
      call = "cuMemcpyDtoHAsync";
      result = d->ops->copy_d2h_async(d, dst, src, part, stream);
    } else {
      call = "cuMemcpyAsync";
      result = d->ops->copy_d2d_async(d, dst, src, part, stream);
    }
    at += part;
  } while (at < copy->bytes && result == TDICT_CU_SUCCESS);
  return result == TDICT_CU_SUCCESS ? TDICT_OK : tdict_gpu_check(gpu, result, call, err);
}

/* Returns true if one driver call can copy the rectangle: the pitches are valid, and no registration of the host memory
 * ends inside it. */
static bool fits_single_copy(tdict_gpu *gpu, tdict_cu_kind kind, const tdict_rect *r) {
  if (r->dst_pitch < (int64_t)r->width || r->src_pitch < (int64_t)r->width) return false;
  if (r->dst_pitch > MAX_PITCH || r->src_pitch > MAX_PITCH) return false;
  if (kind == TDICT_CU_D2D) return true;
  size_t pitch = (size_t)(kind == TDICT_CU_H2D ? r->src_pitch : r->dst_pitch),
         extent = (r->height - 1) * pitch + r->width;
  return bytes_to_boundary(gpu, kind == TDICT_CU_H2D ? r->src : r->dst, extent) == extent;
}

/* Queues a rectangle: without gaps as contiguous bytes, else with one driver call if possible, or row by row. */
static tdict_status queue_rectangle(tdict_gpu *gpu, const tdict_gpu *from, tdict_cu_kind kind, const tdict_rect *r,
                                    tdict_cu_stream stream, tdict_error *err) {
  if (r->height == 0) return TDICT_OK;
  bool line = r->dst_pitch == (int64_t)r->width && r->src_pitch == (int64_t)r->width;
  if (line || r->height == 1) {
    const tdict_cu_copy whole = {r->dst, r->src, r->width * r->height};
    return queue_contiguous(gpu, from, kind, &whole, stream, err);
  }
  if (fits_single_copy(gpu, kind, r)) {
    tdict_driver *d = gpu->driver;
    const tdict_cu_rect all = {kind, r->dst, r->src, (size_t)r->dst_pitch, (size_t)r->src_pitch, r->width, r->height};
    if (!from) return tdict_gpu_check(gpu, d->ops->copy_rect_async(d, &all, stream), "cuMemcpy2DAsync", err);
    return tdict_gpu_check(gpu, d->ops->copy_peer_async(d, &all, gpu->context, from->context, stream),
                           "cuMemcpyPeerAsync", err);
  }
  tdict_status status =
      TDICT_OK; /* copy row by row, because a pitch is invalid for the driver, or a registration ends inside the
                 * rectangle */
  for (size_t i = 0; i < r->height && status == TDICT_OK; i++)
    status = queue_contiguous(gpu, from, kind,
                              &(tdict_cu_copy){(char *)r->dst + (int64_t)i * r->dst_pitch,
                                               (const char *)r->src + (int64_t)i * r->src_pitch, r->width},
                              stream, err);
  return status;
}

tdict_status tdict_gpu_queue_rect(tdict_gpu *gpu, tdict_cu_kind kind, const tdict_rect *r, tdict_cu_stream stream,
                                  tdict_error *err) {
  return queue_rectangle(gpu, NULL, kind, r, stream, err);
}

tdict_status tdict_gpu_queue_from(tdict_gpu *gpu, tdict_gpu *from, const tdict_rect *r, tdict_cu_stream stream,
                                  tdict_error *err) {
  if (from == gpu) from = NULL;
  if (from) allow_peer_access(gpu, from);
  return queue_rectangle(gpu, from, TDICT_CU_D2D, r, stream, err);
}

tdict_status tdict_gpu_queue_copies(tdict_gpu *gpu, tdict_cu_kind kind, const tdict_cu_copy *copies, size_t count,
                                    tdict_cu_stream stream, tdict_error *err) {
  /* A call for several copies accepts none that is empty or whose host memory is in two registrations. Then queue them
   * one by one. */
  bool as_batch = count > 1;
  for (size_t i = 0; i < count && as_batch; i++) {
    const void *host = kind == TDICT_CU_H2D ? copies[i].src : copies[i].dst;
    as_batch = copies[i].bytes > 0 && bytes_to_boundary(gpu, host, copies[i].bytes) == copies[i].bytes;
  }
  if (as_batch) {
    tdict_cu result = gpu->driver->ops->copy_batch_async(gpu->driver, kind, copies, count, stream);
    if (result != TDICT_CU_NOT_SUPPORTED) return tdict_gpu_check(gpu, result, "cuMemcpyBatchAsync", err);
  }
  tdict_status status = TDICT_OK;
  for (size_t i = 0; i < count && status == TDICT_OK; i++)
    status = queue_contiguous(gpu, NULL, kind, &copies[i], stream, err);
  return status;
}

/* Copies a piece that fits the pinned buffer, first to the buffer and then to the host memory. */
static tdict_status copy_piece_to_host(tdict_gpu *gpu, const tdict_rect *r, tdict_cu_stream stream, tdict_error *err) {
  tdict_rect to_bounce = *r;
  to_bounce.dst = gpu->bounce;
  to_bounce.dst_pitch = (int64_t)r->width;
  tdict_status status = tdict_gpu_queue_rect(gpu, TDICT_CU_D2H, &to_bounce, stream, err);
  if (status == TDICT_OK) status = tdict_gpu_sync_stream(gpu, stream, err);
  if (status != TDICT_OK) return status;
  for (size_t i = 0; i < r->height; i++)
    memcpy((char *)r->dst + (int64_t)i * r->dst_pitch, (char *)gpu->bounce + i * r->width, r->width);
  return TDICT_OK;
}

/* Copies a rectangle to the host in pieces that fit the pinned buffer. */
static tdict_status copy_to_host(tdict_gpu *gpu, const tdict_rect *r, tdict_cu_stream stream, tdict_error *err) {
  tdict_status status = TDICT_OK;
  pthread_mutex_lock(&gpu->bounce_lock);
  if (!gpu->bounce)
    status = tdict_gpu_check(gpu, tdict_counted_host_alloc(gpu->driver, &gpu->bounce, TDICT_GPU_BOUNCE_BYTES),
                             "cuMemHostAlloc", err);
  size_t wide = r->width < TDICT_GPU_BOUNCE_BYTES ? r->width : TDICT_GPU_BOUNCE_BYTES;
  size_t high = wide ? TDICT_GPU_BOUNCE_BYTES / wide : 1;
  for (size_t row = 0; row < r->height && status == TDICT_OK; row += high)
    for (size_t at = 0; at < r->width && status == TDICT_OK; at += wide) {
      tdict_rect piece = *r;
      piece.dst = (char *)r->dst + (int64_t)row * r->dst_pitch + at;
      piece.src = (const char *)r->src + (int64_t)row * r->src_pitch + at;
      piece.width = r->width - at < wide ? r->width - at : wide;
      piece.height = r->height - row < high ? r->height - row : high;
      status = copy_piece_to_host(gpu, &piece, stream, err);
    }
  if (status != TDICT_OK)
    gpu->driver->ops->stream_synchronize(gpu->driver, stream); /* wait for the stream, because the next thread
                                                                * overwrites the buffer */
  pthread_mutex_unlock(&gpu->bounce_lock);
  return status;
}

/* Copies on a separate stream and waits. As with cudaMemcpy, the legacy stream's work comes first. */
static tdict_status copy_and_wait(tdict_gpu *gpu, const tdict_rect *r, tdict_direction direction, tdict_error *err) {
  tdict_cu_stream stream;
  tdict_status status = tdict_gpu_take_stream(gpu, &stream, err);
  if (status != TDICT_OK) return status;
  status = tdict_gpu_follow(gpu, stream, NULL, err);
  if (status == TDICT_OK && direction == TDICT_COPY_OUT) {
    status = copy_to_host(gpu, r, stream, err);
  } else if (status == TDICT_OK) {
    status = tdict_gpu_queue_rect(gpu, direction == TDICT_COPY_IN ? TDICT_CU_H2D : TDICT_CU_D2D, r, stream, err);
    tdict_status end = tdict_gpu_sync_stream(
        gpu, stream, status == TDICT_OK ? err : NULL); /* a call that failed can have queued some rows */
    if (status == TDICT_OK) status = end;
  }
  tdict_gpu_give_stream(gpu, stream);
  return status;
}

static tdict_status gpu_copy(tdict_memory *m, const tdict_rect *r, tdict_direction direction, tdict_error *err) {
  tdict_gpu *gpu = (tdict_gpu *)m;
  tdict_gpu_scope scope;
  tdict_status status = tdict_gpu_enter(gpu, &scope, err);
  if (status == TDICT_OK) status = copy_and_wait(gpu, r, direction, err);
  tdict_gpu_leave(gpu, &scope);
  return status;
}

/* The fill runs after the work that is queued on the legacy stream, as copies do. */
static tdict_status gpu_fill(tdict_memory *m, void *dst, int byte, size_t bytes, tdict_error *err) {
  tdict_gpu *gpu = (tdict_gpu *)m;
  tdict_gpu_scope scope;
  tdict_cu_stream stream;
  tdict_status status = tdict_gpu_enter(gpu, &scope, err);
  if (status == TDICT_OK) status = tdict_gpu_take_stream(gpu, &stream, err);
  if (status == TDICT_OK) {
    status = tdict_gpu_follow(gpu, stream, NULL, err);
    if (status == TDICT_OK)
      status = tdict_gpu_check(gpu, gpu->driver->ops->fill_async(gpu->driver, dst, (unsigned char)byte, bytes, stream),
                               "cuMemsetD8Async", err);
    if (status == TDICT_OK) status = tdict_gpu_sync_stream(gpu, stream, err);
    tdict_gpu_give_stream(gpu, stream);
  }
  tdict_gpu_leave(gpu, &scope);
  return status;
}

static void gpu_counts(const tdict_memory *m, tdict_memory_counts *out) {
  tdict_gpu *gpu = (tdict_gpu *)(uintptr_t)m;
  memset(out, 0, sizeof *out);
  if (gpu->mark && tdict_forkmark_forked(gpu->mark))
    return; /* a thread that exists only in the parent process may hold the locks */
  size_t held = get_held_bytes(gpu);
  pthread_mutex_lock(&gpu->lock);
  *out = gpu->counts;
  pthread_mutex_unlock(&gpu->lock);
  if (held > out->live_bytes) out->cached_bytes = held - out->live_bytes;
}

void tdict_gpu_trim(tdict_gpu *gpu, size_t keep_bytes) {
  tdict_gpu_scope scope;
  if (tdict_gpu_enter(gpu, &scope, NULL) == TDICT_OK) {
    tdict_gpu_free_kept(gpu, keep_bytes, TDICT_KEPT_BLOCKS);
    tdict_gpu_free_tables(gpu, false);
    gpu->driver->ops->stream_synchronize(gpu->driver, gpu->free_stream);
    pthread_mutex_lock(&gpu->lock);
    size_t live = gpu->counts.live_bytes, large = gpu->large_bytes;
    pthread_mutex_unlock(&gpu->lock);
    size_t held = get_held_bytes(gpu);
    if (held > live && held - live > keep_bytes) { /* if this condition is true, live + keep_bytes cannot overflow */
      size_t keep = live + keep_bytes;
      gpu->driver->ops->pool_trim(gpu->driver, gpu->pool, keep > large ? keep - large : 0);
    }
  }
  tdict_gpu_leave(gpu, &scope);
}

static tdict_status gpu_run(tdict_memory *m, tdict_kernel_work *work, tdict_run_order *order, tdict_error *err) {
  return tdict_gpu_run((tdict_gpu *)m, work, order, err);
}

static void gpu_retain(tdict_memory *m) { tdict_gpu_retain((tdict_gpu *)m); }
static void gpu_release(tdict_memory *m) { tdict_gpu_release((tdict_gpu *)m); }

static const tdict_memory_ops ops = {.allocate = gpu_allocate,
                                     .free = gpu_free,
                                     .copy = gpu_copy,
                                     .fill = gpu_fill,
                                     .counts = gpu_counts,
                                     .retain = gpu_retain,
                                     .release = gpu_release,
                                     .run = gpu_run,
                                     .reaches = tdict_gpu_memory_reaches};

void tdict_gpu_memory_init(tdict_memory *memory, tdict_device device) {
  memory->ops = &ops;
  memory->device = device;
  memory->pinned = false;
}

tdict_gpu *tdict_gpu_of_memory(tdict_memory *memory) {
  return memory && memory->ops == &ops ? (tdict_gpu *)memory : tdict_gpu_of_allocator_memory(memory);
}

bool tdict_gpu_memory_reaches(tdict_memory *memory, tdict_memory *other) {
  const tdict_gpu *gpu = tdict_gpu_of_memory(other);
  if (!gpu || !tdict_device_equal(memory->device, other->device)) return false;
  return memory->device.type != TDICT_DEVICE_SIM || gpu == tdict_gpu_of_memory(memory);
}
