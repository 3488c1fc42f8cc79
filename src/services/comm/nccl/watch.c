/* Implements the thread that ends calls of NCCL after their time limit. See watch.h for ownership and threads. */
#include "services/comm/nccl/watch.h"

#include <string.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/thread.h"

void tdict_nccl_watch_init(tdict_nccl_watch *w, const tdict_nccl_api *api) {
  memset(w, 0, sizeof *w);
  w->api = api;
  w->deadline_ns = w->sleeps_until_ns = INT64_MAX;
  pthread_mutex_init(&w->lock, NULL);
  tdict_cond_init_monotonic(&w->changed);
}

/* Aborts the parent. Call under the lock. The function unlocks while NCCL runs. */
static void abort_parent(tdict_nccl_watch *w) {
  while (w->is_aborting) tdict_cond_wait(&w->changed, &w->lock);
  tdict_nccl_comm parent = w->parent;
  if (!parent) return;
  w->parent = NULL;
  w->is_aborting = true;
  pthread_mutex_unlock(&w->lock);
  (void)w->api->abort(parent);
  pthread_mutex_lock(&w->lock);
  w->is_aborting = false;
  pthread_cond_broadcast(&w->changed);
}

void tdict_nccl_watch_abort(tdict_nccl_watch *w) {
  pthread_mutex_lock(&w->lock);
  abort_parent(w);
  pthread_mutex_unlock(&w->lock);
}

/* Sleeps until the time limit of the running call, or until a change. */
static void sleep_until_change(tdict_nccl_watch *w) {
  w->sleeps_until_ns = w->deadline_ns;
  if (w->deadline_ns == INT64_MAX) {
    tdict_cond_wait(&w->changed, &w->lock);
  } else {
    const struct timespec until = {(time_t)(w->deadline_ns / 1000000000), (long)(w->deadline_ns % 1000000000)};
    tdict_cond_wait_until(&w->changed, &w->lock, &until);
  }
  w->sleeps_until_ns = 0; /* awake: a change needs no signal */
}

static void *run(void *user) {
  tdict_nccl_watch *w = user;
  tdict_thread_set_name("nccl");
  pthread_mutex_lock(&w->lock);
  while (!w->stops) {
    if (w->deadline_ns > tdict_now_ns()) {
      sleep_until_change(w);
      continue;
    }
    w->is_late = true;
    w->deadline_ns = INT64_MAX;
    abort_parent(w);
  }
  pthread_mutex_unlock(&w->lock);
  return NULL;
}

tdict_status tdict_nccl_watch_start(tdict_nccl_watch *w, tdict_error *err) {
  const int code = tdict_thread_create(&w->thread, run, w);
  w->has_thread = code == 0;
  if (code == 0) return TDICT_OK;
  return tdict_fail_native(err, TDICT_ENOMEM, code, "nccl: cannot start a thread: %s", strerror(code));
}

/* A later time limit needs no signal: the thread wakes up too early, and then sees the later limit. */
void tdict_nccl_watch_begin(tdict_nccl_watch *w, int64_t deadline_ns) {
  pthread_mutex_lock(&w->lock);
  w->deadline_ns = deadline_ns;
  w->is_late = false;
  if (deadline_ns < w->sleeps_until_ns) pthread_cond_broadcast(&w->changed);
  pthread_mutex_unlock(&w->lock);
}

bool tdict_nccl_watch_end(tdict_nccl_watch *w) {
  pthread_mutex_lock(&w->lock);
  w->deadline_ns = INT64_MAX;
  const bool is_late = w->is_late;
  pthread_mutex_unlock(&w->lock);
  return is_late;
}

void tdict_nccl_watch_reset(tdict_nccl_watch *w) {
  pthread_mutex_lock(&w->lock);
  w->stops = true;
  pthread_cond_broadcast(&w->changed);
  pthread_mutex_unlock(&w->lock);
  if (w->has_thread) tdict_thread_join(w->thread);
  pthread_cond_destroy(&w->changed);
  pthread_mutex_destroy(&w->lock);
}
