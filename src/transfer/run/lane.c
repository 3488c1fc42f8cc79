/* Lanes: a stream, a window of copies in flight, and the slots they use. See lane.h. */
#include "transfer/run/lane.h"

#include <string.h>

#include "base/clock.h"
#include "transfer/run/batch.h"
#include "transfer/run/pieces.h"

static void count_slots(tdict_lane *lane, int by) {
  tdict_future *t = lane->worker->transfer;
  lane->held += by;
  int64_t now = atomic_fetch_add_explicit(&t->slots_held, by, memory_order_relaxed) + by;
  int64_t peak = atomic_load_explicit(&t->peak_slots, memory_order_relaxed);
  while (now > peak && !atomic_compare_exchange_weak_explicit(&t->peak_slots, &peak, now, memory_order_relaxed,
                                                              memory_order_relaxed)) {}
}

tdict_status tdict_lane_begin(tdict_lane *lane, tdict_error *err) {
  const tdict_future *t = lane->worker->transfer;
  tdict_status status = TDICT_OK;
  if (lane->begun) return status;
  lane->begun = true;
  for (int i = 0; i < t->num_gates && status == TDICT_OK; i++)
    status = tdict_gpu_stream_wait(lane->gpu, lane->stream, t->gates[i].event, err);
  for (uint32_t i = 0; i < t->num_uses && status == TDICT_OK; i++) {
    const tdict_fence_ops *o = t->uses[i]->ops;
    if (!o->wait_on_stream || !o->wait_on_stream(t->uses[i], lane->gpu, lane->stream)) o->wait(t->uses[i], INT64_MAX);
  }
  return status;
}

tdict_status tdict_lane_post(tdict_lane *lane, tdict_slot *slot, const tdict_chunk *chunk, const tdict_cu_line *line,
                             tdict_error *err) {
  tdict_future *t = lane->worker->transfer;
  tdict_batch_stream stream = {lane->gpu, lane->stream, lane, false};
  tdict_lane_add(lane, &(tdict_flight){slot, slot->event, chunk, t->batch->kind == TDICT_CU_D2H});
  tdict_status status = tdict_batch_post(t, &stream, slot, line, chunk->first, err);
  lane->has_untracked_copies |= stream.queued_for_others;
  return status;
}

tdict_status tdict_lane_flush(tdict_lane *lane, tdict_error *err) {
  tdict_future *t = lane->worker->transfer;
  if (!lane->gpu || t->batch->gpu != lane->gpu || tdict_batch_is_empty(t)) return TDICT_OK;
  tdict_status status = tdict_lane_begin(lane, err); /* may wait, so the batch is not locked */
  if (status != TDICT_OK) return status;
  tdict_batch_stream stream = {lane->gpu, lane->stream, lane, false};
  status = tdict_batch_flush(t, &stream, err);
  lane->has_untracked_copies |= stream.queued_for_others;
  return status;
}

/* Slots are shared out among the workers of a transfer, so that each has two where there are enough. A transfer that
 * needs none makes no ring. */
static tdict_status find_ring(tdict_lane *lane, tdict_error *err) {
  if (lane->ring) return TDICT_OK;
  const tdict_future *t = lane->worker->transfer;
  tdict_status status = tdict_engine_ring(t->engine, lane->gpu, &lane->ring, err);
  if (status != TDICT_OK) return status;
  int slots = lane->ring->num_slots, each = slots / t->num_workers, most = t->row.slots;
  lane->depth = each < 1 ? 1 : each > most ? most : each;
  if (lane->depth > TDICT_LANE_DEPTH || t->plan.num_chunks <= (uint32_t)slots || t->chunk_parts)
    lane->depth = TDICT_LANE_DEPTH; /* all of it fits; or who queues a slot's copy is seldom who took the slot */
  return TDICT_OK;
}

tdict_status tdict_lane_open(tdict_lane *lane, tdict_gpu *gpu, tdict_error *err) {
  tdict_worker *worker = lane->worker;
  memset(lane, 0, sizeof *lane);
  lane->worker = worker;
  tdict_status status = tdict_gpu_enter(gpu, &lane->scope, err);
  if (status != TDICT_OK) return status;
  status = tdict_gpu_take_stream(gpu, &lane->stream, err);
  if (status != TDICT_OK) {
    tdict_gpu_leave(gpu, &lane->scope);
    return status;
  }
  lane->gpu = gpu;
  return TDICT_OK;
}

static void give_slot(tdict_lane *lane, tdict_slot *slot) {
  tdict_ring_give(lane->ring, slot, false);
  count_slots(lane, -1);
}

static void give_spare(tdict_lane *lane) {
  if (lane->spare) give_slot(lane, lane->spare);
  lane->spare = NULL;
}

void tdict_lane_keep(tdict_lane *lane, tdict_slot *slot) {
  if (lane->spare)
    give_slot(lane, slot);
  else
    lane->spare = slot;
}

/* The oldest copy in flight is done: empties its slot or lets its event go. */
static void retire(tdict_lane *lane, bool abandon) {
  tdict_flight *f = &lane->flights[lane->first];
  _Atomic(bool) *done = &lane->worker->transfer->first_copy_done;
  if (!abandon && !atomic_load_explicit(done, memory_order_relaxed))
    atomic_store_explicit(done, true, memory_order_relaxed);
  lane->first = (lane->first + 1) % TDICT_LANE_DEPTH;
  lane->count--;
  if (!f->slot) {
    tdict_gpu_give_event(lane->gpu, f->event);
    return;
  }
  if (f->out && !abandon) {
    const tdict_future *t = lane->worker->transfer;
    const int64_t begin = tdict_phase_begin(&t->traced, TDICT_RANGE_COPY);
    tdict_pieces_scatter(&t->plan, f->chunk, f->slot->data, t->stores);
    lane->worker->copy_ns += tdict_phase_end(&t->traced, TDICT_RANGE_COPY, begin, f->chunk->end - f->chunk->begin);
  }
  tdict_lane_keep(lane, f->slot);
}

static tdict_status wait_oldest(tdict_lane *lane, tdict_error *err) {
  tdict_flight *f = &lane->flights[lane->first];
  tdict_future *t = lane->worker->transfer;
  tdict_status status = t->batch && tdict_batch_holds(f->slot) ? tdict_lane_flush(lane, err) : TDICT_OK;
  const int64_t begin = tdict_phase_begin(&t->traced, TDICT_RANGE_WAIT);
  if (status == TDICT_OK) status = tdict_gpu_sync_event(lane->gpu, f->event, err);
  lane->worker->wait_ns += tdict_phase_end(&t->traced, TDICT_RANGE_WAIT, begin, 0);
  if (status == TDICT_OK)
    retire(lane, f->out && tdict_transfer_has_failed(t)); /* its batch may not have been queued */
  else
    tdict_transfer_fail(t, t->plan.num_items ? f->chunk->first : UINT32_MAX, err);
  return status;
}

tdict_status tdict_lane_settle(tdict_lane *lane, tdict_error *err) {
  tdict_status status = TDICT_OK;
  while (lane->count > 0 && status == TDICT_OK) status = wait_oldest(lane, err);
  return status;
}

tdict_status tdict_lane_room(tdict_lane *lane, tdict_error *err) {
  tdict_status status = TDICT_OK;
  while (lane->count >= TDICT_DIRECT_IN_FLIGHT && status == TDICT_OK) status = wait_oldest(lane, err);
  return status;
}

/* Slots to leave free for other transfers. While this transfer is blocked behind a stream, keep 1/8 of the ring for transfers
 * that are not. Zero for the first request, and for calls that return once everything is queued: those need a slot per chunk. */
static int left_to_others(const tdict_lane *lane) {
  const tdict_future *t = lane->worker->transfer;
  if (t->deferred_tail || (t->num_gates == 0 && t->num_uses == 0)) return 0;
  return atomic_load_explicit(&t->first_copy_done, memory_order_relaxed) ? 0 : lane->ring->num_slots / 8;
}

static bool asks_first(tdict_future *t) {
  return !atomic_load_explicit(&t->slot_was_asked, memory_order_relaxed) &&
         !atomic_exchange_explicit(&t->slot_was_asked, true, memory_order_relaxed);
}

static tdict_status ask_ring(tdict_lane *lane, bool first, bool wait, tdict_error *err) {
  return tdict_ring_take(lane->ring, first ? 0 : left_to_others(lane), wait, &lane->spare, err);
}

/* One of the ring's as the spare. A lane that has none waits for it, but not longer than its transfer goes on. */
static tdict_status take_spare(tdict_lane *lane, tdict_error *err) {
  tdict_future *t = lane->worker->transfer;
  const bool wait = lane->held == 0, first = wait && asks_first(t);
  tdict_status status = ask_ring(lane, first, false, err);
  if (wait && !lane->spare && status == TDICT_OK) {
    const int64_t begin = tdict_phase_begin(&t->traced, TDICT_RANGE_WAIT);
    do status = ask_ring(lane, first, true, err);
    while (!lane->spare && status == TDICT_OK && !tdict_transfer_has_failed(t));
    lane->worker->wait_ns += tdict_phase_end(&t->traced, TDICT_RANGE_WAIT, begin, 0);
  }
  if (lane->spare) count_slots(lane, 1);
  return status;
}

tdict_status tdict_lane_slot(tdict_lane *lane, tdict_slot **out, tdict_error *err) {
  tdict_status status = find_ring(lane, err);
  if (status == TDICT_OK && lane->count == TDICT_LANE_DEPTH) status = wait_oldest(lane, err);
  if (status == TDICT_OK && !lane->spare && lane->held < lane->depth) status = take_spare(lane, err);
  while (!lane->spare && lane->count > 0 && status == TDICT_OK) status = wait_oldest(lane, err);
  if (status != TDICT_OK) return status;
  *out = lane->spare;
  lane->spare = NULL;
  return TDICT_OK;
}

void tdict_lane_hand_over(tdict_lane *lane) { lane->held--; }

tdict_status tdict_lane_take_over(tdict_lane *lane, tdict_error *err) {
  tdict_status status = find_ring(lane, err);
  while (status == TDICT_OK && lane->count == TDICT_LANE_DEPTH) status = wait_oldest(lane, err);
  if (status == TDICT_OK) lane->held++;
  return status;
}

tdict_status tdict_lane_give_done(tdict_lane *lane, tdict_error *err) {
  tdict_cu answer = TDICT_CU_SUCCESS;
  if (lane->count > 0 && tdict_batch_holds(lane->flights[lane->first].slot)) {
    tdict_status status = tdict_lane_flush(lane, err);
    if (status != TDICT_OK) return status;
  }
  while (lane->count > 0 && answer == TDICT_CU_SUCCESS && !tdict_batch_holds(lane->flights[lane->first].slot)) {
    answer = tdict_gpu_query_event(lane->gpu, lane->flights[lane->first].event);
    if (answer == TDICT_CU_SUCCESS) retire(lane, false);
  }
  give_spare(lane);
  return answer == TDICT_CU_SUCCESS || answer == TDICT_CU_NOT_READY ? TDICT_OK : wait_oldest(lane, err);
}

void tdict_lane_add(tdict_lane *lane, const tdict_flight *flight) {
  lane->flights[(lane->first + lane->count++) % TDICT_LANE_DEPTH] = *flight;
}

tdict_status tdict_lane_launch(tdict_lane *lane, tdict_slot *slot, const tdict_chunk *chunk, bool out,
                               tdict_error *err) {
  tdict_cu_event event = slot ? slot->event : NULL;
  tdict_status status = slot ? TDICT_OK : tdict_gpu_take_event(lane->gpu, &event, err);
  if (status != TDICT_OK) return status;
  status = tdict_gpu_record(lane->gpu, event, lane->stream, err);
  if (status != TDICT_OK) {
    (void)!tdict_gpu_sync_stream(lane->gpu, lane->stream,
                                 NULL); /* the slot's bytes may be in use, and no event would tell */
    if (slot)
      tdict_lane_keep(lane, slot);
    else
      tdict_gpu_give_event(lane->gpu, event);
    return status;
  }
  tdict_lane_add(lane, &(tdict_flight){slot, event, chunk, out});
  return TDICT_OK;
}

tdict_status tdict_lane_synchronize(tdict_lane *lane, tdict_error *err) {
  const int64_t begin = tdict_phase_begin(&lane->worker->transfer->traced, TDICT_RANGE_WAIT);
  tdict_status status = tdict_gpu_sync_stream(lane->gpu, lane->stream, err);
  lane->worker->wait_ns += tdict_phase_end(&lane->worker->transfer->traced, TDICT_RANGE_WAIT, begin, 0);
  return status;
}

/* Of a transfer that has failed. Copies of its slots may be on other lanes' streams. */
static void end_flights(tdict_lane *lane) {
  if (lane->worker->transfer->batch) tdict_batch_discard(lane->worker->transfer);
  for (; lane->count > 0; retire(lane, true))
    if (lane->flights[lane->first].slot) (void)!tdict_gpu_sync_event(lane->gpu, lane->flights[lane->first].event, NULL);
}

tdict_status tdict_lane_close(tdict_lane *lane, bool abandon, tdict_error *err) {
  if (!lane->gpu) return TDICT_OK;
  tdict_status status = abandon ? TDICT_OK : tdict_lane_settle(lane, err);
  if (abandon || lane->has_untracked_copies ||
      status != TDICT_OK) { /* else every copy has been waited for by its event */
    tdict_error later;
    tdict_status synced = tdict_lane_synchronize(lane, &later);
    if (status == TDICT_OK && synced != TDICT_OK) {
      status = synced;
      if (err) *err = later;
    }
  }
  if (lane->count > 0) end_flights(lane);
  give_spare(lane);
  tdict_gpu_give_stream(lane->gpu, lane->stream);
  tdict_gpu_leave(lane->gpu, &lane->scope);
  lane->gpu = NULL;
  return status;
}

/* Slots that are still being read go back with their events, so that nobody who waits for a slot waits for whoever resumes
 * the lane. */
void tdict_lane_pause(tdict_lane *lane) {
  int kept = 0;
  for (int i = 0; i < lane->count; i++) {
    tdict_flight f = lane->flights[(lane->first + i) % TDICT_LANE_DEPTH];
    if (!f.slot || f.out) {
      lane->flights[(lane->first + kept++) % TDICT_LANE_DEPTH] = f;
      continue;
    }
    tdict_ring_give(lane->ring, f.slot, true);
    lane->has_untracked_copies = true;
    count_slots(lane, -1);
  }
  lane->count = kept;
  give_spare(lane);
  tdict_gpu_leave(lane->gpu, &lane->scope);
}

void tdict_lane_resume(tdict_lane *lane) { (void)!tdict_gpu_enter(lane->gpu, &lane->scope, NULL); }

bool tdict_lane_record_tail(tdict_lane *lane) {
  tdict_worker *w = lane->worker;
  tdict_cu_event event;
  if (tdict_gpu_take_event(lane->gpu, &event, NULL) != TDICT_OK) return false;
  if (tdict_gpu_record(lane->gpu, event, lane->stream, NULL) != TDICT_OK) {
    tdict_gpu_give_event(lane->gpu, event);
    return false;
  }
  w->tail = event;
  w->tail_gpu = tdict_gpu_retain(lane->gpu);
  return true;
}
