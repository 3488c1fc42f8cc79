/* Creates transfers, counts their references, stores their first error, waits for their latches, and implements the
 * fence that storages hold. See job.h for ownership and threads. */
#include "transfer/job.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "transfer/run/queue_limit.h"

/* While a pool thread waits for a transfer, the thread looks for other tasks at least once in this interval. */
enum { HELP_EVERY_NS = 200000 };

/* A forked child has no other threads. A thread of the parent may have held the latch's lock when the child was forked.
 * The child therefore reads the count without locking. */
bool tdict_transfer_is_open(const tdict_future *t, tdict_latch *latch) {
  return tdict_forkmark_forked(t->mark) ? latch->count == 0 : tdict_latch_is_zero(latch);
}

bool tdict_transfer_wait(tdict_future *t, tdict_latch *latch, int64_t deadline_ns) {
  TDICT_UNCANCELLED;
  return tdict_transfer_wait_cancellable(t, latch, deadline_ns);
}

bool tdict_transfer_wait_cancellable(tdict_future *t, tdict_latch *latch, int64_t deadline_ns) {
  if (tdict_forkmark_forked(t->mark)) return latch->count == 0;
  if (tdict_latch_is_zero(latch)) return true;
  if (!tdict_pool_is_worker(t->pool)) return tdict_latch_wait_cancellable(latch, deadline_ns);
  for (;;) {
    int64_t now = tdict_now_ns();
    if (now >= deadline_ns) return tdict_latch_is_zero(latch);
    if (tdict_pool_help(t->pool, t)) continue;
    if (tdict_latch_wait(latch, deadline_ns - now < HELP_EVERY_NS ? deadline_ns : now + HELP_EVERY_NS)) return true;
  }
}

bool tdict_future_fence_poll(tdict_fence *fence) {
  tdict_future *t = (tdict_future *)fence;
  return tdict_transfer_is_open(t, &t->ended);
}
bool tdict_future_fence_wait(tdict_fence *fence, int64_t deadline_ns) {
  tdict_future *t = (tdict_future *)fence;
  return tdict_transfer_wait(t, &t->ended, deadline_ns);
}
void tdict_future_fence_retain(tdict_fence *fence) {
  atomic_fetch_add_explicit(&((tdict_future *)fence)->refs, 1, memory_order_relaxed);
}
void tdict_future_fence_release(tdict_fence *fence) { tdict_transfer_release((tdict_future *)fence); }

tdict_status tdict_transfer_create(tdict_engine *engine, const tdict_future_kind *kind, int num_workers,
                                   tdict_future **out, tdict_error *err) {
  tdict_future *t = calloc(1, sizeof *t + (size_t)num_workers * sizeof t->workers[0]);
  if (!t) return tdict_fail(err, TDICT_ENOMEM, "transfer: no host memory for its record");
  t->fence.ops = &kind->fence;
  t->kind = kind;
  atomic_init(&t->refs, 1);
  atomic_init(&t->handles, 1);
  t->engine = engine;
  t->pool = engine->config.pool;
  t->num_workers = num_workers;
  t->num_parts = 1;
  atomic_init(&t->workers_left, num_workers);
  t->error_leaf = UINT32_MAX;
  pthread_mutex_init(&t->error_lock, NULL);
  pthread_mutex_init(&t->batch_lock, NULL);
  for (int i = 0; i < num_workers; i++) t->workers[i].transfer = t;
  tdict_latch_init(&t->ended, 1);
  tdict_latch_init(&t->may_start, 1);
  tdict_latch_init(&t->queued, num_workers);
  t->mark = tdict_forkmark_retain(engine->config.mark);
  if (engine->config.log) t->log = tdict_log_retain(engine->config.log);
  t->streams = tdict_devices_streams(engine->config.devices);
  t->stats.struct_size = sizeof t->stats;
  *out = t;
  return TDICT_OK;
}

/* Logs the transfer's error if no call has returned the error. Cancelling is not logged. */
static void log_unreported_error(const tdict_future *f) {
  const tdict_error *e = &f->error;
  if (!e->status || e->status == TDICT_ECANCELLED || atomic_load_explicit(&f->error_was_reported, memory_order_relaxed))
    return;
  tdict_log_write(f->log, TDICT_LOG_ERROR, "a transfer failed and no call returned its error: %s at '%s': %s",
                  tdict_status_name((tdict_status)e->status), e->path, e->message);
}

static void free_repeats(tdict_repeats *r) {
  for (size_t i = 0; r && i < r->count; i++) {
    tdict_storage_release(r->list[i].storage);
    tdict_release(r->list[i].tree);
  }
  free(r);
}

void tdict_transfer_release(tdict_future *f) {
  if (atomic_fetch_sub_explicit(&f->refs, 1, memory_order_acq_rel) != 1) return;
  /* In a forked child, events and streams belong to the parent process, so nothing is freed. */
  if (tdict_forkmark_forked(f->mark)) return;
  TDICT_ASSERT(!f->marked);
  log_unreported_error(f);
  if (f->traced.recording) tdict_trace_leave(&f->traced, f->begin_ns, f->plan.total_bytes);
  /* if all capacities are 0, the engine has already taken the plan's memory */
  if (f->plan.cap_items || f->plan.cap_leaves || f->plan.cap_objects) tdict_plan_reset(&f->plan);
  for (int i = 0; i < f->num_wait_events; i++) tdict_gpu_give_event(f->wait_events[i].gpu, f->wait_events[i].event);
  for (uint32_t i = 0; i < f->num_uses; i++) f->uses[i]->ops->release(f->uses[i]);
  tdict_gpu_release(f->gpu);
  if (f->arena) tdict_storage_release(f->arena);
  if (f->mirror) tdict_release(f->mirror);
  if (f->result) tdict_release(f->result);
  free_repeats(f->repeats);
  if (f->kind->free) f->kind->free(f);
  free(f->deferred_tail);
  free(f->chunk_parts);
  free(f->batch);
  if (f->queue_limit) tdict_queue_limit_free(f->queue_limit);
  free(f->writes);
  free(f->waits_for);
  free(f->uses);
  free(f->hashes);
  free(f->hooks);
  tdict_latch_destroy(&f->ended);
  tdict_latch_destroy(&f->queued);
  tdict_latch_destroy(&f->may_start);
  pthread_mutex_destroy(&f->error_lock);
  pthread_mutex_destroy(&f->batch_lock);
  if (f->log) tdict_log_release(f->log);
  tdict_forkmark_release(f->mark);
  free(f);
}

static void store_first_error(tdict_future *t, uint32_t leaf, const char *path, const tdict_error *error) {
  pthread_mutex_lock(&t->error_lock);
  if (!t->error.status && !t->outcome_is_final) {
    t->error = *error;
    t->error_leaf = leaf;
    if (path[0]) tdict_error_at(&t->error, TDICT_OK, path);
  }
  pthread_mutex_unlock(&t->error_lock);
  atomic_store_explicit(&t->failed, true, memory_order_relaxed);
}

/* Only the leaf's number is stored here. finish.c looks up the path, because another thread may still be building the
 * tree. */
void tdict_transfer_fail(tdict_future *t, uint32_t item, const tdict_error *error) {
  tdict_transfer_fail_leaf(t, item < t->plan.num_items ? t->plan.items[item].leaf : UINT32_MAX, error);
}

void tdict_transfer_fail_leaf(tdict_future *t, uint32_t leaf, const tdict_error *error) {
  store_first_error(t, leaf, "", error);
}

void tdict_transfer_fail_at(tdict_future *t, const char *path, const tdict_error *error) {
  store_first_error(t, UINT32_MAX, path, error);
}
