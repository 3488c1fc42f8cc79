/* A count that falls to zero once, for which threads wait. The caller owns the struct. Thread rule: safe from any
 * thread, and the last that waits may destroy it when tdict_latch_wait() or tdict_latch_is_zero() is true. */
#ifndef TDICT_CORE_SCHED_LATCH_H
#define TDICT_CORE_SCHED_LATCH_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct tdict_latch {
  pthread_mutex_t lock;   /* held while `count` changes */
  pthread_cond_t zero;    /* uses the monotonic clock */
  _Atomic(int64_t) count; /* decreased with release order. A thread that reads 0 without the lock must lock and unlock
                           * before it relies on the 0, or must read with acquire order and not destroy the latch */
} tdict_latch;

/* Initializes the latch with a count of zero or more. */
void tdict_latch_init(tdict_latch *latch, int64_t count);
/* Destroys the latch. The caller guarantees that no thread uses the latch any more. */
void tdict_latch_destroy(tdict_latch *latch);
/* Decrements the count if the count is above zero. If the count becomes zero, wakes all waiters. */
void tdict_latch_down(tdict_latch *latch);
void tdict_latch_open(tdict_latch *latch);
/* Returns true if the count is zero. If the result is true, the caller may destroy the latch. */
bool tdict_latch_is_zero(tdict_latch *latch);
/* Spins until the count is zero or the deadline has passed. Does not say which: call tdict_latch_wait() or
 * tdict_latch_is_zero() afterwards. */
void tdict_latch_spin(const tdict_latch *latch, int64_t deadline_ns);
/* Sleeps until the count is zero or the deadline, if not INT64_MAX, has passed. Returns true if it is zero. */
bool tdict_latch_wait(tdict_latch *latch, int64_t deadline_ns);
/* Like tdict_latch_wait(), but pthread_cancel() ends the wait, so hold nothing that another thread waits for. */
bool tdict_latch_wait_cancellable(tdict_latch *latch, int64_t deadline_ns);

#endif
