/* Implements uses. A use is a tdict_fence with an event on a stream of the program. The host can poll the fence or wait
 * for the fence, and another stream can wait for the fence. See use.h for ownership and threads. */
#include "device/use.h"

#include <stdlib.h>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/thread.h"

typedef tdict_use use;

/* Returns true if the event is done. If the query fails, waits for the event, because the caller may overwrite or reuse
 * the memory. If the driver cannot wait either, returns true, so that waiters return. Many storages can list one use,
 * so the driver is not asked again after the event is done. */
static bool use_poll(tdict_fence *fence) {
  use *u = (use *)fence;
  tdict_gpu_scope scope;
  if (atomic_load_explicit(&u->is_done, memory_order_acquire)) return true;
  tdict_gpu_enter_for_cleanup(u->gpu, &scope);
  if (!scope.entered) return true;
  const tdict_driver_ops *ops = u->gpu->driver->ops;
  tdict_cu result = ops->event_query(u->gpu->driver, u->event);
  if (result != TDICT_CU_SUCCESS && result != TDICT_CU_NOT_READY)
    result = ops->event_synchronize(u->gpu->driver, u->event);
  tdict_gpu_leave(u->gpu, &scope);
  if (result == TDICT_CU_SUCCESS) atomic_store_explicit(&u->is_done, true, memory_order_release);
  return result != TDICT_CU_NOT_READY;
}

static bool use_wait(tdict_fence *fence, int64_t deadline_ns) {
  use *u = (use *)fence;
  tdict_gpu_scope scope;
  const struct timespec pause = {0, 20000}; /* the driver has no wait with a timeout, so this loop polls every 20 us */
  if (deadline_ns != INT64_MAX) {
    while (!use_poll(fence)) {
      if (tdict_now_ns() >= deadline_ns) return false;
      tdict_sleep(&pause);
    }
    return true;
  }
  tdict_gpu_enter_for_cleanup(u->gpu, &scope);
  if (!scope.entered) return true;
  u->gpu->driver->ops->event_synchronize(u->gpu->driver, u->event);
  tdict_gpu_leave(u->gpu, &scope);
  return true;
}

static tdict_status use_wait_on_stream(tdict_fence *fence, void *device, void *stream, tdict_error *err) {
  use *u = (use *)fence;
  tdict_gpu *gpu = device;
  if (gpu->driver == u->gpu->driver) return tdict_gpu_stream_wait(gpu, stream, u->event, err);
  (void)use_wait(fence, INT64_MAX);
  return TDICT_OK;
}

static void use_retain(tdict_fence *fence) {
  atomic_fetch_add_explicit(&((use *)fence)->refs, 1, memory_order_relaxed);
}

static void use_release(tdict_fence *fence) {
  use *u = (use *)fence;
  if (atomic_fetch_sub_explicit(&u->refs, 1, memory_order_acq_rel) != 1) return;
  if (u->gpu->mark && tdict_forkmark_forked(u->gpu->mark)) return;
  tdict_use_reset(u);
  free(u);
}

tdict_status tdict_use_init(tdict_use *u, tdict_gpu *gpu, tdict_cu_stream stream, const char *what, tdict_error *err) {
  static const tdict_fence_ops ops = {use_poll, use_wait, use_wait_on_stream, use_retain, use_release};
  tdict_gpu_scope scope;
  tdict_status status = tdict_gpu_enter(gpu, &scope, err);
  if (status == TDICT_OK && what) status = tdict_gpu_refuse_capture(gpu, stream, what, err);
  if (status == TDICT_OK) status = tdict_gpu_take_recorded(gpu, stream, &u->event, err);
  tdict_gpu_leave(gpu, &scope);
  if (status != TDICT_OK) return status;
  u->fence.ops = &ops;
  atomic_init(&u->refs, 1);
  atomic_init(&u->is_done, false);
  u->gpu = tdict_gpu_retain(gpu);
  return TDICT_OK;
}

void tdict_use_reset(tdict_use *u) {
  tdict_gpu_give_event(u->gpu, u->event); /* waits that are already queued on streams stay valid */
  tdict_gpu_release(u->gpu);
}

tdict_status tdict_use_create(tdict_gpu *gpu, tdict_cu_stream stream, const char *what, tdict_fence **out,
                              tdict_error *err) {
  use *u = calloc(1, sizeof *u);
  if (!u) return tdict_fail(err, TDICT_ENOMEM, "stream: no host memory to record its work");
  tdict_status status = tdict_use_init(u, gpu, stream, what, err);
  if (status == TDICT_OK)
    *out = &u->fence;
  else
    free(u);
  return status;
}
