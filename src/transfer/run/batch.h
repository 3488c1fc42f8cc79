/* Declares batches. A batch is a set of slots of one transfer whose copies are queued together. Each submission costs
 * the link some microseconds, regardless of its number of copies. Therefore copies are gathered while the link is busy.
 * A thread that adds a copy queues the batch if the batch is full, or if at most one earlier batch is in flight. With a
 * limit of queued bytes, the thread queues the batch if no earlier batch is in flight. A thread also queues the batch
 * before the thread waits for a slot in the batch, and when the thread has no more work. A slot belongs to the lane
 * that added the slot's copy. A transfer has at most one batch, for one GPU and one direction. Thread rule: the
 * starting thread creates the batch before the transfer begins. Any worker may call the other functions, inside a scope
 * of the GPU. */
#ifndef TDICT_TRANSFER_RUN_BATCH_H
#define TDICT_TRANSFER_RUN_BATCH_H

#include "transfer/job.h"
#include "transfer/run/ring.h"

/* TDICT_BATCH_MOST: maximum number of copies in a batch. TDICT_BATCH_CHUNKS: a transfer with fewer chunks has no
 * batch */
enum { TDICT_BATCH_MOST = 8, TDICT_BATCH_CHUNKS = 4 };

/* Copies that wait to be queued. The transfer's batch_lock guards all fields from `count` on. */
typedef struct tdict_batch {
  const tdict_gpu *gpu; /* lanes on other GPUs queue their copies at once */
  tdict_cu_kind kind;
  int count;
  tdict_slot *slots[TDICT_BATCH_MOST];
  const void *lanes[TDICT_BATCH_MOST]; /* the owners of the slots; used only for comparisons */
  tdict_cu_line lines[TDICT_BATCH_MOST];
  uint32_t items[TDICT_BATCH_MOST]; /* the first item of each chunk. If queueing fails, the error names items[0] */
  /* last_event was recorded after the last batch, previous_event after the batch before the last batch. The slots own
   * the events. NULL: no such batch was queued */
  tdict_cu_event last_event, previous_event;
} tdict_batch;

/* The calling thread's stream, on which the thread queues batches. */
typedef struct tdict_batch_stream {
  tdict_gpu *gpu;
  tdict_cu_stream stream;
  const void *lane;       /* the thread's lane; used only for comparisons */
  bool queued_for_others; /* output: true if copies of other lanes' slots were queued on the stream */
} tdict_batch_stream;

/* Creates the batch of a transfer that copies through slots. Other transfers get no batch. Call for transfers of at
 * least TDICT_BATCH_CHUNKS chunks. Errors: TDICT_ENOMEM. */
tdict_status tdict_batch_create(tdict_transfer *transfer, tdict_error *err);
/* Returns true if the batch accepts copies of this kind on this GPU. */
static inline bool tdict_batch_accepts(const tdict_batch *batch, const tdict_gpu *gpu, tdict_cu_kind kind) {
  return batch->gpu == gpu && batch->kind == kind;
}
/* Adds the copy of a slot to the batch, and queues the batch if no more copies may be gathered. `item` is the first
 * item of the slot's chunk. If queueing fails, fails the transfer, waits for the copies of the batch that are in
 * flight, and returns the driver's error: TDICT_EDEVICE, TDICT_ELOST or TDICT_ENOMEM. */
tdict_status tdict_batch_post(tdict_transfer *transfer, tdict_batch_stream *stream, tdict_slot *slot,
                              const tdict_cu_line *line, uint32_t item, tdict_error *err);
/* Returns true if no copy waits in the batch. */
bool tdict_batch_is_empty(tdict_transfer *transfer);
/* Queues all copies of the batch. Returns the errors of tdict_batch_post(). */
tdict_status tdict_batch_flush(tdict_transfer *transfer, tdict_batch_stream *stream, tdict_error *err);
/* Drops all copies of the batch. Call only if the transfer has failed. */
void tdict_batch_discard(tdict_transfer *transfer);

#endif
