/* Helpers that create transfers without a public call, for tests of lanes and slots. */
#ifndef TDICT_TESTS_ENGINE_LANES_H
#define TDICT_TESTS_ENGINE_LANES_H

#include "engine/finish.h"
#include "engine/help.h"
#include "engine/ring.h"

static inline tdict_transfer *transfer_of(tdict_future *f) { return (tdict_transfer *)f; }

static inline tdict_gpu *gpu_of(const place *w) {
  tdict_gpu *gpu = NULL;
  td_ok(tdict_devices_gpu(tdict_context_engine(w->c)->config.devices, w->device, &gpu, err));
  return gpu;
}

/* Makes a transfer with `count` leaves of these sizes, one after another on the line. */
static inline tdict_transfer *planned(const place *w, const size_t *bytes, uint32_t count) {
  tdict_transfer *t = NULL;
  td_ok(tdict_transfer_create(tdict_context_engine(w->c), 2, 1, &t, err));
  t->plan.items = calloc(count, sizeof *t->plan.items);
  t->plan.nodes = calloc(count, sizeof *t->plan.nodes);
  t->plan.borrows = true;
  assert_non_null(t->plan.items);
  for (uint32_t i = 0; i < count; i++) {
    t->plan.items[i].offset = (t->plan.line_bytes + 255) / 256 * 256;
    t->plan.items[i].bytes = bytes[i];
    t->plan.items[i].leaf = (uint32_t)i;
    t->plan.items[i].gpu = gpu_of(w);
    t->plan.line_bytes = t->plan.items[i].offset + bytes[i];
  }
  t->plan.num_items = t->plan.cap = count;
  t->plan.way_bytes[TDICT_WAY_STAGE_IN] = t->plan.line_bytes;
  return t;
}
static inline void drop(tdict_transfer *t) {
  t->plan.num_items = 0;
  tdict_future_release(&t->future);
}

/* Takes up to `count` free slots without waiting. Returns how many slots were taken. */
static inline int take_slots(tdict_ring *ring, int count, tdict_slot **out) {
  for (int i = 0; i < count; i++) {
    td_ok(tdict_ring_take(ring, 0, false, &out[i], err));
    if (!out[i]) return i;
  }
  return count;
}

/* Takes all but `left` slots of the device's ring. Returns how many slots were taken. */
static inline int take_all_but(const place *w, int left, tdict_ring **ring, tdict_slot **out) {
  tdict_gpu_scope scope;
  td_ok(tdict_gpu_enter(gpu_of(w), &scope, err));
  td_ok(tdict_rings_get(&tdict_context_engine(w->c)->rings, gpu_of(w), ring, err));
  const int taken = take_slots(*ring, (*ring)->num_slots - left, out);
  tdict_gpu_leave(gpu_of(w), &scope);
  assert_int_equal(taken, (*ring)->num_slots - left);
  return taken;
}
static inline void give_slots(tdict_ring *ring, int count, tdict_slot **slots) {
  for (int i = 0; i < count; i++) tdict_ring_give(ring, slots[i], false);
}

#endif
