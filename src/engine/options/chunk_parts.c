/* Lets several threads fill one slot. See chunk_parts.h for ownership and threads. */
#include "engine/options/chunk_parts.h"

#include <stdlib.h>
#include <time.h>

#include "core/base/assert.h"
#include "core/base/error.h"
#include "core/base/thread.h"

tdict_status tdict_chunk_parts_create(tdict_transfer *t, tdict_error *err) {
  const uint32_t count = t->plan.num_chunks;
  if (count == 0 || !t->plan.way_bytes[TDICT_WAY_STAGE_IN]) t->how.num_parts = 1;
  if (t->how.num_parts == 1) return TDICT_OK;
  t->chunk_parts = malloc(count * sizeof *t->chunk_parts);
  if (!t->chunk_parts)
    return tdict_fail(err, TDICT_ENOMEM, "transfer: no host memory for the parts of %u chunks", count);
  for (uint32_t i = 0; i < count; i++) {
    atomic_init(&t->chunk_parts[i].slot, NULL);
    atomic_init(&t->chunk_parts[i].num_unfilled, tdict_chunk_parts_count(t, &t->plan.chunks[i]));
  }
  return TDICT_OK;
}

void tdict_chunk_parts_close(tdict_transfer *t) {
  for (uint32_t i = 0; t->chunk_parts && i < t->plan.num_chunks; i++) {
    tdict_slot *slot = atomic_load_explicit(&t->chunk_parts[i].slot, memory_order_relaxed);
    tdict_ring *ring;
    if (!slot) continue;
    tdict_gpu *gpu = t->plan.items[t->plan.chunks[i].first].gpu;
    if (tdict_rings_get(&t->future.engine->rings, gpu, &ring, NULL) == TDICT_OK) tdict_ring_give(ring, slot, false);
  }
}

uint32_t tdict_chunk_parts_count(const tdict_transfer *t, const tdict_chunk *chunk) {
  if (t->plan.items[chunk->first].way != TDICT_WAY_STAGE_IN) return 1;
  const uint32_t count = tdict_parts_of_bytes(chunk->end - chunk->begin);
  return count < t->how.num_parts ? count : t->how.num_parts;
}

tdict_chunk tdict_chunk_part_at(const tdict_transfer *t, const tdict_chunk *chunk, uint32_t n) {
  /* All parts except the last part have the same size, a multiple of 256 bytes. */
  const size_t step = (size_t)tdict_chunk_parts_count(t, chunk) * TDICT_LEAF_ALIGNMENT;
  const size_t each = (chunk->end - chunk->begin + step - 1) / step * TDICT_LEAF_ALIGNMENT;
  tdict_chunk part = {.begin = chunk->begin + n * each, .end = chunk->begin + (n + 1) * each, .first = chunk->first};
  if (part.end > chunk->end) part.end = chunk->end;
  if (n > 0) part.first = tdict_plan_item_at(&t->plan, chunk->first, part.begin);
  return part;
}

bool tdict_chunk_parts_claim(tdict_transfer *t, tdict_claim *out) {
  uint32_t n, i, count;
  do {
    n = atomic_fetch_add_explicit(&t->next_part, 1, memory_order_relaxed);
    i = n / t->how.num_parts;
    if (i >= t->plan.num_chunks) return false;
    out->chunk = &t->plan.chunks[i];
    count = tdict_chunk_parts_count(t, out->chunk);
  } while (n % t->how.num_parts >= count);
  out->parts = count > 1 ? &t->chunk_parts[i] : NULL;
  out->part = tdict_chunk_part_at(t, out->chunk, n % t->how.num_parts);
  return true;
}

static tdict_slot *load_slot(tdict_chunk_parts *parts) {
  return atomic_load_explicit(&parts->slot, memory_order_acquire);
}

/* Waits for the slot of a chunk. The slot is usually set within microseconds, so this function spins first, unless the
 * transfer's spin_ns is 0. If the slot is still not set, the ring may be full. In this case, this function returns the
 * lane's finished slots to the ring, so that the thread of the first part can take a slot. Then this function sleeps
 * and checks again. *out is NULL if the transfer has failed. */
static tdict_status wait_for_slot(tdict_lane *lane, tdict_chunk_parts *parts, tdict_slot **out, tdict_error *err) {
  enum { TRIES = 400 };
  static const struct timespec pause = {0, 20000};
  const tdict_transfer *t = lane->worker->transfer;
  tdict_slot *slot = NULL;
  tdict_status status = TDICT_OK;
  const int64_t begin = tdict_phase_begin(&t->traced, TDICT_RANGE_WAIT);
  for (int i = 0; t->how.spin_ns && i < TRIES && !(slot = load_slot(parts)) && !tdict_future_has_failed(&t->future);
       i++)
    tdict_spin_pause();
  while (!slot && !(slot = load_slot(parts)) && status == TDICT_OK && !tdict_future_has_failed(&t->future)) {
    status = tdict_lane_return_finished(lane, err);
    if (status == TDICT_OK) tdict_sleep(&pause);
  }
  lane->worker->wait_ns += tdict_phase_end(&t->traced, TDICT_RANGE_WAIT, begin, 0);
  *out = slot;
  return status;
}

tdict_status tdict_chunk_parts_slot(tdict_lane *lane, const tdict_claim *claim, tdict_slot **out, tdict_error *err) {
  tdict_chunk_parts *parts = claim->parts;
  if (claim->part.begin > claim->chunk->begin) {
    *out = load_slot(parts);
    return *out ? TDICT_OK : wait_for_slot(lane, parts, out, err);
  }
  tdict_status status = tdict_lane_take_slot(lane, out, err);
  if (status != TDICT_OK || !*out) return status;
  /* Stop counting the slot before other threads can see the slot, because any lane may then queue the slot's copy. */
  tdict_lane_hand_over(lane);
  atomic_store_explicit(&parts->slot, *out, memory_order_release);
  return TDICT_OK;
}

tdict_status tdict_chunk_parts_filled(tdict_lane *lane, const tdict_claim *claim, tdict_slot **slot, tdict_error *err) {
  tdict_chunk_parts *parts = claim->parts;
  TDICT_ASSERT(atomic_load_explicit(&parts->num_unfilled, memory_order_relaxed) > 0);
  if (atomic_fetch_sub_explicit(&parts->num_unfilled, 1, memory_order_acq_rel) > 1) {
    *slot = NULL;
    return TDICT_OK;
  }
  tdict_status status = tdict_lane_take_over(lane, *slot, err);
  if (status == TDICT_OK) atomic_store_explicit(&parts->slot, NULL, memory_order_relaxed);
  return status;
}
