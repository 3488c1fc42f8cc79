/* What a thread does for a transfer. One chunk at a time: into a slot and onto the stream, or off the stream and out of a
 * slot, or one driver copy, or a copy on the host. See worker.h. */
#include "transfer/run/worker.h"

#include <stdlib.h>

#include "base/clock.h"
#include "tensor/layout.h"
#include "transfer/finish.h"
#include "transfer/run/batch.h"
#include "transfer/run/chunk_parts.h"
#include "transfer/run/lane.h"
#include "transfer/run/pieces.h"

/* What a thread does next: a chunk, or a part of one. */
typedef struct tdict_claim {
  const tdict_chunk *chunk;
  uint32_t part;
} tdict_claim;

/* Queues what goes between the slot and the device, at once if that is more than one copy. */
static tdict_status queue_chunk(tdict_lane *lane, tdict_slot *slot, const tdict_chunk *chunk, uint32_t *blame,
                                tdict_error *err) {
  const tdict_plan *plan = &lane->worker->transfer->plan;
  bool out = plan->items[chunk->first].way == TDICT_WAY_STAGE_OUT;
  tdict_cu_line line;
  const tdict_batch *batch = lane->worker->transfer->batch;
  if (batch && tdict_batch_takes(batch, lane->gpu, out ? TDICT_CU_D2H : TDICT_CU_H2D) &&
      tdict_pieces_line(plan, chunk, slot->data, &line))
    return tdict_lane_post(lane, slot, chunk, &line, err);
  tdict_pieces_queue queue = {lane->gpu, lane->stream, slot->data, *blame};
  const int64_t span = tdict_phase_begin(&lane->worker->transfer->traced, TDICT_RANGE_SUBMIT);
  bool has_turn = tdict_gpu_begin_queue(lane->gpu);
  tdict_slice *slice =
      lane->worker->transfer->traced.recording
          ? tdict_trace_open(&lane->worker->transfer->traced, lane->gpu, lane->stream, chunk->end - chunk->begin)
          : NULL;
  tdict_status status = tdict_pieces_submit(plan, chunk, &queue, err);
  if (slice) tdict_trace_close(slice, lane->gpu);
  *blame = queue.item;
  bool submitted = status == TDICT_OK;
  if (submitted) status = tdict_lane_launch(lane, slot, chunk, out, err);
  tdict_gpu_end_queue(lane->gpu, has_turn);
  (void)tdict_phase_end(&lane->worker->transfer->traced, TDICT_RANGE_SUBMIT, span, chunk->end - chunk->begin);
  if (submitted) return status;
  (void)!tdict_gpu_sync_stream(lane->gpu, lane->stream, NULL); /* parts of it may be under way */
  tdict_lane_keep(lane, slot);
  return status;
}

static void gather(tdict_worker *worker, const tdict_chunk *chunk, char *to) {
  const tdict_future *t = worker->transfer;
  const int64_t begin = tdict_phase_begin(&t->traced, TDICT_RANGE_COPY);
  tdict_pieces_gather(&t->plan, chunk, to, t->stores);
  worker->copy_ns += tdict_phase_end(&t->traced, TDICT_RANGE_COPY, begin, chunk->end - chunk->begin);
}

/* Fills a part of a slot, and sends it if that was the last one. */
static tdict_status stage_part(tdict_lane *lane, tdict_claim claim, uint32_t *blame, tdict_error *err) {
  tdict_future *t = lane->worker->transfer;
  tdict_chunk_parts *parts = &t->chunk_parts[claim.chunk - t->plan.chunks];
  tdict_slot *slot = NULL;
  tdict_status status = tdict_chunk_parts_slot(lane, parts, claim.part == 0, &slot, err);
  if (status != TDICT_OK || !slot) return status;
  tdict_chunk part = tdict_chunk_part_at(t, claim.chunk, claim.part);
  gather(lane->worker, &part, slot->data + (part.begin - claim.chunk->begin));
  if (!tdict_chunk_parts_filled(parts)) return TDICT_OK;
  status = tdict_lane_begin(lane, err);
  if (status == TDICT_OK) status = tdict_chunk_parts_take(lane, parts, err);
  if (status == TDICT_OK) status = queue_chunk(lane, slot, claim.chunk, blame, err);
  if (status == TDICT_OK) tdict_transfer_chunk_read(t, claim.chunk);
  return status;
}

/* Fills a slot and sends it. */
static tdict_status stage_in(tdict_lane *lane, tdict_claim claim, uint32_t *blame, tdict_error *err) {
  tdict_future *t = lane->worker->transfer;
  const tdict_chunk *chunk = claim.chunk;
  tdict_slot *slot = NULL;
  if (t->chunk_parts && tdict_chunk_parts_count(t, chunk) > 1) return stage_part(lane, claim, blame, err);
  tdict_status status = tdict_lane_begin(lane, err);
  if (status == TDICT_OK) status = tdict_lane_slot(lane, &slot, err);
  if (status != TDICT_OK || !slot) return status;
  gather(lane->worker, chunk, slot->data);
  status = queue_chunk(lane, slot, chunk, blame, err);
  if (status == TDICT_OK) tdict_transfer_chunk_read(t, chunk);
  return status;
}

/* A new result is touched while the bytes are on their way; below this its pages are few, and mostly there. */
#define TOUCH_BYTES ((size_t)4 << 20)
static void touch_new(const tdict_future *t, const tdict_chunk *chunk) {
  if (t->plan.line_bytes >= TOUCH_BYTES && t->arena && !t->arena->memory) tdict_pieces_touch(&t->plan, chunk);
}

/* Has a slot filled by the device; it is emptied when its turn comes. */
static tdict_status stage_out(tdict_lane *lane, const tdict_chunk *chunk, uint32_t *blame, tdict_error *err) {
  tdict_slot *slot = NULL;
  tdict_status status = tdict_lane_begin(lane, err);
  if (status == TDICT_OK) status = tdict_lane_slot(lane, &slot, err);
  if (status != TDICT_OK || !slot) return status;
  status = queue_chunk(lane, slot, chunk, blame, err);
  if (status == TDICT_OK) touch_new(lane->worker->transfer, chunk);
  return status;
}

/* Copies between device memories: the lane's gpu is the destination's. */
typedef struct between {
  tdict_lane *lane;
  tdict_gpu *from;
} between;
static tdict_status queue_between(void *user, const tdict_rect *rect, tdict_error *err) {
  const between *b = user;
  return tdict_gpu_queue_from(b->lane->gpu, b->from, rect, b->lane->stream, err);
}
static tdict_status find_source(const tdict_lane *lane, const tdict_item *item, tdict_gpu **out, tdict_error *err) {
  return tdict_devices_gpu(lane->worker->transfer->engine->config.devices, item->src->storage->device, out, err);
}

/* The runs of a chunk between host and device, queued together. */
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
    if (to <= item->offset + from) continue; /* a leaf without bytes */
    lines[count++] = (tdict_cu_line){item->dst_data + from, item->src_data + from, to - item->offset - from};
  }
  if (count == 0) return TDICT_OK;
  return tdict_gpu_queue_lines(lane->gpu, (tdict_cu_kind)p->items[chunk->first].kind, lines, count, lane->stream, err);
}

/* One copy between device memories; strided ones as rectangles. */
static tdict_status queue_within_devices(tdict_lane *lane, const tdict_chunk *chunk, tdict_error *err) {
  const tdict_item *item = &lane->worker->transfer->plan.items[chunk->first];
  between b = {.lane = lane};
  tdict_status status = find_source(lane, item, &b.from, err);
  if (status != TDICT_OK) return status;
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

/* An event for each small copy would cost as much as the copy: those of up to this many bytes in all share one. */
#define SHARED_BYTES ((size_t)1 << 20)

static tdict_status launch_unmarked(tdict_lane *lane, tdict_error *err) {
  const tdict_chunk *last = lane->unmarked;
  lane->unmarked = NULL;
  lane->unmarked_bytes = 0;
  tdict_status status = last && lane->count == TDICT_LANE_DEPTH ? tdict_lane_room(lane, err) : TDICT_OK;
  return last && status == TDICT_OK ? tdict_lane_launch(lane, NULL, last, false, err) : status;
}

/* No more copies follow. Where they are waited for and nothing else is under way, the stream says when they are done. */
static tdict_status end_unmarked(tdict_lane *lane, tdict_error *err) {
  if (!lane->unmarked || !lane->worker->transfer->waits || lane->count > 0) return launch_unmarked(lane, err);
  lane->unmarked = NULL;
  lane->unmarked_bytes = 0;
  return tdict_lane_synchronize(lane, err);
}

/* Copies by the driver alone. */
static tdict_status copy_direct(tdict_lane *lane, const tdict_chunk *chunk, tdict_error *err) {
  tdict_future *t = lane->worker->transfer;
  tdict_status status = tdict_lane_begin(lane, err);
  if (status == TDICT_OK) status = tdict_lane_room(lane, err);
  if (status != TDICT_OK) return status;
  const int64_t span = tdict_phase_begin(&t->traced, TDICT_RANGE_SUBMIT);
  tdict_slice *slice =
      t->traced.recording ? tdict_trace_open(&t->traced, lane->gpu, lane->stream, chunk->end - chunk->begin) : NULL;
  bool between_devices = t->plan.items[chunk->first].kind == TDICT_CU_D2D;
  status = between_devices ? queue_within_devices(lane, chunk, err) : queue_runs(lane, chunk, err);
  if (slice) tdict_trace_close(slice, lane->gpu);
  (void)tdict_phase_end(&t->traced, TDICT_RANGE_SUBMIT, span, chunk->end - chunk->begin);
  if (status != TDICT_OK) return status;
  if (lane->worker->transfer->mode == TDICT_MODE_BLOCKING) return tdict_lane_synchronize(lane, err);
  lane->unmarked = chunk;
  lane->unmarked_bytes += chunk->end - chunk->begin;
  return lane->unmarked_bytes < SHARED_BYTES ? TDICT_OK : launch_unmarked(lane, err);
}

static void copy_on_host(tdict_worker *worker, const tdict_chunk *chunk) {
  const tdict_future *t = worker->transfer;
  const int64_t begin = tdict_phase_begin(&t->traced, TDICT_RANGE_COPY);
  tdict_pieces_copy(&t->plan, chunk, t->stores);
  worker->copy_ns += tdict_phase_end(&t->traced, TDICT_RANGE_COPY, begin, chunk->end - chunk->begin);
}

static tdict_status do_claim(tdict_lane *lane, tdict_claim claim, uint32_t *blame, tdict_error *err) {
  const tdict_chunk *chunk = claim.chunk;
  const tdict_item *item = &lane->worker->transfer->plan.items[chunk->first];
  switch ((tdict_way)item->way) {
  case TDICT_WAY_STAGE_IN:
    return stage_in(lane, claim, blame, err);
  case TDICT_WAY_STAGE_OUT:
    return stage_out(lane, chunk, blame, err);
  case TDICT_WAY_DIRECT:
  case TDICT_WAY_PAGEABLE_IN:
    return copy_direct(lane, chunk, err);
  case TDICT_WAY_HOST:
    copy_on_host(lane->worker, chunk);
    return TDICT_OK;
  }
  return TDICT_OK;
}

/* Opens a lane on the gpu that the chunk needs; one on another gpu is brought to its end first. */
static tdict_status switch_gpu(tdict_lane *lane, tdict_gpu *gpu, tdict_error *err) {
  if (!gpu || lane->gpu == gpu) return TDICT_OK;
  tdict_status status = launch_unmarked(lane, err);
  if (status == TDICT_OK) status = tdict_lane_close(lane, false, err);
  return status == TDICT_OK ? tdict_lane_open(lane, gpu, err) : status;
}

/* Host bytes that a stream still uses are not written before it is done with them. */
static void wait_for_uses(const tdict_future *t) {
  if (!t->plan.way_bytes[TDICT_WAY_STAGE_OUT] && !t->plan.way_bytes[TDICT_WAY_HOST]) return;
  for (uint32_t i = 0; i < t->num_uses; i++) t->uses[i]->ops->wait(t->uses[i], INT64_MAX);
}

/* The next part of a chunk that several fill, or the next whole one; false at the end. Who gets a later part of one finds
 * that the first has its thread already. */
static bool claim_next(tdict_future *t, tdict_claim *out) {
  for (;;) {
    uint32_t n = atomic_fetch_add_explicit(&t->next_part, 1, memory_order_relaxed), chunk = n / t->num_parts;
    if (chunk >= t->plan.num_chunks) return false;
    *out = (tdict_claim){&t->plan.chunks[chunk], n % t->num_parts};
    if (out->part == 0) return true;
    if (t->plan.items[out->chunk->first].way == TDICT_WAY_STAGE_IN &&
        out->part < tdict_chunk_parts_count(t, out->chunk))
      return true;
  }
}

static tdict_status claim_chunks(tdict_lane *lane, tdict_error *err) {
  tdict_worker *worker = lane->worker;
  tdict_future *t = worker->transfer;
  tdict_status status = TDICT_OK;
  wait_for_uses(t);
  for (tdict_claim claim; status == TDICT_OK && claim_next(t, &claim) && !tdict_transfer_has_failed(t);) {
    uint32_t blame = claim.chunk->first;
    worker->worked = true;
    status = switch_gpu(lane, t->plan.items[blame].gpu, err);
    if (status == TDICT_OK) status = do_claim(lane, claim, &blame, err);
    if (status == TDICT_OK && t->mode == TDICT_MODE_BLOCKING && lane->gpu) status = tdict_lane_settle(lane, err);
    if (status != TDICT_OK) tdict_transfer_fail(t, blame, err);
  }
  if (status == TDICT_OK && t->batch && !tdict_transfer_has_failed(t) &&
      (status = tdict_lane_flush(lane, err)) != TDICT_OK)
    tdict_transfer_fail(t, UINT32_MAX, err);
  const uint32_t last = lane->unmarked ? lane->unmarked->first : UINT32_MAX;
  if (status == TDICT_OK && (status = end_unmarked(lane, err)) != TDICT_OK) tdict_transfer_fail(t, last, err);
  if (!t->waits && lane->gpu && !tdict_lane_record_tail(lane))
    atomic_store_explicit(&t->missing_tail_event, true, memory_order_relaxed);
  if (!t->waits) tdict_latch_down(&t->queued); /* else no thread can ask for it */
  return status;
}

/* Asking takes a call of the system. */
static int64_t cpu_now(const tdict_future *t) { return t->uncounted ? 0 : tdict_thread_cpu_ns(); }

/* Brings the lane to its end; the last worker ends the transfer. `cpu`: the thread's processor time when it began. */
static void finish_lane(tdict_lane *lane, tdict_status status, int64_t cpu) {
  tdict_worker *worker = lane->worker;
  tdict_future *t = worker->transfer;
  tdict_error err = {0};
  bool abandon = status != TDICT_OK || tdict_transfer_has_failed(t);
  status = tdict_lane_close(lane, abandon, &err);
  if (status != TDICT_OK) tdict_transfer_fail(t, UINT32_MAX, &err);
  worker->cpu_ns += cpu_now(t) - cpu; /* slots are emptied up to the last moment */
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
  tdict_future *t = worker->transfer;
  tdict_pool *pool = t->engine->config.pool;
  tdict_lane lane = {.worker = worker};
  tdict_error err = {0};
  int64_t cpu = cpu_now(t);
  tdict_status status = claim_chunks(&lane, &err);
  for (int i = 1; i < t->num_workers; i++) {
    if (!tdict_pool_remove(pool, &t->workers[i].task)) continue;
    tdict_latch_down(&t->queued);
    atomic_fetch_sub_explicit(&t->workers_left, 1, memory_order_acq_rel); /* never the last: this worker is left */
  }
  finish_lane(&lane, status, cpu);
}

struct tdict_deferred_tail {
  tdict_task task; /* first: the pool gives it back. It holds the transfer */
  tdict_lane lane;
  tdict_status status;
  _Atomic(bool) offered; /* acquire/release: whoever takes that back does it */
};

bool tdict_deferred_tail_create(tdict_future *t) {
  t->deferred_tail = calloc(1, sizeof *t->deferred_tail);
  return t->deferred_tail != NULL;
}

void tdict_deferred_tail_run(tdict_future *t) {
  tdict_deferred_tail *tail = t->deferred_tail;
  if (!tail || !atomic_exchange_explicit(&tail->offered, false, memory_order_acq_rel)) return;
  int64_t cpu = cpu_now(t);
  if (tail->lane.gpu) tdict_lane_resume(&tail->lane);
  finish_lane(&tail->lane, tail->status, cpu);
}

static void run_deferred_tail(tdict_task *task) {
  tdict_future *t = ((tdict_deferred_tail *)task)->lane.worker->transfer;
  tdict_deferred_tail_run(t);
  tdict_transfer_release(t);
}

void tdict_work_and_return(tdict_worker *worker) {
  tdict_future *t = worker->transfer;
  tdict_deferred_tail *tail = t->deferred_tail;
  tdict_error err = {0};
  int64_t cpu = cpu_now(t);
  tail->lane.worker = worker;
  tail->status = claim_chunks(&tail->lane, &err);
  if (tail->status == TDICT_OK && tail->lane.gpu && t->plan.way_bytes[TDICT_WAY_STAGE_OUT])
    tail->status = tdict_lane_settle(&tail->lane, &err);
  if (tail->status !=
      TDICT_OK) { /* slots of copies out would be kept from the threads that the deferred tail waits for */
    finish_lane(&tail->lane, tail->status, cpu);
    return;
  }
  if (tail->lane.gpu) tdict_lane_pause(&tail->lane);
  worker->cpu_ns = cpu_now(t) - cpu;
  tail->task.run = run_deferred_tail;
  atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
  atomic_store_explicit(&tail->offered, true, memory_order_release);
  tdict_pool_submit(t->engine->config.pool, &tail->task);
}
