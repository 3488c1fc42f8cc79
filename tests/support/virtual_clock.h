/* A clock for tests that jumps ahead when a thread sleeps. While td_clock.is_virtual is true, nanosleep() in the
 * library returns at once and advances CLOCK_MONOTONIC as if the thread had slept. The clock also advances in real
 * time, because some threads spin until a deadline. A test file that includes this header must mention
 * __wrap_clock_gettime and __wrap_nanosleep, so that CMake wraps them. Thread-safe. */
#ifndef TDICT_TESTS_SUPPORT_VIRTUAL_CLOCK_H
#define TDICT_TESTS_SUPPORT_VIRTUAL_CLOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

static struct td_clock {
  _Atomic(bool) is_virtual;
  _Atomic(int64_t) ahead_ns; /* how far the clock is ahead of real time */
} td_clock;

int __real_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
int __real_nanosleep(const struct timespec *time, struct timespec *rest);
int __wrap_nanosleep(const struct timespec *time, struct timespec *rest);

static inline int64_t td_ns(const struct timespec *t) { return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec; }
static inline int64_t td_real_ns(void) {
  struct timespec t;
  __real_clock_gettime(CLOCK_MONOTONIC, &t);
  return td_ns(&t);
}
/* Returns the time of the virtual clock. */
static inline int64_t td_virtual_ns(void) {
  const int64_t real = td_real_ns();
  return real + atomic_load(&td_clock.ahead_ns);
}
/* Advances the virtual clock to at least `ns`. */
static inline void td_virtual_reach(int64_t ns) {
  int64_t ahead = atomic_load(&td_clock.ahead_ns);
  for (;;) {
    const int64_t wanted = ns - td_real_ns();
    if (wanted <= ahead || atomic_compare_exchange_weak(&td_clock.ahead_ns, &ahead, wanted)) return;
  }
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *out) {
  const int result = __real_clock_gettime(clock, out);
  if (clock != CLOCK_MONOTONIC || result != 0) return result;
  const int64_t ns = td_ns(out) + atomic_load(&td_clock.ahead_ns);
  *out = (struct timespec){ns / 1000000000, ns % 1000000000};
  return result;
}
int __wrap_nanosleep(const struct timespec *time, struct timespec *rest) {
  if (!atomic_load(&td_clock.is_virtual)) return __real_nanosleep(time, rest);
  td_virtual_reach(td_virtual_ns() + td_ns(time));
  return 0;
}

#endif
