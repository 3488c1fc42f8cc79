/* The future: waiting for a transfer, asking it, and counting. A transfer is also the fence that storages hold. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "memory/pinned_pool.h"
#include "transfer/fence.h"

static bool fence_poll(tdict_fence *fence) { return tdict_latch_is_zero(&((tdict_future *)fence)->ended); }
static bool fence_wait(tdict_fence *fence, int64_t deadline_ns) {
  return tdict_latch_wait(&((tdict_future *)fence)->ended, deadline_ns);
}
static void fence_retain(tdict_fence *fence) {
  atomic_fetch_add_explicit(&((tdict_future *)fence)->refs, 1, memory_order_relaxed);
}
static void fence_release(tdict_fence *fence) { tdict_transfer_release((tdict_future *)fence); }

const tdict_fence_ops *tdict_transfer_fence_ops(void) {
  static const tdict_fence_ops ops = {fence_poll, fence_wait, fence_retain, fence_release};
  return &ops;
}

int32_t tdict_transfer_pin_path(const tdict_future *t) {
  const tdict_plan *p = &t->plan;
  int way = t->arena ? tdict_pinned_pool_way(t->arena->memory, t->arena) : 0;
  if (!way && (p->way_bytes[TDICT_WAY_STAGE_IN] || p->way_bytes[TDICT_WAY_STAGE_OUT]))
    for (uint32_t i = 0; i < p->num_items && !way; i++)
      if (p->items[i].way == TDICT_WAY_STAGE_IN || p->items[i].way == TDICT_WAY_STAGE_OUT)
        way = tdict_engine_ring_way(t->engine, p->items[i].gpu);
  return way == TDICT_PINNED_REGISTERED ? TDICT_PIN_REGISTER
         : way == TDICT_PINNED_DRIVER   ? TDICT_PIN_DRIVER
         : way < 0                      ? TDICT_PIN_PAGEABLE
                                        : TDICT_PIN_NONE;
}

tdict_future *tdict_future_retain(const tdict_future *f) {
  if (!f) return NULL;
  tdict_future *t = (tdict_future *)(uintptr_t)f;
  atomic_fetch_add_explicit(&t->handles, 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
  return t;
}

/* The worker that has ended the transfer may still hold it; the result must not wait for that. */
void tdict_future_release(tdict_future *f) {
  if (!f) return;
  if (atomic_fetch_sub_explicit(&f->handles, 1, memory_order_acq_rel) == 1 && tdict_latch_is_zero(&f->ended)) {
    tdict_release(f->result);
    f->result = NULL;
  }
  tdict_transfer_release(f);
}

void tdict_transfer_release(tdict_future *f) {
  if (atomic_fetch_sub_explicit(&f->refs, 1, memory_order_acq_rel) != 1) return;
  tdict_plan_reset(&f->plan);
  for (int i = 0; i < f->num_gates; i++) tdict_gpu_give_event(f->gates[i].gpu, f->gates[i].event);
  tdict_storage_release(f->arena);
  tdict_release(f->mirror);
  tdict_release(f->result);
  free(f->nodes);
  free(f->waits_for);
  tdict_latch_reset(&f->ended);
  tdict_latch_reset(&f->may_start);
  pthread_mutex_destroy(&f->error_lock);
  free(f);
}

static tdict_status answer(tdict_future *f, tdict_tree **out, tdict_error *err) {
  if (f->error.status) {
    if (err) *err = f->error;
    return (tdict_status)f->error.status;
  }
  if (out) *out = tdict_retain(f->result);
  return TDICT_OK;
}

tdict_status tdict_future_wait(tdict_future *f, tdict_tree **out, tdict_error *err) {
  if (!f) return tdict_fail(err, TDICT_EINVAL, "future: it is NULL");
  tdict_latch_wait(&f->ended, INT64_MAX);
  return answer(f, out, err);
}

tdict_status tdict_future_wait_for(tdict_future *f, int64_t timeout_ns, tdict_tree **out, tdict_error *err) {
  if (!f) return tdict_fail(err, TDICT_EINVAL, "future: it is NULL");
  if (timeout_ns < 0)
    return tdict_fail(err, TDICT_EINVAL, "future: timeout_ns is %lld, wanted 0 or more", (long long)timeout_ns);
  if (!tdict_latch_wait(&f->ended, tdict_deadline_ns(timeout_ns)))
    return tdict_fail(err, TDICT_ETIMEDOUT, "future: the transfer has not ended after %lld ns", (long long)timeout_ns);
  return answer(f, out, err);
}

tdict_future_state_code tdict_future_state(const tdict_future *f) {
  tdict_future *t = (tdict_future *)(uintptr_t)f;
  if (!tdict_latch_is_zero(&t->ended)) return TDICT_FUTURE_PENDING;
  return t->error.status ? TDICT_FUTURE_FAILED : TDICT_FUTURE_DONE;
}

bool tdict_future_is_ready(const tdict_future *f) { return tdict_future_state(f) != TDICT_FUTURE_PENDING; }

tdict_status tdict_future_stats(const tdict_future *f, tdict_transfer_stats *out, tdict_error *err) {
  if (!f || !out) return tdict_fail(err, TDICT_EINVAL, "future: %s is NULL", f ? "out" : "it");
  size_t size = out->struct_size;
  if (size < sizeof size)
    return tdict_fail(err, TDICT_EINVAL, "stats: struct_size is %zu, wanted %zu: use its default function", size,
                      sizeof *out);
  if (!tdict_future_is_ready(f)) return tdict_fail(err, TDICT_EINVAL, "future: the transfer has not ended");
  memcpy(out, &f->stats, size < sizeof *out ? size : sizeof *out);
  out->struct_size = size;
  return TDICT_OK;
}
