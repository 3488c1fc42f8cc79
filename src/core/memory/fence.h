/* A fence represents work that uses some bytes, such as a transfer. A fence is done only after its marks on storages
 * are removed. After a wait for the fence has returned true, the work no longer uses the bytes. Upper layers implement
 * fences. A mark on a storage borrows its fence, and a recorded use of a storage retains its fence. Thread rule: every
 * operation is safe from any thread. */
#ifndef TDICT_CORE_MEMORY_FENCE_H
#define TDICT_CORE_MEMORY_FENCE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tdict_fence tdict_fence;
typedef struct tdict_fence_ops {
  bool (*poll)(tdict_fence *fence); /* returns true if the fence is done; never waits */
  /* Waits until the fence is done or tdict_now_ns() passes the deadline. Returns true if the fence is done. In a forked
   * child, returns false at once for a transfer of the parent process that has not ended. */
  bool (*wait)(tdict_fence *fence, int64_t deadline_ns);
  /* Makes the stream `stream` of the GPU `device` (types of the device layer) wait for the fence. The calling thread
   * does not wait for the fence. If the fence is a transfer, the thread first waits until all copies of the transfer
   * are queued. Returns false if the stream cannot wait: the caller then calls `wait`. If `wait_on_stream` is NULL, the
   * caller calls `wait`, too. */
  bool (*wait_on_stream)(tdict_fence *fence, void *device, void *stream);
  void (*retain)(tdict_fence *fence);
  void (*release)(tdict_fence *fence);
} tdict_fence_ops;
struct tdict_fence {
  const tdict_fence_ops *ops;
};

#endif
