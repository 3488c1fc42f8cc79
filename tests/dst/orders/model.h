/* Replaces system functions for the models in this folder. A model checker runs a real source file with two or three
 * threads, in all interleavings and memory orders that C11 allows. GenMC has no condition variables, so this file
 * implements them with a counter. The counter is relaxed, so that only the mutex orders other accesses. Thread-safe. */
#ifndef TDICT_TESTS_DST_ORDERS_MODEL_H
#define TDICT_TESTS_DST_ORDERS_MODEL_H

#include <assert.h>
#include <genmc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

/* Include guards of the headers that this file replaces. */
#define TDICT_CORE_BASE_ASSERT_H
#define TDICT_CORE_BASE_CLOCK_H
#define TDICT_CORE_BASE_THREAD_H

#define TDICT_ASSERT(condition) assert(condition)
#define TDICT_UNCANCELLED ((void)0)

typedef struct pthread_cond {
  _Atomic(int) num_wakes;
} pthread_cond_t;
typedef int pthread_condattr_t;

static inline int pthread_condattr_init(pthread_condattr_t *a) { return *a = 0; }
static inline int pthread_condattr_setclock(pthread_condattr_t *a, int clock) { return *a = clock, 0; }
static inline int pthread_condattr_destroy(pthread_condattr_t *a) { return *a = 0; }
static inline int pthread_cond_init(pthread_cond_t *c, const pthread_condattr_t *a) {
  (void)a;
  atomic_init(&c->num_wakes, 0);
  return 0;
}
static inline int pthread_cond_destroy(pthread_cond_t *c) { return (void)c, 0; }
static inline int pthread_cond_broadcast(pthread_cond_t *c) {
  atomic_fetch_add_explicit(&c->num_wakes, 1, memory_order_relaxed);
  return 0;
}
static inline int tdict_cond_wait_cancellable(pthread_cond_t *c, pthread_mutex_t *lock, const struct timespec *until) {
  const int seen = atomic_load_explicit(&c->num_wakes, memory_order_relaxed);
  (void)until;
  pthread_mutex_unlock(lock);
  while (atomic_load_explicit(&c->num_wakes, memory_order_relaxed) == seen) {}
  pthread_mutex_lock(lock);
  return 0;
}

static inline int64_t tdict_now_ns(void) { return 0; }
static inline int64_t tdict_deadline_ns(int64_t ns) { return ns; }
static inline void tdict_spin_pause(void) {}

#endif
