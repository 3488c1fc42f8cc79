/* Chunks that several threads fill together. A copy costs the link some microseconds whatever it carries, so there are to
 * be few; but the first is to begin soon. So each thread gathers a part of a chunk into its slot, and who has filled the
 * last one queues the copy.
 * A thread that waits for a chunk's slot for longer than a moment gives its own back as their copies end, so that whoever is
 * to take it can get one.
 * Thread rule: create and close by one thread while no other works; the rest from the workers, each with its own lane. */
#ifndef TDICT_TRANSFER_RUN_CHUNK_PARTS_H
#define TDICT_TRANSFER_RUN_CHUNK_PARTS_H

#include "transfer/plan/choose.h"
#include "transfer/run/lane.h"

typedef struct tdict_chunk_parts {
  _Atomic(tdict_slot *)
      slot; /* release/acquire: NULL until the first part's thread has taken it, and once it is about to be queued */
  _Atomic(uint32_t) left; /* acq_rel: parts that are not filled yet; the last one's thread sees all bytes */
} tdict_chunk_parts;

/* Makes the parts of the transfer's chunks, if it has more than one part a chunk and anything goes through slots to a
 * device; else it has one part from here on. TDICT_ENOMEM. */
tdict_status tdict_chunk_parts_create(tdict_future *transfer, tdict_error *err);
/* Gives slots that were filled in part and never queued, as a transfer leaves them that failed, back to their rings. */
void tdict_chunk_parts_close(tdict_future *transfer);
/* How many parts the chunk has, 1 to the transfer's num_parts. */
uint32_t tdict_chunk_parts_count(const tdict_future *transfer, const tdict_chunk *chunk);
/* The n-th of them: an interval of the chunk that begins on a multiple of 256 from there. */
tdict_chunk tdict_chunk_part_at(const tdict_future *transfer, const tdict_chunk *chunk, uint32_t n);
/* The slot that the chunk is gathered in: takes it for the first part, waits for it with the others. NULL: the transfer
 * has failed meanwhile. TDICT_EDEVICE. */
tdict_status tdict_chunk_parts_slot(tdict_lane *lane, tdict_chunk_parts *parts, bool first, tdict_slot **out,
                                    tdict_error *err);
/* A part is filled. True for the last one: the slot is the caller's to queue, when tdict_chunk_parts_take() has given it. */
bool tdict_chunk_parts_filled(tdict_chunk_parts *parts);
tdict_status tdict_chunk_parts_take(tdict_lane *lane, tdict_chunk_parts *parts, tdict_error *err);

#endif
