/* Implements the memories that need no driver: ordinary host memory, and the memory of an absent device. The ordinary
 * memory is static. The memory of an absent device is reference counted. Thread rule: safe from any thread. */
#include "device/host.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "tdict/memory.h"

enum { ALIGNMENT = 64 };

static tdict_status host_allocate(tdict_memory *m, size_t bytes, tdict_block *out, tdict_error *err) {
  (void)m;
  void *data;
  if (posix_memalign(&data, ALIGNMENT, bytes ? bytes : 1) != 0)
    return tdict_fail(err, TDICT_ENOMEM, "host memory: out of memory for %zu bytes", bytes);
  *out = (tdict_block){data, bytes, NULL};
  return TDICT_OK;
}
static void host_free(tdict_memory *m, tdict_block *block, tdict_fence **fences, int num_fences) {
  (void)m;
  tdict_fence_finish_all(fences, num_fences);
  free(block->data);
}
static void zero_counts(const tdict_memory *m, tdict_memory_counts *out) {
  (void)m;
  memset(out, 0, sizeof *out);
}
static void ignore_reference(tdict_memory *m) { (void)m; }

tdict_memory *tdict_host_memory(void) {
  static const tdict_memory_ops ops = {.allocate = host_allocate,
                                       .free = host_free,
                                       .counts = zero_counts,
                                       .retain = ignore_reference,
                                       .release = ignore_reference};
  static const tdict_memory memory = {&ops, {TDICT_DEVICE_CPU, 0}, false};
  return (tdict_memory *)(uintptr_t)&memory; /* the cast drops const; nothing writes to the memory */
}

typedef struct absent {
  tdict_memory memory; /* first, so that an absent * is also a tdict_memory * */
  tdict_error reason;
  _Atomic(int64_t) refs;
} absent;

static tdict_status absent_allocate(tdict_memory *m, size_t bytes, tdict_block *out, tdict_error *err) {
  (void)bytes;
  (void)out;
  const absent *a = (const absent *)m;
  if (err) *err = a->reason;
  return (tdict_status)a->reason.status;
}
static void absent_free(tdict_memory *m, tdict_block *block, tdict_fence **fences, int num_fences) {
  (void)m, (void)block, (void)fences, (void)num_fences; /* never called: no block was ever allocated */
}
static void absent_retain(tdict_memory *m) { atomic_fetch_add_explicit(&((absent *)m)->refs, 1, memory_order_relaxed); }
static void absent_release(tdict_memory *m) {
  if (atomic_fetch_sub_explicit(&((absent *)m)->refs, 1, memory_order_acq_rel) == 1) free(m);
}

tdict_memory *tdict_absent_memory_create(tdict_device device, const tdict_error *reason) {
  static const tdict_memory_ops ops = {.allocate = absent_allocate,
                                       .free = absent_free,
                                       .counts = zero_counts,
                                       .retain = absent_retain,
                                       .release = absent_release};
  absent *a = calloc(1, sizeof *a);
  if (!a) return NULL;
  a->memory.ops = &ops;
  a->memory.device = device;
  a->reason = *reason;
  atomic_init(&a->refs, 1);
  return &a->memory;
}

tdict_memory *tdict_no_memory(void) {
  static const tdict_memory_ops ops = {.allocate = absent_allocate,
                                       .free = absent_free,
                                       .counts = zero_counts,
                                       .retain = ignore_reference,
                                       .release = ignore_reference};
  static const absent memory = {.memory = {&ops, {TDICT_DEVICE_CPU, 0}, false},
                                .reason = {.status = TDICT_ENOMEM, .message = "no host memory to describe the device"}};
  return (tdict_memory *)(uintptr_t)&memory.memory;
}
