/* The thread pool: one queue, one lock. */
#include "sched/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/thread.h"

enum { MIN_THREADS = 8 };

struct tdict_pool {
  pthread_mutex_t lock; /* guards: first, last, stop */
  pthread_cond_t work;
  tdict_task *first, *last;
  bool stop;
  int num_threads;
  pthread_t threads[];
};

/* Which pool the thread works for, and what callbacks it is in: the one thread-local of the library. */
static _Thread_local struct {
  const tdict_pool *pool;
  void *note;
} own;

int tdict_pool_default_size(void) {
  cpu_set_t set;
  int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return count > MIN_THREADS ? count : MIN_THREADS;
}

static void unlink_task(tdict_pool *pool, tdict_task *task) {
  if (task->previous)
    task->previous->next = task->next;
  else
    pool->first = task->next;
  if (task->next)
    task->next->previous = task->previous;
  else
    pool->last = task->previous;
  task->queued = false;
}

static void *worker(void *argument) {
  tdict_pool *pool = argument;
  own.pool = pool;
  pthread_mutex_lock(&pool->lock);
  for (;;) {
    while (!pool->first && !pool->stop) pthread_cond_wait(&pool->work, &pool->lock);
    tdict_task *task = pool->first;
    if (!task) break;
    unlink_task(pool, task);
    pthread_mutex_unlock(&pool->lock);
    task->run(task);
    pthread_mutex_lock(&pool->lock);
  }
  pthread_mutex_unlock(&pool->lock);
  return NULL;
}

static void join(tdict_pool *pool, int num_threads) {
  pthread_mutex_lock(&pool->lock);
  pool->stop = true;
  pthread_cond_broadcast(&pool->work);
  pthread_mutex_unlock(&pool->lock);
  for (int i = 0; i < num_threads; i++) pthread_join(pool->threads[i], NULL);
  pthread_cond_destroy(&pool->work);
  pthread_mutex_destroy(&pool->lock);
  free(pool);
}

tdict_status tdict_pool_create(int num_threads, tdict_pool **out, tdict_error *err) {
  tdict_pool *pool = calloc(1, sizeof *pool + (size_t)num_threads * sizeof pool->threads[0]);
  if (!pool) return tdict_fail(err, TDICT_ENOMEM, "pool: no host memory for %d threads", num_threads);
  pthread_mutex_init(&pool->lock, NULL);
  pthread_cond_init(&pool->work, NULL);
  pool->num_threads = num_threads;
  for (int i = 0; i < num_threads; i++) {
    int code = tdict_thread_create(&pool->threads[i], worker, pool);
    if (code == 0) continue;
    join(pool, i);
    return tdict_fail_native(err, TDICT_ENOMEM, code, "pool: thread %d of %d could not be started", i + 1, num_threads);
  }
  *out = pool;
  return TDICT_OK;
}

void tdict_pool_destroy(tdict_pool *pool) {
  if (pool) join(pool, pool->num_threads);
}

int tdict_pool_size(const tdict_pool *pool) { return pool->num_threads; }

void tdict_pool_submit(tdict_pool *pool, tdict_task *task) {
  pthread_mutex_lock(&pool->lock);
  task->next = NULL;
  task->previous = pool->last;
  task->queued = true;
  if (pool->last)
    pool->last->next = task;
  else
    pool->first = task;
  pool->last = task;
  pthread_cond_signal(&pool->work);
  pthread_mutex_unlock(&pool->lock);
}

bool tdict_pool_remove(tdict_pool *pool, tdict_task *task) {
  pthread_mutex_lock(&pool->lock);
  bool found = task->queued;
  if (found) unlink_task(pool, task);
  pthread_mutex_unlock(&pool->lock);
  return found;
}

bool tdict_pool_is_worker(const tdict_pool *pool) { return own.pool == pool; }

void *tdict_pool_note(void) { return own.note; }
void tdict_pool_set_note(void *note) { own.note = note; }

bool tdict_pool_help(tdict_pool *pool, const void *owner) {
  pthread_mutex_lock(&pool->lock);
  tdict_task *task = pool->first;
  while (task && task->may_wait && (!owner || task->owner != owner)) task = task->next;
  if (task) unlink_task(pool, task);
  pthread_mutex_unlock(&pool->lock);
  if (task) task->run(task);
  return task != NULL;
}
