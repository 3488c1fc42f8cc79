/* Copies that wait to be queued together. See batch.h for ownership and threads. */
#include "transfer/run/batch.h"

#include <stdlib.h>

#include "base/error.h"
#include "sched/spin.h"

static bool by_slots(const tdict_item *item) {
  return item->way == TDICT_WAY_STAGE_IN || item->way == TDICT_WAY_STAGE_OUT;
}

tdict_status tdict_outbox_create(tdict_future *t, tdict_error *err) {
  enum { FEW_CHUNKS = 3 };
  const tdict_plan *p = &t->plan;
  if (p->num_chunks <= FEW_CHUNKS) return TDICT_OK;
  uint32_t chunk = 0;
  while (chunk < p->num_chunks && !by_slots(&p->items[p->chunks[chunk].first])) chunk++;
  if (chunk == p->num_chunks) return TDICT_OK;
  tdict_outbox *o = calloc(1, sizeof *o);
  if (!o) return tdict_fail(err, TDICT_ENOMEM, "transfer: no host memory for copies that are queued together");
  o->gpu = p->items[p->chunks[chunk].first].gpu;
  o->kind = (tdict_cu_kind)p->items[p->chunks[chunk].first].kind;
  pthread_mutex_init(&o->lock, NULL);
  t->outbox = o;
  return TDICT_OK;
}

void tdict_outbox_destroy(tdict_outbox *o) {
  if (!o) return;
  pthread_mutex_destroy(&o->lock);
  free(o);
}

bool tdict_outbox_serves(const tdict_lane *lane, tdict_cu_kind kind) {
  const tdict_outbox *o = lane->worker->transfer->outbox;
  return o && o->gpu == lane->gpu && o->kind == kind;
}

static void lock(tdict_outbox *o) {
  if (!tdict_spin_try(&o->lock)) pthread_mutex_lock(&o->lock);
}

/* While this is so, the last batch has not begun, and more can wait. At most three sixteenths of the slots do: then two such
 * batches on their way and a third that waits leave fourteen of 32 slots, for the twelve threads that may want one. */
static bool can_wait(const tdict_lane *lane, const tdict_outbox *o) {
  tdict_driver *d = lane->gpu->driver;
  const int share = lane->ring->num_slots * 3 / 16, most = share < TDICT_OUTBOX_MOST ? share : TDICT_OUTBOX_MOST;
  return o->count < most && o->before && d->ops->event_query(d, o->before) == TDICT_CU_NOT_READY;
}

static tdict_status queue_batch(const tdict_lane *lane, const tdict_outbox *o, tdict_error *err) {
  tdict_driver *d = lane->gpu->driver;
  size_t bytes = 0;
  for (int i = 0; i < o->count; i++) bytes += o->lines[i].bytes;
  const int64_t span = tdict_phase_begin(&lane->worker->transfer->traced, TDICT_RANGE_SUBMIT);
  const bool has_turn = tdict_gpu_begin_queue(lane->gpu);
  tdict_slice *slice = tdict_slice_begin(&lane->worker->transfer->traced, lane->gpu, lane->stream, bytes);
  tdict_status status = tdict_gpu_queue_lines(lane->gpu, o->kind, o->lines, (size_t)o->count, lane->stream, err);
  tdict_slice_end(slice, lane->gpu);
  for (int i = 0; i < o->count && status == TDICT_OK; i++)
    status =
        tdict_gpu_check(lane->gpu, d->ops->event_record(d, o->slots[i]->event, lane->stream), "cuEventRecord", err);
  tdict_gpu_end_queue(lane->gpu, has_turn);
  (void)tdict_phase_end(&lane->worker->transfer->traced, TDICT_RANGE_SUBMIT, span, bytes);
  return status;
}

/* What is there is in nobody's hands but the lanes' from here on, whose threads find the transfer failed if it is. */
static void let_go(tdict_outbox *o) {
  for (int i = 0; i < o->count; i++) atomic_store_explicit(&o->slots[i]->posted, false, memory_order_release);
  o->count = 0;
}

static tdict_status queue_all(tdict_lane *lane, tdict_outbox *o, tdict_error *err) {
  tdict_driver *d = lane->gpu->driver;
  if (o->count == 0) return TDICT_OK;
  tdict_status status = queue_batch(lane, o, err);
  for (int i = 0; i < o->count; i++) lane->loose |= o->lanes[i] != lane;
  if (status == TDICT_OK) {
    o->before = o->last;
    o->last = o->slots[o->count - 1]->event;
  } else {
    d->ops->stream_synchronize(d, lane->stream); /* some may be under way, and no event would tell */
    tdict_transfer_fail(lane->worker->transfer, o->items[0], err);
  }
  let_go(o);
  return status;
}

tdict_status tdict_outbox_post(tdict_lane *lane, tdict_slot *slot, const tdict_chunk *chunk, const tdict_cu_line *line,
                               tdict_error *err) {
  tdict_outbox *o = lane->worker->transfer->outbox;
  tdict_status status = TDICT_OK;
  tdict_lane_add(lane, &(tdict_flight){slot, slot->event, chunk, o->kind == TDICT_CU_D2H});
  lock(o);
  o->slots[o->count] = slot;
  o->lanes[o->count] = lane;
  o->lines[o->count] = *line;
  o->items[o->count++] = chunk->first;
  /* The lock orders it for who takes it back, and its reader is this thread. */
  atomic_store_explicit(&slot->posted, true, memory_order_relaxed);
  if (!can_wait(lane, o)) status = queue_all(lane, o, err);
  pthread_mutex_unlock(&o->lock);
  return status;
}

tdict_status tdict_outbox_flush(tdict_lane *lane, tdict_error *err) {
  tdict_outbox *o = lane->worker->transfer->outbox;
  if (!o || !lane->gpu || o->gpu != lane->gpu) return TDICT_OK;
  lock(o);
  const bool some = o->count > 0;
  pthread_mutex_unlock(&o->lock);
  if (!some) return TDICT_OK;
  tdict_status status = tdict_lane_begin(lane, err); /* which may wait */
  if (status != TDICT_OK) return status;
  lock(o);
  status = queue_all(lane, o, err);
  pthread_mutex_unlock(&o->lock);
  return status;
}

void tdict_outbox_discard(const tdict_lane *lane) {
  tdict_outbox *o = lane->worker->transfer->outbox;
  if (!o) return;
  lock(o);
  let_go(o);
  pthread_mutex_unlock(&o->lock);
}
