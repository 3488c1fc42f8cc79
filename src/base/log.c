/* A context's log. */
#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"

struct tdict_log {
  _Atomic(int64_t) refs;
  _Atomic(bool) closed; /* acquire/release */
  void (*fn)(void *user, int32_t level, const char *text);
  void *user;
};

tdict_status tdict_log_create(void (*fn)(void *user, int32_t level, const char *text), void *user, tdict_log **out,
                              tdict_error *err) {
  tdict_log *log = calloc(1, sizeof *log);
  if (!log) return tdict_fail(err, TDICT_ENOMEM, "context: no host memory for its log");
  atomic_init(&log->refs, 1);
  atomic_init(&log->closed, fn == NULL);
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

void tdict_log_close(tdict_log *log) { atomic_store_explicit(&log->closed, true, memory_order_release); }

void tdict_log_write(tdict_log *log, int32_t level, const char *format, ...) {
  if (atomic_load_explicit(&log->closed, memory_order_acquire)) return;
  char text[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  log->fn(log->user, level, text);
}
