/* A fence represents work that uses some bytes, such as a transfer. It is done only when its marks are removed, and
 * then the bytes are not used any more. Upper layers implement fences. A mark on a storage borrows its fence, and a
 * recorded use retains it. Thread rule: every operation is safe from any thread. */
#ifndef TDICT_CORE_MEMORY_FENCE_H
#define TDICT_CORE_MEMORY_FENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "tdict/status.h"

typedef struct tdict_fence tdict_fence;
typedef struct tdict_fence_ops {
  bool (*poll)(tdict_fence *fence); /* returns true if the fence is done; never waits */
  /* Waits until the fence is done or tdict_now_ns() passes the deadline. Returns true if the fence is done. In a forked
   * child, returns false at once for a transfer of the parent process that has not ended. */
  bool (*wait)(tdict_fence *fence, int64_t deadline_ns);
  /* Makes the stream `stream` of the GPU `device` (types of the device layer) wait for the fence. If the fence is a
   * transfer, the calling thread first waits until all copies of the transfer are queued. If the stream cannot wait,
   * the calling thread waits until the fence is done. Returns an error of the driver if the wait cannot be queued.
   * NULL: no stream can wait, so the caller calls `wait`. */
  tdict_status (*wait_on_stream)(tdict_fence *fence, void *device, void *stream, tdict_error *err);
  void (*retain)(tdict_fence *fence);
  void (*release)(tdict_fence *fence);
} tdict_fence_ops;
struct tdict_fence {
  const tdict_fence_ops *ops;
};

/* Waits for an array of fences, and releases them. */
static inline void tdict_fence_finish_all(tdict_fence **fences, int count) {
  for (int i = 0; i < count; i++) {
    fences[i]->ops->wait(fences[i], INT64_MAX);
    fences[i]->ops->release(fences[i]);
  }
}

/* A set of fences to wait for, empty if zeros. Several threads can wait for it while none changes it. */
typedef struct tdict_fences {
  tdict_fence **at;    /* a hash table; the set owns a reference to each fence. NULL: the place is free */
  uint32_t count, cap; /* cap is a power of two, or 0 */
  bool no_memory;      /* true: memory was exhausted, and fences are missing */
  uintptr_t lock_word; /* set by tdict_storage_collect(); 0: not set yet */
} tdict_fences;

/* Adds a fence that is not done to the tdict_fences `set`, if the set does not have the fence. Retains the fence. If
 * memory is exhausted, sets no_memory. The function has the type of a visitor of tdict_storage_each_before(). */
void tdict_fences_add(void *set, tdict_fence *fence);
/* Returns true if the set has the fence. */
bool tdict_fences_has(const tdict_fences *set, const tdict_fence *fence);
/* Waits until all fences are done. */
void tdict_fences_wait(const tdict_fences *set);
/* Makes the stream `stream` of the GPU `device` wait for all fences. If the stream cannot wait for a fence, the calling
 * thread waits. Call inside a scope of the GPU. Returns an error of the driver, or TDICT_ENOMEM if fences are missing.
 * The message of TDICT_ENOMEM begins with `what`. */
tdict_status tdict_fences_wait_on_stream(const tdict_fences *set, const char *what, void *device, void *stream,
                                         tdict_error *err);
void tdict_fences_reset(tdict_fences *set);

#endif
