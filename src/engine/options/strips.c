/* Lets several threads fill one slot. See strips.h for ownership and threads. */
#include "engine/options/strips.h"

#include <stdlib.h>
#include <time.h>

#include "core/base/assert.h"
#include "core/base/error.h"
#include "core/base/thread.h"
#include "engine/options/burst.h"

tdict_status tdict_strips_create(tdict_transfer *t, uint32_t max_strips, tdict_error *err) {
  const uint32_t count = t->plan.num_chunks;
  if (count == 0 || !t->plan.way_bytes[TDICT_WAY_STAGE_IN]) return TDICT_OK;
  t->strips = malloc(sizeof *t->strips + count * sizeof t->strips->chunks[0]);
  if (!t->strips) return tdict_fail_memory(err, "transfer", NULL, "the strips of %u chunks", count);
  *t->strips =
      (tdict_strips){.max_strips = max_strips, .caller_queues = t->how.on_caller && count < TDICT_BURST_CHUNKS};
  for (uint32_t i = 0; i < count; i++) {
    atomic_init(&t->strips->chunks[i].slot, NULL);
    atomic_init(&t->strips->chunks[i].num_unfilled,
                tdict_strips_count(t, &t->plan.chunks[i]) + t->strips->caller_queues);
  }
  return TDICT_OK;
}

void tdict_strips_close(tdict_transfer *t) {
  for (uint32_t i = 0; t->strips && i < t->plan.num_chunks; i++) {
    tdict_slot *slot = atomic_load_explicit(&t->strips->chunks[i].slot, memory_order_relaxed);
    tdict_ring *ring;
    if (!slot) continue;
    tdict_gpu *gpu = t->plan.items[t->plan.chunks[i].first].gpu;
    if (tdict_rings_get(&t->future.engine->rings, gpu, &ring, NULL) == TDICT_OK) tdict_ring_give(ring, slot, false);
  }
}

uint32_t tdict_strips_count(const tdict_transfer *t, const tdict_chunk *chunk) {
  if (t->plan.items[chunk->first].way != TDICT_WAY_STAGE_IN) return 1;
  const uint32_t count = tdict_strips_of_bytes(chunk->end - chunk->begin);
  return count < t->strips->max_strips ? count : t->strips->max_strips;
}

tdict_chunk tdict_strip_at(const tdict_transfer *t, const tdict_chunk *chunk, uint32_t n) {
  /* All strips except the last strip have the same size, a multiple of 256 bytes. */
  const size_t step = (size_t)tdict_strips_count(t, chunk) * TDICT_LEAF_ALIGNMENT;
  const size_t each = (chunk->end - chunk->begin + step - 1) / step * TDICT_LEAF_ALIGNMENT;
  tdict_chunk strip = {.begin = chunk->begin + n * each, .end = chunk->begin + (n + 1) * each, .first = chunk->first};
  if (strip.end > chunk->end) strip.end = chunk->end;
  if (n > 0) strip.first = tdict_plan_item_at(&t->plan, chunk->first, strip.begin);
  return strip;
}

static bool is_empty(const tdict_chunk *strip) { return strip->begin == strip->end; }

static uint32_t count_unfilled(tdict_chunk_strips *strips) {
  return atomic_load_explicit(&strips->num_unfilled, memory_order_acquire);
}

/* Claims an empty strip of the next chunk whose copy the calling thread must queue. If `wait` is false, returns false
 * unless the other strips are filled. */
static bool claim_empty(tdict_transfer *t, bool wait, tdict_claim *out) {
  for (uint32_t i; (i = t->strips->next_to_queue) < t->plan.num_chunks; t->strips->next_to_queue++) {
    const tdict_chunk *chunk = &t->plan.chunks[i];
    if (tdict_strips_count(t, chunk) == 1) continue; /* the thread that claims such a chunk queues it */
    if (!wait && count_unfilled(&t->strips->chunks[i]) > 1) return false;
    *out = (tdict_claim){chunk, &t->strips->chunks[i], {.begin = chunk->end, .end = chunk->end, .first = chunk->first}};
    t->strips->next_to_queue++;
    return true;
  }
  return false;
}

bool tdict_strips_claim(tdict_worker *worker, tdict_claim *out) {
  tdict_transfer *t = worker->transfer;
  const uint32_t max_strips = t->strips->max_strips;
  const bool queues = t->strips->caller_queues && worker == t->workers;
  uint32_t n, i, count;
  if (queues && claim_empty(t, false, out)) return true;
  do {
    n = atomic_fetch_add_explicit(&t->next_strip, 1, memory_order_relaxed);
    i = n / max_strips;
    if (i >= t->plan.num_chunks) return queues && claim_empty(t, true, out);
    out->chunk = &t->plan.chunks[i];
    count = tdict_strips_count(t, out->chunk);
  } while (n % max_strips >= count);
  out->strips = count > 1 ? &t->strips->chunks[i] : NULL;
  out->strip = tdict_strip_at(t, out->chunk, n % max_strips);
  return true;
}

/* Returns the slot of the claim's chunk, or NULL if the thread must wait: no thread has taken the slot, or the
 * claimed strip is empty and other strips are not filled. */
static tdict_slot *load_slot(const tdict_claim *claim) {
  if (is_empty(&claim->strip) && count_unfilled(claim->strips) > 1) return NULL;
  return atomic_load_explicit(&claim->strips->slot, memory_order_acquire);
}

/* Waits for the slot of a chunk. The slot is usually ready within microseconds, so this function spins first, unless
 * the transfer's spin_ns is 0. If the slot is still not ready, the ring may be full. In this case, this function
 * returns the lane's finished slots to the ring, so that the thread of the first strip can take a slot. Then this
 * function sleeps and checks again. *out is NULL if the transfer has failed. */
static tdict_status wait_for_slot(tdict_lane *lane, const tdict_claim *claim, tdict_slot **out, tdict_error *err) {
  enum { TRIES = 400 };
  static const struct timespec pause = {0, 20000};
  const tdict_transfer *t = lane->worker->transfer;
  tdict_slot *slot = NULL;
  tdict_status status = TDICT_OK;
  const int64_t begin = tdict_phase_begin(t, TDICT_RANGE_WAIT);
  for (int i = 0; t->how.spin_ns && i < TRIES && !(slot = load_slot(claim)) && !tdict_future_has_failed(&t->future);
       i++)
    tdict_spin_pause();
  while (!slot && !(slot = load_slot(claim)) && status == TDICT_OK && !tdict_future_has_failed(&t->future)) {
    status = tdict_lane_return_finished(lane, err);
    if (status == TDICT_OK) tdict_sleep(&pause);
  }
  lane->worker->wait_ns += tdict_phase_end(t, TDICT_RANGE_WAIT, begin, 0);
  *out = slot;
  return status;
}

tdict_status tdict_strips_slot(tdict_lane *lane, const tdict_claim *claim, tdict_slot **out, tdict_error *err) {
  tdict_chunk_strips *strips = claim->strips;
  if (claim->strip.begin > claim->chunk->begin) {
    *out = load_slot(claim);
    return *out ? TDICT_OK : wait_for_slot(lane, claim, out, err);
  }
  tdict_status status = tdict_lane_take_slot(lane, out, err);
  if (status != TDICT_OK || !*out) return status;
  /* Stop counting the slot before other threads can see the slot, because any lane may then queue the slot's copy. */
  tdict_lane_hand_over(lane);
  atomic_store_explicit(&strips->slot, *out, memory_order_release);
  return TDICT_OK;
}

tdict_status tdict_strips_filled(tdict_lane *lane, const tdict_claim *claim, tdict_slot **slot, tdict_error *err) {
  tdict_chunk_strips *strips = claim->strips;
  TDICT_ASSERT(atomic_load_explicit(&strips->num_unfilled, memory_order_relaxed) > 0);
  if (atomic_fetch_sub_explicit(&strips->num_unfilled, 1, memory_order_acq_rel) > 1) {
    *slot = NULL;
    return TDICT_OK;
  }
  tdict_status status = tdict_lane_take_over(lane, *slot, err);
  if (status == TDICT_OK) atomic_store_explicit(&strips->slot, NULL, memory_order_relaxed);
  return status;
}
