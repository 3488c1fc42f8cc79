/* A lane: one thread's stream on one gpu and what it has in flight there, oldest first.
 * Thread rule: one thread, which holds the gpu's scope from open to close. */
#ifndef TDICT_TRANSFER_RUN_LANE_H
#define TDICT_TRANSFER_RUN_LANE_H

#include "transfer/job.h"

enum { TDICT_LANE_DEPTH = 16 }; /* copies in flight */
typedef struct tdict_flight {
  tdict_slot *slot;     /* NULL: a copy that needs none */
  tdict_cu_event event; /* the slot's, or one taken for it */
  const tdict_chunk *chunk;
  bool out; /* the slot is to be emptied to the host */
} tdict_flight;
typedef struct tdict_lane {
  tdict_worker *worker;
  tdict_gpu *gpu;   /* NULL: not open */
  tdict_ring *ring; /* NULL: no slot was asked for yet */
  tdict_gpu_scope scope;
  tdict_cu_stream stream;
  tdict_flight flights[TDICT_LANE_DEPTH];
  int first, count, depth;
  int held; /* slots, in flight or spare */
  const tdict_chunk
      *unmarked; /* the last of driver copies that are not in flight yet, but share the next one's event */
  size_t unmarked_bytes;
  tdict_slot *spare;
  bool begun;                /* the stream waits for what the transfer waits for */
  bool has_untracked_copies; /* copies may be under way on the stream for which no flight of this lane stands */
} tdict_lane;

tdict_status tdict_lane_open(tdict_lane *lane, tdict_gpu *gpu, tdict_error *err);
/* Has the stream wait for what the transfer waits for. Call only if a copy follows: the stream is pooled, and a wait queued on
 * it would delay its next user. */
tdict_status tdict_lane_begin(tdict_lane *lane, tdict_error *err);
/* Waits until everything is done and closes; with `abandon` nothing is emptied any more. */
tdict_status tdict_lane_close(tdict_lane *lane, bool abandon, tdict_error *err);
/* Room for one more flight, before a copy that needs no slot is queued. Waits for the oldest one when there is none. */
tdict_status tdict_lane_room(tdict_lane *lane, tdict_error *err);
/* A slot to fill, and room for its flight. Waits for nothing but copies of this lane, or for any slot when the lane holds
 * none; NULL: the transfer has failed meanwhile. A transfer of which no copy has ended, and that waits for streams, leaves
 * some of the ring to others. */
tdict_status tdict_lane_slot(tdict_lane *lane, tdict_slot **out, tdict_error *err);
/* The slot that was just asked for is several threads': another lane, which takes it over, queues its copy. */
void tdict_lane_hand_over(tdict_lane *lane);
/* The lane queues the copy of such a slot: room for its flight, for which it may wait for copies of this lane. */
tdict_status tdict_lane_take_over(tdict_lane *lane, tdict_error *err);
/* A slot without a copy is the lane's spare, or the ring's if it has one. */
void tdict_lane_keep(tdict_lane *lane, tdict_slot *slot);
/* Gives back the slots whose copies have ended, up to the first that has not, and the spare. Waits for nothing, but
 * for a copy of which the driver does not know: TDICT_EDEVICE, and the transfer has failed, when it does not then either. */
tdict_status tdict_lane_give_done(tdict_lane *lane, tdict_error *err);
/* In flight from here on, for which there is room. */
void tdict_lane_add(tdict_lane *lane, const tdict_flight *flight);
/* What was just queued for the chunk is in flight; slot NULL: it needs none. The slot is kept
 * when this fails. */
tdict_status tdict_lane_launch(tdict_lane *lane, tdict_slot *slot, const tdict_chunk *chunk, bool out,
                               tdict_error *err);
/* Adds the slot's copy to the transfer's batch: it is in flight from here on, and queued now or later. The lane has begun.
 * TDICT_EDEVICE: see tdict_batch_post(). */
tdict_status tdict_lane_post(tdict_lane *lane, tdict_slot *slot, const tdict_chunk *chunk, const tdict_cu_line *line,
                             tdict_error *err);
/* Queues the transfer's batch, which it has, if the lane is on its gpu. TDICT_EDEVICE as above. */
tdict_status tdict_lane_flush(tdict_lane *lane, tdict_error *err);
/* Notes behind what copies a stream that waits for the transfer has to come; false when that could not be noted. */
bool tdict_lane_record_tail(tdict_lane *lane);
/* The thread lets go of the lane; another takes it up. Slots go back to the ring, their copies still running. */
void tdict_lane_pause(tdict_lane *lane);
void tdict_lane_resume(tdict_lane *lane);
/* Waits for the stream: for copies that were queued and not launched. */
tdict_status tdict_lane_synchronize(tdict_lane *lane, tdict_error *err);
/* Waits for all that is in flight. */
tdict_status tdict_lane_settle(tdict_lane *lane, tdict_error *err);

#endif
