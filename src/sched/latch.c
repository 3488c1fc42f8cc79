/* A latch over a condition variable. */
#include "sched/latch.h"

#include <time.h>

void tdict_latch_init(tdict_latch *latch, int64_t count) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_mutex_init(&latch->lock, NULL);
  pthread_cond_init(&latch->zero, &attributes);
  pthread_condattr_destroy(&attributes);
  latch->count = count;
}

void tdict_latch_reset(tdict_latch *latch) {
  pthread_cond_destroy(&latch->zero);
  pthread_mutex_destroy(&latch->lock);
}

void tdict_latch_down(tdict_latch *latch) {
  pthread_mutex_lock(&latch->lock);
  if (latch->count > 0 && --latch->count == 0) pthread_cond_broadcast(&latch->zero);
  pthread_mutex_unlock(&latch->lock); /* the last touch: a waiter may reset the latch from here on */
}

void tdict_latch_open(tdict_latch *latch) {
  pthread_mutex_lock(&latch->lock);
  latch->count = 0;
  pthread_cond_broadcast(&latch->zero);
  pthread_mutex_unlock(&latch->lock);
}

bool tdict_latch_is_zero(tdict_latch *latch) {
  pthread_mutex_lock(&latch->lock);
  bool zero = latch->count == 0;
  pthread_mutex_unlock(&latch->lock);
  return zero;
}

bool tdict_latch_wait(tdict_latch *latch, int64_t deadline_ns) {
  struct timespec deadline = {deadline_ns / 1000000000, deadline_ns % 1000000000};
  pthread_mutex_lock(&latch->lock);
  int code = 0;
  while (latch->count != 0 && code == 0)
    code = deadline_ns == INT64_MAX ? pthread_cond_wait(&latch->zero, &latch->lock)
                                    : pthread_cond_timedwait(&latch->zero, &latch->lock, &deadline);
  bool zero = latch->count == 0;
  pthread_mutex_unlock(&latch->lock);
  return zero;
}
