/* Chunks that several threads fill together. See share.h for ownership and threads. */
#include "transfer/share.h"

#include <sched.h>
#include <stdlib.h>

#include "base/error.h"
#include "sched/spin.h"

tdict_status tdict_shares_create(tdict_future *t, tdict_error *err) {
  const uint32_t count = t->plan.num_chunks;
  if (t->num_parts < 2 || count == 0) return TDICT_OK;
  t->shares = malloc(count * sizeof *t->shares);
  if (!t->shares) return tdict_fail(err, TDICT_ENOMEM, "transfer: no host memory for what %u chunks share", count);
  for (uint32_t i = 0; i < count; i++) {
    atomic_init(&t->shares[i].slot, NULL);
    atomic_init(&t->shares[i].left, t->num_parts);
  }
  return TDICT_OK;
}

void tdict_shares_close(tdict_future *t) {
  for (uint32_t i = 0; t->shares && i < t->plan.num_chunks; i++) {
    tdict_slot *slot = atomic_load_explicit(&t->shares[i].slot, memory_order_relaxed);
    tdict_ring *ring;
    if (!slot) continue;
    tdict_gpu *gpu = t->plan.items[t->plan.chunks[i].first].gpu;
    if (tdict_engine_ring(t->engine, gpu, &ring, NULL) == TDICT_OK) tdict_ring_give(ring, slot, false);
  }
}

tdict_chunk tdict_share_part(const tdict_future *t, const tdict_chunk *chunk, uint32_t n) {
  const size_t each = ((chunk->end - chunk->begin) / t->num_parts / TDICT_LEAF_ALIGNMENT + 1) * TDICT_LEAF_ALIGNMENT;
  tdict_chunk part = {.begin = chunk->begin + n * each, .end = chunk->begin + (n + 1) * each, .first = chunk->first};
  if (part.begin > chunk->end) part.begin = chunk->end;
  if (part.end > chunk->end) part.end = chunk->end;
  if (n > 0 && part.begin < part.end) part.first = tdict_plan_item_at(&t->plan, chunk->first, part.begin);
  return part;
}

/* Looks for a moment, as the slot comes at once or has to be waited for. */
static tdict_slot *look(const tdict_future *t, tdict_share *share) {
  enum { TRIES = 400 };
  tdict_slot *slot = atomic_load_explicit(&share->slot, memory_order_acquire);
  for (int i = 0; !slot && i < TRIES && !tdict_transfer_has_failed(t); i++) {
    tdict_spin_pause();
    slot = atomic_load_explicit(&share->slot, memory_order_acquire);
  }
  return slot;
}

tdict_status tdict_share_slot(tdict_lane *lane, tdict_share *share, bool first, tdict_slot **out, tdict_error *err) {
  const tdict_future *t = lane->worker->transfer;
  tdict_status status = TDICT_OK;
  if (first) {
    status = tdict_lane_slot(lane, out, err);
    if (status != TDICT_OK) return status;
    tdict_lane_hand_over(lane);
    atomic_store_explicit(&share->slot, *out, memory_order_release);
    return TDICT_OK;
  }
  *out = look(t, share);
  if (!*out && !tdict_transfer_has_failed(t)) status = tdict_lane_empty(lane, err);
  while (!*out && status == TDICT_OK && !tdict_transfer_has_failed(t)) {
    sched_yield();
    *out = look(t, share);
  }
  return status;
}

bool tdict_share_filled(tdict_share *share) {
  return atomic_fetch_sub_explicit(&share->left, 1, memory_order_acq_rel) == 1;
}

tdict_status tdict_share_take(tdict_lane *lane, tdict_share *share, tdict_error *err) {
  tdict_status status = tdict_lane_take_over(lane, err);
  if (status == TDICT_OK) atomic_store_explicit(&share->slot, NULL, memory_order_relaxed);
  return status;
}
