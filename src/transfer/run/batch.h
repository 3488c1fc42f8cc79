/* Batches: copies of several slots that are queued together. A submission costs the link some microseconds, however many
 * copies are in it. So while the link has enough to do, copies are gathered and handed to the driver as one batch. A batch is
 * queued when the batch before the last one has ended, when it is full, when a thread is about to wait for a slot in it, and
 * when a thread has no more work.
 * Slots belong to the lanes that posted them. A transfer has one batch, for one gpu.
 * Thread rule: create by one thread while no other works; the rest from any worker, inside a scope of the gpu. */
#ifndef TDICT_TRANSFER_RUN_BATCH_H
#define TDICT_TRANSFER_RUN_BATCH_H

#include "transfer/job.h"
#include "transfer/run/ring.h"

enum { TDICT_BATCH_MOST = 8, TDICT_BATCH_CHUNKS = 4 }; /* copies in one; a transfer of fewer chunks needs none */

/* Its copies, from count on, are guarded by the transfer's batch_lock. */
typedef struct tdict_batch {
  const tdict_gpu *gpu; /* lanes on others queue their copies at once */
  tdict_cu_kind kind;
  int count;
  tdict_slot *slots[TDICT_BATCH_MOST];
  const void *lanes[TDICT_BATCH_MOST]; /* whose slots they are; compared only */
  tdict_cu_line lines[TDICT_BATCH_MOST];
  uint32_t items[TDICT_BATCH_MOST]; /* the first of each chunk, named when the batch cannot be queued */
  tdict_cu_event last, before;      /* a slot's, after the last batch and the one before it; NULL: there was none */
} tdict_batch;

/* The stream of a lane, on which the calling thread queues. */
typedef struct tdict_batch_stream {
  tdict_gpu *gpu;
  tdict_cu_stream stream;
  const void *lane;       /* compared only */
  bool queued_for_others; /* set: copies of other lanes' slots were queued on the stream */
} tdict_batch_stream;

/* Makes the transfer's batch, if it has TDICT_BATCH_CHUNKS chunks and copies through slots. TDICT_ENOMEM. */
tdict_status tdict_batch_create(tdict_future *transfer, tdict_error *err);
/* Whether copies of that kind on that gpu belong into the batch. */
static inline bool tdict_batch_takes(const tdict_batch *batch, const tdict_gpu *gpu, tdict_cu_kind kind) {
  return batch->gpu == gpu && batch->kind == kind;
}
/* Adds the copy of a slot, which is queued now or later; `item` names the leaf. TDICT_EDEVICE: a batch could not be queued;
 * the transfer has failed, and no copy of the batch is under way any more. */
tdict_status tdict_batch_post(tdict_future *transfer, tdict_batch_stream *stream, tdict_slot *slot,
                              const tdict_cu_line *line, uint32_t item, tdict_error *err);
bool tdict_batch_is_empty(tdict_future *transfer);
/* Queues all copies of the batch. TDICT_EDEVICE as above. */
tdict_status tdict_batch_flush(tdict_future *transfer, tdict_batch_stream *stream, tdict_error *err);
/* Clears the batch: the transfer has failed. */
void tdict_batch_discard(tdict_future *transfer);
/* True while the slot's copy is in the batch, so that its event tells nothing. */
static inline bool tdict_batch_holds(const tdict_slot *slot) {
  return slot && atomic_load_explicit(&slot->posted, memory_order_acquire);
}

#endif
