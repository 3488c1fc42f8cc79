/* Does the work of a thread on a transfer. The thread handles one chunk at a time. A chunk is copied through a slot to
 * or from the device, by driver copies, or on the host. See worker.h for ownership and threads. */
#include "engine/worker.h"

#include <stdlib.h>

#include "core/base/clock.h"
#include "engine/finish.h"
#include "engine/lane.h"
#include "engine/options/pace.h"
#include "engine/options/stream_waits.h"
#include "engine/options/strips.h"
#include "engine/pieces.h"

/* Fills the claimed strip of a slot. If the whole chunk is then in the slot, and this thread must queue the copy, *out
 * is the slot, else NULL. */
static tdict_status fill_slot(tdict_lane *lane, const tdict_claim *claim, tdict_slot **out, uint32_t *error_item,
                              tdict_error *err) {
  const tdict_transfer *t = lane->worker->transfer;
  tdict_status status = claim->strips ? tdict_strips_slot(lane, claim, out, err) : tdict_lane_take_slot(lane, out, err);
  if (status != TDICT_OK || !*out) return status;
  const tdict_chunk *strip = &claim->strip;
  const int64_t begin = tdict_phase_begin(t, TDICT_RANGE_COPY);
  char *to = (*out)->data + (strip->begin - claim->chunk->begin);
  status = tdict_pieces_gather(&t->plan, strip, to, t->how.stores, error_item, err);
  lane->worker->copy_ns += tdict_phase_end(t, TDICT_RANGE_COPY, begin, strip->end - strip->begin);
  return claim->strips && status == TDICT_OK ? tdict_strips_filled(lane, claim, out, err) : status;
}

/* Larger new host results have their pages touched while the copy runs. Smaller ones are mostly mapped. */
#define TOUCH_BYTES ((size_t)4 << 20)
static void touch_new(const tdict_transfer *t, const tdict_chunk *chunk) {
  if (t->plan.line_bytes >= TOUCH_BYTES && t->targets[0].storage && !t->targets[0].storage->memory)
    tdict_pieces_touch(&t->plan, chunk);
}

static tdict_status copy_chunk_on_host(tdict_worker *worker, const tdict_chunk *chunk, uint32_t *error_item,
                                       tdict_error *err) {
  const tdict_transfer *t = worker->transfer;
  if (t->pace && !tdict_pace_wait_for_chunk(worker, chunk->end - chunk->begin)) return TDICT_OK;
  const int64_t begin = tdict_phase_begin(t, TDICT_RANGE_COPY);
  tdict_status status = tdict_pieces_copy(&t->plan, chunk, t->how.stores, error_item, err);
  worker->copy_ns += tdict_phase_end(t, TDICT_RANGE_COPY, begin, chunk->end - chunk->begin);
  return status;
}

static tdict_status run_claim(tdict_lane *lane, const tdict_claim *claim, uint32_t *error_item, tdict_error *err) {
  tdict_transfer *t = lane->worker->transfer;
  const tdict_chunk *chunk = claim->chunk;
  const tdict_way way = (tdict_way)t->plan.items[chunk->first].way;
  const bool in = way == TDICT_WAY_STAGE_IN, out = way == TDICT_WAY_STAGE_OUT;
  tdict_slot *slot = NULL;
  tdict_status status = TDICT_OK;
  if (way == TDICT_WAY_HOST) return copy_chunk_on_host(lane->worker, chunk, error_item, err);
  if (in) status = fill_slot(lane, claim, &slot, error_item, err);
  if (out) status = tdict_lane_take_slot(lane, &slot, err);
  if (status != TDICT_OK || ((in || out) && !slot)) return status;
  status = tdict_lane_submit(lane, slot, chunk, error_item, err);
  if (in && status == TDICT_OK) tdict_transfer_chunk_read(t, chunk);
  if (out && status == TDICT_OK) touch_new(t, chunk);
  return status;
}

/* Opens the lane on the GPU that the chunk needs. A lane on another GPU is closed first. */
static tdict_status switch_gpu(tdict_lane *lane, tdict_gpu *gpu, tdict_error *err) {
  if (!gpu || lane->gpu == gpu) return TDICT_OK;
  tdict_status status = tdict_lane_close(lane, false, err);
  return status == TDICT_OK ? tdict_lane_open(lane, gpu, err) : status;
}

/* Returns true if host threads write the bytes, so that they must wait for recorded uses. */
static bool writes_on_host(const tdict_transfer *t) {
  return t->plan.way_bytes[TDICT_WAY_STAGE_OUT] || t->plan.way_bytes[TDICT_WAY_HOST];
}

/* Claims the next chunk, or the next strip of a chunk. Returns false if none is left. */
static bool claim_next(tdict_worker *worker, tdict_claim *out) {
  tdict_transfer *t = worker->transfer;
  if (t->strips) return tdict_strips_claim(worker, out);
  const uint32_t n = atomic_fetch_add_explicit(&t->next_strip, 1, memory_order_relaxed);
  if (n >= t->plan.num_chunks) return false;
  *out = (tdict_claim){&t->plan.chunks[n], NULL, t->plan.chunks[n]};
  return true;
}

static tdict_status claim_chunks(tdict_lane *lane, tdict_error *err) {
  tdict_worker *worker = lane->worker;
  tdict_transfer *t = worker->transfer;
  tdict_status status = TDICT_OK;
  /* Claim chunks until none is left. */
  if (t->stream_waits && writes_on_host(t)) tdict_fences_wait(&t->stream_waits->recorded);
  for (tdict_claim claim; status == TDICT_OK && claim_next(worker, &claim) && !tdict_future_has_failed(&t->future);) {
    uint32_t error_item = claim.chunk->first;
    worker->worked = true;
    status = switch_gpu(lane, t->plan.items[error_item].gpu, err);
    if (status == TDICT_OK) status = run_claim(lane, &claim, &error_item, err);
    if (status == TDICT_OK && t->how.mode == TDICT_MODE_BLOCKING && lane->gpu) status = tdict_lane_wait_all(lane, err);
    if (status != TDICT_OK) tdict_transfer_fail(t, error_item, err);
  }
  /* Queue the copies that wait in the burst, and record the last event. */
  if (status == TDICT_OK && t->burst && !tdict_future_has_failed(&t->future) &&
      (status = tdict_lane_flush(lane, err)) != TDICT_OK)
    tdict_transfer_fail(t, UINT32_MAX, err);
  if (!t->how.caller_waits && lane->gpu) worker->lacks_tail = !tdict_lane_record_tail(lane);
  if (!t->how.caller_waits) tdict_latch_down(&t->queued); /* if the caller waits, no thread can wait for `queued` */
  return status;
}

/* Returns this thread's processor time, or without statistics 0: it needs a system call. */
static int64_t cpu_now(const tdict_transfer *t) { return t->future.begin_ns ? tdict_thread_cpu_ns() : 0; }

/* Closes the lane. The last worker also ends the transfer. `cpu`: the thread's processor time at its begin. */
static void finish_lane(tdict_lane *lane, tdict_status status, int64_t cpu) {
  tdict_worker *worker = lane->worker;
  tdict_transfer *t = worker->transfer;
  tdict_error err = {0};
  bool abandon = status != TDICT_OK || tdict_future_has_failed(&t->future);
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
