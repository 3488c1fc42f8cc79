/* Implements the public functions of futures: wait for a transfer, read its state and statistics, cancel the transfer,
 * retain and release handles. A future is the transfer itself: see job.h for ownership.
 * Thread rule: safe from any thread. */
#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/options.h"
#include "transfer/hooks.h"
#include "transfer/run/worker.h"

tdict_future *tdict_future_retain(const tdict_future *future) {
  if (!future) return NULL;
  tdict_future *t = (tdict_future *)(uintptr_t)future;
  atomic_fetch_add_explicit(&t->handles, 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
  return t;
}

/* Drops the result with the last handle, if the transfer has ended. The last reference may be dropped later, because
 * the worker that ended the transfer may still hold a reference. */
void tdict_future_release(tdict_future *future) {
  if (!future || tdict_forkmark_forked(future->mark)) return;
  if (atomic_fetch_sub_explicit(&future->handles, 1, memory_order_acq_rel) == 1 &&
      tdict_latch_is_zero(&future->ended)) {
    tdict_release(future->result);
    future->result = NULL;
  }
  tdict_transfer_release(future);
}

/* Returns the error of an ended transfer, or a new reference to its result. An error that is written to *err is not
 * logged later. */
static tdict_status return_outcome(tdict_future *f, tdict_tree **out, tdict_error *err) {
  if (f->error.status) {
    if (err) {
      atomic_store_explicit(&f->error_was_reported, true, memory_order_relaxed);
      *err = f->error;
    }
    return (tdict_status)f->error.status;
  }
  if (out) *out = f->result ? tdict_retain(f->result) : NULL;
  return TDICT_OK;
}

/* Returns TDICT_OK if this thread may wait for f, else the reason why not. */
static tdict_status check_may_wait(const tdict_future *f, tdict_error *err) {
  if (!f) return tdict_fail(err, TDICT_EINVAL, "future: future is NULL");
  if (tdict_pool_thread_data() && f->kind->is_inside(f))
    return tdict_fail(err, TDICT_EDEADLOCK, "future: a hook waits for the transfer that runs it");
  if (tdict_forkmark_forked(f->mark) && f->ended.count != 0)
    return tdict_fail(err, TDICT_EFORKED, "future: this process is a fork; the transfer runs in its parent");
  return TDICT_OK;
}

tdict_status tdict_future_wait(tdict_future *future, tdict_tree **out, tdict_error *err) {
  tdict_status status = check_may_wait(future, err);
  if (status != TDICT_OK) return status;
  future->kind->help(future);
  if (future->spin_ns > 0) tdict_latch_spin(&future->ended, tdict_deadline_ns(future->spin_ns));
  tdict_transfer_wait_cancellable(future, &future->ended, INT64_MAX);
  return return_outcome(future, out, err);
}

tdict_status tdict_future_wait_for(tdict_future *future, int64_t timeout_ns, tdict_tree **out, tdict_error *err) {
  tdict_status status = check_may_wait(future, err);
  if (status != TDICT_OK) return status;
  if (timeout_ns < 0)
    return tdict_fail(err, TDICT_EINVAL, "future: timeout_ns is %lld, wanted 0 or more", (long long)timeout_ns);
  if (!tdict_transfer_wait_cancellable(future, &future->ended, tdict_deadline_ns(timeout_ns)))
    return tdict_fail(err, TDICT_ETIMEDOUT, "future: the transfer has not ended after %lld ns", (long long)timeout_ns);
  return return_outcome(future, out, err);
}

/* Waits for the end of the whole transfer, because the driver may read pinned sources until then. */
tdict_status tdict_future_wait_source(tdict_future *future, tdict_error *err) {
  tdict_status status = check_may_wait(future, err);
  if (status != TDICT_OK) return status;
  tdict_transfer_wait_cancellable(future, &future->ended, INT64_MAX);
  return return_outcome(future, NULL, err);
}

/* Makes the stream of `gpu` wait for the tail events of all workers. The caller holds error_lock, and the outcome is
 * not final yet. When the outcome becomes final, finish.c returns the tail events to their GPUs. Call inside a scope of
 * the gpu. */
static tdict_status queue_tail_waits(tdict_future *f, tdict_gpu *gpu, tdict_cu_stream stream, tdict_error *err) {
  tdict_status status = TDICT_OK;
  TDICT_ASSERT(tdict_lock_is_held(&f->error_lock));
  for (int i = 0; i < f->num_workers && status == TDICT_OK; i++)
    if (f->workers[i].tail_gpu) status = tdict_gpu_stream_wait(gpu, stream, f->workers[i].tail, err);
  return status;
}

/* Waits until all copies are queued and the result is built. Returns false if a stream cannot wait for all copies. In
 * this case, the host must wait for the end of the transfer. */
static bool wait_until_queued(tdict_future *f) {
  tdict_transfer_wait(f, &f->queued, INT64_MAX);
  return !atomic_load_explicit(&f->missing_tail_event, memory_order_relaxed) && !tdict_transfer_has_failed(f);
}

/* Implements tdict_fence_ops.wait_on_stream of transfers. Waits on the host until all copies are queued. */
static bool fence_wait_on_stream(tdict_fence *fence, void *device, void *stream) {
  tdict_future *f = (tdict_future *)fence;
  tdict_gpu *gpu = device;
  /* The caller of a blocking transfer waits until the transfer has ended, so this transfer records no events for
   * streams. */
  if (f->caller_waits || tdict_forkmark_forked(f->mark) || !f->gpu || f->gpu->driver != gpu->driver) return false;
  if (!wait_until_queued(f)) return false;
  pthread_mutex_lock(&f->error_lock);
  const bool waits = !f->outcome_is_final && queue_tail_waits(f, gpu, stream, NULL) == TDICT_OK;
  pthread_mutex_unlock(&f->error_lock);
  return waits;
}

/* Makes a stream of the program wait for the tail events. The caller holds error_lock, and the outcome is not final
 * yet. */
static tdict_status queue_waits_of(tdict_future *f, tdict_stream s, tdict_error *err) {
  tdict_gpu *stream_gpu; /* made current, because handle 0 means the legacy stream of the current device */
  tdict_gpu_scope scope;
  if (!f->gpu) return TDICT_OK; /* if the transfer uses no GPU, no worker has a tail event */
  tdict_status status = tdict_devices_gpu(f->engine->config.devices, s.device, &stream_gpu, err);
  if (status != TDICT_OK) return status;
  status = tdict_gpu_enter(stream_gpu, &scope, err);
  if (status == TDICT_OK) status = tdict_gpu_refuse_capture(stream_gpu, s.handle, "wait_on_stream", err);
  if (status == TDICT_OK) status = queue_tail_waits(f, stream_gpu, s.handle, err);
  tdict_gpu_leave(stream_gpu, &scope);
  return status;
}

static tdict_status wait_on_stream(tdict_future *f, tdict_stream s, tdict_error *err) {
  if (!wait_until_queued(f)) tdict_transfer_wait(f, &f->ended, INT64_MAX);
  if (tdict_transfer_is_open(f, &f->ended)) return TDICT_OK;
  pthread_mutex_lock(&f->error_lock);
  /* The transfer may have ended meanwhile. While error_lock is held, the outcome cannot become final, so the tail
   * events stay valid. */
  const tdict_status status = f->outcome_is_final ? TDICT_OK : queue_waits_of(f, s, err);
  pthread_mutex_unlock(&f->error_lock);
  return status;
}

/* If no thread runs the deferred tail yet (see run/worker.h), this thread does so. This thread then need not wait until
 * a pool thread wakes up. */
static void help(tdict_future *f) {
  if (f->deferred_tail) tdict_deferred_tail_run(f);
}

const tdict_future_kind tdict_transfer_kind = {
    .fence = {tdict_future_fence_poll, tdict_future_fence_wait, fence_wait_on_stream, tdict_future_fence_retain,
              tdict_future_fence_release},
    .help = help,
    .wait_on_stream = wait_on_stream,
    .is_inside = tdict_hooks_is_inside,
};

/* Checks the stream before the state of the transfer, so that a wrong stream is always an error. */
static tdict_status check_wait_stream(const tdict_future *f, tdict_stream s, tdict_error *err) {
  static const char what[] = "wait_on_stream";
  char name[32];
  tdict_gpu_scope scope;
  tdict_status status = tdict_stream_check(&f->streams, s, what, err);
  if (status != TDICT_OK || !f->gpu) return status;
  if (s.device.type != f->gpu->memory.device.type)
    return tdict_fail(err, TDICT_EWRONGDEVICE, "%s: the stream is of %s, which the transfer did not use", what,
                      tdict_device_format(s.device, name, sizeof name));
  tdict_error cause;
  if (tdict_gpu_enter(f->gpu, &scope, NULL) == TDICT_OK)
    status = tdict_gpu_refuse_capture(f->gpu, s.handle, what, &cause);
  tdict_gpu_leave(f->gpu, &scope);
  /* ignore a lost device here, because the transfer's own error has the cause */
  if (status == TDICT_OK || status == TDICT_ELOST) return TDICT_OK;
  if (err) *err = cause;
  return status;
}

tdict_status tdict_future_wait_on_stream(tdict_future *future, tdict_stream stream, tdict_tree **out,
                                         tdict_error *err) {
  tdict_status status = check_may_wait(future, err);
  if (status == TDICT_OK) status = check_wait_stream(future, stream, err);
  if (status == TDICT_OK) status = future->kind->wait_on_stream(future, stream, err);
  if (status != TDICT_OK) return status;
  if (tdict_transfer_is_open(future, &future->ended)) return return_outcome(future, out, err);
  pthread_mutex_lock(&future->error_lock);
  const bool ended = future->outcome_is_final;
  if (!ended && out) {
    future->result_was_returned = true;
    *out = tdict_retain(future->result);
  }
  pthread_mutex_unlock(&future->error_lock);
  if (!ended) return TDICT_OK;
  tdict_transfer_wait(future, &future->ended, INT64_MAX);
  return return_outcome(future, out, err);
}

void tdict_future_cancel(tdict_future *future) {
  if (!future || tdict_forkmark_forked(future->mark) || tdict_latch_is_zero(&future->ended)) return;
  tdict_error err;
  (void)!tdict_fail(&err, TDICT_ECANCELLED, "transfer: cancelled");
  tdict_transfer_fail_at(future, "", &err);
  if (future->kind->cancel) future->kind->cancel(future);
}

tdict_future_phase tdict_future_state(const tdict_future *future) {
  tdict_future *t = (tdict_future *)(uintptr_t)future;
  if (!tdict_transfer_is_open(t, &t->ended)) return TDICT_FUTURE_PENDING;
  return t->error.status == TDICT_ECANCELLED ? TDICT_FUTURE_CANCELLED
         : t->error.status                   ? TDICT_FUTURE_FAILED
                                             : TDICT_FUTURE_DONE;
}

bool tdict_future_is_ready(const tdict_future *future) { return tdict_future_state(future) != TDICT_FUTURE_PENDING; }

tdict_status tdict_future_get_stats(const tdict_future *future, tdict_transfer_stats *out, tdict_error *err) {
  if (!future || !out) return tdict_fail(err, TDICT_EINVAL, "future: %s is NULL", future ? "out" : "future");
  if (!tdict_future_is_ready(future)) return tdict_fail(err, TDICT_EINVAL, "future: the transfer has not ended");
  return tdict_options_write(out, &future->stats, sizeof future->stats, "stats", err);
}
