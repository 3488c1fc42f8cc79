/* The public calls of futures: waiting for a transfer, asking it, cancelling it, and counting handles. A future is the
 * transfer itself, see job.h for ownership. Thread rule: safe from any thread. */
#include "base/clock.h"
#include "base/error.h"
#include "base/options.h"
#include "transfer/hooks.h"
#include "transfer/job.h"
#include "transfer/run/worker.h"

tdict_future *tdict_future_retain(const tdict_future *f) {
  if (!f) return NULL;
  tdict_future *t = (tdict_future *)(uintptr_t)f;
  atomic_fetch_add_explicit(&t->handles, 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
  return t;
}

/* The worker that has ended the transfer may still hold it; the result must not wait for that. */
void tdict_future_release(tdict_future *f) {
  if (!f || tdict_forkmark_forked(f->mark)) return;
  if (atomic_fetch_sub_explicit(&f->handles, 1, memory_order_acq_rel) == 1 && tdict_latch_is_zero(&f->ended)) {
    tdict_release(f->result);
    f->result = NULL;
  }
  tdict_transfer_release(f);
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

/* Returns TDICT_OK if this thread may wait for f, else why not. */
static tdict_status may_wait(const tdict_future *f, tdict_error *err) {
  if (!f) return tdict_fail(err, TDICT_EINVAL, "future: it is NULL");
  if (tdict_pool_thread_data() && tdict_hooks_is_inside(f))
    return tdict_fail(err, TDICT_EDEADLOCK, "future: a hook waits for the transfer that runs it");
  if (tdict_forkmark_forked(f->mark) && f->ended.count != 0)
    return tdict_fail(err, TDICT_EFORKED, "future: this process is a fork of the one that moves the bytes");
  return TDICT_OK;
}

tdict_status tdict_future_wait(tdict_future *f, tdict_tree **out, tdict_error *err) {
  tdict_status status = may_wait(f, err);
  if (status != TDICT_OK) return status;
  if (f->deferred_tail) tdict_deferred_tail_run(f);
  if (f->spin_ns > 0) tdict_latch_spin(&f->ended, tdict_deadline_ns(f->spin_ns));
  tdict_transfer_wait(f, &f->ended, INT64_MAX);
  return answer(f, out, err);
}

tdict_status tdict_future_wait_for(tdict_future *f, int64_t timeout_ns, tdict_tree **out, tdict_error *err) {
  tdict_status status = may_wait(f, err);
  if (status != TDICT_OK) return status;
  if (timeout_ns < 0)
    return tdict_fail(err, TDICT_EINVAL, "future: timeout_ns is %lld, wanted 0 or more", (long long)timeout_ns);
  if (!tdict_transfer_wait(f, &f->ended, tdict_deadline_ns(timeout_ns)))
    return tdict_fail(err, TDICT_ETIMEDOUT, "future: the transfer has not ended after %lld ns", (long long)timeout_ns);
  return answer(f, out, err);
}

/* Waits for the end: the driver may read sources by itself until then. */
tdict_status tdict_future_wait_source(tdict_future *f, tdict_error *err) {
  tdict_status status = may_wait(f, err);
  if (status != TDICT_OK) return status;
  tdict_transfer_wait(f, &f->ended, INT64_MAX);
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
    if (f->workers[i].tail_gpu) status = tdict_gpu_stream_wait(own, s.handle, f->workers[i].tail, err);
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
  tdict_transfer_wait(f, &f->queued, INT64_MAX);
  if (atomic_load_explicit(&f->missing_tail_event, memory_order_relaxed) || tdict_transfer_has_failed(f))
    tdict_transfer_wait(f, &f->ended, INT64_MAX);
  if (tdict_transfer_is_open(f, &f->ended)) return answer(f, out, err);
  pthread_mutex_lock(&f->error_lock);
  bool ended = f->decided;
  if (!ended) status = wait_for_tails(f, s, err);
  if (!ended && status == TDICT_OK && out) {
    f->shown = true;
    *out = tdict_retain(f->result);
  }
  pthread_mutex_unlock(&f->error_lock);
  if (!ended) return status;
  tdict_transfer_wait(f, &f->ended, INT64_MAX);
  return answer(f, out, err);
}

void tdict_future_cancel(tdict_future *f) {
  if (!f || tdict_forkmark_forked(f->mark) || tdict_latch_is_zero(&f->ended)) return;
  tdict_error err;
  (void)!tdict_fail(&err, TDICT_ECANCELLED, "transfer: it was cancelled");
  tdict_transfer_fail_at(f, "", &err);
}

tdict_future_state_code tdict_future_state(const tdict_future *f) {
  tdict_future *t = (tdict_future *)(uintptr_t)f;
  if (!tdict_transfer_is_open(t, &t->ended)) return TDICT_FUTURE_PENDING;
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
