/* A fixed number of threads that start tasks in the order of submission. A task belongs to its submitter, and must stay
 * valid until `run` is called or tdict_pool_remove() returns true. Thread rule: safe from any thread. */
#ifndef TDICT_CORE_SCHED_POOL_H
#define TDICT_CORE_SCHED_POOL_H

#include <stdbool.h>

#include "core/sched/cpus.h"
#include "tdict/status.h"

enum { TDICT_POOL_MOST_THREADS = 1024 };

typedef struct tdict_pool tdict_pool;
typedef struct tdict_task tdict_task;
struct tdict_task {
  void (*run)(tdict_task *task); /* runs the task; may free the task */
  tdict_task *next, *previous;   /* links of the pool's queue */
  bool queued;                   /* guarded by the pool's lock */
  /* true: the task may wait for other tasks, so a waiting thread must not run the task */
  bool may_wait;
  const void *owner; /* a thread that waits for this owner may run the task even if may_wait is true; NULL: no owner */
};

/* Returns the default size: the number of CPUs of this process, from 8 to TDICT_POOL_MOST_THREADS. */
int tdict_pool_default_size(void);
/* Creates a pool and starts num_threads threads. Returns TDICT_ENOMEM if memory is exhausted or a thread cannot be
 * started; no thread of the pool then runs. */
tdict_status tdict_pool_create(int num_threads, tdict_pool **out, tdict_error *err);
/* Runs all queued tasks, joins the threads and frees the pool, which may be NULL. Not from a task. */
void tdict_pool_destroy(tdict_pool *pool);
int tdict_pool_size(const tdict_pool *pool);
/* Returns TDICT_EINVAL unless num_threads is -1, or from 0 to the number of threads. `what` begins the message. */
tdict_status tdict_pool_refuse_threads(const tdict_pool *pool, int32_t num_threads, const char *what, tdict_error *err);
/* Returns the number of CPUs that the pool's threads may use at once. */
int tdict_pool_num_cpus(const tdict_pool *pool);
/* Returns how many threads may work at once if `reserved_cpus` CPUs are reserved for other threads. With at most three
 * CPUs, or at most `reserved_cpus`, none is reserved. */
int tdict_pool_max_working(const tdict_pool *pool, int reserved_cpus);
/* Restricts the threads to `cpus`, of which the process must be allowed at least one, before the first task. Returns
 * false if the system call failed for a thread. */
bool tdict_pool_set_cpus(tdict_pool *pool, const tdict_cpus *cpus);
/* Limits the CPUs, not the threads, used at once; 0: no limit. See tdict_quota_cpus(). Call before the first task. */
void tdict_pool_set_quota(tdict_pool *pool, int num_cpus);
/* Appends a task to the queue and wakes a thread if needed. */
void tdict_pool_submit(tdict_pool *pool, tdict_task *task);
/* Appends tasks linked by `next`. If several threads must be woken, the calling thread wakes one, and each woken thread
 * wakes two more. */
void tdict_pool_submit_list(tdict_pool *pool, tdict_task *first);
/* Wakes threads in advance, because the caller will submit about `count` tasks soon. The woken threads spin briefly and
 * sleep again if no task arrives. `count` includes the threads that are spinning now. At most N - 1 threads spin if the
 * pool may use N CPUs. If the pool may use fewer than three CPUs, no thread spins, and the call does nothing. */
void tdict_pool_wake(tdict_pool *pool, int count);
/* Wakes threads like tdict_pool_wake(), but the calling thread wakes only one thread. Each woken thread wakes two more.
 * The call takes less time, because waking a thread takes microseconds, but the last threads wake up later. */
void tdict_pool_wake_chain(tdict_pool *pool, int count);
/* Sets how many threads may spin; 0: none. For tests: the pool derives the limit from the number of CPUs. */
void tdict_pool_set_max_spinning(tdict_pool *pool, int max_spinning);
/* Removes a task from the queue. Returns false if a thread has already taken the task out of the queue. */
bool tdict_pool_remove(tdict_pool *pool, tdict_task *task);
/* Returns true if the calling thread belongs to this pool. */
bool tdict_pool_is_worker(const tdict_pool *pool);

/* Runs one queued task on the calling thread, which waits for `owner`. The task must have may_wait == false, or belong
 * to `owner` if that is not NULL. Returns false if there is no such task. */
bool tdict_pool_help(tdict_pool *pool, const void *owner);
/* Returns the calling thread's pointer of tdict_pool_set_thread_data(), or NULL. */
void *tdict_pool_thread_data(void);
/* Stores a pointer that tdict_pool_thread_data() returns on the calling thread. */
void tdict_pool_set_thread_data(void *note);

/* Calls fn(user, i) for each i in [0, count) and returns after all calls have returned. Uses the calling thread and at
 * most num_helpers other threads, but never more than 64 other threads. The other threads are threads of the pool, or
 * threads in tdict_pool_help(). On a thread of the pool, or if `pool` is NULL, the caller makes all calls. */
void tdict_parallel_for(tdict_pool *pool, int num_helpers, long count, void (*fn)(void *user, long i), void *user);

#endif
