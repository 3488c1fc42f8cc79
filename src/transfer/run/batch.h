/* Copies that wait to be queued together. A submission costs the link some microseconds, however many copies are in it: so
 * while the link has enough to do, the copies of several slots are gathered and handed to the driver as one batch, by
 * whichever thread comes when it is time. It is time when the batch before the last one has ended, when there are as many as
 * a batch may hold, when a thread is about to wait for a slot whose copy is still here, and when a thread has nothing more to
 * do.
 * Slots stay those of the lanes that posted them. One outbox a transfer, for one gpu.
 * Thread rule: create and destroy by one thread while no other works; the rest from the workers, each with its own lane. */
#ifndef TDICT_TRANSFER_RUN_BATCH_H
#define TDICT_TRANSFER_RUN_BATCH_H

#include "transfer/run/lane.h"

enum { TDICT_OUTBOX_MOST = 8 };

typedef struct tdict_outbox {
  const tdict_gpu *gpu; /* lanes on others queue their copies at once */
  tdict_cu_kind kind;
  pthread_mutex_t lock; /* guards what follows; held while a batch is queued */
  int count;
  tdict_slot *slots[TDICT_OUTBOX_MOST];
  const tdict_lane *lanes[TDICT_OUTBOX_MOST]; /* whose slots they are; compared only */
  tdict_cu_line lines[TDICT_OUTBOX_MOST];
  uint32_t items[TDICT_OUTBOX_MOST]; /* the first of each chunk, to be named when its batch cannot be queued */
  tdict_cu_event last, before;       /* a slot's, behind the last batch and the one before it; NULL: there was none */
} tdict_outbox;

/* Makes the transfer's outbox, if it has copies by way of slots, and more than three. TDICT_ENOMEM. */
tdict_status tdict_outbox_create(tdict_future *transfer, tdict_error *err);
void tdict_outbox_destroy(tdict_outbox *outbox); /* NULL is allowed */
/* Whether the lane's copies of that kind go by way of the transfer's outbox. */
bool tdict_outbox_serves(const tdict_lane *lane, tdict_cu_kind kind);
/* The copy of a slot of the lane, which has begun: it is in flight from here on, and queued now or later. TDICT_EDEVICE:
 * a batch could not be queued; the transfer has failed, and no copy of the batch is under way any more. */
tdict_status tdict_outbox_post(tdict_lane *lane, tdict_slot *slot, const tdict_chunk *chunk, const tdict_cu_line *line,
                               tdict_error *err);
/* Queues all that is there, if the lane is on its gpu. TDICT_EDEVICE as above. */
tdict_status tdict_outbox_flush(tdict_lane *lane, tdict_error *err);
/* Forgets all that is there: the transfer has failed. */
void tdict_outbox_discard(const tdict_lane *lane);
/* The slot's copy is still in an outbox, so its event tells nothing. */
static inline bool tdict_outbox_holds(const tdict_slot *slot) {
  return slot && atomic_load_explicit(&slot->posted, memory_order_acquire);
}

#endif
