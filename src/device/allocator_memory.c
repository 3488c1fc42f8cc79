/* A memory that calls the program's allocator. The memory retains a gpu for copies and fills on a device. The program
 * and each storage hold a reference to it. Thread-safe. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/thread.h"
#include "device/allocator_memory.h"
#include "tdict/memory.h"

typedef struct allocator_memory {
  tdict_memory memory; /* first, so that an allocator_memory * is also a tdict_memory * */
  _Atomic(int64_t) refs;
  tdict_allocator allocator;
  tdict_gpu *gpu;                         /* retained; NULL: the memory is host memory */
  _Atomic(size_t) live_bytes, peak_bytes; /* relaxed: statistics only */
  _Atomic(int64_t) num_allocations;
} allocator_memory;

/* Counts an allocation, and raises the peak by compare-exchange: another thread may raise it, too. */
static void count_allocation(allocator_memory *m, size_t bytes) {
  size_t now = atomic_fetch_add_explicit(&m->live_bytes, bytes, memory_order_relaxed) + bytes;
  size_t peak = atomic_load_explicit(&m->peak_bytes, memory_order_relaxed);
  while (now > peak && !atomic_compare_exchange_weak_explicit(&m->peak_bytes, &peak, now, memory_order_relaxed,
                                                              memory_order_relaxed)) {}
  atomic_fetch_add_explicit(&m->num_allocations, 1, memory_order_relaxed);
}

static tdict_status allocator_allocate(tdict_memory *memory, size_t bytes, tdict_block *out, tdict_error *err) {
  allocator_memory *m = (allocator_memory *)memory;
  size_t size = bytes ? bytes : 1;
  TDICT_UNCANCELLED;
  void *data = m->allocator.allocate(m->allocator.user, size);
  if (!data) return tdict_fail(err, TDICT_ENOMEM, "memory: the program's allocator returned NULL for %zu bytes", size);
  count_allocation(m, size);
  *out = (tdict_block){data, size, NULL};
  return TDICT_OK;
}

static void allocator_free(tdict_memory *memory, tdict_block *block, tdict_fence **fences, int num_fences) {
  allocator_memory *m = (allocator_memory *)memory;
  /* Wait for all uses, because the program may reuse the block at once. */
  tdict_fence_finish_all(fences, num_fences);
  atomic_fetch_sub_explicit(&m->live_bytes, block->bytes, memory_order_relaxed);
  /* In a forked child, device memory belongs to the parent process. */
  if (m->gpu && m->gpu->mark && tdict_forkmark_forked(m->gpu->mark)) return;
  TDICT_UNCANCELLED;
  m->allocator.release(m->allocator.user, block->data, block->bytes);
}

/* Copies with the operation of the gpu's own memory, because the bytes are on the gpu. */
static tdict_status allocator_copy(tdict_memory *memory, const tdict_rect *rect, tdict_direction direction,
                                   tdict_error *err) {
  tdict_memory *device = &((allocator_memory *)memory)->gpu->memory;
  return device->ops->copy(device, rect, direction, err);
}
static tdict_status allocator_fill(tdict_memory *memory, void *dst, int byte, size_t bytes, tdict_error *err) {
  tdict_memory *device = &((allocator_memory *)memory)->gpu->memory;
  return device->ops->fill(device, dst, byte, bytes, err);
}

static tdict_status allocator_run(tdict_memory *memory, tdict_kernel_work *work, tdict_run_order *order,
                                  tdict_error *err) {
  return tdict_gpu_run(((allocator_memory *)memory)->gpu, work, order, err);
}

static void allocator_counts(const tdict_memory *memory, tdict_memory_counts *out) {
  const allocator_memory *m = (const allocator_memory *)memory;
  memset(out, 0, sizeof *out);
  out->live_bytes = atomic_load_explicit(&m->live_bytes, memory_order_relaxed);
  out->peak_bytes = atomic_load_explicit(&m->peak_bytes, memory_order_relaxed);
  out->num_allocations = atomic_load_explicit(&m->num_allocations, memory_order_relaxed);
}

static void allocator_retain(tdict_memory *memory) {
  atomic_fetch_add_explicit(&((allocator_memory *)memory)->refs, 1, memory_order_relaxed);
}
static void allocator_release(tdict_memory *memory) {
  allocator_memory *m = (allocator_memory *)memory;
  if (atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) != 1) return;
  tdict_gpu_release(m->gpu);
  free(m);
}

static const tdict_memory_ops host_ops = {.allocate = allocator_allocate,
                                          .free = allocator_free,
                                          .counts = allocator_counts,
                                          .retain = allocator_retain,
                                          .release = allocator_release};
static const tdict_memory_ops device_ops = {.allocate = allocator_allocate,
                                            .free = allocator_free,
                                            .copy = allocator_copy,
                                            .fill = allocator_fill,
                                            .counts = allocator_counts,
                                            .retain = allocator_retain,
                                            .release = allocator_release,
                                            .run = allocator_run,
                                            .reaches = tdict_gpu_memory_reaches};

tdict_gpu *tdict_gpu_of_allocator_memory(tdict_memory *memory) {
  return memory && memory->ops == &device_ops ? ((allocator_memory *)memory)->gpu : NULL;
}

tdict_status tdict_allocator_memory_create(const tdict_allocator *allocator, tdict_gpu *gpu, tdict_memory **out,
                                           tdict_error *err) {
  allocator_memory *m = calloc(1, sizeof *m);
  if (!m) return tdict_fail_memory(err, "memory", NULL, "its record");
  m->memory = (tdict_memory){gpu ? &device_ops : &host_ops, allocator->device, allocator->pinned};
  atomic_init(&m->refs, 1);
  m->allocator = *allocator;
  m->gpu = gpu ? tdict_gpu_retain(gpu) : NULL;
  *out = &m->memory;
  return TDICT_OK;
}

void tdict_memory_release(tdict_memory *memory) {
  if (memory && (memory->ops == &host_ops || memory->ops == &device_ops)) allocator_release(memory);
}
