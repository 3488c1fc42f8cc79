/* Queues the copies of a chunk that needs no slot. Thread rule: one thread at a time uses a stream, and is inside a
 * scope of the GPU. */
#ifndef TDICT_ENGINE_KINDS_DIRECT_H
#define TDICT_ENGINE_KINDS_DIRECT_H

#include "engine/plan/plan.h"

typedef struct tdict_direct {
  const tdict_plan *plan;
  const tdict_chunk *chunk;
  tdict_devices *devices; /* find the GPU that owns the source */
  tdict_gpu *gpu;         /* owns the destination, or the source of a copy to the host */
  tdict_cu_stream stream;
} tdict_direct;
/* Queues copies, and a launch that converts. A failure may leave copies queued. Errors: the driver's, TDICT_ENOMEM. */
tdict_status tdict_direct_queue(const tdict_direct *direct, tdict_error *err);

#endif
