/* Builds results after the starting call. See late_result.h for ownership and threads. */
#include "transfer/late_result.h"

#include "base/thread.h"
#include "transfer/finish.h"
#include "transfer/plan/result.h"
#include "transfer/run/repeats.h"

void tdict_late_result_prepare(tdict_future *t, tdict_device device) {
  t->late_result.device = device;
  t->late_result.is_used = true;
  tdict_transfer_will_build(t);
  tdict_latch_destroy(&t->queued);
  tdict_latch_init(&t->queued, t->num_workers + 1);
  atomic_store_explicit(&t->late_result.is_offered, true, memory_order_release);
}

void tdict_late_result_run(tdict_future *t) {
  tdict_late_result *late = &t->late_result;
  if (!atomic_load_explicit(&late->is_offered, memory_order_relaxed) ||
      !atomic_exchange_explicit(&late->is_offered, false, memory_order_acq_rel))
    return;
  TDICT_UNCANCELLED;
  tdict_error err;
  if (!tdict_transfer_has_failed(t) &&
      (tdict_result_build(&t->plan, t->plans->snapshot, t->arena, &late->device, &t->result, &err) != TDICT_OK ||
       tdict_repeats_build(t, &err) != TDICT_OK))
    tdict_transfer_fail(t, UINT32_MAX, &err);
  tdict_latch_down(&t->queued);
  tdict_transfer_built(t);
}

static void run_task(tdict_task *task) {
  tdict_late_result *late = (tdict_late_result *)task;
  tdict_future *t = (tdict_future *)(void *)((char *)late - offsetof(tdict_future, late_result));
  tdict_late_result_run(t);
  tdict_transfer_release(t);
}

void tdict_late_result_submit(tdict_future *t) {
  t->late_result.task.run = run_task;
  atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
  tdict_pool_submit(t->engine->config.pool, &t->late_result.task);
}
