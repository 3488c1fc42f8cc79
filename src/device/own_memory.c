/* Memory from a program's own allocator. On a device, copies and fills are those of the device's gpu, which it keeps.
 * Thread rule: as in tdict/context.h; counted. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "device/own_memory.h"

typedef struct own_memory {
  tdict_memory memory; /* first: it is a memory */
  _Atomic(int64_t) refs;
  tdict_allocator allocator;
  tdict_gpu *gpu;                         /* counted; NULL: on the cpu */
  _Atomic(size_t) live_bytes, peak_bytes; /* relaxed: counts */
  _Atomic(int64_t) num_allocations;
} own_memory;

static void count(own_memory *m, size_t bytes) {
  size_t now = atomic_fetch_add_explicit(&m->live_bytes, bytes, memory_order_relaxed) + bytes;
  size_t peak = atomic_load_explicit(&m->peak_bytes, memory_order_relaxed);
  while (now > peak && !atomic_compare_exchange_weak_explicit(&m->peak_bytes, &peak, now, memory_order_relaxed,
                                                              memory_order_relaxed)) {}
  atomic_fetch_add_explicit(&m->num_allocations, 1, memory_order_relaxed);
}

static tdict_status own_allocate(tdict_memory *memory, size_t bytes, tdict_block *out, tdict_error *err) {
  own_memory *m = (own_memory *)memory;
  size_t wanted = bytes ? bytes : 1;
  void *data = m->allocator.allocate(m->allocator.user, wanted);
  if (!data) return tdict_fail(err, TDICT_ENOMEM, "memory: the program's allocator had no %zu bytes", wanted);
  count(m, wanted);
  *out = (tdict_block){data, wanted, NULL};
  return TDICT_OK;
}

static void own_free(tdict_memory *memory, tdict_block *block, tdict_fence **fences, int num_fences) {
  own_memory *m = (own_memory *)memory;
  for (int i = 0; i < num_fences; i++) {
    fences[i]->ops->wait(fences[i], INT64_MAX);
    fences[i]->ops->release(fences[i]);
  }
  atomic_fetch_sub_explicit(&m->live_bytes, block->bytes, memory_order_relaxed);
  if (m->gpu && m->gpu->mark && tdict_forkmark_forked(m->gpu->mark)) return; /* device memory is the parent's */
  m->allocator.release(m->allocator.user, block->data, block->bytes);
}

static tdict_status own_copy(tdict_memory *memory, const tdict_rect *rect, tdict_direction direction,
                             tdict_error *err) {
  tdict_memory *device = &((own_memory *)memory)->gpu->memory;
  return device->ops->copy(device, rect, direction, err);
}
static tdict_status own_fill(tdict_memory *memory, void *dst, int byte, size_t bytes, tdict_error *err) {
  tdict_memory *device = &((own_memory *)memory)->gpu->memory;
  return device->ops->fill(device, dst, byte, bytes, err);
}

static void own_counts(const tdict_memory *memory, tdict_memory_counts *out) {
  const own_memory *m = (const own_memory *)memory;
  memset(out, 0, sizeof *out);
  out->live_bytes = atomic_load_explicit(&m->live_bytes, memory_order_relaxed);
  out->peak_bytes = atomic_load_explicit(&m->peak_bytes, memory_order_relaxed);
  out->num_allocations = atomic_load_explicit(&m->num_allocations, memory_order_relaxed);
}

static void own_retain(tdict_memory *memory) {
  atomic_fetch_add_explicit(&((own_memory *)memory)->refs, 1, memory_order_relaxed);
}
static void own_release(tdict_memory *memory) {
  own_memory *m = (own_memory *)memory;
  if (atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) != 1) return;
  tdict_gpu_release(m->gpu);
  free(m);
}

static const tdict_memory_ops host_ops = {
    .allocate = own_allocate, .free = own_free, .counts = own_counts, .retain = own_retain, .release = own_release};
static const tdict_memory_ops device_ops = {.allocate = own_allocate,
                                            .free = own_free,
                                            .copy = own_copy,
                                            .fill = own_fill,
                                            .counts = own_counts,
                                            .retain = own_retain,
                                            .release = own_release};

tdict_gpu *tdict_gpu_of_own_memory(tdict_memory *memory) {
  return memory && memory->ops == &device_ops ? ((own_memory *)memory)->gpu : NULL;
}

tdict_status tdict_own_memory_create(const tdict_allocator *allocator, tdict_gpu *gpu, tdict_memory **out,
                                     tdict_error *err) {
  own_memory *m = calloc(1, sizeof *m);
  if (!m) return tdict_fail(err, TDICT_ENOMEM, "memory: no host memory for its record");
  m->memory = (tdict_memory){gpu ? &device_ops : &host_ops, allocator->device, allocator->pinned};
  atomic_init(&m->refs, 1);
  m->allocator = *allocator;
  m->gpu = gpu ? tdict_gpu_retain(gpu) : NULL;
  *out = &m->memory;
  return TDICT_OK;
}

void tdict_memory_release(tdict_memory *memory) {
  if (memory && (memory->ops == &host_ops || memory->ops == &device_ops)) own_release(memory);
}
