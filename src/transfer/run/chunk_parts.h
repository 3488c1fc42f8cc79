/* Lets several threads fill the slot of one chunk. Each copy costs the link some microseconds regardless of its size,
 * so copies should be large. However, the first copy should begin soon. Therefore several threads fill a slot, and each
 * thread copies one part of the chunk. The thread that finishes its part last queues the copy. A thread that waits long
 * for a chunk's slot returns its finished slots to the ring, so that the thread of the first part can take a slot.
 * Thread rule: tdict_chunk_parts_create() and tdict_chunk_parts_close() are called while no worker runs. Workers call
 * the other functions, each with its own lane. */
#ifndef TDICT_TRANSFER_RUN_CHUNK_PARTS_H
#define TDICT_TRANSFER_RUN_CHUNK_PARTS_H

#include "transfer/plan/choose.h"
#include "transfer/run/lane.h"

typedef struct tdict_chunk_parts {
  /* release/acquire: the thread of the first part sets the slot. NULL before that, and again after a lane has taken
   * over the slot */
  _Atomic(tdict_slot *) slot;
  /* acq_rel: number of parts that are not filled yet. The thread that fills the last part sees all bytes */
  _Atomic(uint32_t) num_unfilled;
} tdict_chunk_parts;

/* Allocates the parts of all chunks. If no bytes are copied through slots to a device, sets num_parts to 1. If
 * num_parts is 1, allocates nothing. Errors: TDICT_ENOMEM. */
tdict_status tdict_chunk_parts_create(tdict_transfer *transfer, tdict_error *err);
/* Returns slots to their rings if the slots' copies were never queued. Such slots exist only after a failure. */
void tdict_chunk_parts_close(tdict_transfer *transfer);
/* Returns the number of parts of the chunk, from 1 to the transfer's num_parts. */
uint32_t tdict_chunk_parts_count(const tdict_transfer *transfer, const tdict_chunk *chunk);
/* Returns part `n` of the chunk as an interval. The first part is part 0. The part begins at a multiple of 256 bytes
 * from the start of the chunk. */
tdict_chunk tdict_chunk_part_at(const tdict_transfer *transfer, const tdict_chunk *chunk, uint32_t n);
/* Returns the slot of the chunk. If `first` is true, takes a slot from the ring. If `first` is false, waits until the
 * thread of the first part has taken the slot. *out is NULL if the transfer has failed. Returns the errors of
 * tdict_lane_take_slot(). */
tdict_status tdict_chunk_parts_slot(tdict_lane *lane, tdict_chunk_parts *parts, bool first, tdict_slot **out,
                                    tdict_error *err);
/* Counts a part as filled. Returns true for the last part. If the result is true, the caller must call
 * tdict_chunk_parts_take_over() and queue the slot's copy. */
bool tdict_chunk_parts_filled(tdict_chunk_parts *parts);
/* Makes the calling lane the owner of the chunk's slot. Returns the errors of tdict_lane_take_over(). */
tdict_status tdict_chunk_parts_take_over(tdict_lane *lane, tdict_chunk_parts *parts, tdict_error *err);

#endif
