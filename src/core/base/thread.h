/* Starts and names the library's threads, and waits without being cancelled inside the library: a cancelled thread
 * would keep its locks and leave state that others wait for. Also waits without sleeping. Thread-safe. */
#ifndef TDICT_CORE_BASE_THREAD_H
#define TDICT_CORE_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#include "tdict/export.h"

/* Starts a thread like pthread_create(). Blocks all signals on the new thread except SIGABRT and the signals that
 * report a fault of the thread, such as SIGSEGV. Handlers of the blocked signals thus run on the program's threads
 * only. The new thread starts in the default floating-point environment. Restores the caller's signal mask and
 * floating-point environment. Returns 0 or an errno. `run` first calls tdict_thread_set_name(). */
int tdict_thread_create(pthread_t *out, void *(*run)(void *argument), void *argument);

/* Names the calling thread "tdict-" followed by the formatted text, of which the system keeps 9 bytes. Debuggers, top
 * and profilers show the name. A thread names itself, because naming another thread takes 30 times as long. */
void tdict_thread_set_name(const char *format, ...) TDICT_PRINTF(1, 2);

/* Disables pthread_cancel() for the calling thread. Returns the state for tdict_cancel_restore(). */
static inline int tdict_cancel_disable(void) {
  int before = PTHREAD_CANCEL_ENABLE;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
  return before;
}
static inline void tdict_cancel_restore(const int *before) { pthread_setcancelstate(*before, NULL); }
/* Declares a variable that disables pthread_cancel() until the end of its block. Use it where a function of the program
 * runs inside of a structure that other threads wait for, and in public functions that read or write files. */
#define TDICT_UNCANCELLED \
  __attribute__((cleanup(tdict_cancel_restore), unused)) const int tdict_cancel_before_ = tdict_cancel_disable()

/* Initializes a condition variable whose waits have deadlines of the monotonic clock. */
void tdict_cond_init_monotonic(pthread_cond_t *condition);
/* Like the functions of POSIX with similar names, but the calling thread is not cancelled meanwhile. */
static inline int tdict_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock) {
  TDICT_UNCANCELLED;
  return pthread_cond_wait(condition, lock);
}
static inline int tdict_cond_wait_until(pthread_cond_t *condition, pthread_mutex_t *lock,
                                        const struct timespec *deadline) {
  TDICT_UNCANCELLED;
  return pthread_cond_timedwait(condition, lock, deadline);
}
/* Waits for the condition, or until the deadline if it is not NULL. pthread_cancel() ends the wait and unlocks the
 * lock. The thread must hold nothing else that another thread waits for. */
int tdict_cond_wait_cancellable(pthread_cond_t *condition, pthread_mutex_t *lock, const struct timespec *deadline);
static inline void tdict_thread_join(pthread_t thread) {
  TDICT_UNCANCELLED;
  pthread_join(thread, NULL);
}
static inline void tdict_sleep(const struct timespec *time) {
  TDICT_UNCANCELLED;
  nanosleep(time, NULL);
}

/* Tells the processor that this thread is in a spin loop. */
static inline void tdict_spin_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* Tries to lock without sleeping, for a mutex that is held for a few microseconds: waking up would take longer. Returns
 * false after 400 tries, since the system might have suspended the holder. */
static inline bool tdict_spin_try(pthread_mutex_t *lock) {
  for (int tries = 0; tries < 400; tries++) {
    if (pthread_mutex_trylock(lock) == 0) return true;
    for (int i = 0; i < 4; i++) tdict_spin_pause();
  }
  return false;
}

#endif
