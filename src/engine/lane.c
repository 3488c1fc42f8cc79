/* Implements lanes. A lane queues copies on its stream, tracks these copies until the copies end, and holds the slots
 * of the copies. See lane.h for ownership and threads. */
#include "engine/lane.h"

#include <stdio.h>
#include <string.h>

#include "core/base/assert.h"
#include "engine/kinds/direct.h"
#include "engine/options/burst.h"
#include "engine/options/pace.h"
#include "engine/options/queue_limit.h"
#include "engine/options/stream_waits.h"
#include "engine/pieces.h"

/* Adds `by` to the number of slots that the lane holds, and updates the statistics. */
static void count_slots(tdict_lane *lane, int by) {
  tdict_transfer *t = lane->worker->transfer;
  lane->held += by;
  TDICT_ASSERT(lane->held >= 0);
  int64_t now = atomic_fetch_add_explicit(&t->slots_held, by, memory_order_relaxed) + by;
  int64_t peak = atomic_load_explicit(&t->peak_slots, memory_order_relaxed);
  while (now > peak && !atomic_compare_exchange_weak_explicit(&t->peak_slots, &peak, now, memory_order_relaxed,
                                                              memory_order_relaxed)) {}
}

/* Makes the stream wait for the work that the transfer waits for. Later calls do nothing. Call only if a copy follows:
 * streams are pooled, and a queued wait would delay the stream's next user. */
static tdict_status begin_stream(tdict_lane *lane, tdict_error *err) {
  tdict_stream_waits *waits = lane->worker->transfer->stream_waits;
  const bool must_wait = waits && !lane->begun;
  lane->begun = true;
  return must_wait ? tdict_stream_waits_queue(waits, lane->gpu, lane->stream, err) : TDICT_OK;
}

/* Adds a flight, whose slot is then no longer the lane's spare. */
static void add_flight(tdict_lane *lane, const tdict_flight *flight) {
  TDICT_ASSERT(lane->count < TDICT_LANE_DEPTH && (!flight->slot || flight->slot == lane->spare));
  if (flight->slot) lane->spare = NULL;
  lane->flights[(lane->first + lane->count++) % TDICT_LANE_DEPTH] = *flight;
}

/* Copies that are queued together on the stream of a lane: the copies of a chunk, or of the burst. */
typedef struct submission {
  const tdict_chunk *chunk; /* NULL: the burst */
  tdict_slot *slot;         /* of the chunk; NULL: the copies of the chunk need no slot */
  tdict_cu_kind kind;
  size_t bytes;
  const tdict_cu_copy *copies;  /* one for each slot. NULL: a slot needs several copies */
  const tdict_cu_event *events; /* recorded after the copies */
  int num_copies, num_events;
  char *scratch;       /* see tdict_pieces_queue */
  uint32_t error_item; /* output: the number of the item that an error names */
} submission;

/* Queues the copies of a chunk that needs more than one driver copy. */
static tdict_status queue_pieces(tdict_lane *lane, submission *s, tdict_error *err) {
  const tdict_transfer *t = lane->worker->transfer;
  if (!s->slot) {
    const tdict_direct direct = {&t->plan, s->chunk, t->future.engine->config.devices, lane->gpu, lane->stream};
    return tdict_direct_queue(&direct, err);
  }
  tdict_pieces_queue queue = {lane->gpu, s->kind, lane->stream, s->slot->data, s->error_item, s->scratch, 0};
  tdict_status status = tdict_pieces_submit(&t->plan, s->chunk, &queue, err);
  s->error_item = queue.item;
  lane->worker->packed_bytes += queue.packed_bytes;
  return status;
}

/* Gives the promise the error with the position of the target, before the transfer reports the error with its own. */
static void name_position(const tdict_transfer *t, size_t position, const tdict_error *error) {
  char path[24];
  snprintf(path, sizeof path, "%zu", position);
  tdict_future_fail(atomic_load_explicit(&t->future.part_of, memory_order_acquire), UINT32_MAX, path, error);
}

/* Queues the copies of a chunk to the other targets. The device copies the chunk as soon as it has arrived, on the same
 * stream. So the host's memory is read once, and no other thread must wait for the arrival. */
static tdict_status queue_to_targets(tdict_lane *lane, const tdict_chunk *chunk, tdict_error *err) {
  const tdict_transfer *t = lane->worker->transfer;
  const int64_t bytes = (int64_t)(chunk->end - chunk->begin);
  const char *from = t->targets[0].storage->data;
  tdict_status status = TDICT_OK;
  for (size_t i = 1; i < t->num_targets && status == TDICT_OK; i++) {
    const tdict_storage *to = t->targets[i].storage;
    const tdict_rect line = {(char *)to->data + chunk->begin, from + chunk->begin, bytes, bytes, (size_t)bytes, 1};
    tdict_gpu *owner;
    status = tdict_devices_gpu(t->future.engine->config.devices, to->device, &owner, err);
    if (status == TDICT_OK) status = tdict_gpu_queue_from(owner, lane->gpu, &line, lane->stream, err);
    if (status != TDICT_OK) name_position(t, t->targets[i].position, err);
  }
  return status;
}

/* Queues copies, the launches of kernels and the copies to other targets, and then records the events. All copies of
 * the engine are queued here. After a failure, some of the copies may be in flight. The queue is not locked for copies
 * without slots, because a copy from pageable memory can take long. */
static tdict_status queue_copy(tdict_lane *lane, submission *s, tdict_error *err) {
  const tdict_transfer *t = lane->worker->transfer;
  const int64_t begin = tdict_phase_begin(t, TDICT_RANGE_SUBMIT);
  const bool locked = (s->slot || s->copies) && tdict_gpu_begin_queue(lane->gpu);
  tdict_slice *slice = t->traced.recording ? tdict_trace_open(&t->traced, lane->gpu, lane->stream, s->bytes) : NULL;
  tdict_status status =
      s->copies ? tdict_gpu_queue_copies(lane->gpu, s->kind, s->copies, (size_t)s->num_copies, lane->stream, err)
                : queue_pieces(lane, s, err);
  if (t->num_targets > 1 && status == TDICT_OK) status = queue_to_targets(lane, s->chunk, err);
  if (slice) tdict_trace_close(slice, lane->gpu);
  for (int i = 0; i < s->num_events && status == TDICT_OK; i++)
    status = tdict_gpu_record(lane->gpu, s->events[i], lane->stream, err);
  tdict_gpu_end_queue(lane->gpu, locked);
  (void)tdict_phase_end(t, TDICT_RANGE_SUBMIT, begin, s->bytes);
  return status;
}

/* Queues the copies in the burst. The caller holds the burst's lock. */
static tdict_status queue_burst(tdict_lane *lane, tdict_error *err) {
  tdict_burst *b = lane->worker->transfer->burst;
  if (b->count == 0) return TDICT_OK;
  submission s = {
      .kind = b->kind, .copies = b->copies, .events = b->events, .num_copies = b->count, .num_events = b->count};
  for (int i = 0; i < b->count; i++) {
    s.bytes += b->copies[i].bytes;
    lane->has_untracked_copies |= b->lanes[i] != lane;
  }
  tdict_status status = queue_copy(lane, &s, err);
  if (status != TDICT_OK) {
    (void)!tdict_gpu_sync_stream(lane->gpu, lane->stream, NULL); /* copies of other lanes' slots may be in flight */
    tdict_transfer_fail(lane->worker->transfer, b->items[0], err);
  }
  tdict_burst_clear(b, status == TDICT_OK);
  return status;
}

/* Adds the copy of a slot to the burst. Queues the burst if no more copies may be gathered. */
static tdict_status post(tdict_lane *lane, const submission *s, tdict_error *err) {
  tdict_burst *b = lane->worker->transfer->burst;
  tdict_burst_lock(b);
  const bool is_full = tdict_burst_add(b, lane->gpu, lane, s->slot, s->copies, s->chunk->first);
  tdict_status status = is_full ? queue_burst(lane, err) : TDICT_OK;
  tdict_burst_unlock(b);
  return status;
}

tdict_status tdict_lane_flush(tdict_lane *lane, tdict_error *err) {
  tdict_burst *b = lane->worker->transfer->burst;
  if (!lane->gpu || b->gpu != lane->gpu) return TDICT_OK;
  tdict_burst_lock(b);
  const bool is_empty = b->count == 0;
  tdict_burst_unlock(b);
  if (is_empty) return TDICT_OK;
  tdict_status status = begin_stream(lane, err); /* this call may wait, so the burst's lock must not be held */
  if (status != TDICT_OK) return status;
  tdict_burst_lock(b);
  status = queue_burst(lane, err);
  tdict_burst_unlock(b);
  return status;
}

/* Finds the ring when the lane first requests a slot, so that a transfer without slots creates no ring. Sets how many
 * slots the lane may hold: an equal share of the ring, but at most as many as the tuning table allows. */
static tdict_status find_ring(tdict_lane *lane, tdict_error *err) {
  if (lane->ring) return TDICT_OK;
  const tdict_transfer *t = lane->worker->transfer;
  tdict_status status = tdict_rings_get(&t->future.engine->rings, lane->gpu, &lane->ring, err);
  if (status != TDICT_OK) return status;
  int slots = lane->ring->num_slots, each = slots / t->how.num_workers, most = t->how.max_slots;
  lane->depth = each < 1 ? 1 : each > most ? most : each;
  if (lane->depth > TDICT_LANE_DEPTH || t->plan.num_chunks <= (uint32_t)slots || t->strips)
    lane->depth = TDICT_LANE_DEPTH; /* the maximum: all chunks fit into the ring, or lanes queue slots that other lanes
                                     * took */
  return TDICT_OK;
}

/* Gives the lane the stream that all lanes of the transfer have on its first GPU. Copies to the host then end one after
 * another, and threads empty the first slots while the link fills the next. Copies on several streams end at about the
 * same time. tdict_transfer_finish() returns the stream to the pool. */
static tdict_status share_stream(tdict_lane *lane, tdict_gpu *gpu, tdict_error *err) {
  tdict_transfer *t = lane->worker->transfer;
  tdict_cu_stream *shared = &t->workers[0].out_stream;
  pthread_mutex_lock(&t->future.error_lock);
  tdict_status status = *shared ? TDICT_OK : tdict_gpu_take_stream(gpu, shared, err);
  lane->stream = *shared;
  pthread_mutex_unlock(&t->future.error_lock);
  lane->shares_stream = true;
  return status;
}

tdict_status tdict_lane_open(tdict_lane *lane, tdict_gpu *gpu, tdict_error *err) {
  tdict_worker *worker = lane->worker;
  memset(lane, 0, sizeof *lane);
  lane->worker = worker;
  tdict_status status = tdict_gpu_enter(gpu, &lane->scope, err);
  if (status != TDICT_OK) return status;
  /* Streams are pooled: tdict_lane_close() returns the stream to the pool. */
  const tdict_transfer *t = worker->transfer;
  status = t->plan.way_bytes[TDICT_WAY_STAGE_OUT] && gpu == t->gpu ? share_stream(lane, gpu, err)
                                                                   : tdict_gpu_take_stream(gpu, &lane->stream, err);
  if (status != TDICT_OK) {
    tdict_gpu_leave(gpu, &lane->scope);
    return status;
  }
  lane->gpu = gpu;
  return TDICT_OK;
}

/* Counts before returning the slot: another thread of the transfer may take and count the slot at once. */
static void return_slot(tdict_lane *lane, tdict_slot *slot) {
  count_slots(lane, -1);
  tdict_ring_give(lane->ring, slot, false);
}

static void return_spare(tdict_lane *lane) {
  if (lane->spare) return_slot(lane, lane->spare);
  lane->spare = NULL;
}

/* Keeps a slot as the spare, or returns the slot if the lane has a spare. */
static void keep_slot(tdict_lane *lane, tdict_slot *slot) {
  if (lane->spare)
    return_slot(lane, slot);
  else
    lane->spare = slot;
}

/* Removes the oldest flight, whose copy has ended. If `abandon` is false, copies the slot to the host leaves if needed.
 * If the flight has no slot, returns its event to the GPU. */
static void retire_oldest(tdict_lane *lane, bool abandon) {
  TDICT_ASSERT(lane->count > 0);
  tdict_flight *f = &lane->flights[lane->first];
  tdict_transfer *t = lane->worker->transfer;
  if (t->stream_waits && !abandon) atomic_store_explicit(&t->stream_waits->first_copy_done, true, memory_order_relaxed);
  lane->first = (lane->first + 1) % TDICT_LANE_DEPTH;
  lane->count--;
  if (t->queue_limit) tdict_queue_limit_remove(t->queue_limit, f->event);
  if (!f->slot) {
    tdict_gpu_give_event(lane->gpu, f->event);
    return;
  }
  if (f->out && !abandon) {
    tdict_error why;
    uint32_t error_item;
    const int64_t begin = tdict_phase_begin(t, TDICT_RANGE_COPY);
    if (tdict_pieces_scatter(&t->plan, f->chunk, f->slot->data, t->how.stores, &error_item, &why) != TDICT_OK)
      tdict_transfer_fail(t, error_item, &why);
    lane->worker->copy_ns += tdict_phase_end(t, TDICT_RANGE_COPY, begin, f->chunk->end - f->chunk->begin);
  }
  keep_slot(lane, f->slot);
}

static tdict_status wait_oldest(tdict_lane *lane, tdict_error *err) {
  tdict_flight *f = &lane->flights[lane->first];
  tdict_transfer *t = lane->worker->transfer;
  tdict_status status = t->burst && tdict_slot_is_in_burst(f->slot) ? tdict_lane_flush(lane, err) : TDICT_OK;
  const int64_t begin = tdict_phase_begin(t, TDICT_RANGE_WAIT);
  if (status == TDICT_OK) status = tdict_gpu_sync_event(lane->gpu, f->event, err);
  lane->worker->wait_ns += tdict_phase_end(t, TDICT_RANGE_WAIT, begin, 0);
  /* After a failure, the slot's copy may not have been queued, so the slot may contain invalid bytes. */
  if (status == TDICT_OK)
    retire_oldest(lane, f->out && tdict_future_has_failed(&t->future));
  else
    tdict_transfer_fail(t, t->plan.num_items ? f->chunk->first : UINT32_MAX, err);
  return status;
}

static tdict_status synchronize(tdict_lane *lane, tdict_error *err) {
  const int64_t begin = tdict_phase_begin(lane->worker->transfer, TDICT_RANGE_WAIT);
  tdict_status status = tdict_gpu_sync_stream(lane->gpu, lane->stream, err);
  lane->worker->wait_ns += tdict_phase_end(lane->worker->transfer, TDICT_RANGE_WAIT, begin, 0);
  return status;
}

tdict_status tdict_lane_wait_all(tdict_lane *lane, tdict_error *err) {
  tdict_status status = TDICT_OK;
  while (lane->count > 0 && status == TDICT_OK) status = wait_oldest(lane, err);
  if (lane->bytes_without_event == 0 || status != TDICT_OK) return status;
  lane->bytes_without_event = 0;
  return synchronize(lane, err);
}

/* Returns how many slots to leave free for other transfers, if the transfer waits for streams. While a stream may block
 * this transfer, 1/8 of the ring stays free for other transfers. Returns 0 if the transfer has a deferred tail, because
 * the starting thread then needs a slot for each chunk. */
static int slots_to_keep_free(const tdict_lane *lane) {
  const tdict_transfer *t = lane->worker->transfer;
  if (t->deferred_tail || atomic_load_explicit(&t->stream_waits->first_copy_done, memory_order_relaxed)) return 0;
  return lane->ring->num_slots / 8;
}

/* Returns true for the first request for a slot in a transfer. The first request may take the last free slots of the
 * ring. */
static bool is_first_request(tdict_stream_waits *w) {
  return !atomic_load_explicit(&w->slot_was_requested, memory_order_relaxed) &&
         !atomic_exchange_explicit(&w->slot_was_requested, true, memory_order_relaxed);
}

static tdict_status take_from_ring(tdict_lane *lane, bool may_take_last, bool wait, tdict_error *err) {
  return tdict_ring_take(lane->ring, may_take_last ? 0 : slots_to_keep_free(lane), wait, &lane->spare, err);
}

/* Takes a slot of the ring as the spare. A lane without slots waits until a slot is free or the transfer has failed. A
 * lane that holds slots does not wait here, because its slots become free when its copies end. */
static tdict_status take_spare(tdict_lane *lane, tdict_error *err) {
  tdict_transfer *t = lane->worker->transfer;
  const bool wait = lane->held == 0;
  const bool may_take_last = !t->stream_waits || (wait && is_first_request(t->stream_waits));
  tdict_status status = take_from_ring(lane, may_take_last, false, err);
  if (wait && !lane->spare && status == TDICT_OK) {
    const int64_t begin = tdict_phase_begin(t, TDICT_RANGE_WAIT);
    while (!lane->spare && status == TDICT_OK && !tdict_future_has_failed(&t->future))
      status = take_from_ring(lane, may_take_last, true, err);
    lane->worker->wait_ns += tdict_phase_end(t, TDICT_RANGE_WAIT, begin, 0);
  }
  if (lane->spare) count_slots(lane, 1);
  return status;
}

tdict_status tdict_lane_take_slot(tdict_lane *lane, tdict_slot **out, tdict_error *err) {
  tdict_status status = find_ring(lane, err);
  /* Prefer a free slot of the ring. If no slot is free, a lane with copies in flight waits for these copies. */
  if (status == TDICT_OK && lane->count == TDICT_LANE_DEPTH) status = wait_oldest(lane, err);
  if (status == TDICT_OK && !lane->spare && lane->held < lane->depth) status = take_spare(lane, err);
  while (!lane->spare && lane->count > 0 && status == TDICT_OK) status = wait_oldest(lane, err);
  if (status != TDICT_OK) return status;
  *out = lane->spare;
  return TDICT_OK;
}

void tdict_lane_hand_over(tdict_lane *lane) {
  TDICT_ASSERT(lane->held > 0 && lane->spare);
  lane->spare = NULL;
  lane->held--;
}

tdict_status tdict_lane_take_over(tdict_lane *lane, tdict_slot *slot, tdict_error *err) {
  tdict_status status = find_ring(lane, err);
  while (status == TDICT_OK && lane->count == TDICT_LANE_DEPTH) status = wait_oldest(lane, err);
  if (status != TDICT_OK) return status;
  return_spare(lane);
  lane->spare = slot;
  lane->held++;
  return TDICT_OK;
}

tdict_status tdict_lane_return_finished(tdict_lane *lane, tdict_error *err) {
  tdict_cu answer = TDICT_CU_SUCCESS;
  if (lane->count > 0 && tdict_slot_is_in_burst(lane->flights[lane->first].slot)) {
    tdict_status status = tdict_lane_flush(lane, err);
    if (status != TDICT_OK) return status;
  }
  while (lane->count > 0 && answer == TDICT_CU_SUCCESS && !tdict_slot_is_in_burst(lane->flights[lane->first].slot)) {
    answer = tdict_gpu_query_event(lane->gpu, lane->flights[lane->first].event);
    if (answer == TDICT_CU_SUCCESS) retire_oldest(lane, false);
  }
  return_spare(lane);
  return answer == TDICT_CU_SUCCESS || answer == TDICT_CU_NOT_READY ? TDICT_OK : wait_oldest(lane, err);
}

/* Kernels read chunks of up to this many bytes directly from the slot, which saves a driver copy for each chunk. The
 * limit is an estimate. */
#define READ_SLOT_BYTES ((size_t)256 << 10)

/* Finds the memory in which kernels read or write the wire's elements: scratch memory, or the slot itself. Packed
 * elements are read several times, so these are always copied first. */
static tdict_status find_scratch(const tdict_lane *lane, tdict_slot *slot, const tdict_chunk *chunk, char **out,
                                 tdict_error *err) {
  const tdict_plan *plan = &lane->worker->transfer->plan;
  size_t bytes = 0;
  bool reads_slot = !plan->wire->packs && tdict_ring_is_pinned(lane->ring);
  for (uint32_t i = chunk->first; i < plan->num_items && plan->items[i].offset < chunk->end && reads_slot; i++) {
    const tdict_item *item = &plan->items[i];
    const size_t begin = item->offset < chunk->begin ? chunk->begin : item->offset,
                 end = item->offset + item->bytes < chunk->end ? item->offset + item->bytes : chunk->end;
    if (begin < end) bytes += tdict_plan_slot_bytes(tdict_plan_cast(plan, i), end - begin);
    reads_slot = item->kind == TDICT_CU_H2D && bytes <= READ_SLOT_BYTES;
  }
  *out = slot->data;
  return reads_slot ? TDICT_OK : tdict_ring_scratch(lane->ring, slot, out, err);
}

/* Counts the bytes of a chunk as queued, as soon as they fit into the limit of queued bytes. *out is false if the
 * transfer has failed meanwhile. */
static tdict_status reserve(tdict_lane *lane, size_t bytes, bool *out, tdict_error *err) {
  tdict_transfer *t = lane->worker->transfer;
  const int64_t begin = tdict_phase_begin(t, TDICT_RANGE_WAIT);
  tdict_status status = tdict_queue_limit_reserve(t->queue_limit, bytes, &t->future.failed, out, err);
  lane->worker->wait_ns += tdict_phase_end(t, TDICT_RANGE_WAIT, begin, 0);
  return status;
}

/* Several copies without slots share one event until their sizes add up to this many bytes, because an event costs as
 * much as a small copy. */
#define EVENT_BYTES ((size_t)1 << 20)

/* Takes the event that follows the copies of a chunk without a slot, if an event must follow. */
static tdict_status take_event(tdict_lane *lane, size_t bytes, tdict_cu_event *out, tdict_error *err) {
  const tdict_transfer *t = lane->worker->transfer;
  lane->bytes_without_event += bytes;
  /* With a limit of queued bytes, the count of each chunk ends with an event. In TDICT_MODE_BLOCKING, the lane waits
   * for the stream. */
  const bool is_due = t->how.mode != TDICT_MODE_BLOCKING && lane->bytes_without_event >= EVENT_BYTES;
  if (!is_due && !t->queue_limit) return TDICT_OK;
  lane->bytes_without_event = 0;
  return tdict_gpu_take_event(lane->gpu, out, err);
}

/* Prepares the lane for the copies of a chunk. *out is false if the transfer has failed meanwhile. */
static tdict_status prepare(tdict_lane *lane, submission *s, tdict_cu_event *event, bool *out, tdict_error *err) {
  const tdict_transfer *t = lane->worker->transfer;
  tdict_status status = begin_stream(lane, err);
  while (!s->slot && lane->count >= TDICT_DIRECT_IN_FLIGHT && status == TDICT_OK) status = wait_oldest(lane, err);
  if (s->slot && t->plan.wire && t->plan.wire->slots_differ && status == TDICT_OK)
    status = find_scratch(lane, s->slot, s->chunk, &s->scratch, err);
  *out = true;
  if (t->pace && status == TDICT_OK) *out = tdict_pace_wait_for_chunk(lane->worker, s->bytes);
  if (t->queue_limit && *out && status == TDICT_OK) status = reserve(lane, s->bytes, out, err);
  if (!s->slot && *out && status == TDICT_OK) status = take_event(lane, s->bytes, event, err);
  return status;
}

/* The order of a submission: count the bytes as queued, queue the copies and record the event, add the event to the
 * counted bytes. If queueing fails, tdict_lane_close() ends the flight. */
tdict_status tdict_lane_submit(tdict_lane *lane, tdict_slot *slot, const tdict_chunk *chunk, uint32_t *error_item,
                               tdict_error *err) {
  const tdict_transfer *t = lane->worker->transfer;
  const tdict_item *item = &t->plan.items[chunk->first];
  tdict_flight flight = {slot, slot ? slot->event : NULL, chunk, item->way == TDICT_WAY_STAGE_OUT};
  submission s = {.chunk = chunk,
                  .slot = slot,
                  .kind = (tdict_cu_kind)item->kind,
                  .bytes = chunk->end - chunk->begin,
                  .events = &flight.event,
                  .error_item = *error_item};
  tdict_cu_copy copy;
  bool may_queue;
  tdict_status status = prepare(lane, &s, &flight.event, &may_queue, err);
  if (status != TDICT_OK || !may_queue) return status;
  s.num_events = flight.event != NULL;
  if (slot && tdict_pieces_as_copy(&t->plan, chunk, slot->data, &copy)) s.copies = &copy, s.num_copies = 1;
  if (flight.event) add_flight(lane, &flight);
  const bool is_in_burst = s.copies && t->burst && tdict_burst_accepts(t->burst, lane->gpu, s.kind);
  status = is_in_burst ? post(lane, &s, err) : queue_copy(lane, &s, err);
  *error_item = s.error_item;
  if (t->queue_limit && status == TDICT_OK)
    tdict_queue_limit_add(t->queue_limit, &(tdict_counted_copy){lane->gpu, slot, flight.event, s.bytes});
  return status;
}

/* Drops all flights of a failed transfer. Copies of the lane's slots may be on the streams of other lanes, so this
 * function waits for the event of each slot. */
static void end_flights(tdict_lane *lane) {
  tdict_burst *b = lane->worker->transfer->burst;
  if (b) {
    tdict_burst_lock(b);
    tdict_burst_clear(b, false);
    tdict_burst_unlock(b);
  }
  for (; lane->count > 0; retire_oldest(lane, true))
    if (lane->flights[lane->first].slot) (void)!tdict_gpu_sync_event(lane->gpu, lane->flights[lane->first].event, NULL);
}

tdict_status tdict_lane_close(tdict_lane *lane, bool abandon, tdict_error *err) {
  if (!lane->gpu) return TDICT_OK;
  tdict_status status = abandon ? TDICT_OK : tdict_lane_wait_all(lane, err);
  /* If this condition is false, every copy had an event, and tdict_lane_wait_all() has waited for all events. */
  if (abandon || lane->has_untracked_copies || status != TDICT_OK) {
    tdict_error later;
    tdict_status sync_status = synchronize(lane, &later);
    if (status == TDICT_OK && sync_status != TDICT_OK) {
      status = sync_status;
      if (err) *err = later;
    }
  }
  if (lane->count > 0) end_flights(lane);
  return_spare(lane);
  TDICT_ASSERT(lane->count == 0 && lane->held == 0);
  if (!lane->shares_stream) tdict_gpu_give_stream(lane->gpu, lane->stream);
  tdict_gpu_leave(lane->gpu, &lane->scope);
  lane->gpu = NULL;
  return status;
}

/* Keeps the flights whose slots must still be copied to the host, and the flights without a slot. */
void tdict_lane_pause(tdict_lane *lane) {
  int kept = 0;
  for (int i = 0; i < lane->count; i++) {
    tdict_flight f = lane->flights[(lane->first + i) % TDICT_LANE_DEPTH];
    if (!f.slot || f.out) {
      lane->flights[(lane->first + kept++) % TDICT_LANE_DEPTH] = f;
      continue;
    }
    count_slots(lane, -1);
    tdict_ring_give(lane->ring, f.slot, true);
    lane->has_untracked_copies = true;
  }
  lane->count = kept;
  return_spare(lane);
  tdict_gpu_leave(lane->gpu, &lane->scope);
}

/* Ignores a failure, because a later driver call on the lane reports the failure. */
void tdict_lane_resume(tdict_lane *lane) { (void)!tdict_gpu_enter(lane->gpu, &lane->scope, NULL); }

/* A failure is not an error of the transfer, because waiters can wait for the end of the transfer instead. */
bool tdict_lane_record_tail(tdict_lane *lane) {
  tdict_worker *w = lane->worker;
  if (tdict_gpu_take_recorded(lane->gpu, lane->stream, &w->tail, NULL) != TDICT_OK) return false;
  w->tail_gpu = tdict_gpu_retain(lane->gpu);
  return true;
}
