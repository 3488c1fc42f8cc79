/* A fence represents work that uses some bytes, such as a transfer. A fence is done only after its marks on storages
 * are removed. After a wait for the fence has returned true, the work no longer uses the bytes. Upper layers implement
 * fences. A mark on a storage borrows its fence, and a recorded use of a storage retains its fence. Thread rule: every
 * operation is safe from any thread. */
#ifndef TDICT_MEMORY_FENCE_H
#define TDICT_MEMORY_FENCE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tdict_fence tdict_fence;
typedef struct tdict_fence_ops {
  bool (*poll)(tdict_fence *fence); /* returns true if the fence is done; never waits */
  /* Waits until the fence is done or tdict_now_ns() passes the deadline. Returns true if the fence is done. In a forked
   * child, returns false at once for a transfer of the parent process that has not ended. */
  bool (*wait)(tdict_fence *fence, int64_t deadline_ns);
  /* Makes a stream of a device wait for the fence. The host does not wait for the fence, but a transfer first waits on
   * the host until all its copies are queued. `device` and `stream` are pointers of the device layer. Returns false if
   * the stream cannot wait. The pointer `wait_on_stream` may be NULL. */
  bool (*wait_on_stream)(tdict_fence *fence, void *device, void *stream);
  void (*retain)(tdict_fence *fence);
  void (*release)(tdict_fence *fence);
} tdict_fence_ops;
struct tdict_fence {
  const tdict_fence_ops *ops;
};

#endif
