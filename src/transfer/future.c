/* The future: waiting for a transfer, asking it, and counting. A transfer is also the fence that storages hold. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/options.h"
#include "memory/pinned_pool.h"
#include "transfer/engine_state.h"
#include "transfer/fence.h"
#include "transfer/hooks.h"
#include "transfer/outbox.h"
#include "transfer/work.h"

enum { HELP_EVERY_NS = 200000 };

/* In a fork nobody works any more, and locks may be held for ever by threads that are not there. */
static bool is_forked(const tdict_future *t) { return tdict_forkmark_forked(t->mark); }

static bool is_zero(const tdict_future *t, tdict_latch *latch) {
  return is_forked(t) ? latch->count == 0 : tdict_latch_is_zero(latch);
}

/* Waits for a latch of the transfer. A thread of the pool works meanwhile: what it waits for may be queued behind it. */
static bool wait_for(tdict_future *t, tdict_latch *latch, int64_t deadline_ns) {
  if (is_forked(t)) return latch->count == 0;
  if (tdict_latch_is_zero(latch)) return true;
  if (!tdict_pool_is_worker(t->pool)) return tdict_latch_wait(latch, deadline_ns);
  for (;;) {
    int64_t now = tdict_now_ns();
    if (now >= deadline_ns) return tdict_latch_is_zero(latch);
    if (tdict_pool_help(t->pool, t)) continue;
    if (tdict_latch_wait(latch, deadline_ns - now < HELP_EVERY_NS ? deadline_ns : now + HELP_EVERY_NS)) return true;
  }
}

void tdict_transfer_wait_to_start(tdict_future *t) { wait_for(t, &t->may_start, INT64_MAX); }

static bool fence_poll(tdict_fence *fence) {
  tdict_future *t = (tdict_future *)fence;
  return is_zero(t, &t->ended);
}
static bool fence_wait(tdict_fence *fence, int64_t deadline_ns) {
  tdict_future *t = (tdict_future *)fence;
  return wait_for(t, &t->ended, deadline_ns);
}
static void fence_retain(tdict_fence *fence) {
  atomic_fetch_add_explicit(&((tdict_future *)fence)->refs, 1, memory_order_relaxed);
}
static void fence_release(tdict_fence *fence) { tdict_transfer_release((tdict_future *)fence); }

const tdict_fence_ops *tdict_transfer_fence_ops(void) {
  static const tdict_fence_ops ops = {fence_poll, fence_wait, NULL, fence_retain, fence_release};
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
         : way == TDICT_PINNED_SMALL    ? TDICT_PIN_SMALL_PIECES
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

/* An error that nobody was told goes to the log. */
static void tell_log(const tdict_future *f) {
  const tdict_error *e = &f->error;
  if (!e->status || e->status == TDICT_ECANCELLED || atomic_load_explicit(&f->observed, memory_order_relaxed)) return;
  tdict_log_write(f->log, TDICT_LOG_ERROR, "a transfer that nobody waited for failed: %s at '%s': %s",
                  tdict_status_name((tdict_status)e->status), e->path, e->message);
}

/* The worker that has ended the transfer may still hold it; the result must not wait for that. */
void tdict_future_release(tdict_future *f) {
  if (!f || is_forked(f)) return;
  if (atomic_fetch_sub_explicit(&f->handles, 1, memory_order_acq_rel) == 1 && tdict_latch_is_zero(&f->ended)) {
    tdict_release(f->result);
    f->result = NULL;
  }
  tdict_transfer_release(f);
}

void tdict_transfer_release(tdict_future *f) {
  if (atomic_fetch_sub_explicit(&f->refs, 1, memory_order_acq_rel) != 1) return;
  if (is_forked(f)) return;
  tell_log(f);
  tdict_trace_leave(f);
  tdict_plan_reset(&f->plan);
  for (int i = 0; i < f->num_gates; i++) tdict_gpu_give_event(f->gates[i].gpu, f->gates[i].event);
  for (uint32_t i = 0; i < f->num_uses; i++) f->uses[i]->ops->release(f->uses[i]);
  tdict_gpu_release(f->gpu);
  tdict_storage_release(f->arena);
  tdict_release(f->mirror);
  tdict_release(f->result);
  free(f->rest);
  free(f->shares);
  tdict_outbox_destroy(f->outbox);
  free(f->writes);
  free(f->waits_for);
  free(f->uses);
  free(f->hashes);
  tdict_hooks_let_go(f);
  tdict_latch_destroy(&f->ended);
  tdict_latch_destroy(&f->queued);
  tdict_latch_destroy(&f->may_start);
  pthread_mutex_destroy(&f->error_lock);
  tdict_log_release(f->log);
  tdict_forkmark_release(f->mark);
  free(f);
}

static tdict_status answer(tdict_future *f, tdict_tree **out, tdict_error *err) {
  if (f->error.status) {
    atomic_store_explicit(&f->observed, true, memory_order_relaxed);
    if (err) *err = f->error;
    return (tdict_status)f->error.status;
  }
  if (out) *out = tdict_retain(f->result);
  return TDICT_OK;
}

/* What is wrong with waiting here and now. */
static tdict_status may_wait(const tdict_future *f, tdict_error *err) {
  if (!f) return tdict_fail(err, TDICT_EINVAL, "future: it is NULL");
  if (tdict_hooks_is_inside(f))
    return tdict_fail(err, TDICT_EDEADLOCK, "future: a hook waits for the transfer that runs it");
  if (is_forked(f) && f->ended.count != 0)
    return tdict_fail(err, TDICT_EFORKED, "future: this process is a fork of the one that moves the bytes");
  return TDICT_OK;
}

tdict_status tdict_future_wait(tdict_future *f, tdict_tree **out, tdict_error *err) {
  tdict_status status = may_wait(f, err);
  if (status != TDICT_OK) return status;
  tdict_rest_take(f);
  if (f->spin_ns > 0) tdict_latch_spin(&f->ended, tdict_deadline_ns(f->spin_ns));
  wait_for(f, &f->ended, INT64_MAX);
  return answer(f, out, err);
}

tdict_status tdict_future_wait_for(tdict_future *f, int64_t timeout_ns, tdict_tree **out, tdict_error *err) {
  tdict_status status = may_wait(f, err);
  if (status != TDICT_OK) return status;
  if (timeout_ns < 0)
    return tdict_fail(err, TDICT_EINVAL, "future: timeout_ns is %lld, wanted 0 or more", (long long)timeout_ns);
  if (!wait_for(f, &f->ended, tdict_deadline_ns(timeout_ns)))
    return tdict_fail(err, TDICT_ETIMEDOUT, "future: the transfer has not ended after %lld ns", (long long)timeout_ns);
  return answer(f, out, err);
}

/* Sources are read when everything is queued, unless the driver still reads some by itself. */
tdict_status tdict_future_wait_source(tdict_future *f, tdict_error *err) {
  tdict_status status = may_wait(f, err);
  if (status != TDICT_OK) return status;
  wait_for(f, &f->ended, INT64_MAX);
  return answer(f, NULL, err);
}

/* Under the error's lock: tails are given back when the transfer ends, and then nothing is to be waited for. */
static tdict_status wait_for_tails(tdict_future *f, tdict_stream s, tdict_error *err) {
  tdict_gpu *own; /* a handle of 0 is the legacy stream of the device whose context is current */
  tdict_gpu_scope scope;
  if (!f->gpu) return TDICT_OK; /* between host memories: there is no tail */
  tdict_status status = tdict_devices_gpu(f->engine->config.devices, s.device, &own, err);
  if (status != TDICT_OK) return status;
  status = tdict_gpu_enter(own, &scope, err);
  if (status == TDICT_OK) status = tdict_gpu_refuse_capture(own, s.handle, "wait_on_stream", err);
  for (int i = 0; i < f->num_workers && status == TDICT_OK; i++)
    if (f->workers[i].tail_gpu)
      status = tdict_gpu_check(own, own->driver->ops->stream_wait_event(own->driver, s.handle, f->workers[i].tail),
                               "cuStreamWaitEvent", err);
  tdict_gpu_leave(own, &scope);
  return status;
}

/* Before the transfer is asked anything, so that a wrong stream is refused whatever the transfer has done by then. */
static tdict_status check_stream(const tdict_future *f, tdict_stream s, tdict_error *err) {
  static const char what[] = "wait_on_stream";
  char name[32];
  tdict_gpu_scope scope;
  tdict_status status = tdict_stream_check(&f->streams, s, what, err);
  if (status != TDICT_OK || !f->gpu) return status;
  if (s.device.type != f->gpu->memory.device.type)
    return tdict_fail(err, TDICT_EWRONGDEVICE, "%s: the stream is of %s, which did not take part", what,
                      tdict_device_format(s.device, name, sizeof name));
  if (tdict_gpu_enter(f->gpu, &scope, NULL) == TDICT_OK) /* of a lost device the transfer itself has more to say */
    status = tdict_gpu_refuse_capture(f->gpu, s.handle, what, err);
  tdict_gpu_leave(f->gpu, &scope);
  return status == TDICT_ELOST ? TDICT_OK : status;
}

tdict_status tdict_future_wait_on_stream(tdict_future *f, tdict_stream s, tdict_tree **out, tdict_error *err) {
  tdict_status status = may_wait(f, err);
  if (status == TDICT_OK) status = check_stream(f, s, err);
  if (status != TDICT_OK) return status;
  wait_for(f, &f->queued, INT64_MAX);
  if (atomic_load_explicit(&f->tailless, memory_order_relaxed) || tdict_transfer_has_failed(f))
    wait_for(f, &f->ended, INT64_MAX);
  if (is_zero(f, &f->ended)) return answer(f, out, err);
  pthread_mutex_lock(&f->error_lock);
  bool ended = f->decided;
  if (!ended) status = wait_for_tails(f, s, err);
  if (!ended && status == TDICT_OK && out) {
    f->shown = true;
    *out = tdict_retain(f->result);
  }
  pthread_mutex_unlock(&f->error_lock);
  if (!ended) return status;
  wait_for(f, &f->ended, INT64_MAX);
  return answer(f, out, err);
}

void tdict_future_cancel(tdict_future *f) {
  if (!f || is_forked(f) || tdict_latch_is_zero(&f->ended)) return;
  tdict_error err;
  (void)!tdict_fail(&err, TDICT_ECANCELLED, "transfer: it was cancelled");
  tdict_transfer_fail_at(f, "", &err);
}

tdict_future_state_code tdict_future_state(const tdict_future *f) {
  tdict_future *t = (tdict_future *)(uintptr_t)f;
  if (!is_zero(t, &t->ended)) return TDICT_FUTURE_PENDING;
  return t->error.status == TDICT_ECANCELLED ? TDICT_FUTURE_CANCELLED
         : t->error.status                   ? TDICT_FUTURE_FAILED
                                             : TDICT_FUTURE_DONE;
}

bool tdict_future_is_ready(const tdict_future *f) { return tdict_future_state(f) != TDICT_FUTURE_PENDING; }

tdict_status tdict_future_stats(const tdict_future *f, tdict_transfer_stats *out, tdict_error *err) {
  if (!f || !out) return tdict_fail(err, TDICT_EINVAL, "future: %s is NULL", f ? "out" : "it");
  if (!tdict_future_is_ready(f)) return tdict_fail(err, TDICT_EINVAL, "future: the transfer has not ended");
  return tdict_options_write(out, &f->stats, sizeof f->stats, "stats", err);
}
