/* The thread pool: a fixed number of threads that run tasks first come, first served.
 * A task belongs to who submits it and must live until it has run. Thread rule: safe from any thread. */
#ifndef TDICT_SCHED_POOL_H
#define TDICT_SCHED_POOL_H

#include <sched.h>
#include <stdbool.h>

#include "tdict/status.h"

typedef struct tdict_pool tdict_pool;
typedef struct tdict_task tdict_task;
struct tdict_task {
  void (*run)(tdict_task *task); /* may free the task */
  tdict_task *next, *previous;   /* the pool's */
  bool queued;                   /* guarded by the pool's lock */
  bool may_wait;                 /* it may wait for other tasks, so a thread that waits must not run it meanwhile... */
  const void *owner;             /* ...unless that is what it waits for: see tdict_pool_help() */
};

/* The number of CPUs that this process may use, at least 8: what the pool has by default. */
int tdict_pool_default_size(void);
/* Starts num_threads threads. TDICT_ENOMEM: no memory, or a thread could not be started (none is left behind). */
tdict_status tdict_pool_create(int num_threads, tdict_pool **out, tdict_error *err);
/* Runs what is queued, then joins; NULL is allowed. Not to be called from a task. */
void tdict_pool_destroy(tdict_pool *pool);
int tdict_pool_size(const tdict_pool *pool);
/* The CPUs that the process could use when the pool was made. */
int tdict_pool_num_cpus(const tdict_pool *pool);
/* Threads that may work at once so that `left` CPUs stay free for others; all where there are three or less. */
int tdict_pool_max_working(const tdict_pool *pool, int left);
/* Moves the threads to these processors, of which the process may use at least one. Before the first task. False: the
 * system refused for some. */
bool tdict_pool_set_cpus(tdict_pool *pool, const cpu_set_t *cpus);
void tdict_pool_submit(tdict_pool *pool, tdict_task *task);
/* Tasks are about to come: wakes up to `count` threads, which look for them for a moment before they sleep again. Does
 * nothing where looking would take a CPU from those that work. */
void tdict_pool_wake(tdict_pool *pool, int count);
/* How many threads may look for tasks at once, 0: none. The pool chooses by the CPUs; for tests. */
void tdict_pool_set_max_spinning(tdict_pool *pool, int most);
/* Takes a task back that has not begun; false when it has. */
bool tdict_pool_remove(tdict_pool *pool, tdict_task *task);
/* True on a thread of this pool. */
bool tdict_pool_is_worker(const tdict_pool *pool);

/* Runs a queued task that waits for no other, or that is one of `owner`, for which the caller waits; false: there is none. */
bool tdict_pool_help(tdict_pool *pool, const void *owner);
/* A pointer of the calling thread's own, for the layer that runs callbacks; NULL at first. */
void *tdict_pool_thread_data(void);
void tdict_pool_set_thread_data(void *note);

/* Calls fn(user, i) for each i in [0, count) on the calling thread and up to num_helpers threads of the pool, and returns
 * when all have returned. On a thread of the pool, or with pool NULL, the caller does all. */
void tdict_parallel_for(tdict_pool *pool, int num_helpers, long count, void (*fn)(void *user, long i), void *user);

#endif
