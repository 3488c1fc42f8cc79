/* The functions in which a transfer differs from other futures: see tdict_future_kind for the thread rule. */
#include "core/base/assert.h"
#include "core/base/clock.h"
#include "core/base/error.h"
#include "engine/finish.h"
#include "engine/options/hooks.h"
#include "engine/worker.h"

/* Makes the stream of `gpu` wait for the tail events of all workers. Call inside a scope of the gpu, with error_lock
 * held and before the outcome is final: after that, finish.c returns the events to their GPUs. */
static tdict_status queue_tail_waits(tdict_transfer *t, tdict_gpu *gpu, tdict_cu_stream stream, tdict_error *err) {
  tdict_status status = TDICT_OK;
  TDICT_ASSERT(tdict_lock_is_held(&t->future.error_lock));
  for (int i = 0; i < t->how.num_workers && status == TDICT_OK; i++)
    if (t->workers[i].tail_gpu) status = tdict_gpu_stream_wait(gpu, stream, t->workers[i].tail, err);
  return status;
}

/* Waits until all copies are queued and the result is built. Returns false if a stream cannot wait for all copies. In
 * this case, the host must wait for the end of the transfer. */
static bool wait_until_queued(tdict_transfer *t) {
  tdict_future_wait_latch(&t->future, &t->queued, INT64_MAX);
  bool have_tails = true;
  for (int i = 0; i < t->how.num_workers; i++) have_tails &= !t->workers[i].lacks_tail;
  return have_tails && !tdict_future_has_failed(&t->future);
}

/* Implements tdict_fence_ops.wait_on_stream of transfers. If no tail event can be waited for, waits until the transfer
 * has ended, which no failure of a driver call prevents. So this function always returns TDICT_OK. */
static tdict_status fence_wait_on_stream(tdict_fence *fence, void *device, void *stream, tdict_error *err) {
  tdict_transfer *t = (tdict_transfer *)fence;
  tdict_gpu *gpu = device;
  bool waits = false;
  (void)err;
  /* The caller of a blocking transfer waits for its end, so there are no events for streams. */
  if (!t->how.caller_waits && !tdict_forkmark_forked(t->future.mark) && t->gpu && t->gpu->driver == gpu->driver &&
      wait_until_queued(t)) {
    pthread_mutex_lock(&t->future.error_lock);
    waits = !t->future.outcome_is_final && queue_tail_waits(t, gpu, stream, NULL) == TDICT_OK;
    pthread_mutex_unlock(&t->future.error_lock);
  }
  if (!waits) (void)tdict_future_wait_latch(&t->future, &t->future.ended, INT64_MAX);
  return TDICT_OK;
}

/* Makes a program's stream wait for the tail events. The caller holds error_lock; the outcome is not final. */
static tdict_status queue_waits_of(tdict_transfer *t, tdict_stream s, tdict_error *err) {
  tdict_gpu *stream_gpu; /* made current, because handle 0 means the legacy stream of the current device */
  tdict_gpu_scope scope;
  if (!t->gpu) return TDICT_OK; /* if the transfer uses no GPU, no worker has a tail event */
  tdict_status status = tdict_devices_gpu(t->future.engine->config.devices, s.device, &stream_gpu, err);
  if (status != TDICT_OK) return status;
  status = tdict_gpu_enter(stream_gpu, &scope, err);
  if (status == TDICT_OK) status = tdict_gpu_refuse_capture(stream_gpu, s.handle, "wait_on_stream", err);
  if (status == TDICT_OK) status = queue_tail_waits(t, stream_gpu, s.handle, err);
  tdict_gpu_leave(stream_gpu, &scope);
  return status;
}

/* Checks that the stream belongs to a device like those of the transfer, and that it is not being captured. */
static tdict_status check_wait_stream(const tdict_transfer *t, tdict_stream s, tdict_error *err) {
  static const char what[] = "wait_on_stream";
  tdict_gpu_scope scope;
  tdict_status status = TDICT_OK;
  if (!t->gpu) return status;
  if (s.device.type != t->gpu->memory.device.type)
    return tdict_fail(err, TDICT_EWRONGDEVICE, "%s: the stream belongs to %s, which the transfer did not use", what,
                      TDICT_DEVICE_TEXT(s.device));
  tdict_error cause;
  if (tdict_gpu_enter(t->gpu, &scope, NULL) == TDICT_OK)
    status = tdict_gpu_refuse_capture(t->gpu, s.handle, what, &cause);
  tdict_gpu_leave(t->gpu, &scope);
  /* ignore a lost device here, because the transfer's own error has the cause */
  if (status == TDICT_OK || status == TDICT_ELOST) return TDICT_OK;
  if (err) *err = cause;
  return status;
}

static tdict_status wait_on_stream(tdict_future *f, tdict_stream s, tdict_error *err) {
  tdict_transfer *t = (tdict_transfer *)f;
  tdict_status status = check_wait_stream(t, s, err);
  if (status != TDICT_OK) return status;
  if (!wait_until_queued(t)) tdict_future_wait_latch(f, &f->ended, INT64_MAX);
  if (tdict_future_is_open(f, &f->ended)) return TDICT_OK;
  pthread_mutex_lock(&f->error_lock);
  /* It may have ended meanwhile. Under error_lock the outcome cannot become final, so the tail events stay valid. */
  status = f->outcome_is_final ? TDICT_OK : queue_waits_of(t, s, err);
  pthread_mutex_unlock(&f->error_lock);
  return status;
}

/* Runs the deferred tail (see worker.h) if no thread does, so as not to wait until a pool thread wakes up. */
static void help(tdict_future *f) {
  tdict_transfer *t = (tdict_transfer *)f;
  if (t->deferred_tail) tdict_deferred_tail_run(t);
  if (t->how.spin_ns > 0) tdict_latch_spin(&f->ended, tdict_deadline_ns(t->how.spin_ns));
}

const tdict_future_kind tdict_transfer_kind = {
    .fence = {tdict_future_fence_poll, tdict_future_fence_wait, fence_wait_on_stream, tdict_future_fence_retain,
              tdict_future_fence_release},
    .name = "transfer",
    .help = help,
    .wait_on_stream = wait_on_stream,
    .is_inside = tdict_hooks_is_inside,
    .free = tdict_transfer_free,
};
