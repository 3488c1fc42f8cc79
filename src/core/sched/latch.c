/* Implements a latch with a mutex and a condition variable. The caller owns the struct. Thread rule: see latch.h. */
#include "core/sched/latch.h"

#include <time.h>

#include "core/base/assert.h"
#include "core/base/clock.h"
#include "core/base/thread.h"

enum { POLLS_PER_CLOCK_READ = 16 };

static int64_t load_count(const tdict_latch *latch) {
  return atomic_load_explicit(&latch->count, memory_order_relaxed);
}

void tdict_latch_init(tdict_latch *latch, int64_t count) {
  pthread_condattr_t attributes;
  TDICT_ASSERT(count >= 0);
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_mutex_init(&latch->lock, NULL);
  pthread_cond_init(&latch->zero, &attributes);
  pthread_condattr_destroy(&attributes);
  atomic_init(&latch->count, count);
}

void tdict_latch_destroy(tdict_latch *latch) {
  pthread_cond_destroy(&latch->zero);
  pthread_mutex_destroy(&latch->lock);
}

void tdict_latch_down(tdict_latch *latch) {
  pthread_mutex_lock(&latch->lock);
  if (load_count(latch) > 0 && atomic_fetch_sub_explicit(&latch->count, 1, memory_order_release) == 1)
    pthread_cond_broadcast(&latch->zero);
  TDICT_ASSERT(load_count(latch) >= 0);
  pthread_mutex_unlock(&latch->lock); /* the last access: a waiter may now destroy the latch */
}

void tdict_latch_open(tdict_latch *latch) {
  pthread_mutex_lock(&latch->lock);
  atomic_store_explicit(&latch->count, 0, memory_order_release);
  pthread_cond_broadcast(&latch->zero);
  pthread_mutex_unlock(&latch->lock);
}

bool tdict_latch_is_zero(tdict_latch *latch) {
  if (load_count(latch) != 0) return false;
  pthread_mutex_lock(&latch->lock);
  /* The thread that set the count to zero has released the lock by now, so the caller may destroy the latch. */
  pthread_mutex_unlock(&latch->lock);
  return true;
}

void tdict_latch_spin(const tdict_latch *latch, int64_t deadline_ns) {
  while (load_count(latch) != 0) {
    /* Read the clock rarely, because reading the clock costs more than reading the count. */
    for (int i = 0; i < POLLS_PER_CLOCK_READ && load_count(latch) != 0; i++) tdict_spin_pause();
    if (tdict_now_ns() >= deadline_ns) return;
  }
}

bool tdict_latch_wait(tdict_latch *latch, int64_t deadline_ns) {
  TDICT_UNCANCELLED;
  return tdict_latch_wait_cancellable(latch, deadline_ns);
}

bool tdict_latch_wait_cancellable(tdict_latch *latch, int64_t deadline_ns) {
  struct timespec deadline = {deadline_ns / 1000000000, deadline_ns % 1000000000};
  pthread_mutex_lock(&latch->lock);
  int code = 0;
  while (load_count(latch) != 0 && code == 0)
    code = tdict_cond_wait_cancellable(&latch->zero, &latch->lock, deadline_ns == INT64_MAX ? NULL : &deadline);
  bool zero = load_count(latch) == 0;
  pthread_mutex_unlock(&latch->lock);
  return zero;
}
