/* Implements the calls of a worker: begins and publishes slots. Thread rule: one thread at a time uses a ring. */
#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/thread.h"
#include "services/share/ring.h"

static bool is_trainer_gone(const tdict_share_ring *r) {
  struct pollfd process = {.fd = r->trainer_fd, .events = POLLIN};
  return poll(&process, 1, 0) > 0;
}

/* Claims an empty slot for this worker. Returns false if no slot is empty. */
static bool begin_slot(tdict_share_ring *r, uint32_t *out) {
  for (uint32_t i = 0; i < r->num_slots; i++) {
    if (r->slots[i].use != TDICT_SLOT_NOT_OURS) continue;
    if (!tdict_slot_change(&r->words->slots[i], TDICT_SHARE_EMPTY, tdict_ring_filling(r))) continue;
    r->slots[i].use = TDICT_SLOT_IN_USE;
    *out = i;
    return true;
  }
  return false;
}

tdict_status tdict_share_ring_begin(tdict_share_ring *ring, int64_t timeout_ns, tdict_tree **out, tdict_error *err) {
  TDICT_UNCANCELLED;
  static const char what[] = "share_ring_begin";
  uint32_t slot;
  tdict_status status = tdict_ring_check(ring, false, what, err);
  if (status != TDICT_OK) return status;
  if (!out) return tdict_fail(err, TDICT_EINVAL, "%s: out is NULL", what);
  if (timeout_ns < 0)
    return tdict_fail(err, TDICT_EINVAL, "%s: timeout_ns is %lld, wanted 0 or more", what, (long long)timeout_ns);
  const int64_t deadline = tdict_deadline_ns(timeout_ns);
  for (;;) {
    /* Read the futex before the slots, so that a change after the search ends the wait at once. */
    const uint32_t seen = atomic_load_explicit(&ring->words->freed, memory_order_acquire);
    if (atomic_load_explicit(&ring->words->closed, memory_order_acquire))
      return tdict_fail(err, TDICT_ECANCELLED, "%s: the trainer has destroyed the ring", what);
    if (is_trainer_gone(ring)) return tdict_fail(err, TDICT_ECANCELLED, "%s: the trainer has ended", what);
    if (begin_slot(ring, &slot)) {
      *out = ring->slots[slot].tree;
      return TDICT_OK;
    }
    const int64_t left = deadline - tdict_now_ns();
    if (left <= 0) return tdict_fail(err, TDICT_ETIMEDOUT, "%s: no slot is empty", what);
    tdict_futex_wait(&ring->words->freed, seen, left < TDICT_RING_CHECK_NS ? left : TDICT_RING_CHECK_NS);
  }
}

tdict_status tdict_share_ring_publish(tdict_share_ring *ring, tdict_tree *tree, tdict_error *err) {
  TDICT_UNCANCELLED;
  static const char what[] = "share_ring_publish";
  uint32_t slot;
  tdict_status status = tdict_ring_check(ring, false, what, err);
  if (status == TDICT_OK) status = tdict_ring_find(ring, tree, what, &slot, err);
  if (status != TDICT_OK) return status;
  tdict_slot_words *words = &ring->words->slots[slot];
  ring->slots[slot].use = TDICT_SLOT_NOT_OURS;
  atomic_store_explicit(&words->ticket, atomic_fetch_add_explicit(&ring->words->next_ticket, 1, memory_order_relaxed),
                        memory_order_relaxed);
  if (!tdict_slot_change(words, tdict_ring_filling(ring), tdict_slot_word(TDICT_SHARE_FULL, ring->worker)))
    return tdict_fail(err, TDICT_EFORMAT, "%s: another process has changed the word of slot %u", what, slot);
  tdict_futex_wake(&ring->words->published);
  return TDICT_OK;
}
