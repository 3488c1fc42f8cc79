/* Implements tdict_save_async(): starts a transfer that copies the tree, and writes the copy on a new thread. A save is
 * a kind of future: the thread holds the reference for the work. Thread-safe. */
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/thread.h"
#include "engine/future.h"
#include "engine/start.h"
#include "engine/transfer.h"
#include "services/io/request.h"
#include "tdict/clone.h"

static const char what[] = "save_async";

typedef struct saving {
  tdict_future future; /* first member, so that a pointer to the saving is also a pointer to the future */
  tdict_engine_job job;
  tdict_context *context; /* must not be used after the future has ended */
  char *path;             /* owned */
  tdict_save_options options;
  pthread_mutex_t lock;       /* guards: snapshot */
  tdict_future *snapshot;     /* retained; NULL after the file was written, so that the memory of the copy is free */
  tdict_tree *tree;           /* retained: a tree without tensors, which needs no snapshot; else NULL */
  _Atomic(bool) is_cancelled; /* relaxed */
  tdict_latch copied;
  tdict_error copy_error; /* constant after the latch `copied` is open */
} saving;

static void free_saving(tdict_future *f) {
  saving *s = (saving *)f;
  tdict_future_release(s->snapshot);
  tdict_release(s->tree);
  tdict_release((tdict_tree *)(uintptr_t)s->options.metadata);
  tdict_latch_destroy(&s->copied);
  pthread_mutex_destroy(&s->lock);
  free(s->path);
}

/* Returns the future of the snapshot with a new reference, or NULL if the snapshot is not used any more. */
static tdict_future *hold_snapshot(saving *s) {
  pthread_mutex_lock(&s->lock);
  tdict_future *snapshot = tdict_future_retain(s->snapshot);
  pthread_mutex_unlock(&s->lock);
  return snapshot;
}

/* Frees the memory of the copy. */
static void drop_snapshot(saving *s) {
  pthread_mutex_lock(&s->lock);
  tdict_future *snapshot = s->snapshot;
  s->snapshot = NULL;
  pthread_mutex_unlock(&s->lock);
  tdict_future_release(snapshot);
}

/* Does the part of the snapshot that no thread has begun. */
static void help(tdict_future *f) {
  tdict_future *snapshot = hold_snapshot((saving *)f);
  if (snapshot) tdict_transfer_kind.help(snapshot);
  tdict_future_release(snapshot);
}

static bool is_inside(const tdict_future *f) {
  tdict_future *snapshot = hold_snapshot((saving *)(uintptr_t)f);
  const bool inside = snapshot && tdict_transfer_kind.is_inside(snapshot);
  tdict_future_release(snapshot);
  return inside;
}

/* Waits for the snapshot. An error of the file is not an error of the source. */
static tdict_status wait_source(tdict_future *f, tdict_error *err) {
  saving *s = (saving *)f;
  if (!tdict_future_is_open(f, &s->copied) && tdict_forkmark_forked(f->mark))
    return tdict_fail(err, TDICT_EFORKED, "future: this process is a fork; its parent saves the tree");
  help(f);
  (void)tdict_future_wait_latch(f, &s->copied, INT64_MAX);
  if (s->copy_error.status && err) {
    *err = s->copy_error;
    atomic_store_explicit(&f->error_was_reported, true, memory_order_relaxed);
  }
  return (tdict_status)s->copy_error.status;
}

static tdict_status wait_on_stream(tdict_future *f, tdict_stream stream, tdict_error *err) {
  tdict_future *snapshot = hold_snapshot((saving *)f);
  tdict_status status = snapshot ? tdict_future_wait_on_stream(snapshot, stream, NULL, err) : wait_source(f, err);
  tdict_future_release(snapshot);
  return status;
}

/* The writer decides whether the request comes in time. */
static void cancel(tdict_future *f) {
  saving *s = (saving *)f;
  tdict_future *snapshot = hold_snapshot(s);
  atomic_store_explicit(&s->is_cancelled, true, memory_order_relaxed);
  tdict_future_cancel(snapshot);
  tdict_future_release(snapshot);
}

static const tdict_future_kind saving_kind = {
    .fence = {tdict_future_fence_poll, tdict_future_fence_wait, NULL, tdict_future_fence_retain,
              tdict_future_fence_release},
    .name = "save",
    .help = help,
    .wait_source = wait_source,
    .wait_on_stream = wait_on_stream,
    .cancel = cancel,
    .decides_cancel = true,
    .is_inside = is_inside,
    .free = free_saving,
};

static tdict_status write_copy(saving *s, const tdict_tree *tree, tdict_error *err) {
  /* One thread writes, so that the save leaves the pool and most slots of the ring to the program. */
  tdict_save_request request = {.what = what,
                                .path = s->path,
                                .options = &s->options,
                                .watch = {.is_cancelled = &s->is_cancelled},
                                .num_threads = 0};
  tdict_engine_await_turn(tdict_context_engine(s->context), &s->job);
  if (!atomic_load_explicit(&s->is_cancelled, memory_order_relaxed))
    return tdict_save_request_run(&request, s->context, tree, err);
  tdict_fail(err, TDICT_ECANCELLED, "%s: cancelled", what);
  return tdict_error_at(err, TDICT_ECANCELLED, s->path);
}

/* Waits for the snapshot, writes the file and ends the future. */
static void *run(void *argument) {
  saving *s = argument;
  tdict_tree *tree = s->tree ? tdict_retain(s->tree) : NULL;
  tdict_error error = {0};
  tdict_status status = TDICT_OK;
  if (s->snapshot) {
    status = tdict_future_wait(s->snapshot, &tree, &s->copy_error);
    error = s->copy_error;
    (void)!tdict_future_get_stats(s->snapshot, &s->future.stats, NULL);
  }
  tdict_latch_open(&s->copied);
  if (status == TDICT_OK) status = write_copy(s, tree, &error);
  tdict_release(tree);
  drop_snapshot(s);
  tdict_engine_end_job(s->future.engine, &s->job);
  tdict_future_end(&s->future, NULL, status == TDICT_OK ? NULL : &error);
  return NULL;
}

static void *run_thread(void *argument) {
  tdict_thread_set_name("save");
  return run(argument);
}

/* Writes the error of the last attempt. */
static tdict_status report(tdict_status status, const tdict_error *why, tdict_error *err) {
  if (status != TDICT_OK && err) *err = *why;
  return status;
}

static tdict_status start_copies(saving *s, const tdict_tree *tree, tdict_device device, tdict_error *err) {
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

static tdict_status start_snapshot(saving *s, const tdict_tree *tree, tdict_error *err) {
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

/* Creates a saving whose `snapshot` is NULL. */
static tdict_status create(tdict_context *context, const char *path, const tdict_save_options *options, saving **out,
                           tdict_error *err) {
  saving *s = calloc(1, sizeof *s);
  if (s) s->path = strdup(path);
  if (!s || !s->path) {
    free(s);
    return tdict_fail_memory(err, what, NULL, "its record");
  }
  tdict_future_init(&s->future, tdict_context_engine(context), &saving_kind);
  s->context = context;
  s->options = *options;
  s->future.begin_ns = tdict_now_ns();
  pthread_mutex_init(&s->lock, NULL);
  tdict_latch_init(&s->copied, 1);
  *out = s;
  return TDICT_OK;
}

static void start_thread(saving *s) {
  tdict_engine *engine = s->future.engine;
  pthread_t thread;
  pthread_mutex_lock(&engine->lock);
  tdict_future_count_live(&s->future);
  pthread_mutex_unlock(&engine->lock);
  tdict_engine_begin_job(engine, &s->job);
  if (tdict_thread_create(&thread, run_thread, s) == 0)
    pthread_detach(thread);
  else
    run(s);
}

tdict_status tdict_save_async(tdict_context *context, const char *path, const tdict_tree *tree,
                              const tdict_save_options *options, tdict_future **out, tdict_error *err) {
  TDICT_UNCANCELLED;
  tdict_save_options o;
  saving *s;
  tdict_tree *metadata = NULL;
  if (!context || !out) return tdict_fail_null(err, what, context ? "out" : "context");
  tdict_status status = tdict_forkmark_check(tdict_context_engine(context)->config.mark, what, err);
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
    tdict_future_release(&s->future);
    return status;
  }
  s->options.after = tdict_no_stream(); /* the copies are ordered already */
  start_thread(s);
  *out = &s->future;
  return TDICT_OK;
}
