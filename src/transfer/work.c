/* What a thread does for a transfer. One chunk at a time: into a slot and onto the stream, or off the stream and out of a
 * slot, or one driver copy, or a copy on the host. See work.h. */
#include "transfer/work.h"

#include <stdlib.h>

#include "base/clock.h"
#include "tensor/layout.h"
#include "transfer/lane.h"
#include "transfer/pieces.h"

/* Fills a slot and sends it. */
static tdict_status stage_in(tdict_lane *lane, const tdict_chunk *chunk, uint32_t *blame, tdict_error *err) {
  tdict_future *t = lane->worker->transfer;
  tdict_slot *slot;
  tdict_status status = tdict_lane_slot(lane, &slot, err);
  if (status != TDICT_OK) return status;
  int64_t begin = tdict_now_ns();
  tdict_pieces_gather(&t->plan, chunk, slot->data);
  lane->worker->copy_ns += tdict_now_ns() - begin;
  tdict_pieces_queue queue = {lane->gpu, lane->stream, slot->data, *blame};
  status = tdict_pieces_submit(&t->plan, chunk, &queue, err);
  *blame = queue.item;
  if (status == TDICT_OK) {
    status = tdict_lane_launch(lane, slot, chunk, false, err);
    if (status == TDICT_OK) tdict_transfer_chunk_read(t, chunk);
    return status;
  }
  lane->gpu->driver->ops->stream_synchronize(lane->gpu->driver, lane->stream); /* parts of it may be under way */
  lane->spare = slot;
  return status;
}

/* Has a slot filled by the device; it is emptied when its turn comes. */
static tdict_status stage_out(tdict_lane *lane, const tdict_chunk *chunk, uint32_t *blame, tdict_error *err) {
  tdict_future *t = lane->worker->transfer;
  tdict_slot *slot;
  tdict_status status = tdict_lane_slot(lane, &slot, err);
  if (status != TDICT_OK) return status;
  tdict_pieces_queue queue = {lane->gpu, lane->stream, slot->data, *blame};
  status = tdict_pieces_submit(&t->plan, chunk, &queue, err);
  *blame = queue.item;
  if (status == TDICT_OK) return tdict_lane_launch(lane, slot, chunk, true, err);
  lane->gpu->driver->ops->stream_synchronize(lane->gpu->driver, lane->stream);
  lane->spare = slot;
  return status;
}

/* An event for each small copy would cost as much as the copy: those of up to this many bytes in all share one. */
#define LOOSE_BYTES ((size_t)1 << 20)

static tdict_status launch_loose(tdict_lane *lane, tdict_error *err) {
  const tdict_chunk *last = lane->loose;
  lane->loose = NULL;
  lane->loose_bytes = 0;
  tdict_status status = last && lane->count == TDICT_LANE_DEPTH ? tdict_lane_room(lane, err) : TDICT_OK;
  return last && status == TDICT_OK ? tdict_lane_launch(lane, NULL, last, false, err) : status;
}

static tdict_status queue_within(void *user, const tdict_rect *rect, tdict_error *err) {
  tdict_lane *lane = user;
  return tdict_gpu_queue_rect(lane->gpu, TDICT_CU_D2D, rect, lane->stream, err);
}

/* One driver copy; strided ones, within a device, as rectangles. */
static tdict_status copy_direct(tdict_lane *lane, const tdict_chunk *chunk, tdict_error *err) {
  const tdict_item *item = &lane->worker->transfer->plan.items[chunk->first];
  tdict_status status = tdict_lane_room(lane, err);
  if (status != TDICT_OK) return status;
  if (item->src_plain && item->dst_plain) {
    ptrdiff_t from = (ptrdiff_t)chunk->begin - (ptrdiff_t)item->offset;
    size_t bytes = chunk->end - chunk->begin;
    tdict_rect line = {(void *)((uintptr_t)item->dst_data + (uintptr_t)from),
                       (void *)((uintptr_t)item->src->data + (uintptr_t)from), (int64_t)bytes, (int64_t)bytes, bytes, 1};
    status = tdict_gpu_queue_rect(lane->gpu, (tdict_cu_kind)item->kind, &line, lane->stream, err);
  } else {
    tdict_pair pair;
    const int64_t *dst = item->dst ? tdict_tensor_dims_strides(item->dst) : NULL;
    tdict_pair_init(&pair, item->src->ndim, item->src->dims, dst, tdict_tensor_dims_strides(item->src),
                    tdict_dtype_bytes(item->src->dtype));
    tdict_pair_part part = {item->dst_data, item->src->data, chunk->begin - item->offset, chunk->end - item->offset};
    status = tdict_pair_walk(&pair, &part, queue_within, lane, err);
  }
  if (status != TDICT_OK) return status;
  if (lane->worker->transfer->mode == TDICT_MODE_BLOCKING) return tdict_lane_synchronize(lane, err);
  lane->loose = chunk;
  lane->loose_bytes += chunk->end - chunk->begin;
  return lane->loose_bytes < LOOSE_BYTES ? TDICT_OK : launch_loose(lane, err);
}

static void copy_on_host(tdict_worker *worker, const tdict_chunk *chunk) {
  int64_t begin = tdict_now_ns();
  tdict_pieces_copy(&worker->transfer->plan, chunk);
  worker->copy_ns += tdict_now_ns() - begin;
}

static tdict_status do_chunk(tdict_lane *lane, const tdict_chunk *chunk, uint32_t *blame, tdict_error *err) {
  const tdict_item *item = &lane->worker->transfer->plan.items[chunk->first];
  switch ((tdict_way)item->way) {
    case TDICT_WAY_STAGE_IN:
      return stage_in(lane, chunk, blame, err);
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
static tdict_status turn_to(tdict_lane *lane, tdict_gpu *gpu, tdict_error *err) {
  if (!gpu || lane->gpu == gpu) return TDICT_OK;
  tdict_status status = launch_loose(lane, err);
  if (status == TDICT_OK) status = tdict_lane_close(lane, false, err);
  return status == TDICT_OK ? tdict_lane_open(lane, gpu, err) : status;
}

/* Host bytes that a stream still uses are not written before it is done with them. */
static void wait_for_uses(const tdict_future *t) {
  if (!t->plan.way_bytes[TDICT_WAY_STAGE_OUT] && !t->plan.way_bytes[TDICT_WAY_HOST]) return;
  for (uint32_t i = 0; i < t->num_uses; i++) t->uses[i]->ops->wait(t->uses[i], INT64_MAX);
}

static tdict_status claim_chunks(tdict_lane *lane, tdict_error *err) {
  tdict_worker *worker = lane->worker;
  tdict_future *t = worker->transfer;
  tdict_status status = TDICT_OK;
  wait_for_uses(t);
  while (status == TDICT_OK && !tdict_transfer_has_failed(t)) {
    uint32_t n = atomic_fetch_add_explicit(&t->next_chunk, 1, memory_order_relaxed);
    if (n >= t->plan.num_chunks) break;
    const tdict_chunk *chunk = &t->plan.chunks[n];
    uint32_t blame = chunk->first;
    worker->worked = true;
    status = turn_to(lane, t->plan.items[chunk->first].gpu, err);
    if (status == TDICT_OK) status = do_chunk(lane, chunk, &blame, err);
    if (status == TDICT_OK && t->mode == TDICT_MODE_BLOCKING && lane->gpu) status = tdict_lane_settle(lane, err);
    if (status != TDICT_OK) tdict_transfer_fail(t, blame, err);
  }
  const uint32_t last = lane->loose ? lane->loose->first : UINT32_MAX;
  if (status == TDICT_OK && (status = launch_loose(lane, err)) != TDICT_OK) tdict_transfer_fail(t, last, err);
  if (!t->waits && lane->gpu && !tdict_lane_record_tail(lane))
    atomic_store_explicit(&t->tailless, true, memory_order_relaxed);
  tdict_latch_down(&t->queued);
  return status;
}

/* Brings the lane to its end; the last worker ends the transfer. */
static void finish_lane(tdict_lane *lane, tdict_status status) {
  tdict_worker *worker = lane->worker;
  tdict_future *t = worker->transfer;
  tdict_error err = {0};
  bool abandon = status != TDICT_OK || tdict_transfer_has_failed(t);
  status = tdict_lane_close(lane, abandon, &err);
  if (status != TDICT_OK) tdict_transfer_fail(t, UINT32_MAX, &err);
  if (atomic_fetch_sub_explicit(&t->workers_left, 1, memory_order_acq_rel) == 1) tdict_transfer_finish(t);
}

void tdict_work(tdict_worker *worker) {
  tdict_lane lane = {.worker = worker};
  tdict_error err = {0};
  int64_t cpu = tdict_thread_cpu_ns();
  tdict_status status = claim_chunks(&lane, &err);
  worker->cpu_ns = tdict_thread_cpu_ns() - cpu;
  finish_lane(&lane, status);
}

struct tdict_rest {
  tdict_task task; /* first: the pool gives it back */
  tdict_lane lane;
  tdict_status status;
};
tdict_rest *tdict_rest_create(void) { return calloc(1, sizeof(tdict_rest)); }

static void run_rest(tdict_task *task) {
  tdict_rest *rest = (tdict_rest *)task;
  if (rest->lane.gpu) tdict_lane_resume(&rest->lane);
  finish_lane(&rest->lane, rest->status);
  free(rest);
}

void tdict_work_and_leave(tdict_worker *worker, tdict_rest *rest) {
  tdict_future *t = worker->transfer;
  tdict_pool *pool = tdict_engine_pool(t->engine);
  tdict_error err = {0};
  int64_t cpu = tdict_thread_cpu_ns();
  rest->lane.worker = worker;
  rest->status = claim_chunks(&rest->lane, &err);
  if (rest->status == TDICT_OK && rest->lane.gpu && t->plan.way_bytes[TDICT_WAY_STAGE_OUT])
    rest->status = tdict_lane_settle(&rest->lane, &err);
  worker->cpu_ns = tdict_thread_cpu_ns() - cpu;
  if (rest->status != TDICT_OK) { /* slots of copies out would be kept from the threads that `rest` waits for */
    finish_lane(&rest->lane, rest->status);
    free(rest);
    return;
  }
  if (rest->lane.gpu) tdict_lane_pause(&rest->lane);
  rest->task.run = run_rest;
  tdict_pool_submit(pool, &rest->task);
}
