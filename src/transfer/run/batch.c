/* Gathers copies between slots and a GPU, and queues the copies together. See batch.h for ownership and threads. */
#include "transfer/run/batch.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/error.h"
#include "sched/spin.h"

static bool uses_slot(const tdict_item *item) {
  return item->way == TDICT_WAY_STAGE_IN || item->way == TDICT_WAY_STAGE_OUT;
}

tdict_status tdict_batch_create(tdict_transfer *t, tdict_error *err) {
  const tdict_plan *p = &t->plan;
  TDICT_ASSERT(p->num_chunks >= TDICT_BATCH_CHUNKS);
  uint32_t chunk = 0;
  while (chunk < p->num_chunks && !uses_slot(&p->items[p->chunks[chunk].first])) chunk++;
  if (chunk == p->num_chunks) return TDICT_OK;
  tdict_batch *b = calloc(1, sizeof *b);
  if (!b) return tdict_fail(err, TDICT_ENOMEM, "transfer: no host memory for copies that are queued together");
  b->gpu = p->items[p->chunks[chunk].first].gpu;
  b->kind = (tdict_cu_kind)p->items[p->chunks[chunk].first].kind;
  t->batch = b;
  return TDICT_OK;
}

/* Locks the batch. Spins before sleeping, because no thread holds the lock for long. */
static void lock_batch(tdict_transfer *t) {
  if (!tdict_spin_try(&t->batch_lock)) pthread_mutex_lock(&t->batch_lock);
}
static void unlock_batch(tdict_transfer *t) { pthread_mutex_unlock(&t->batch_lock); }

/* Returns the maximum number of copies in a batch: at most TDICT_BATCH_MOST, and at most 3/16 of the slots. In a ring
 * of 32 slots, two batches in flight and the batch that is being gathered have at most 18 slots, and leave 14 slots for
 * the threads. With a limit of queued bytes, a batch has at most half of these bytes. */
static size_t most_copies(const tdict_transfer *t) {
  size_t most = t->future.engine->num_slots * 3 / 16;
  if (most > TDICT_BATCH_MOST) most = TDICT_BATCH_MOST;
  if (!t->queue_limit) return most;
  const size_t slot = t->future.engine->slot_bytes, chunk = t->how.max_copy_bytes < slot ? t->how.max_copy_bytes : slot;
  const size_t in_half = t->how.max_queued_bytes / 2 / chunk;
  return in_half < most ? in_half : most;
}

/* Returns true if more copies may be gathered. Copies are gathered while the link is busy: while two batches are in
 * flight or, with a limit of queued bytes, one batch. */
static bool may_gather(const tdict_transfer *t, tdict_gpu *gpu) {
  const tdict_batch *b = t->batch;
  const tdict_cu_event event = t->queue_limit ? b->last_event : b->previous_event;
  return (size_t)b->count < most_copies(t) && event && tdict_gpu_query_event(gpu, event) == TDICT_CU_NOT_READY;
}

static tdict_status queue_copies(const tdict_transfer *t, const tdict_batch_stream *s, tdict_error *err) {
  const tdict_batch *b = t->batch;
  size_t bytes = 0;
  for (int i = 0; i < b->count; i++) bytes += b->lines[i].bytes;
  const int64_t begin = tdict_phase_begin(&t->traced, TDICT_RANGE_SUBMIT);
  const bool locked = tdict_gpu_begin_queue(s->gpu);
  tdict_slice *slice = t->traced.recording ? tdict_trace_open(&t->traced, s->gpu, s->stream, bytes) : NULL;
  tdict_status status = tdict_gpu_queue_lines(s->gpu, b->kind, b->lines, (size_t)b->count, s->stream, err);
  if (slice) tdict_trace_close(slice, s->gpu);
  for (int i = 0; i < b->count && status == TDICT_OK; i++)
    status = tdict_gpu_record(s->gpu, b->slots[i]->event, s->stream, err);
  tdict_gpu_end_queue(s->gpu, locked);
  (void)tdict_phase_end(&t->traced, TDICT_RANGE_SUBMIT, begin, bytes);
  return status;
}

/* Empties the batch, and allows the lanes to query the slots' events. If the copies were not queued, the transfer has
 * failed, and the lanes check for the failure. */
static void clear_batch(tdict_batch *b) {
  for (int i = 0; i < b->count; i++) atomic_store_explicit(&b->slots[i]->posted, false, memory_order_release);
  b->count = 0;
}

static tdict_status queue_batch(tdict_transfer *t, tdict_batch_stream *s, tdict_error *err) {
  tdict_batch *b = t->batch;
  TDICT_ASSERT(tdict_lock_is_held(&t->batch_lock));
  if (b->count == 0) return TDICT_OK;
  tdict_status status = queue_copies(t, s, err);
  for (int i = 0; i < b->count; i++) s->queued_for_others |= b->lanes[i] != s->lane;
  if (status == TDICT_OK) {
    b->previous_event = b->last_event;
    b->last_event = b->slots[b->count - 1]->event;
  } else {
    (void)!tdict_gpu_sync_stream(s->gpu, s->stream, NULL); /* some copies may be in flight without a recorded event */
    tdict_transfer_fail(t, b->items[0], err);
  }
  clear_batch(b);
  return status;
}

tdict_status tdict_batch_post(tdict_transfer *t, tdict_batch_stream *s, tdict_slot *slot, const tdict_cu_line *line,
                              uint32_t item, tdict_error *err) {
  tdict_batch *b = t->batch;
  tdict_status status = TDICT_OK;
  lock_batch(t);
  TDICT_ASSERT(b->count < TDICT_BATCH_MOST);
  b->slots[b->count] = slot;
  b->lanes[b->count] = s->lane;
  b->lines[b->count] = *line;
  b->items[b->count++] = item;
  /* Relaxed: until another thread clears the flag, only this thread reads the flag. The lock orders the clearing. */
  atomic_store_explicit(&slot->posted, true, memory_order_relaxed);
  if (!may_gather(t, s->gpu)) status = queue_batch(t, s, err);
  unlock_batch(t);
  return status;
}

bool tdict_batch_is_empty(tdict_transfer *t) {
  lock_batch(t);
  const bool empty = t->batch->count == 0;
  unlock_batch(t);
  return empty;
}

tdict_status tdict_batch_flush(tdict_transfer *t, tdict_batch_stream *s, tdict_error *err) {
  lock_batch(t);
  tdict_status status = queue_batch(t, s, err);
  unlock_batch(t);
  return status;
}

void tdict_batch_discard(tdict_transfer *t) {
  lock_batch(t);
  clear_batch(t->batch);
  unlock_batch(t);
}
