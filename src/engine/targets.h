/* Copies chunks between the targets of a transfer, see tdict_target. The transfer writes target 0 from the host. As
 * soon as a chunk has arrived, the device copies the chunk to the other targets, on the same stream. So the host's
 * memory is read once, and no other thread must wait for the arrival. Thread rule: any worker queues copies. */
#ifndef TDICT_ENGINE_TARGETS_H
#define TDICT_ENGINE_TARGETS_H

#include "engine/transfer.h"

/* Queues the copies of a chunk that the stream of `gpu` writes. Returns the errors of the driver. The path of the
 * promise's error is then the position of the target. */
tdict_status tdict_targets_add_chunk(const tdict_transfer *t, const tdict_chunk *chunk, tdict_gpu *gpu,
                                     tdict_cu_stream stream, tdict_error *err);

#endif
