/* Starts and names threads that run no signal handlers of the program, except handlers of SIGABRT and of fault signals
 * such as SIGSEGV, and that compute in the default floating-point environment. Thread rule: safe from any thread. */
#include "core/base/thread.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>

#include "core/base/float_env.h"

int tdict_thread_create(pthread_t *out, void *(*run)(void *argument), void *argument) {
  static const int fault_signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
  sigset_t blocked, before;
  sigfillset(&blocked);
  for (size_t i = 0; i < sizeof fault_signals / sizeof *fault_signals; i++) sigdelset(&blocked, fault_signals[i]);
  /* A new thread inherits the mask and the floating-point environment of its creator. */
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  const tdict_float_env saved = tdict_float_env_enter();
  int code = pthread_create(out, NULL, run, argument);
  tdict_float_env_leave(&saved);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return code;
}

void tdict_thread_set_name(const char *format, ...) {
#if TDICT_LIBC_HAS_SETNAME
  enum { NAME_BYTES = 16, PREFIX_BYTES = 6 }; /* of the kernel, with the terminating zero */
  char name[NAME_BYTES] = "tdict-";
  va_list values;
  va_start(values, format);
  vsnprintf(name + PREFIX_BYTES, NAME_BYTES - PREFIX_BYTES, format, values);
  va_end(values);
  pthread_setname_np(pthread_self(), name);
#else
  (void)format;
#endif
}

void tdict_cond_init_monotonic(pthread_cond_t *condition) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(condition, &attributes);
  pthread_condattr_destroy(&attributes);
}

static void unlock(void *lock) { pthread_mutex_unlock(lock); }

int tdict_cond_wait_cancellable(pthread_cond_t *condition, pthread_mutex_t *lock, const struct timespec *deadline) {
  int code;
  pthread_cleanup_push(unlock, lock);
  code = deadline ? pthread_cond_timedwait(condition, lock, deadline) : pthread_cond_wait(condition, lock);
  pthread_cleanup_pop(0);
  return code;
}
