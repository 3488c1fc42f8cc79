/* Implements futures: references, the first error, waiting, and the public functions. A transfer or a promise is a
 * future with more fields: see future.h for ownership. Thread rule: safe from any thread. */
#include "engine/future.h"

#include <stdlib.h>

#include "core/base/assert.h"
#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/options.h"
#include "core/base/thread.h"

/* While a pool thread waits for a future, the thread looks for other tasks at least once in this interval. */
enum { HELP_EVERY_NS = 200000 };

/* The functions of the fence are the first member of a kind. */
static const tdict_future_kind *kind_of(const tdict_future *f) { return (const tdict_future_kind *)f->fence.ops; }

/* A forked child has no other threads. A thread of the parent may have held the latch's lock when the child was forked.
 * The child therefore reads the count without locking. */
bool tdict_future_is_open(const tdict_future *f, tdict_latch *latch) {
  return tdict_forkmark_forked(f->mark) ? latch->count == 0 : tdict_latch_is_zero(latch);
}

/* Like tdict_future_wait_latch(), but pthread_cancel() ends the wait, so hold nothing that others wait for. */
static bool wait_cancellable(tdict_future *f, tdict_latch *latch, int64_t deadline_ns) {
  if (tdict_forkmark_forked(f->mark)) return latch->count == 0;
  if (tdict_latch_is_zero(latch)) return true;
  if (!tdict_pool_is_worker(f->pool)) return tdict_latch_wait_cancellable(latch, deadline_ns);
  for (;;) {
    int64_t now = tdict_now_ns();
    if (now >= deadline_ns) return tdict_latch_is_zero(latch);
    if (tdict_pool_help(f->pool, f)) continue;
    if (tdict_latch_wait(latch, deadline_ns - now < HELP_EVERY_NS ? deadline_ns : now + HELP_EVERY_NS)) return true;
  }
}

bool tdict_future_wait_latch(tdict_future *f, tdict_latch *latch, int64_t deadline_ns) {
  TDICT_UNCANCELLED;
  return wait_cancellable(f, latch, deadline_ns);
}

bool tdict_future_fence_poll(tdict_fence *fence) {
  tdict_future *f = (tdict_future *)fence;
  return tdict_future_is_open(f, &f->ended);
}
bool tdict_future_fence_wait(tdict_fence *fence, int64_t deadline_ns) {
  tdict_future *f = (tdict_future *)fence;
  return tdict_future_wait_latch(f, &f->ended, deadline_ns);
}
void tdict_future_fence_retain(tdict_fence *fence) {
  atomic_fetch_add_explicit(&((tdict_future *)fence)->refs, 1, memory_order_relaxed);
}
void tdict_future_fence_release(tdict_fence *fence) { tdict_future_drop((tdict_future *)fence); }

void tdict_future_init(tdict_future *f, tdict_engine *engine, const tdict_future_kind *kind) {
  f->fence.ops = &kind->fence;
  atomic_init(&f->refs, 1);
  atomic_init(&f->handles, 1);
  f->engine = engine;
  f->pool = engine->config.pool;
  f->error_leaf = UINT32_MAX;
  pthread_mutex_init(&f->error_lock, NULL);
  f->mark = tdict_forkmark_retain(engine->config.mark);
  f->streams = tdict_devices_streams(engine->config.devices);
  f->stats.struct_size = sizeof f->stats;
  tdict_latch_init(&f->ended, 1);
}

void tdict_future_count_live(tdict_future *f) {
  TDICT_ASSERT(tdict_lock_is_held(&f->engine->lock));
  atomic_fetch_add_explicit(&f->refs, 1, memory_order_relaxed);
  f->engine->num_live++;
}

void tdict_future_end_live(tdict_future *f) {
  tdict_engine *e = f->engine;
  tdict_future_drop(f);
  pthread_mutex_lock(&e->lock);
  TDICT_ASSERT(e->num_live > 0);
  if (--e->num_live == 0) pthread_cond_broadcast(&e->idle);
  pthread_mutex_unlock(&e->lock);
}

void tdict_future_begin_part(tdict_future *promise, tdict_future *part) {
  atomic_fetch_add_explicit(&promise->refs, 1, memory_order_relaxed);
  kind_of(promise)->part_began(promise);
  atomic_store_explicit(&part->part_of, promise, memory_order_release);
}

void tdict_future_end_part(tdict_future *part) {
  tdict_future *promise = atomic_exchange_explicit(&part->part_of, NULL, memory_order_acq_rel);
  if (!promise) return;
  kind_of(promise)->part_ended(promise, part);
  tdict_future_drop(promise);
}

/* Logs the transfer's error if no call has returned the error. Cancelling is not logged. */
static void log_unreported_error(const tdict_future *f) {
  const tdict_error *e = &f->error;
  if (e->status == TDICT_ECANCELLED || atomic_load_explicit(&f->error_was_reported, memory_order_relaxed)) return;
  tdict_log_write(tdict_forkmark_log(f->mark), TDICT_LOG_ERROR,
                  "a %s failed and no call returned its error: %s at '%s': %s", kind_of(f)->name,
                  tdict_status_name((tdict_status)e->status), e->path, e->message);
}

static void free_future(tdict_future *f) {
  if (f->error.status) log_unreported_error(f);
  kind_of(f)->free(f);
  if (f->result) tdict_release(f->result);
  tdict_latch_destroy(&f->ended);
  pthread_mutex_destroy(&f->error_lock);
  tdict_forkmark_release(f->mark);
  free(f);
}

/* In a forked child, events and streams belong to the parent process, so nothing is freed. */
void tdict_future_drop(tdict_future *f) {
  if (atomic_fetch_sub_explicit(&f->refs, 1, memory_order_acq_rel) != 1) return;
  if (!tdict_forkmark_forked(f->mark)) free_future(f);
}

void tdict_future_fail(tdict_future *f, uint32_t leaf, const char *path, const tdict_error *error) {
  pthread_mutex_lock(&f->error_lock);
  if (!f->error.status && !f->outcome_is_final) {
    f->error = *error;
    f->error_leaf = leaf;
    if (path[0]) tdict_error_at(&f->error, TDICT_OK, path);
  }
  pthread_mutex_unlock(&f->error_lock);
  atomic_store_explicit(&f->failed, true, memory_order_relaxed);
}

bool tdict_future_has_failed(const tdict_future *f) { return atomic_load_explicit(&f->failed, memory_order_relaxed); }

void tdict_future_end(tdict_future *f, tdict_tree *result, const tdict_error *error) {
  if (error) tdict_future_fail(f, UINT32_MAX, "", error);
  pthread_mutex_lock(&f->error_lock);
  if (result) f->result = result;
  f->outcome_is_final = true;
  pthread_mutex_unlock(&f->error_lock);
  f->stats.total_seconds = 1e-9 * (double)(tdict_now_ns() - f->begin_ns);
  tdict_latch_open(&f->ended);
  tdict_future_end_live(f);
}

tdict_future *tdict_future_retain(const tdict_future *future) {
  if (!future) return NULL;
  tdict_future *f = (tdict_future *)(uintptr_t)future;
  atomic_fetch_add_explicit(&f->handles, 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&f->refs, 1, memory_order_relaxed);
  return f;
}

/* Drops the result with the last handle if the transfer has ended. The last reference may come later, because the
 * worker that ended the transfer may still hold one. */
void tdict_future_release(tdict_future *future) {
  if (!future || tdict_forkmark_forked(future->mark)) return;
  if (atomic_fetch_sub_explicit(&future->handles, 1, memory_order_acq_rel) == 1 &&
      tdict_latch_is_zero(&future->ended)) {
    tdict_release(future->result);
    future->result = NULL;
  }
  if (atomic_fetch_sub_explicit(&future->refs, 1, memory_order_acq_rel) == 1) free_future(future);
}

/* Returns the outcome: the error, which then is not logged later, or a new reference to the result. */
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

/* Returns TDICT_OK if this thread runs no hook of f, else the error. */
static tdict_status check_not_inside(const tdict_future *f, tdict_error *err) {
  if (!f) return tdict_fail(err, TDICT_EINVAL, "future: future is NULL");
  if (tdict_pool_thread_data() && kind_of(f)->is_inside(f))
    return tdict_fail(err, TDICT_EDEADLOCK, "future: a hook waits for the %s that runs it", kind_of(f)->name);
  return TDICT_OK;
}

/* Returns TDICT_OK if this thread may wait for f, else the reason why not. */
static tdict_status check_may_wait(const tdict_future *f, tdict_error *err) {
  tdict_status status = check_not_inside(f, err);
  if (status == TDICT_OK && tdict_forkmark_forked(f->mark) && f->ended.count != 0)
    status =
        tdict_fail(err, TDICT_EFORKED, "future: this process is a fork; the %s runs in its parent", kind_of(f)->name);
  return status;
}

tdict_status tdict_future_wait(tdict_future *future, tdict_tree **out, tdict_error *err) {
  if (future && tdict_future_is_open(future, &future->ended)) return return_outcome(future, out, err);
  tdict_status status = check_may_wait(future, err);
  if (status != TDICT_OK) return status;
  kind_of(future)->help(future);
  wait_cancellable(future, &future->ended, INT64_MAX);
  return return_outcome(future, out, err);
}

tdict_status tdict_future_wait_for(tdict_future *future, int64_t timeout_ns, tdict_tree **out, tdict_error *err) {
  tdict_status status = check_may_wait(future, err);
  if (status != TDICT_OK) return status;
  if (timeout_ns < 0)
    return tdict_fail(err, TDICT_EINVAL, "future: timeout_ns is %lld, wanted 0 or more", (long long)timeout_ns);
  if (!wait_cancellable(future, &future->ended, tdict_deadline_ns(timeout_ns)))
    return tdict_fail(err, TDICT_ETIMEDOUT, "future: the %s has not ended after %lld ns", kind_of(future)->name,
                      (long long)timeout_ns);
  return return_outcome(future, out, err);
}

tdict_status tdict_future_take(tdict_future *future, tdict_tree **out, tdict_error *err) {
  TDICT_UNCANCELLED; /* the future would not be released */
  tdict_status status = tdict_future_wait(future, out, err);
  tdict_future_release(future);
  return status;
}

/* A transfer is waited for to its end, because the driver may read pinned sources until then. */
tdict_status tdict_future_wait_source(tdict_future *future, tdict_error *err) {
  if (!future || !kind_of(future)->wait_source) return tdict_future_wait(future, NULL, err);
  tdict_status status = check_not_inside(future, err);
  return status == TDICT_OK ? kind_of(future)->wait_source(future, err) : status;
}

tdict_status tdict_future_wait_on_stream(tdict_future *future, tdict_stream stream, tdict_tree **out,
                                         tdict_error *err) {
  tdict_status status = check_may_wait(future, err);
  /* check the stream before the state of the future, so that a wrong stream is always an error */
  if (status == TDICT_OK) status = tdict_stream_check(&future->streams, stream, "wait_on_stream", err);
  if (status == TDICT_OK) status = kind_of(future)->wait_on_stream(future, stream, err);
  if (status != TDICT_OK) return status;
  if (tdict_future_is_open(future, &future->ended)) return return_outcome(future, out, err);
  pthread_mutex_lock(&future->error_lock);
  const bool ended = future->outcome_is_final;
  if (!ended && out) {
    future->result_was_returned = true;
    *out = future->result ? tdict_retain(future->result) : NULL;
  }
  pthread_mutex_unlock(&future->error_lock);
  if (!ended) return TDICT_OK;
  tdict_future_wait_latch(future, &future->ended, INT64_MAX);
  return return_outcome(future, out, err);
}

void tdict_future_cancel(tdict_future *future) {
  if (!future || tdict_forkmark_forked(future->mark) || tdict_latch_is_zero(&future->ended)) return;
  tdict_error err;
  if (!kind_of(future)->decides_cancel) {
    (void)!tdict_fail(&err, TDICT_ECANCELLED, "%s: cancelled", kind_of(future)->name);
    tdict_future_fail(future, UINT32_MAX, "", &err);
  }
  if (kind_of(future)->cancel) kind_of(future)->cancel(future);
}

tdict_future_phase tdict_future_state(const tdict_future *future) {
  tdict_future *f = (tdict_future *)(uintptr_t)future;
  if (!tdict_future_is_open(f, &f->ended)) return TDICT_FUTURE_PENDING;
  return f->error.status == TDICT_ECANCELLED ? TDICT_FUTURE_CANCELLED
         : f->error.status                   ? TDICT_FUTURE_FAILED
                                             : TDICT_FUTURE_DONE;
}

tdict_status tdict_future_get_stats(const tdict_future *future, tdict_transfer_stats *out, tdict_error *err) {
  if (!future || !out) return tdict_fail_null(err, "future", future ? "out" : "future");
  if (!tdict_future_is_ready(future))
    return tdict_fail(err, TDICT_EINVAL, "future: the %s has not ended", kind_of(future)->name);
  return tdict_options_write(out, &future->stats, sizeof future->stats, "stats", err);
}
