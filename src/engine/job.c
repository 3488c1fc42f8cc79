/* Creates and frees transfers. See job.h for ownership and threads. */
#include "engine/job.h"

#include <stdlib.h>

#include "core/base/assert.h"
#include "core/base/error.h"
#include "engine/options/batch.h"
#include "engine/options/queue_limit.h"

tdict_status tdict_transfer_create(tdict_engine *engine, int num_workers, size_t num_targets, tdict_transfer **out,
                                   tdict_error *err) {
  const size_t bytes = sizeof(tdict_transfer) + (size_t)num_workers * sizeof(tdict_worker);
  tdict_transfer *t = calloc(1, bytes + num_targets * sizeof t->targets[0]);
  if (!t) return tdict_fail(err, TDICT_ENOMEM, "transfer: no host memory for its record");
  tdict_future_init(&t->future, engine, &tdict_transfer_kind);
  t->how.num_workers = num_workers;
  t->targets = (tdict_target *)(void *)((char *)t + bytes);
  t->num_targets = num_targets;
  t->how.num_parts = 1;
  atomic_init(&t->workers_left, num_workers);
  for (int i = 0; i < num_workers; i++) t->workers[i].transfer = t;
  tdict_latch_init(&t->may_start, 1);
  tdict_latch_init(&t->queued, num_workers);
  *out = t;
  return TDICT_OK;
}

void tdict_transfer_free(tdict_future *future) {
  tdict_transfer *t = (tdict_transfer *)future;
  TDICT_ASSERT(!t->marked);
  if (t->traced.recording) tdict_trace_leave(&t->traced, future->begin_ns, tdict_plan_bytes(&t->plan));
  if (t->plan.cap || t->plan.objects) tdict_plan_reset(&t->plan); /* else the engine has taken the plan's memory */
  for (int i = 0; i < t->num_wait_events; i++) tdict_gpu_give_event(t->wait_events[i].gpu, t->wait_events[i].event);
  for (uint32_t i = 0; i < t->num_uses; i++) t->uses[i]->ops->release(t->uses[i]);
  tdict_gpu_release(t->gpu);
  for (size_t i = 0; i < t->num_targets; i++) {
    if (t->targets[i].storage) tdict_storage_release(t->targets[i].storage);
    if (t->targets[i].tree) tdict_release(t->targets[i].tree);
  }
  if (t->named) tdict_release(t->named);
  free(t->deferred_tail);
  free(t->chunk_parts);
  if (t->batch) tdict_batch_free(t->batch);
  if (t->queue_limit) tdict_queue_limit_free(t->queue_limit);
  free(t->writes);
  free(t->waits_for);
  free(t->uses);
  free(t->hashes);
  free(t->hooks);
  tdict_latch_destroy(&t->queued);
  tdict_latch_destroy(&t->may_start);
}

void tdict_transfer_fail(tdict_transfer *t, uint32_t item, const tdict_error *error) {
  tdict_future_fail(&t->future, item < t->plan.num_items ? t->plan.items[item].leaf : UINT32_MAX, "", error);
}
