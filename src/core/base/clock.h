/* Reads the clocks of the system. All times are in nanoseconds. Thread-safe. */
#ifndef TDICT_CORE_BASE_CLOCK_H
#define TDICT_CORE_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Returns the monotonic time. CLOCK_MONOTONIC never runs backwards, so deadlines and durations use this clock. */
static inline int64_t tdict_now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
static inline int64_t tdict_thread_cpu_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
/* Returns the monotonic time plus `timeout_ns`, or INT64_MAX if the sum overflows. */
static inline int64_t tdict_deadline_ns(int64_t timeout_ns) {
  int64_t sum;
  return __builtin_add_overflow(tdict_now_ns(), timeout_ns, &sum) ? INT64_MAX : sum;
}

#endif
