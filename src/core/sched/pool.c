/* Implements the thread pool with one queue and one lock. The pool owns its threads, and submitters own their tasks.
 * After a task, a worker spins briefly for the next task before it sleeps, since waking a thread often takes longer
 * than a task runs. Workers do not spin on fewer than SPIN_MIN_CPUS CPUs. The thread that fell asleep last is woken
 * first, since its data is most likely still in the caches. Thread rule: see pool.h. */
#include "core/sched/pool.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#include "core/base/assert.h"
#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/thread.h"

enum { MIN_THREADS = 8, SPIN_NS = 80000, SPIN_MIN_CPUS = 3, MAX_UNRESERVED_CPUS = 3, POLLS_PER_CLOCK_READ = 16 };

/* The condition variable of one sleeping thread, so that the pool can choose whom to wake. */
typedef struct sleeper {
  struct sleeper *next; /* the thread that fell asleep before this thread, or the next thread in `to_wake` */
  pthread_cond_t woken;
  bool was_woken;
} sleeper;

struct tdict_pool {
  pthread_mutex_t lock; /* guards: the fields from sleep_stack to max_spinning */
  sleeper *sleep_stack; /* sleeping threads; the thread that fell asleep last is first */
  sleeper *to_wake;     /* sleeping threads that woken threads will wake, see tdict_pool_wake_chain() */
  int num_started;      /* number of threads that have chosen their sleeper */
  tdict_task *first, *last;
  bool stop;
  int num_queued, num_asleep;
  int num_spinning;            /* number of threads that are spinning */
  int num_woken_to_spin;       /* number of threads woken to spin that have not run yet */
  _Atomic(bool) may_have_work; /* relaxed: only a hint to check the queue under the lock */
  int max_spinning;
  int num_threads;
  int num_cpus; /* of the set of the threads, but at most `quota` */
  int quota;
  sleeper *sleepers;
  pthread_t threads[];
};

/* The thread's pool, and its pointer of tdict_pool_set_thread_data(): the library's only thread-local variable. */
static _Thread_local struct {
  const tdict_pool *pool;
  void *note;
} this_thread;

int tdict_pool_default_size(void) {
  const int count = tdict_cpus_count();
  return count < MIN_THREADS ? MIN_THREADS : count > TDICT_POOL_MOST_THREADS ? TDICT_POOL_MOST_THREADS : count;
}

/* Tells spinning threads whether to check the queue. Call under the lock after a change of `first` or `stop`. */
static void update_work_hint(tdict_pool *pool) {
  TDICT_ASSERT(tdict_lock_is_held(&pool->lock));
  TDICT_ASSERT((pool->first == NULL) == (pool->last == NULL));
  TDICT_ASSERT((pool->num_queued == 0) == (pool->first == NULL));
  atomic_store_explicit(&pool->may_have_work, pool->first != NULL || pool->stop, memory_order_relaxed);
}

/* Removes a task from the queue. Call under the lock. */
static void unlink_task(tdict_pool *pool, tdict_task *task) {
  TDICT_ASSERT(tdict_lock_is_held(&pool->lock));
  TDICT_ASSERT(task->queued && pool->num_queued > 0);
  if (task->previous)
    task->previous->next = task->next;
  else
    pool->first = task->next;
  if (task->next)
    task->next->previous = task->previous;
  else
    pool->last = task->previous;
  task->queued = false;
  pool->num_queued--;
  update_work_hint(pool);
}

/* Spins until a task is queued, the pool is stopped, or SPIN_NS has passed. Does nothing if enough threads spin
 * already. Call under the lock. The function unlocks while it spins, because submitters need the lock. */
static void spin_for_tasks(tdict_pool *pool) {
  TDICT_ASSERT(tdict_lock_is_held(&pool->lock));
  if (pool->num_spinning >= pool->max_spinning) return;
  int64_t end = tdict_now_ns() + SPIN_NS;
  pool->num_spinning++;
  for (bool timed_out = false; !pool->first && !pool->stop && !timed_out;) {
    pthread_mutex_unlock(&pool->lock);
    while (!atomic_load_explicit(&pool->may_have_work, memory_order_relaxed) && !timed_out) {
      for (int i = 0; i < POLLS_PER_CLOCK_READ; i++) tdict_spin_pause();
      timed_out = tdict_now_ns() >= end;
    }
    pthread_mutex_lock(&pool->lock);
  }
  TDICT_ASSERT(pool->num_spinning > 0);
  pool->num_spinning--;
}

/* Removes the thread that fell asleep last from the stack, and marks the removed thread as woken. The caller signals
 * the thread's condition variable, preferably after unlocking, since the woken thread needs the lock at once. Call
 * under the lock while at least one thread is asleep. */
static sleeper *pop_sleeper(tdict_pool *pool) {
  sleeper *s = pool->sleep_stack;
  TDICT_ASSERT(tdict_lock_is_held(&pool->lock));
  TDICT_ASSERT(s && pool->num_asleep > 0 && !s->was_woken);
  pool->sleep_stack = s->next;
  pool->num_asleep--;
  s->was_woken = true;
  return s;
}

/* Wakes up to `most` threads of `to_wake`, at most 2. Call under the lock. The function unlocks while it signals. */
static void wake_some(tdict_pool *pool, int most) {
  sleeper *woken[2];
  int count = 0;
  TDICT_ASSERT(tdict_lock_is_held(&pool->lock) && most <= 2);
  for (; count < most && pool->to_wake; count++) {
    woken[count] = pool->to_wake;
    pool->to_wake = woken[count]->next;
    woken[count]->was_woken = true;
  }
  if (count == 0) return;
  pthread_mutex_unlock(&pool->lock);
  for (int i = 0; i < count; i++) pthread_cond_signal(&woken[i]->woken);
  pthread_mutex_lock(&pool->lock);
}

/* Sleeps until woken. Then wakes two more threads of a chain, and spins for tasks if woken to. Call under the lock. */
static void sleep_for_tasks(tdict_pool *pool, sleeper *self) {
  TDICT_ASSERT(tdict_lock_is_held(&pool->lock));
  self->was_woken = false;
  self->next = pool->sleep_stack;
  pool->sleep_stack = self;
  pool->num_asleep++;
  while (!self->was_woken) tdict_cond_wait(&self->woken, &pool->lock);
  wake_some(pool, 2);
  if (pool->num_woken_to_spin == 0) return;
  pool->num_woken_to_spin--;
  spin_for_tasks(pool);
}

static void *run_worker(void *argument) {
  tdict_pool *pool = argument;
  this_thread.pool = pool;
  pthread_mutex_lock(&pool->lock);
  const int number = pool->num_started++;
  sleeper *self = &pool->sleepers[number];
  tdict_thread_set_name("pool-%d", number);
  for (;;) {
    while (!pool->first && !pool->stop) sleep_for_tasks(pool, self);
    tdict_task *task = pool->first;
    if (!task) break;
    unlink_task(pool, task);
    pthread_mutex_unlock(&pool->lock);
    task->run(task);
    pthread_mutex_lock(&pool->lock);
    spin_for_tasks(pool);
  }
  pthread_mutex_unlock(&pool->lock);
  return NULL;
}

/* Waits until the started threads have run all queued tasks, joins them and frees the pool. */
static void stop_and_join(tdict_pool *pool, int num_threads) {
  pthread_mutex_lock(&pool->lock);
  pool->stop = true;
  update_work_hint(pool);
  while (pool->sleep_stack) pthread_cond_signal(&pop_sleeper(pool)->woken);
  pthread_mutex_unlock(&pool->lock);
  for (int i = 0; i < num_threads; i++) tdict_thread_join(pool->threads[i]);
  for (int i = 0; i < pool->num_threads; i++) pthread_cond_destroy(&pool->sleepers[i].woken);
  TDICT_ASSERT(!pool->first && pool->num_spinning == 0);
  pthread_mutex_destroy(&pool->lock);
  free(pool->sleepers);
  free(pool);
}

static void set_num_cpus(tdict_pool *pool, int count) {
  pool->num_cpus = count < pool->quota ? count : pool->quota;
  pool->max_spinning = pool->num_cpus < SPIN_MIN_CPUS ? 0 : pool->num_cpus - 1;
}

tdict_status tdict_pool_create(int num_threads, tdict_pool **out, tdict_error *err) {
  tdict_pool *pool = calloc(1, sizeof *pool + (size_t)num_threads * sizeof pool->threads[0]);
  sleeper *sleepers = calloc((size_t)num_threads + 1, sizeof *sleepers);
  if (!pool || !sleepers) {
    free(pool);
    free(sleepers);
    return tdict_fail_memory(err, "pool", NULL, "%d threads", num_threads);
  }
  pthread_mutex_init(&pool->lock, NULL);
  pool->sleepers = sleepers;
  pool->num_threads = num_threads;
  for (int i = 0; i < num_threads; i++) pthread_cond_init(&sleepers[i].woken, NULL);
  pool->quota = INT_MAX;
  set_num_cpus(pool, tdict_cpus_count());
  /* Start the threads. If a thread cannot be started, stop the threads that are running. */
  for (int i = 0; i < num_threads; i++) {
    int code = tdict_thread_create(&pool->threads[i], run_worker, pool);
    if (code == 0) continue;
    stop_and_join(pool, i);
    return tdict_fail_native(err, TDICT_ENOMEM, code, "pool: thread %d of %d could not be started", i + 1, num_threads);
  }
  *out = pool;
  return TDICT_OK;
}

void tdict_pool_destroy(tdict_pool *pool) {
  if (pool) stop_and_join(pool, pool->num_threads);
}

int tdict_pool_size(const tdict_pool *pool) { return pool->num_threads; }

tdict_status tdict_pool_refuse_threads(const tdict_pool *pool, int32_t num_threads, const char *what,
                                       tdict_error *err) {
  return tdict_fail(err, TDICT_EINVAL, "%s: num_threads is %d, wanted -1 to %d, the threads of the context's pool",
                    what, (int)num_threads, tdict_pool_size(pool));
}
int tdict_pool_num_cpus(const tdict_pool *pool) { return pool->num_cpus; }
int tdict_pool_max_working(const tdict_pool *pool, int reserved_cpus) {
  return pool->num_cpus <= MAX_UNRESERVED_CPUS || pool->num_cpus <= reserved_cpus ? pool->num_cpus
                                                                                  : pool->num_cpus - reserved_cpus;
}

bool tdict_pool_set_cpus(tdict_pool *pool, const tdict_cpus *cpus) {
  bool all_moved = true;
  for (int i = 0; i < pool->num_threads; i++)
    if (pthread_setaffinity_np(pool->threads[i], sizeof cpus->sets, cpus->sets) != 0) all_moved = false;
  pthread_mutex_lock(&pool->lock);
  set_num_cpus(pool, CPU_COUNT_S(sizeof cpus->sets, cpus->sets));
  pthread_mutex_unlock(&pool->lock);
  return all_moved;
}

void tdict_pool_set_quota(tdict_pool *pool, int num_cpus) {
  pthread_mutex_lock(&pool->lock);
  pool->quota = num_cpus > 0 ? num_cpus : INT_MAX;
  set_num_cpus(pool, pool->num_cpus);
  pthread_mutex_unlock(&pool->lock);
}

/* Appends a task to the queue. Call under the lock. */
static void append_task(tdict_pool *pool, tdict_task *task) {
  TDICT_ASSERT(tdict_lock_is_held(&pool->lock));
  task->next = NULL;
  task->previous = pool->last;
  task->queued = true;
  if (pool->last)
    pool->last->next = task;
  else
    pool->first = task;
  pool->last = task;
  pool->num_queued++;
  update_work_hint(pool);
}

/* Returns how many threads must be woken for queued tasks, besides those that spin. Call under the lock. */
static int count_needed(const tdict_pool *pool) {
  const int needed = pool->num_queued - pool->num_spinning - pool->num_woken_to_spin;
  return needed < pool->num_asleep ? needed : pool->num_asleep;
}

void tdict_pool_submit(tdict_pool *pool, tdict_task *task) {
  pthread_mutex_lock(&pool->lock);
  append_task(pool, task);
  sleeper *was_woken = count_needed(pool) > 0 ? pop_sleeper(pool) : NULL;
  pthread_mutex_unlock(&pool->lock);
  if (was_woken) pthread_cond_signal(&was_woken->woken);
}

/* Moves sleeping threads to `to_wake` and wakes one. Call under the lock, which it releases to signal. */
static void wake_in_chain(tdict_pool *pool, int count) {
  for (int i = 0; i < count; i++) {
    sleeper *s = pop_sleeper(pool);
    s->was_woken = false; /* the thread that signals sets the flag, so that no thread is woken twice */
    s->next = pool->to_wake;
    pool->to_wake = s;
  }
  if (count > 0) wake_some(pool, 1);
}

void tdict_pool_submit_list(tdict_pool *pool, tdict_task *first) {
  pthread_mutex_lock(&pool->lock);
  for (tdict_task *task = first, *next; task; task = next) {
    next = task->next;
    append_task(pool, task);
  }
  wake_in_chain(pool, count_needed(pool));
  pthread_mutex_unlock(&pool->lock);
}

/* Returns how many threads must be woken so that about `count` threads spin. Call under the lock. */
static int count_to_wake(const tdict_pool *pool, int count) {
  int room = pool->max_spinning - pool->num_spinning - pool->num_woken_to_spin;
  count -= pool->num_spinning + pool->num_woken_to_spin;
  if (count > room) count = room;
  return count > pool->num_asleep ? pool->num_asleep : count;
}

void tdict_pool_wake_chain(tdict_pool *pool, int count) {
  pthread_mutex_lock(&pool->lock);
  count = count_to_wake(pool, count);
  if (count > 0) pool->num_woken_to_spin += count;
  wake_in_chain(pool, count);
  pthread_mutex_unlock(&pool->lock);
}

void tdict_pool_wake(tdict_pool *pool, int count) {
  enum { MAX_WOKEN = 64 };
  sleeper *was_woken[MAX_WOKEN];
  pthread_mutex_lock(&pool->lock);
  count = count_to_wake(pool, count);
  if (count > MAX_WOKEN) count = MAX_WOKEN;
  for (int i = 0; i < count; i++) was_woken[i] = pop_sleeper(pool);
  if (count > 0) pool->num_woken_to_spin += count;
  pthread_mutex_unlock(&pool->lock);
  for (int i = 0; i < count; i++) pthread_cond_signal(&was_woken[i]->woken);
}

void tdict_pool_set_max_spinning(tdict_pool *pool, int max_spinning) {
  pthread_mutex_lock(&pool->lock);
  pool->max_spinning = max_spinning;
  pthread_mutex_unlock(&pool->lock);
}

bool tdict_pool_remove(tdict_pool *pool, tdict_task *task) {
  pthread_mutex_lock(&pool->lock);
  bool found = task->queued;
  if (found) unlink_task(pool, task);
  pthread_mutex_unlock(&pool->lock);
  return found;
}

bool tdict_pool_is_worker(const tdict_pool *pool) { return this_thread.pool == pool; }

void *tdict_pool_thread_data(void) { return this_thread.note; }
void tdict_pool_set_thread_data(void *note) { this_thread.note = note; }

bool tdict_pool_help(tdict_pool *pool, const void *owner) {
  pthread_mutex_lock(&pool->lock);
  tdict_task *task = pool->first;
  /* Skip tasks that may wait, except the owner's: one might wait for the calling thread, for ever. */
  while (task && task->may_wait && (!owner || task->owner != owner)) task = task->next;
  if (task) unlink_task(pool, task);
  pthread_mutex_unlock(&pool->lock);
  if (task) task->run(task);
  return task != NULL;
}
