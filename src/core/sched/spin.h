/* Waits without sleeping. Thread-safe. */
#ifndef TDICT_CORE_SCHED_SPIN_H
#define TDICT_CORE_SCHED_SPIN_H

#include <pthread.h>
#include <stdbool.h>

/* Tells the processor that this thread is in a spin loop. */
static inline void tdict_spin_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* Tries to lock a mutex without sleeping. Call only for a mutex that threads hold for a few microseconds, since
 * sleeping and waking up would take longer. Returns false after 400 tries, since the system might have suspended the
 * holder. */
static inline bool tdict_spin_try(pthread_mutex_t *lock) {
  for (int tries = 0; tries < 400; tries++) {
    if (pthread_mutex_trylock(lock) == 0) return true;
    for (int i = 0; i < 4; i++) tdict_spin_pause();
  }
  return false;
}

#endif
