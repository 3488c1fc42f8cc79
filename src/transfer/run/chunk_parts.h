/* Declares chunks that several threads fill together. Each copy costs the link some microseconds regardless of its
 * size, so copies should be large. However, the first copy should begin soon. Therefore each thread gathers one part of
 * a chunk into the chunk's slot, and the thread that fills the last part queues the copy. A thread that waits long for
 * a chunk's slot returns its finished slots to the ring. The thread of the first part can then take a slot. Thread
 * rule: one thread calls create and close while no other thread works. Workers call the other functions, each with a
 * different lane. */
#ifndef TDICT_TRANSFER_RUN_CHUNK_PARTS_H
#define TDICT_TRANSFER_RUN_CHUNK_PARTS_H

#include "transfer/plan/choose.h"
#include "transfer/run/lane.h"

typedef struct tdict_chunk_parts {
  /* release/acquire: set by the thread of the first part; NULL before that, and again before the copy is queued */
  _Atomic(tdict_slot *) slot;
  /* acq_rel: parts not filled yet. The thread that fills the last part sees all bytes */
  _Atomic(uint32_t) num_unfilled;
} tdict_chunk_parts;

/* Allocates the parts of all chunks, if num_parts is above 1 and some bytes go through slots to a device. Else sets
 * num_parts to 1. TDICT_ENOMEM. */
tdict_status tdict_chunk_parts_create(tdict_future *transfer, tdict_error *err);
/* After a failure, some slots may be filled in part and never queued. Returns these slots to their rings. */
void tdict_chunk_parts_close(tdict_future *transfer);
/* Returns the number of parts of the chunk, from 1 to the transfer's num_parts. */
uint32_t tdict_chunk_parts_count(const tdict_future *transfer, const tdict_chunk *chunk);
/* Returns the n-th part: an interval of the chunk whose begin is a multiple of 256 from the chunk's begin. */
tdict_chunk tdict_chunk_part_at(const tdict_future *transfer, const tdict_chunk *chunk, uint32_t n);
/* Returns the slot of the chunk. The thread of the first part takes a slot from the ring; all other threads wait for
 * this slot. *out is NULL if the transfer has failed. TDICT_EDEVICE. */
tdict_status tdict_chunk_parts_slot(tdict_lane *lane, tdict_chunk_parts *parts, bool first, tdict_slot **out,
                                    tdict_error *err);
/* Counts a part as filled. Returns true for the last part: the caller then queues the slot, after
 * tdict_chunk_parts_take_over(). */
bool tdict_chunk_parts_filled(tdict_chunk_parts *parts);
/* Makes the calling lane the owner of the chunk's slot. TDICT_EDEVICE. */
tdict_status tdict_chunk_parts_take_over(tdict_lane *lane, tdict_chunk_parts *parts, tdict_error *err);

#endif
