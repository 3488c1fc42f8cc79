/* Declares bursts. A burst is a set of slots of one transfer whose copies are queued together. Each submission costs
 * the link some microseconds, regardless of its number of copies. Therefore copies are gathered while the link is busy.
 * A thread that adds a copy queues the burst if the burst is full, or if at most one earlier burst is in flight. With a
 * limit of queued bytes, the thread queues the burst if no earlier burst is in flight. A thread also queues the burst
 * before the thread waits for a slot in the burst, and when the thread has no more work. A slot belongs to the lane
 * that added the slot's copy. A transfer has at most one burst, for one GPU and one direction. The burst only gathers
 * copies: lane.c queues them. Thread rule: the starting thread creates the burst before the transfer begins. */
#ifndef TDICT_ENGINE_OPTIONS_BURST_H
#define TDICT_ENGINE_OPTIONS_BURST_H

#include "engine/plan/plan.h"
#include "engine/ring.h"

/* MOST: copies in a burst at most. CHUNKS: a transfer with fewer has no burst */
enum { TDICT_BURST_MOST = 8, TDICT_BURST_CHUNKS = 4 };

typedef struct tdict_burst {
  const tdict_gpu *gpu; /* lanes on other GPUs queue their copies at once */
  tdict_cu_kind kind;
  int most;             /* maximum number of copies */
  bool is_limited;      /* true: the transfer has a limit of queued bytes */
  pthread_mutex_t lock; /* guards all fields below. Held while the driver queues the copies */
  int count;
  tdict_slot *slots[TDICT_BURST_MOST];
  const void *lanes[TDICT_BURST_MOST]; /* the owners of the slots; used only for comparisons */
  tdict_cu_copy copies[TDICT_BURST_MOST];
  tdict_cu_event events[TDICT_BURST_MOST]; /* the events of the slots */
  uint32_t items[TDICT_BURST_MOST]; /* the first item of each chunk. If queueing fails, the error names items[0] */
  /* last_event was recorded after the last burst, previous_event after the burst before the last burst. The slots own
   * the events. NULL: no such burst was queued */
  tdict_cu_event last_event, previous_event;
} tdict_burst;

/* Creates the burst of a transfer with this plan. max_queued_bytes: value of the option. num_slots, slot_bytes: of each
 * ring. Sets *out to NULL if nothing is copied through slots, or if the slots go to the host and the line has at most
 * 80 MiB. Call for plans of at least TDICT_BURST_CHUNKS chunks. Errors: TDICT_ENOMEM. */
tdict_status tdict_burst_create(const tdict_plan *plan, size_t max_queued_bytes, size_t num_slots, size_t slot_bytes,
                                tdict_burst **out, tdict_error *err);
void tdict_burst_free(tdict_burst *burst);
/* Returns true if the burst accepts copies of this kind on this GPU. */
static inline bool tdict_burst_accepts(const tdict_burst *burst, const tdict_gpu *gpu, tdict_cu_kind kind) {
  return burst->gpu == gpu && burst->kind == kind;
}
/* Locks the burst. Spins before sleeping, because no thread holds the lock for long. */
void tdict_burst_lock(tdict_burst *burst);
void tdict_burst_unlock(tdict_burst *burst);
/* Adds the copy of a slot of the lane. `item` is the first item of the slot's chunk. Returns true if no more copies may
 * be gathered: the caller must then queue the copies. Call under the lock, inside a scope of `gpu`. */
bool tdict_burst_add(tdict_burst *burst, tdict_gpu *gpu, const void *lane, tdict_slot *slot, const tdict_cu_copy *copy,
                     uint32_t item);
/* Empties the burst, and allows the lanes to query the slots' events. If the copies were not queued, the transfer must
 * have failed, because the lanes then check for the failure. Call under the lock. */
void tdict_burst_clear(tdict_burst *burst, bool was_queued);

#endif
