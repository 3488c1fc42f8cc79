/* Declares lanes. A lane is the stream of one thread on one GPU, with the copies in flight, oldest first. A lane owns
 * each slot that it has taken, until it hands over the slot or returns the slot to the ring. A function that fails
 * returns TDICT_EDEVICE, TDICT_ELOST or TDICT_ENOMEM. Thread rule: one thread at a time uses a lane. This thread is
 * inside the GPU's scope while the lane is open and not paused. */
#ifndef TDICT_TRANSFER_RUN_LANE_H
#define TDICT_TRANSFER_RUN_LANE_H

#include "transfer/job.h"

enum { TDICT_LANE_DEPTH = 16 }; /* maximum number of flights of a lane */
/* A copy in flight that a lane tracks. */
typedef struct tdict_flight {
  tdict_slot *slot;     /* NULL: the copy needs no slot */
  tdict_cu_event event; /* the slot's event; without a slot, an event that the lane has taken from the GPU */
  const tdict_chunk *chunk;
  bool out; /* true: after this copy, the bytes must be copied from the slot to the host leaves */
} tdict_flight;
typedef struct tdict_lane {
  tdict_worker *worker;
  tdict_gpu *gpu;   /* NULL: the lane is closed */
  tdict_ring *ring; /* NULL: no slot was requested yet */
  tdict_gpu_scope scope;
  tdict_cu_stream stream;
  tdict_flight flights[TDICT_LANE_DEPTH];
  int first, count, depth;
  int held; /* number of slots that the lane holds, in flight or spare */
  /* if copies without a slot were queued after the last recorded event: the chunk of the last of these copies. The next
   * event covers all these copies. NULL: no copy lacks an event */
  const tdict_chunk *unrecorded;
  size_t unrecorded_bytes;
  tdict_slot *spare;
  bool begun;                /* true: the stream already waits for the transfer's wait events and uses */
  bool has_untracked_copies; /* true: copies that no flight of this lane tracks may be in flight on the stream */
} tdict_lane;

/* Opens the lane on a GPU: enters a scope of the GPU and takes a stream. */
tdict_status tdict_lane_open(tdict_lane *lane, tdict_gpu *gpu, tdict_error *err);
/* Makes the stream wait for the transfer's wait events and uses. If the stream cannot wait for a use, the calling
 * thread waits. Later calls do nothing. Call only if a copy follows: streams are pooled, and a queued wait would delay
 * the stream's next user. */
tdict_status tdict_lane_begin(tdict_lane *lane, tdict_error *err);
/* Waits for all copies, then closes the lane, even if waiting fails. If `abandon` is true, slots are not copied to the
 * host. Does nothing if the lane is closed. */
tdict_status tdict_lane_close(tdict_lane *lane, bool abandon, tdict_error *err);
/* Waits for the oldest flights until fewer than TDICT_DIRECT_IN_FLIGHT flights are left. Call before queueing a copy
 * without a slot. */
tdict_status tdict_lane_make_room(tdict_lane *lane, tdict_error *err);
/* Counts the bytes of a chunk as queued. If the transfer has a limit of queued bytes, first waits until the chunk fits
 * into the limit, see queue_limit.h. Call before queueing the copies of the chunk. *out is false if the transfer has
 * failed meanwhile; the chunk must then not be queued. */
tdict_status tdict_lane_reserve(tdict_lane *lane, const tdict_chunk *chunk, bool *out, tdict_error *err);
/* Takes a slot, and makes room for its flight. A lane that holds slots waits only for its own copies. A lane without
 * slots waits for any slot of the ring. *out is NULL if the transfer has failed meanwhile. While a stream may block the
 * transfer, leaves some slots free for other transfers. Exceptions are the transfer's first slot, and transfers with a
 * deferred tail. */
tdict_status tdict_lane_take_slot(tdict_lane *lane, tdict_slot **out, tdict_error *err);
/* Stops counting the slot that the lane has just taken. Several threads then fill the slot. The lane that calls
 * tdict_lane_take_over() queues the copy. */
void tdict_lane_hand_over(tdict_lane *lane);
/* Counts a slot that another lane handed over, and makes room for its flight. May wait for copies of this lane. */
tdict_status tdict_lane_take_over(tdict_lane *lane, tdict_error *err);
/* Keeps a slot without a copy as the lane's spare. If the lane already has a spare, returns the slot to the ring. */
void tdict_lane_keep_slot(tdict_lane *lane, tdict_slot *slot);
/* Returns the spare and the slots of finished copies to the ring. Stops at the first unfinished copy. If the oldest
 * copy waits in the batch, first queues the batch. Does not wait for copies, except for a copy whose event cannot be
 * queried. */
tdict_status tdict_lane_return_finished(tdict_lane *lane, tdict_error *err);
/* Records an event after the copy that was just queued for the chunk, and adds the flight. If `slot` is NULL, the copy
 * needs no slot. If recording fails, waits for the stream and keeps the slot in the lane. */
tdict_status tdict_lane_record_flight(tdict_lane *lane, tdict_slot *slot, const tdict_chunk *chunk, bool out,
                                      tdict_error *err);
/* Adds the slot's copy to the transfer's batch, and adds the flight. The copy is queued with its batch, now or later.
 * Call tdict_lane_begin() first. */
tdict_status tdict_lane_post(tdict_lane *lane, tdict_slot *slot, const tdict_chunk *chunk, const tdict_cu_line *line,
                             tdict_error *err);
/* Queues the transfer's batch if the lane is on the batch's GPU. The transfer must have a batch. */
tdict_status tdict_lane_flush(tdict_lane *lane, tdict_error *err);
/* Records the worker's tail event after the last copy. A stream that waits for the transfer waits for this event.
 * Returns false on failure. */
bool tdict_lane_record_tail(tdict_lane *lane);
/* Pauses the lane, so that another thread can resume the lane. Copies to the device may still read some slots. Returns
 * these slots to the ring nevertheless, so that other threads need not wait until the lane is resumed. The ring reuses
 * such a slot only after the slot's event is complete. */
void tdict_lane_pause(tdict_lane *lane);
/* Resumes a paused lane on the calling thread. */
void tdict_lane_resume(tdict_lane *lane);
/* Waits for all copies on the stream, including copies without a flight. */
tdict_status tdict_lane_synchronize(tdict_lane *lane, tdict_error *err);
/* Waits for all flights. */
tdict_status tdict_lane_wait_all(tdict_lane *lane, tdict_error *err);

#endif
