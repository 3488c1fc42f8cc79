/* Declares batches. A batch is a set of slots of one transfer whose copies are queued together. Each submission costs
 * the link some microseconds, regardless of its number of copies. Therefore copies are gathered while the link is busy.
 * A thread that adds a copy queues the batch if the batch is full, or if at most one earlier batch is in flight. With a
 * limit of queued bytes, the thread queues the batch if no earlier batch is in flight. A thread also queues the batch
 * before the thread waits for a slot in the batch, and when the thread has no more work. A slot belongs to the lane
 * that added the slot's copy. A transfer has at most one batch, for one GPU and one direction. The batch only gathers
 * copies: lane.c queues them. Thread rule: the starting thread creates the batch before the transfer begins. */
#ifndef TDICT_ENGINE_OPTIONS_BATCH_H
#define TDICT_ENGINE_OPTIONS_BATCH_H

#include "engine/plan/plan.h"
#include "engine/ring.h"

/* TDICT_BATCH_MOST: maximum number of copies in a batch. TDICT_BATCH_CHUNKS: a transfer with fewer chunks has no
 * batch */
enum { TDICT_BATCH_MOST = 8, TDICT_BATCH_CHUNKS = 4 };

typedef struct tdict_batch {
  const tdict_gpu *gpu; /* lanes on other GPUs queue their copies at once */
  tdict_cu_kind kind;
  int most;             /* maximum number of copies */
  bool is_limited;      /* true: the transfer has a limit of queued bytes */
  pthread_mutex_t lock; /* guards all fields below. Held while the driver queues the copies */
  int count;
  tdict_slot *slots[TDICT_BATCH_MOST];
  const void *lanes[TDICT_BATCH_MOST]; /* the owners of the slots; used only for comparisons */
  tdict_cu_line lines[TDICT_BATCH_MOST];
  tdict_cu_event events[TDICT_BATCH_MOST]; /* the events of the slots */
  uint32_t items[TDICT_BATCH_MOST]; /* the first item of each chunk. If queueing fails, the error names items[0] */
  /* last_event was recorded after the last batch, previous_event after the batch before the last batch. The slots own
   * the events. NULL: no such batch was queued */
  tdict_cu_event last_event, previous_event;
} tdict_batch;

/* Creates the batch of a transfer with this plan. max_queued_bytes: value of the option. num_slots, slot_bytes: of each
 * ring. If nothing is copied through slots, sets *out to NULL. Call for plans of at least TDICT_BATCH_CHUNKS chunks.
 * Errors: TDICT_ENOMEM. */
tdict_status tdict_batch_create(const tdict_plan *plan, size_t max_queued_bytes, size_t num_slots, size_t slot_bytes,
                                tdict_batch **out, tdict_error *err);
void tdict_batch_free(tdict_batch *batch);
/* Returns true if the batch accepts copies of this kind on this GPU. */
static inline bool tdict_batch_accepts(const tdict_batch *batch, const tdict_gpu *gpu, tdict_cu_kind kind) {
  return batch->gpu == gpu && batch->kind == kind;
}
/* Locks the batch. Spins before sleeping, because no thread holds the lock for long. */
void tdict_batch_lock(tdict_batch *batch);
void tdict_batch_unlock(tdict_batch *batch);
/* Adds the copy of a slot of the lane. `item` is the first item of the slot's chunk. Returns true if no more copies may
 * be gathered: the caller must then queue the copies. Call under the lock, inside a scope of `gpu`. */
bool tdict_batch_add(tdict_batch *batch, tdict_gpu *gpu, const void *lane, tdict_slot *slot, const tdict_cu_line *line,
                     uint32_t item);
/* Empties the batch, and allows the lanes to query the slots' events. If the copies were not queued, the transfer must
 * have failed, because the lanes then check for the failure. Call under the lock. */
void tdict_batch_clear(tdict_batch *batch, bool was_queued);

#endif
