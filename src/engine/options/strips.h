/* Lets several threads fill the slot of one chunk. Each copy costs the link some microseconds regardless of its
 * size, so copies should be large. However, the first copy should begin soon. Therefore several threads fill a slot,
 * and each thread copies one strip of the chunk. The thread that finishes its strip last queues the copy. If the
 * transfer has few chunks and the calling thread copies, the calling thread queues all copies: the first driver
 * calls of a thread that has just been woken take long. A thread that waits long for a chunk's slot returns its
 * finished slots to the ring, so that the thread of the first strip can take a slot. Thread rule:
 * tdict_strips_create() and tdict_strips_close() are called while no worker runs. Workers call the other functions,
 * each with its own lane. */
#ifndef TDICT_ENGINE_OPTIONS_STRIPS_H
#define TDICT_ENGINE_OPTIONS_STRIPS_H

#include "engine/lane.h"

typedef struct tdict_chunk_strips {
  /* release/acquire: set by the thread of the first strip. NULL before, and after a lane has taken it over */
  _Atomic(tdict_slot *) slot;
  /* acq_rel: number of strips that are not filled yet, and one more if the calling thread queues the copy. The thread
   * that decreases the number to 0 sees all bytes, and queues the copy */
  _Atomic(uint32_t) num_unfilled;
} tdict_chunk_strips;
typedef struct tdict_strips {
  uint32_t max_strips; /* of a chunk; at least 2 */
  bool caller_queues;
  uint32_t next_to_queue; /* used only by the calling thread: the next chunk whose copy it queues */
  tdict_chunk_strips chunks[];
} tdict_strips;

/* Allocates transfer->strips, with at most `max_strips` strips for each chunk. Allocates nothing if no bytes are copied
 * through slots to a device. Errors: TDICT_ENOMEM. */
tdict_status tdict_strips_create(tdict_transfer *transfer, uint32_t max_strips, tdict_error *err);
/* Returns slots to their rings if the slots' copies were never queued. Such slots exist only after a failure. */
void tdict_strips_close(tdict_transfer *transfer);
/* Returns the number of strips, up to max_strips, of a chunk that goes through a slot to a device, else 1. */
uint32_t tdict_strips_count(const tdict_transfer *transfer, const tdict_chunk *chunk);
/* Returns strip `n`, from 0, of the chunk as an interval that begins at a multiple of 256 bytes in it. */
tdict_chunk tdict_strip_at(const tdict_transfer *transfer, const tdict_chunk *chunk, uint32_t n);
/* What a thread has claimed: a strip of a chunk, or the whole chunk. */
typedef struct tdict_claim {
  const tdict_chunk *chunk;
  tdict_chunk_strips *strips; /* NULL: the chunk has one strip, and the lane that takes the slot keeps the slot */
  tdict_chunk strip;
} tdict_claim;
/* Claims the next strip of the worker's transfer, which has strips. Returns false if no strip is left. Strips are
 * claimed in order, so the first strip of a chunk is claimed before any other strip. If the calling thread queues
 * the copy of a chunk, it claims an empty strip at the end of the chunk for this. */
bool tdict_strips_claim(tdict_worker *worker, tdict_claim *out);
/* Returns the slot of a chunk with several strips. For the first strip, takes a slot. For the others, waits until
 * the thread of the first has taken it, and for an empty strip until all others are filled. *out is NULL if the
 * transfer has failed. Returns the errors of tdict_lane_take_slot(). */
tdict_status tdict_strips_slot(tdict_lane *lane, const tdict_claim *claim, tdict_slot **out, tdict_error *err);
/* Counts the strip as filled. If this was the last strip, the lane owns the slot, and must queue the slot's copy.
 * Otherwise sets *slot to NULL. Returns the errors of tdict_lane_take_over(). */
tdict_status tdict_strips_filled(tdict_lane *lane, const tdict_claim *claim, tdict_slot **slot, tdict_error *err);

#endif
