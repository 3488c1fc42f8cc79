/* A latch: a count that goes down to zero once, and those who wait for it. Thread rule: safe from any thread; it may be
 * reset as soon as a wait for zero has returned. */
#ifndef TDICT_SCHED_LATCH_H
#define TDICT_SCHED_LATCH_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct tdict_latch {
  pthread_mutex_t lock;   /* held when count changes */
  pthread_cond_t zero;    /* by the monotonic clock */
  _Atomic(int64_t) count; /* relaxed where it is read without the lock: a zero is looked at again under it */
} tdict_latch;

void tdict_latch_init(tdict_latch *latch, int64_t count);
void tdict_latch_destroy(tdict_latch *latch);
void tdict_latch_down(tdict_latch *latch);
void tdict_latch_open(tdict_latch *latch); /* to zero at once */
bool tdict_latch_is_zero(tdict_latch *latch);
/* Looks again and again until the count is zero or tdict_now_ns() passes the deadline; tells nothing: wait or ask then. */
void tdict_latch_spin(const tdict_latch *latch, int64_t deadline_ns);
/* Until the count is zero or tdict_now_ns() passes the deadline (INT64_MAX: for ever); true when it is zero. */
bool tdict_latch_wait(tdict_latch *latch, int64_t deadline_ns);

#endif
