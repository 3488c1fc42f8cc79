/* Gathers copies between slots and a GPU that are queued together. See burst.h for ownership and threads. */
#include "engine/options/burst.h"

#include <stdlib.h>

#include "core/base/assert.h"
#include "core/base/error.h"
#include "core/base/thread.h"
#include "engine/options/queue_limit.h"

/* A smaller transfer to the host has no burst. The events of a burst complete together, so a thread could not copy from
 * the first slot until the last one is filled. In larger transfers, enough other slots are full meanwhile. */
#define SMALL_BYTES ((size_t)80 << 20)

/* Returns the maximum number of copies in a burst: at most TDICT_BURST_MOST, and at most 3/16 of the slots. In a ring
 * of 32 slots, two bursts in flight and the burst that is being gathered have at most 18 slots, and leave 14 slots for
 * the threads. With a limit of queued bytes, a burst has at most half of these bytes. */
static int most_copies(size_t max_queued_bytes, size_t num_slots, size_t slot_bytes) {
  size_t most = num_slots * 3 / 16;
  if (most > TDICT_BURST_MOST) most = TDICT_BURST_MOST;
  if (!max_queued_bytes) return (int)most;
  const size_t limit = tdict_queue_limit_chunk_bytes(max_queued_bytes, true);
  const size_t chunk = limit < slot_bytes ? limit : slot_bytes;
  const size_t in_half = max_queued_bytes / 2 / chunk;
  return (int)(in_half < most ? in_half : most);
}

tdict_status tdict_burst_create(const tdict_plan *plan, size_t max_queued_bytes, size_t num_slots, size_t slot_bytes,
                                tdict_burst **out, tdict_error *err) {
  TDICT_ASSERT(plan->num_chunks >= TDICT_BURST_CHUNKS);
  uint32_t chunk = 0;
  *out = NULL;
  while (chunk < plan->num_chunks && !tdict_item_uses_slot(&plan->items[plan->chunks[chunk].first])) chunk++;
  if (chunk == plan->num_chunks) return TDICT_OK;
  if (plan->items[plan->chunks[chunk].first].kind == TDICT_CU_D2H && plan->line_bytes <= SMALL_BYTES) return TDICT_OK;
  tdict_burst *b = calloc(1, sizeof *b);
  if (!b) return tdict_fail_memory(err, "transfer", NULL, "copies that are queued together");
  b->gpu = plan->items[plan->chunks[chunk].first].gpu;
  b->kind = (tdict_cu_kind)plan->items[plan->chunks[chunk].first].kind;
  b->most = most_copies(max_queued_bytes, num_slots, slot_bytes);
  b->is_limited = max_queued_bytes > 0;
  pthread_mutex_init(&b->lock, NULL);
  *out = b;
  return TDICT_OK;
}

void tdict_burst_free(tdict_burst *b) {
  pthread_mutex_destroy(&b->lock);
  free(b);
}

void tdict_burst_lock(tdict_burst *b) {
  if (!tdict_spin_try(&b->lock)) pthread_mutex_lock(&b->lock);
}
void tdict_burst_unlock(tdict_burst *b) { pthread_mutex_unlock(&b->lock); }

/* Returns true if more copies may be gathered. Copies are gathered while the link is busy: while two bursts are in
 * flight or, with a limit of queued bytes, one burst. */
static bool may_gather(const tdict_burst *b, tdict_gpu *gpu) {
  const tdict_cu_event event = b->is_limited ? b->last_event : b->previous_event;
  return b->count < b->most && event && tdict_gpu_query_event(gpu, event) == TDICT_CU_NOT_READY;
}

bool tdict_burst_add(tdict_burst *b, tdict_gpu *gpu, const void *lane, tdict_slot *slot, const tdict_cu_copy *copy,
                     uint32_t item) {
  TDICT_ASSERT(tdict_lock_is_held(&b->lock) && b->count < TDICT_BURST_MOST);
  b->slots[b->count] = slot;
  b->lanes[b->count] = lane;
  b->copies[b->count] = *copy;
  b->events[b->count] = slot->event;
  b->items[b->count++] = item;
  /* Relaxed: until another thread clears the flag, only this thread reads the flag. The lock orders the clearing. */
  atomic_store_explicit(&slot->posted, true, memory_order_relaxed);
  return !may_gather(b, gpu);
}

void tdict_burst_clear(tdict_burst *b, bool was_queued) {
  TDICT_ASSERT(tdict_lock_is_held(&b->lock));
  if (was_queued) {
    b->previous_event = b->last_event;
    b->last_event = b->events[b->count - 1];
  }
  for (int i = 0; i < b->count; i++) atomic_store_explicit(&b->slots[i]->posted, false, memory_order_release);
  b->count = 0;
}
