/* Lets several threads fill the slot of one chunk. Each copy costs the link some microseconds regardless of its size,
 * so copies should be large. However, the first copy should begin soon. Therefore several threads fill a slot, and each
 * thread copies one part of the chunk. The thread that finishes its part last queues the copy. A thread that waits long
 * for a chunk's slot returns its finished slots to the ring, so that the thread of the first part can take a slot.
 * Thread rule: tdict_chunk_parts_create() and tdict_chunk_parts_close() are called while no worker runs. Workers call
 * the other functions, each with its own lane. */
#ifndef TDICT_ENGINE_OPTIONS_CHUNK_PARTS_H
#define TDICT_ENGINE_OPTIONS_CHUNK_PARTS_H

#include "engine/lane.h"
#include "engine/plan/choose.h"

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
/* Returns the number of parts of the chunk, from 1 to the transfer's num_parts. A chunk that is not copied through a
 * slot to a device has 1 part. */
uint32_t tdict_chunk_parts_count(const tdict_transfer *transfer, const tdict_chunk *chunk);
/* Returns part `n` of the chunk as an interval. The first part is part 0. The part begins at a multiple of 256 bytes
 * from the start of the chunk. */
tdict_chunk tdict_chunk_part_at(const tdict_transfer *transfer, const tdict_chunk *chunk, uint32_t n);
/* What a thread has claimed: a part of a chunk, or the whole chunk. */
typedef struct tdict_claim {
  const tdict_chunk *chunk;
  tdict_chunk_parts *parts; /* NULL: the chunk has one part, and the lane that takes the slot keeps the slot */
  tdict_chunk part;
} tdict_claim;
/* Claims the next part of a transfer with parts. Returns false if no part is left. Parts are claimed in order, so the
 * first part of a chunk is claimed before any other part. */
bool tdict_chunk_parts_claim(tdict_transfer *transfer, tdict_claim *out);
/* Returns the slot of a chunk with several parts. For the first part, takes a slot. For the other parts, waits until
 * the thread of the first part has taken the slot. *out is NULL if the transfer has failed. Returns the errors of
 * tdict_lane_take_slot(). */
tdict_status tdict_chunk_parts_slot(tdict_lane *lane, const tdict_claim *claim, tdict_slot **out, tdict_error *err);
/* Counts the part as filled. If this was the last part, the lane owns the slot, and must queue the slot's copy.
 * Otherwise sets *slot to NULL. Returns the errors of tdict_lane_take_over(). */
tdict_status tdict_chunk_parts_filled(tdict_lane *lane, const tdict_claim *claim, tdict_slot **slot, tdict_error *err);

#endif
