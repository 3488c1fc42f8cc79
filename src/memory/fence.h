/* A fence: something that some bytes are waiting for, such as a transfer that reads them. A fence
 * is done only once its marks on storages are gone: who has waited finds them free. The layers above implement
 * it; storages hold them. Thread rule: every operation is safe from any thread. */
#ifndef TDICT_MEMORY_FENCE_H
#define TDICT_MEMORY_FENCE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tdict_fence tdict_fence;
typedef struct tdict_fence_ops {
  bool (*poll)(tdict_fence *fence);                      /* true once done; never waits */
  bool (*wait)(tdict_fence *fence, int64_t deadline_ns); /* by tdict_now_ns(); true when done, false when too late */
  /* The stream of a device (the device layer's own pointers) waits instead of the host; false: it cannot. May be NULL. */
  bool (*wait_on_stream)(tdict_fence *fence, void *device, void *stream);
  void (*retain)(tdict_fence *fence);
  void (*release)(tdict_fence *fence);
} tdict_fence_ops;
struct tdict_fence {
  const tdict_fence_ops *ops;
};

#endif
