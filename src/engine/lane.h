/* Declares lanes. A lane is the stream of one thread on one GPU, with the copies in flight, oldest first. A lane owns
 * each slot that it has taken, until it hands over the slot or returns the slot to the ring. Only lane.c calls the
 * burst (burst.h) and the limit of queued bytes (queue_limit.h). A function that fails returns TDICT_EDEVICE,
 * TDICT_ELOST or TDICT_ENOMEM. Thread rule: one thread at a time uses a lane. This thread is inside the GPU's scope
 * while the lane is open and not paused. */
#ifndef TDICT_ENGINE_LANE_H
#define TDICT_ENGINE_LANE_H

#include "engine/transfer.h"

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
  bool shares_stream; /* true: the stream belongs to the transfer */
  tdict_flight flights[TDICT_LANE_DEPTH];
  int first, count, depth;
  int held;                   /* number of slots that the lane holds, in flight or spare */
  tdict_slot *spare;          /* the slot for the next copy, which may be filled already, or NULL */
  size_t bytes_without_event; /* bytes of the copies without slots that were queued after the last event */
  bool begun;                 /* true: the stream already waits for the work that the transfer waits for */
  bool has_untracked_copies;  /* true: copies that no flight of this lane tracks may be in flight on the stream */
} tdict_lane;

/* Opens the lane on a GPU: enters a scope of the GPU and takes a stream. If slots are copied to the host, all lanes of
 * the transfer on its first GPU have one stream. */
tdict_status tdict_lane_open(tdict_lane *lane, tdict_gpu *gpu, tdict_error *err);
/* Waits for all copies, then closes the lane, even if waiting fails. If `abandon` is true, slots are not copied to the
 * host. Does nothing if the lane is closed. */
tdict_status tdict_lane_close(tdict_lane *lane, bool abandon, tdict_error *err);
/* Queues the copies of a chunk, now or later with the transfer's burst. `slot` must be the slot that the lane has taken
 * last. NULL: the copies need no slot. If this lane queues its first copies, first makes the stream wait for the work
 * that the transfer waits for. If the transfer has a limit of queued bytes, first waits until the bytes of the chunk
 * fit into the limit. Queues nothing if the transfer has failed meanwhile. May wait for earlier copies of the lane.
 * After a failure, the transfer must fail, and *error_item is the number of the item that the error names. */
tdict_status tdict_lane_submit(tdict_lane *lane, tdict_slot *slot, const tdict_chunk *chunk, uint32_t *error_item,
                               tdict_error *err);
/* Takes a slot, and makes room for its flight. The lane keeps the slot until the slot is submitted or handed over. The
 * next call returns the same slot if neither has happened. A lane that holds slots waits only for its own copies. A
 * lane without slots waits for any slot of the ring. *out is NULL if the transfer has failed meanwhile. While a stream
 * may block the transfer, leaves some slots free for other transfers. Exceptions are the transfer's first slot, and
 * transfers with a deferred tail. */
tdict_status tdict_lane_take_slot(tdict_lane *lane, tdict_slot **out, tdict_error *err);
/* Stops counting the slot that the lane has just taken. Several threads then fill the slot. The lane that calls
 * tdict_lane_take_over() queues the copy. */
void tdict_lane_hand_over(tdict_lane *lane);
/* Takes a slot that another lane handed over, and makes room for its flight. May wait for copies of this lane. */
tdict_status tdict_lane_take_over(tdict_lane *lane, tdict_slot *slot, tdict_error *err);
/* Returns the spare and the slots of finished copies to the ring. Stops at the first unfinished copy. If the oldest
 * copy waits in the burst, first queues the burst. Does not wait for copies, except for a copy whose event cannot be
 * queried. */
tdict_status tdict_lane_return_finished(tdict_lane *lane, tdict_error *err);
/* Queues the transfer's burst if the lane is on the burst's GPU. The transfer must have a burst. */
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
/* Waits for all copies that the lane has submitted. */
tdict_status tdict_lane_wait_all(tdict_lane *lane, tdict_error *err);

#endif
