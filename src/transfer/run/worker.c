/* Does the work of a thread on a transfer. The thread handles one chunk at a time. A chunk is copied through a slot to
 * or from the device, by driver copies, or on the host. See worker.h for ownership and threads. */
#include "transfer/run/worker.h"

#include <stdlib.h>

#include "base/clock.h"
#include "tensor/layout.h"
#include "transfer/finish.h"
#include "transfer/run/batch.h"
#include "transfer/run/chunk_parts.h"
#include "transfer/run/device_cast.h"
#include "transfer/run/lane.h"
#include "transfer/run/pieces.h"
#include "transfer/run/queue_limit.h"
#include "transfer/run/spread.h"

/* A chunk, or a part of a chunk, that a thread has claimed. */
typedef struct tdict_claim {
  const tdict_chunk *chunk;
  uint32_t part;
} tdict_claim;

/* Kernels read chunks of up to this many bytes directly from the slot, which saves a driver copy for each chunk. The
 * limit is an estimate. */
#define READ_SLOT_BYTES ((size_t)256 << 10)

/* Finds the memory in which kernels read or write the wire's elements: scratch memory, or the slot itself. Packed
 * elements are read several times, so these are always copied first. */
static tdict_status find_scratch(const tdict_lane *lane, tdict_slot *slot, const tdict_chunk *chunk, char **out,
                                 tdict_error *err) {
  const tdict_plan *plan = &lane->worker->transfer->plan;
  size_t bytes = 0;
  bool reads_slot = !plan->packs && tdict_ring_is_pinned(lane->ring);
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

/* Queues the copies between the slot and the device. If one copy is enough and the transfer has a batch for this GPU
 * and direction, adds the copy to the batch. In all other cases, queues the copies at once. */
static tdict_status queue_chunk(tdict_lane *lane, tdict_slot *slot, const tdict_chunk *chunk, uint32_t *error_item,
                                tdict_error *err) {
  const tdict_plan *plan = &lane->worker->transfer->plan;
  tdict_pieces_queue queue = {lane->gpu, lane->stream, slot->data, *error_item, NULL, 0};
  bool fits = true;
  tdict_status status = plan->uses_kernels ? find_scratch(lane, slot, chunk, &queue.scratch, err) : TDICT_OK;
  if (status == TDICT_OK) status = tdict_lane_reserve(lane, chunk, &fits, err);
  if (status != TDICT_OK || !fits) {
    tdict_lane_keep_slot(lane, slot);
    return status;
  }
  bool out = plan->items[chunk->first].way == TDICT_WAY_STAGE_OUT;
  tdict_cu_line line;
  const tdict_batch *batch = lane->worker->transfer->batch;
  if (batch && tdict_batch_accepts(batch, lane->gpu, out ? TDICT_CU_D2H : TDICT_CU_H2D) &&
      tdict_pieces_line(plan, chunk, slot->data, &line))
    return tdict_lane_post(lane, slot, chunk, &line, err);
  const int64_t span = tdict_phase_begin(&lane->worker->transfer->traced, TDICT_RANGE_SUBMIT);
  const bool locked = tdict_gpu_begin_queue(lane->gpu);
  tdict_slice *slice =
      lane->worker->transfer->traced.recording
          ? tdict_trace_open(&lane->worker->transfer->traced, lane->gpu, lane->stream, chunk->end - chunk->begin)
          : NULL;
  status = tdict_pieces_submit(plan, chunk, &queue, err);
  if (status == TDICT_OK && lane->worker->transfer->num_targets > 1)
    status = tdict_spread_chunk(lane->worker->transfer, chunk, lane->gpu, lane->stream, err);
  lane->worker->packed_bytes += queue.packed_bytes;
  if (slice) tdict_trace_close(slice, lane->gpu);
  *error_item = queue.item;
  bool submitted = status == TDICT_OK;
  if (submitted) status = tdict_lane_record_flight(lane, slot, chunk, out, err);
  tdict_gpu_end_queue(lane->gpu, locked);
  (void)tdict_phase_end(&lane->worker->transfer->traced, TDICT_RANGE_SUBMIT, span, chunk->end - chunk->begin);
  if (submitted) return status;
  (void)!tdict_gpu_sync_stream(lane->gpu, lane->stream, NULL); /* some copies of the slot may already be in flight */
  tdict_lane_keep_slot(lane, slot);
  return status;
}

static tdict_status gather_chunk(tdict_worker *worker, const tdict_chunk *chunk, char *to, uint32_t *error_item,
                                 tdict_error *err) {
  const tdict_transfer *t = worker->transfer;
  const int64_t begin = tdict_phase_begin(&t->traced, TDICT_RANGE_COPY);
  tdict_status status = tdict_pieces_gather(&t->plan, chunk, to, t->how.stores, error_item, err);
  worker->copy_ns += tdict_phase_end(&t->traced, TDICT_RANGE_COPY, begin, chunk->end - chunk->begin);
  return status;
}

/* Fills a part of a slot. The thread that fills the last part queues the copy. */
static tdict_status stage_part(tdict_lane *lane, tdict_claim claim, uint32_t *error_item, tdict_error *err) {
  tdict_transfer *t = lane->worker->transfer;
  tdict_chunk_parts *parts = &t->chunk_parts[claim.chunk - t->plan.chunks];
  tdict_slot *slot = NULL;
  tdict_status status = tdict_chunk_parts_slot(lane, parts, claim.part == 0, &slot, err);
  if (status != TDICT_OK || !slot) return status;
  tdict_chunk part = tdict_chunk_part_at(t, claim.chunk, claim.part);
  status = gather_chunk(lane->worker, &part, slot->data + (part.begin - claim.chunk->begin), error_item, err);
  /* If the part could not be filled, tdict_chunk_parts_close() returns the slot when the transfer ends. */
  if (status != TDICT_OK || !tdict_chunk_parts_filled(parts)) return status;
  status = tdict_lane_begin(lane, err);
  if (status == TDICT_OK) status = tdict_chunk_parts_take_over(lane, parts, err);
  if (status == TDICT_OK) status = queue_chunk(lane, slot, claim.chunk, error_item, err);
  if (status == TDICT_OK) tdict_transfer_chunk_read(t, claim.chunk);
  return status;
}

/* Fills a slot and queues its copy, or fills a part of a slot. */
static tdict_status stage_in(tdict_lane *lane, tdict_claim claim, uint32_t *error_item, tdict_error *err) {
  tdict_transfer *t = lane->worker->transfer;
  const tdict_chunk *chunk = claim.chunk;
  tdict_slot *slot = NULL;
  if (t->chunk_parts && tdict_chunk_parts_count(t, chunk) > 1) return stage_part(lane, claim, error_item, err);
  tdict_status status = tdict_lane_begin(lane, err);
  if (status == TDICT_OK) status = tdict_lane_take_slot(lane, &slot, err);
  if (status != TDICT_OK || !slot) return status;
  status = gather_chunk(lane->worker, chunk, slot->data, error_item, err);
  if (status != TDICT_OK) {
    tdict_lane_keep_slot(lane, slot);
    return status;
  }
  status = queue_chunk(lane, slot, chunk, error_item, err);
  if (status == TDICT_OK) tdict_transfer_chunk_read(t, chunk);
  return status;
}

/* Touches the pages of a large new host result while the copy runs. Smaller results have few pages, which are mostly
 * mapped already. */
#define TOUCH_BYTES ((size_t)4 << 20)
static void touch_new(const tdict_transfer *t, const tdict_chunk *chunk) {
  if (t->plan.line_bytes >= TOUCH_BYTES && t->targets[0].storage && !t->targets[0].storage->memory)
    tdict_pieces_touch(&t->plan, chunk);
}

/* Queues a copy from the device into a slot. The lane copies the slot to the host leaves after this copy has ended. */
static tdict_status stage_out(tdict_lane *lane, const tdict_chunk *chunk, uint32_t *error_item, tdict_error *err) {
  tdict_slot *slot = NULL;
  tdict_status status = tdict_lane_begin(lane, err);
  if (status == TDICT_OK) status = tdict_lane_take_slot(lane, &slot, err);
  if (status != TDICT_OK || !slot) return status;
  status = queue_chunk(lane, slot, chunk, error_item, err);
  if (status == TDICT_OK) touch_new(lane->worker->transfer, chunk);
  return status;
}

/* A copy between device memories. The lane's GPU owns the destination. */
typedef struct device_copy {
  tdict_lane *lane;
  tdict_gpu *from;
} device_copy;
static tdict_status queue_between(void *user, const tdict_rect *rect, tdict_error *err) {
  const device_copy *b = user;
  return tdict_gpu_queue_from(b->lane->gpu, b->from, rect, b->lane->stream, err);
}
static tdict_status find_source_gpu(const tdict_lane *lane, const tdict_item *item, tdict_gpu **out, tdict_error *err) {
  return tdict_devices_gpu(lane->worker->transfer->future.engine->config.devices, item->src->storage->device, out, err);
}

/* Queues one launch that converts the items of a chunk whose conversions read pinned sources. */
static tdict_status queue_casts_in(tdict_lane *lane, const tdict_chunk *chunk, tdict_error *err) {
  const tdict_plan *p = &lane->worker->transfer->plan;
  tdict_kernel_work work;
  tdict_status status = TDICT_OK;
  tdict_kernel_work_init(&work, TDICT_KERNEL_CONVERT);
  for (uint32_t i = chunk->first; i < p->num_items && p->items[i].offset < chunk->end && status == TDICT_OK; i++) {
    const tdict_item *item = &p->items[i];
    const tdict_item_cast *cast = tdict_plan_cast(p, i);
    if (!cast) continue;
    const size_t begin = item->offset < chunk->begin ? chunk->begin - item->offset : 0;
    const size_t left = chunk->end - item->offset, end = left < item->bytes ? left : item->bytes;
    const size_t to_bytes = tdict_dtype_bytes(cast->cast.to);
    if (end <= begin) continue; /* an empty leaf needs no conversion */
    status = tdict_device_cast_add(&work, &cast->device, item->dst_data + begin,
                                   item->src_data + begin / to_bytes * tdict_dtype_bytes(cast->cast.from),
                                   (end - begin) / to_bytes, err);
  }
  if (status == TDICT_OK && work.num_entries) status = tdict_gpu_queue_work(lane->gpu, &work, lane->stream, err);
  tdict_kernel_work_reset(&work);
  return status;
}

/* Queues the copies of a chunk between host and device with one call. Each copy covers one run of items. Converted
 * items are left out. */
static tdict_status queue_runs(tdict_lane *lane, const tdict_chunk *chunk, tdict_error *err) {
  const tdict_plan *p = &lane->worker->transfer->plan;
  tdict_cu_line lines[TDICT_CU_MOST_LINES];
  size_t count = 0;
  for (uint32_t i = chunk->first, end; i < p->num_items && p->items[i].offset < chunk->end; i = end) {
    const tdict_item *item = &p->items[i];
    end = tdict_plan_run_end(p, i);
    size_t from = item->offset < chunk->begin ? chunk->begin - item->offset : 0;
    size_t to = p->items[end - 1].offset + p->items[end - 1].bytes;
    if (to > chunk->end) to = chunk->end;
    if (to <= item->offset + from || tdict_plan_cast(p, i)) continue; /* an empty leaf needs no copy */
    lines[count++] = (tdict_cu_line){item->dst_data + from, item->src_data + from, to - item->offset - from};
  }
  if (count == 0) return TDICT_OK;
  return tdict_gpu_queue_lines(lane->gpu, (tdict_cu_kind)p->items[chunk->first].kind, lines, count, lane->stream, err);
}

/* Queues the conversion of a chunk within a device. */
static tdict_status queue_cast(tdict_lane *lane, const tdict_item *item, const tdict_item_cast *cast,
                               const tdict_chunk *chunk, tdict_error *err) {
  const size_t to_bytes = tdict_dtype_bytes(cast->cast.to), from_bytes = tdict_dtype_bytes(cast->cast.from);
  const size_t first = (chunk->begin - item->offset) / to_bytes;
  tdict_kernel_work work;
  tdict_kernel_work_init(&work, TDICT_KERNEL_CONVERT);
  tdict_status status =
      tdict_device_cast_add(&work, &cast->device, item->dst_data + first * to_bytes,
                            item->src_data + first * from_bytes, (chunk->end - chunk->begin) / to_bytes, err);
  if (status == TDICT_OK) status = tdict_gpu_queue_work(lane->gpu, &work, lane->stream, err);
  tdict_kernel_work_reset(&work);
  return status;
}

/* Queues the copy of a chunk between device memories. Strided leaves are copied as rectangles. */
static tdict_status queue_within_devices(tdict_lane *lane, const tdict_chunk *chunk, tdict_error *err) {
  const tdict_plan *plan = &lane->worker->transfer->plan;
  const tdict_item *item = &plan->items[chunk->first];
  const tdict_item_cast *cast = tdict_plan_cast(plan, chunk->first);
  device_copy b = {.lane = lane};
  tdict_status status = find_source_gpu(lane, item, &b.from, err);
  if (status != TDICT_OK) return status;
  if (cast) return queue_cast(lane, item, cast, chunk, err);
  if (item->src_plain && item->dst_plain) {
    ptrdiff_t from = (ptrdiff_t)chunk->begin - (ptrdiff_t)item->offset;
    size_t bytes = chunk->end - chunk->begin;
    tdict_rect line = {(void *)((uintptr_t)item->dst_data + (uintptr_t)from),
                       (void *)((uintptr_t)item->src->data + (uintptr_t)from),
                       (int64_t)bytes,
                       (int64_t)bytes,
                       bytes,
                       1};
    return queue_between(&b, &line, err);
  }
  tdict_pair pair;
  const int64_t *dst = item->dst ? tdict_tensor_dims_strides(item->dst) : NULL;
  tdict_pair_init(&pair, item->src->ndim, item->src->dims, dst, tdict_tensor_dims_strides(item->src),
                  tdict_dtype_bytes(item->src->dtype));
  tdict_pair_part part = {item->dst_data, item->src->data, chunk->begin - item->offset, chunk->end - item->offset};
  return tdict_pair_walk(&pair, &part, queue_between, &b, err);
}

/* Several copies share one event until their sizes add up to this many bytes, because an event costs as much as a small
 * copy. */
#define EVENT_BYTES ((size_t)1 << 20)

static tdict_status record_unrecorded(tdict_lane *lane, tdict_error *err) {
  const tdict_chunk *last = lane->unrecorded;
  lane->unrecorded = NULL;
  lane->unrecorded_bytes = 0;
  tdict_status status = last && lane->count == TDICT_LANE_DEPTH ? tdict_lane_make_room(lane, err) : TDICT_OK;
  return last && status == TDICT_OK ? tdict_lane_record_flight(lane, NULL, last, false, err) : status;
}

/* Records the event of the last copies, or synchronizes the stream. Synchronizing is cheaper than an event if the
 * caller waits and no other copy of the lane is in flight. */
static tdict_status end_unrecorded(tdict_lane *lane, tdict_error *err) {
  if (!lane->unrecorded || !lane->worker->transfer->how.caller_waits || lane->count > 0)
    return record_unrecorded(lane, err);
  lane->unrecorded = NULL;
  lane->unrecorded_bytes = 0;
  return tdict_lane_synchronize(lane, err);
}

/* Queues the copies of a chunk that needs no slot. In TDICT_MODE_BLOCKING, also waits for these copies. */
static tdict_status copy_direct(tdict_lane *lane, const tdict_chunk *chunk, tdict_error *err) {
  tdict_transfer *t = lane->worker->transfer;
  tdict_status status = tdict_lane_begin(lane, err);
  if (status == TDICT_OK) status = tdict_lane_make_room(lane, err);
  bool fits = false;
  if (status == TDICT_OK) status = tdict_lane_reserve(lane, chunk, &fits, err);
  if (status != TDICT_OK || !fits) return status;
  const int64_t span = tdict_phase_begin(&t->traced, TDICT_RANGE_SUBMIT);
  tdict_slice *slice =
      t->traced.recording ? tdict_trace_open(&t->traced, lane->gpu, lane->stream, chunk->end - chunk->begin) : NULL;
  bool between_devices = t->plan.items[chunk->first].kind == TDICT_CU_D2D;
  status = between_devices ? queue_within_devices(lane, chunk, err) : queue_runs(lane, chunk, err);
  if (status == TDICT_OK && !between_devices && t->plan.pinned_wire_bytes) status = queue_casts_in(lane, chunk, err);
  if (status == TDICT_OK && t->num_targets > 1) status = tdict_spread_chunk(t, chunk, lane->gpu, lane->stream, err);
  if (slice) tdict_trace_close(slice, lane->gpu);
  (void)tdict_phase_end(&t->traced, TDICT_RANGE_SUBMIT, span, chunk->end - chunk->begin);
  if (status != TDICT_OK) return status;
  if (t->how.mode == TDICT_MODE_BLOCKING) {
    status = tdict_lane_synchronize(lane, err);
    tdict_queue_limit_cancel(t->queue_limit, chunk->end - chunk->begin);
    return status;
  }
  lane->unrecorded = chunk;
  lane->unrecorded_bytes += chunk->end - chunk->begin;
  /* with a limit of queued bytes, each chunk needs an event, because the count ends with the event */
  return lane->unrecorded_bytes < EVENT_BYTES && !t->how.max_queued_bytes ? TDICT_OK : record_unrecorded(lane, err);
}

static tdict_status copy_chunk_on_host(tdict_worker *worker, const tdict_chunk *chunk, uint32_t *error_item,
                                       tdict_error *err) {
  const tdict_transfer *t = worker->transfer;
  const int64_t begin = tdict_phase_begin(&t->traced, TDICT_RANGE_COPY);
  tdict_status status = tdict_pieces_copy(&t->plan, chunk, t->how.stores, error_item, err);
  worker->copy_ns += tdict_phase_end(&t->traced, TDICT_RANGE_COPY, begin, chunk->end - chunk->begin);
  return status;
}

static tdict_status run_claim(tdict_lane *lane, tdict_claim claim, uint32_t *error_item, tdict_error *err) {
  const tdict_chunk *chunk = claim.chunk;
  const tdict_item *item = &lane->worker->transfer->plan.items[chunk->first];
  switch ((tdict_way)item->way) {
  case TDICT_WAY_STAGE_IN:
    return stage_in(lane, claim, error_item, err);
  case TDICT_WAY_STAGE_OUT:
    return stage_out(lane, chunk, error_item, err);
  case TDICT_WAY_DIRECT:
  case TDICT_WAY_PAGEABLE_IN:
    return copy_direct(lane, chunk, err);
  case TDICT_WAY_HOST:
    return copy_chunk_on_host(lane->worker, chunk, error_item, err);
  }
  return TDICT_OK;
}

/* Opens the lane on the GPU that the chunk needs. A lane on another GPU is closed first. */
static tdict_status switch_gpu(tdict_lane *lane, tdict_gpu *gpu, tdict_error *err) {
  if (!gpu || lane->gpu == gpu) return TDICT_OK;
  tdict_status status = record_unrecorded(lane, err);
  if (status == TDICT_OK) status = tdict_lane_close(lane, false, err);
  return status == TDICT_OK ? tdict_lane_open(lane, gpu, err) : status;
}

/* Waits for recorded uses before host threads write the bytes. */
static void wait_for_uses(const tdict_transfer *t) {
  if (!t->plan.way_bytes[TDICT_WAY_STAGE_OUT] && !t->plan.way_bytes[TDICT_WAY_HOST]) return;
  for (uint32_t i = 0; i < t->num_uses; i++) t->uses[i]->ops->wait(t->uses[i], INT64_MAX);
}

/* Claims the next part of a chunk, or the next whole chunk. Returns false if no chunk is left. Parts are claimed in
 * order, so the first part of a chunk is claimed before any other part. */
static bool claim_next(tdict_transfer *t, tdict_claim *out) {
  for (;;) {
    uint32_t n = atomic_fetch_add_explicit(&t->next_part, 1, memory_order_relaxed), chunk = n / t->how.num_parts;
    if (chunk >= t->plan.num_chunks) return false;
    *out = (tdict_claim){&t->plan.chunks[chunk], n % t->how.num_parts};
    if (out->part == 0) return true;
    if (t->plan.items[out->chunk->first].way == TDICT_WAY_STAGE_IN &&
        out->part < tdict_chunk_parts_count(t, out->chunk))
      return true;
  }
}

static tdict_status claim_chunks(tdict_lane *lane, tdict_error *err) {
  tdict_worker *worker = lane->worker;
  tdict_transfer *t = worker->transfer;
  tdict_status status = TDICT_OK;
  /* Claim chunks until none is left. */
  wait_for_uses(t);
  for (tdict_claim claim; status == TDICT_OK && claim_next(t, &claim) && !tdict_transfer_has_failed(t);) {
    uint32_t error_item = claim.chunk->first;
    worker->worked = true;
    status = switch_gpu(lane, t->plan.items[error_item].gpu, err);
    if (status == TDICT_OK) status = run_claim(lane, claim, &error_item, err);
    if (status == TDICT_OK && t->how.mode == TDICT_MODE_BLOCKING && lane->gpu) status = tdict_lane_wait_all(lane, err);
    if (status != TDICT_OK) tdict_transfer_fail(t, error_item, err);
  }
  /* Queue the copies that wait in the batch, and record the last events. */
  if (status == TDICT_OK && t->batch && !tdict_transfer_has_failed(t) &&
      (status = tdict_lane_flush(lane, err)) != TDICT_OK)
    tdict_transfer_fail(t, UINT32_MAX, err);
  const uint32_t last = lane->unrecorded ? lane->unrecorded->first : UINT32_MAX;
  if (status == TDICT_OK && (status = end_unrecorded(lane, err)) != TDICT_OK) tdict_transfer_fail(t, last, err);
  if (!t->how.caller_waits && lane->gpu && !tdict_lane_record_tail(lane))
    atomic_store_explicit(&t->missing_tail_event, true, memory_order_relaxed);
  if (!t->how.caller_waits) tdict_latch_down(&t->queued); /* if the caller waits, no thread can wait for `queued` */
  return status;
}

/* Returns the processor time of this thread. Returns 0 if no statistics are wanted, because the time needs a system
 * call. */
static int64_t cpu_now(const tdict_transfer *t) { return t->how.skips_stats ? 0 : tdict_thread_cpu_ns(); }

/* Closes the lane. The last worker also ends the transfer. `cpu` is the processor time of the thread when the thread
 * began to work for this worker. */
static void finish_lane(tdict_lane *lane, tdict_status status, int64_t cpu) {
  tdict_worker *worker = lane->worker;
  tdict_transfer *t = worker->transfer;
  tdict_error err = {0};
  bool abandon = status != TDICT_OK || tdict_transfer_has_failed(t);
  status = tdict_lane_close(lane, abandon, &err);
  if (status != TDICT_OK) tdict_transfer_fail(t, UINT32_MAX, &err);
  worker->cpu_ns += cpu_now(t) - cpu; /* tdict_lane_close() may still have copied slots to the host */
  if (atomic_fetch_sub_explicit(&t->workers_left, 1, memory_order_acq_rel) == 1) tdict_transfer_finish(t);
}

void tdict_work(tdict_task *task) {
  tdict_worker *worker = (tdict_worker *)task;
  tdict_lane lane = {.worker = worker};
  tdict_error err = {0};
  int64_t cpu = cpu_now(worker->transfer);
  tdict_status status = claim_chunks(&lane, &err);
  finish_lane(&lane, status, cpu);
}

void tdict_work_with_others(tdict_worker *worker) {
  tdict_transfer *t = worker->transfer;
  tdict_pool *pool = t->future.engine->config.pool;
  tdict_lane lane = {.worker = worker};
  tdict_error err = {0};
  int64_t cpu = cpu_now(t);
  tdict_status status = claim_chunks(&lane, &err);
  /* Remove the tasks of workers that have not begun, because these workers have nothing to do. */
  for (int i = 1; i < t->how.num_workers; i++) {
    if (!tdict_pool_remove(pool, &t->workers[i].task)) continue;
    tdict_latch_down(&t->queued);
    /* workers_left cannot become 0 here, because this worker is still counted */
    atomic_fetch_sub_explicit(&t->workers_left, 1, memory_order_acq_rel);
  }
  finish_lane(&lane, status, cpu);
}

struct tdict_deferred_tail {
  tdict_task task; /* first member, because the pool passes a pointer to the task to run_deferred_tail(). The task holds
                    * a reference to the transfer */
  tdict_lane lane;
  tdict_status status;
  _Atomic(bool) offered; /* acq_rel: the thread that sets this flag to false runs the deferred tail */
};

bool tdict_deferred_tail_create(tdict_transfer *t) {
  t->deferred_tail = calloc(1, sizeof *t->deferred_tail);
  return t->deferred_tail != NULL;
}

void tdict_deferred_tail_run(tdict_transfer *t) {
  tdict_deferred_tail *tail = t->deferred_tail;
  if (!tail || !atomic_exchange_explicit(&tail->offered, false, memory_order_acq_rel)) return;
  int64_t cpu = cpu_now(t);
  if (tail->lane.gpu) tdict_lane_resume(&tail->lane);
  finish_lane(&tail->lane, tail->status, cpu);
}

static void run_deferred_tail(tdict_task *task) {
  tdict_transfer *t = ((tdict_deferred_tail *)task)->lane.worker->transfer;
  tdict_deferred_tail_run(t);
  tdict_future_drop(&t->future);
}

void tdict_work_and_return(tdict_worker *worker) {
  tdict_transfer *t = worker->transfer;
  tdict_deferred_tail *tail = t->deferred_tail;
  tdict_error err = {0};
  int64_t cpu = cpu_now(t);
  tail->lane.worker = worker;
  tail->status = claim_chunks(&tail->lane, &err);
  if (tail->status == TDICT_OK && tail->lane.gpu && t->plan.way_bytes[TDICT_WAY_STAGE_OUT])
    tail->status = tdict_lane_wait_all(&tail->lane, &err);
  if (tail->status != TDICT_OK) { /* after a failure, wait for the copies on this thread */
    finish_lane(&tail->lane, tail->status, cpu);
    return;
  }
  if (tail->lane.gpu) tdict_lane_pause(&tail->lane);
  worker->cpu_ns = cpu_now(t) - cpu;
  /* Let a pool thread wait for the copies. */
  tail->task.run = run_deferred_tail;
  atomic_fetch_add_explicit(&t->future.refs, 1, memory_order_relaxed);
  atomic_store_explicit(&tail->offered, true, memory_order_release);
  tdict_pool_submit(t->future.engine->config.pool, &tail->task);
}
