/* Implements tdict_save_async(): starts a transfer that copies the tree, and writes the copy on a new thread. The
 * handle and the thread each hold a reference to a tdict_saving. Thread-safe. */
#include "tdict/saving.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/thread.h"
#include "core/sched/latch.h"
#include "engine/engine.h"
#include "engine/start.h"
#include "services/io/request.h"
#include "tdict/clone.h"

static const char what[] = "save_async";

struct tdict_saving {
  tdict_engine_job job;
  _Atomic(int) refs;      /* acq_rel */
  tdict_context *context; /* must not be used after tdict_engine_end_job() */
  tdict_forkmark *mark;   /* retained; keeps the log */
  char *path;             /* owned */
  tdict_save_options options;
  pthread_mutex_t lock;   /* guards: snapshot, has_ended, is_released */
  tdict_future *snapshot; /* retained; NULL after the file was written, so that the memory of the copy is free */
  bool has_ended;         /* the outcome of the save is final */
  bool is_released;       /* the program has dropped the handle */
  tdict_tree *tree;       /* retained: a tree without tensors, which needs no snapshot; else NULL */
  _Atomic(bool) is_cancelled, error_was_reported; /* relaxed */
  tdict_latch copied, ended;
  tdict_error copy_error, error; /* constant after the latches `copied` and `ended` are open */
};

/* Logs the error of the save if no call has returned the error. Call after the save has ended and the program has
 * dropped the handle. */
static void log_unreported_error(const tdict_saving *s) {
  const tdict_error *e = &s->error;
  if (!e->status || e->status == TDICT_ECANCELLED || atomic_load_explicit(&s->error_was_reported, memory_order_relaxed))
    return;
  tdict_log_write(tdict_forkmark_log(s->mark), TDICT_LOG_ERROR,
                  "a save failed and no call returned its error: %s at '%s': %s",
                  tdict_status_name((tdict_status)e->status), e->path, e->message);
}

static void drop(tdict_saving *s) {
  if (atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1) return;
  tdict_future_release(s->snapshot);
  tdict_release(s->tree);
  tdict_release((tdict_tree *)(uintptr_t)s->options.metadata);
  tdict_latch_destroy(&s->copied);
  tdict_latch_destroy(&s->ended);
  pthread_mutex_destroy(&s->lock);
  tdict_forkmark_release(s->mark);
  free(s->path);
  free(s);
}

/* Returns the future of the snapshot with a new reference, or NULL if the snapshot is not used any more. */
static tdict_future *hold_snapshot(tdict_saving *s) {
  pthread_mutex_lock(&s->lock);
  tdict_future *f = tdict_future_retain(s->snapshot);
  pthread_mutex_unlock(&s->lock);
  return f;
}

/* Makes the outcome final and frees the memory of the copy. */
static void settle(tdict_saving *s) {
  pthread_mutex_lock(&s->lock);
  tdict_future *f = s->snapshot;
  const bool is_released = s->is_released;
  s->snapshot = NULL;
  s->has_ended = true;
  pthread_mutex_unlock(&s->lock);
  tdict_future_release(f);
  if (is_released) log_unreported_error(s);
}

static tdict_status write_copy(tdict_saving *s, const tdict_tree *tree, tdict_error *err) {
  /* One thread writes, so that the save leaves the pool and most slots of the ring to the program. */
  tdict_save_request request = {
      .what = what, .path = s->path, .options = &s->options, .watch = {&s->is_cancelled, NULL}, .num_threads = 0};
  tdict_engine_await_turn(tdict_context_engine(s->context), &s->job);
  if (!atomic_load_explicit(&s->is_cancelled, memory_order_relaxed))
    return tdict_save_request_run(&request, s->context, tree, err);
  tdict_fail(err, TDICT_ECANCELLED, "%s: cancelled", what);
  return tdict_error_at(err, TDICT_ECANCELLED, s->path);
}

/* Waits for the snapshot, and writes the file. Drops the thread's reference. */
static void *run(void *argument) {
  tdict_saving *s = argument;
  tdict_tree *tree = s->tree ? tdict_retain(s->tree) : NULL;
  if (s->snapshot && tdict_future_wait(s->snapshot, &tree, &s->copy_error) != TDICT_OK) s->error = s->copy_error;
  tdict_latch_open(&s->copied);
  if (!s->error.status) (void)!write_copy(s, tree, &s->error);
  tdict_release(tree);
  settle(s);
  tdict_engine_end_job(tdict_context_engine(s->context), &s->job);
  tdict_latch_open(&s->ended);
  drop(s);
  return NULL;
}

/* Writes the error of an attempt after which no other attempt follows. */
static tdict_status report(tdict_status status, const tdict_error *why, tdict_error *err) {
  if (status != TDICT_OK && err) *err = *why;
  return status;
}

/* Starts the copies to a device or to host memory. */
static tdict_status start_copies(tdict_saving *s, const tdict_tree *tree, tdict_device device, tdict_error *err) {
  const bool to_host = device.type == TDICT_DEVICE_CPU;
  tdict_start start = {.what = what, .src = tree, .device = device, .copies = true};
  start.options = tdict_transfer_options_default();
  start.options.after = s->options.after;
  start.options.pinned_result = to_host;
  start.options.keep_objects = true; /* the writer names an object that it cannot write */
  tdict_error why;
  tdict_status status = tdict_start_transfer(s->context, &start, &s->snapshot, &why);
  if (status != TDICT_ENODEVICE || !to_host) return report(status, &why, err);
  start.options.pinned_result = false; /* a context without devices has no pinned memory */
  return tdict_start_transfer(s->context, &start, &s->snapshot, err);
}

static tdict_status start_snapshot(tdict_saving *s, const tdict_tree *tree, tdict_error *err) {
  tdict_save_places places;
  tdict_status status = tdict_save_find_places(tree, &places, err);
  if (status != TDICT_OK) return status;
  const bool is_on_one_device = places.has_device && !places.is_mixed;
  if (s->options.snapshot == TDICT_SNAPSHOT_DEVICE && !is_on_one_device)
    return tdict_fail(err, TDICT_EINVAL,
                      "%s: the snapshot must be on the device, but not all tensors are on one device", what);
  if (!places.num_tensors) return tdict_clone(tree, &s->tree, err);
  if (s->options.snapshot == TDICT_SNAPSHOT_HOST || !is_on_one_device) return start_copies(s, tree, tdict_cpu(), err);
  tdict_error why;
  status = start_copies(s, tree, places.device, &why);
  if (status != TDICT_ENOMEM || s->options.snapshot == TDICT_SNAPSHOT_DEVICE) return report(status, &why, err);
  return start_copies(s, tree, tdict_cpu(), err);
}

/* Creates a tdict_saving whose `snapshot` is NULL. */
static tdict_status create(tdict_context *context, const char *path, const tdict_save_options *options,
                           tdict_saving **out, tdict_error *err) {
  const tdict_engine *engine = tdict_context_engine(context);
  tdict_saving *s = calloc(1, sizeof *s);
  if (s) s->path = strdup(path);
  if (!s || !s->path) {
    free(s);
    return tdict_fail(err, TDICT_ENOMEM, "%s: no host memory for its record", what);
  }
  s->context = context;
  s->options = *options;
  s->mark = tdict_forkmark_retain(engine->config.mark);
  pthread_mutex_init(&s->lock, NULL);
  tdict_latch_init(&s->copied, 1);
  tdict_latch_init(&s->ended, 1);
  atomic_init(&s->refs, 1);
  *out = s;
  return TDICT_OK;
}

tdict_status tdict_save_async(tdict_context *context, const char *path, const tdict_tree *tree,
                              const tdict_save_options *options, tdict_saving **out, tdict_error *err) {
  TDICT_UNCANCELLED;
  tdict_save_options o;
  tdict_saving *s;
  tdict_tree *metadata = NULL;
  pthread_t thread;
  if (!context || !out) return tdict_fail(err, TDICT_EINVAL, "%s: %s is NULL", what, context ? "out" : "context");
  tdict_engine *engine = tdict_context_engine(context);
  tdict_status status = tdict_forkmark_check(engine->config.mark, what, err);
  if (status == TDICT_OK) status = tdict_save_read_options(what, path, tree, options, &o, err);
  /* The program may change its tree after the call. */
  if (status == TDICT_OK && o.metadata) status = tdict_clone(o.metadata, &metadata, err);
  o.metadata = metadata;
  if (status == TDICT_OK) status = create(context, path, &o, &s, err);
  if (status != TDICT_OK) {
    tdict_release(metadata);
    return status;
  }
  status = start_snapshot(s, tree, err);
  if (status != TDICT_OK) {
    drop(s);
    return status;
  }
  s->options.after = NULL; /* borrowed for the call; the copies are ordered already */
  tdict_engine_begin_job(engine, &s->job);
  atomic_store_explicit(&s->refs, 2, memory_order_relaxed);
  if (tdict_thread_create(&thread, run, s) == 0)
    pthread_detach(thread);
  else
    run(s);
  *out = s;
  return TDICT_OK;
}

/* Waits for a latch, and returns the error that belongs to the latch. */
static tdict_status wait_for(tdict_saving *s, tdict_latch *latch, const tdict_error *result, tdict_error *err) {
  if (tdict_forkmark_forked(s->mark) && atomic_load_explicit(&latch->count, memory_order_relaxed) != 0)
    return tdict_fail(err, TDICT_EFORKED, "%s: this process is a fork; its parent saves the tree", what);
  if (!tdict_forkmark_forked(s->mark)) {
    /* Wait for the future first: during this wait, a thread of the pool runs other tasks, which the snapshot may
     * need. */
    tdict_future *f = hold_snapshot(s);
    if (f) (void)!tdict_future_wait(f, NULL, NULL);
    tdict_future_release(f);
    (void)tdict_latch_wait(latch, INT64_MAX);
  }
  if (!result->status) return TDICT_OK;
  if (err) {
    *err = *result;
    atomic_store_explicit(&s->error_was_reported, true, memory_order_relaxed);
  }
  return (tdict_status)result->status;
}

tdict_status tdict_saving_wait_source(tdict_saving *saving, tdict_error *err) {
  TDICT_UNCANCELLED;
  if (!saving) return tdict_fail(err, TDICT_EINVAL, "%s: saving is NULL", what);
  return wait_for(saving, &saving->copied, &saving->copy_error, err);
}

tdict_status tdict_saving_wait_on_stream(tdict_saving *saving, tdict_stream stream, tdict_error *err) {
  if (!saving) return tdict_fail(err, TDICT_EINVAL, "%s: saving is NULL", what);
  tdict_future *f = tdict_forkmark_forked(saving->mark) ? NULL : hold_snapshot(saving);
  if (!f) return tdict_saving_wait_source(saving, err);
  tdict_status status = tdict_future_wait_on_stream(f, stream, NULL, err);
  tdict_future_release(f);
  return status;
}

tdict_status tdict_saving_wait(tdict_saving *saving, tdict_error *err) {
  TDICT_UNCANCELLED;
  if (!saving) return tdict_fail(err, TDICT_EINVAL, "%s: saving is NULL", what);
  return wait_for(saving, &saving->ended, &saving->error, err);
}

bool tdict_saving_is_done(const tdict_saving *saving) {
  TDICT_UNCANCELLED;
  return atomic_load_explicit(&saving->ended.count, memory_order_acquire) == 0;
}

void tdict_saving_cancel(tdict_saving *saving) {
  if (!saving || tdict_forkmark_forked(saving->mark)) return;
  tdict_future *f = hold_snapshot(saving);
  atomic_store_explicit(&saving->is_cancelled, true, memory_order_relaxed);
  tdict_future_cancel(f);
  tdict_future_release(f);
}

void tdict_saving_release(tdict_saving *saving) {
  TDICT_UNCANCELLED;
  if (!saving || tdict_forkmark_forked(saving->mark)) return;
  pthread_mutex_lock(&saving->lock);
  const bool has_ended = saving->has_ended;
  saving->is_released = true;
  pthread_mutex_unlock(&saving->lock);
  if (has_ended) log_unreported_error(saving);
  drop(saving);
}
