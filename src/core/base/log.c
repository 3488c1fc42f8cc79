/* Implements the log of a context. A log counts the running calls of the program's function, so that closing the log
 * can wait for these calls. The log is reference-counted. Thread rule: see log.h. */
#include "core/base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "core/base/error.h"
#include "core/base/thread.h"

#define CLOSED ((uint64_t)1 << 63)

/* Without a mutex, a fork cannot leave a locked one. `state` counts the threads inside tdict_log_write(). */
struct tdict_log {
  _Atomic(int64_t) refs;
  _Atomic(uint64_t) state; /* the CLOSED bit plus the number of running writers; seq_cst */
  void (*fn)(void *user, int32_t level, const char *text);
  void *user;
};

tdict_status tdict_log_create(void (*fn)(void *user, int32_t level, const char *text), void *user, tdict_log **out,
                              tdict_error *err) {
  tdict_log *log = calloc(1, sizeof *log);
  if (!log) return tdict_fail_memory(err, "context", NULL, "its log");
  atomic_init(&log->refs, 1);
  atomic_init(&log->state, fn ? 0 : CLOSED);
  log->fn = fn;
  log->user = user;
  *out = log;
  return TDICT_OK;
}

tdict_log *tdict_log_retain(tdict_log *log) {
  atomic_fetch_add_explicit(&log->refs, 1, memory_order_relaxed);
  return log;
}

void tdict_log_release(tdict_log *log) {
  if (log && atomic_fetch_sub_explicit(&log->refs, 1, memory_order_acq_rel) == 1) free(log);
}

void tdict_log_close(tdict_log *log) {
  const struct timespec pause = {.tv_nsec = 50000};
  atomic_fetch_or(&log->state, CLOSED);
  /* Poll: closing is rare, and a call of the program's function is usually short. */
  while (atomic_load(&log->state) != CLOSED) tdict_sleep(&pause);
}

void tdict_log_write(tdict_log *log, int32_t level, const char *format, ...) {
  TDICT_UNCANCELLED; /* the writer below must be counted down */
  if (atomic_load(&log->state) & CLOSED) return;
  /* Count first, then check CLOSED again: another thread might have closed the log after the first check. */
  if (!(atomic_fetch_add(&log->state, 1) & CLOSED)) {
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    log->fn(log->user, level, text);
  }
  atomic_fetch_sub(&log->state, 1);
}
