/* Reads the struct that says how a call on elements runs. The functions keep no state. Thread-safe. */
#ifndef TDICT_CORE_MEMORY_RUN_H
#define TDICT_CORE_MEMORY_RUN_H

#include "core/base/device.h"
#include "core/sched/pool.h"
#include "tdict/run.h"

/* The options of tdict_run that a call uses, as bits. */
enum { TDICT_USES_THREADS = 1, TDICT_USES_STREAM = 2, TDICT_USES_MEMORY = 4 };
/* Copies the program's struct `given` to `run`, or the defaults if `given` is NULL. Returns TDICT_EINVAL if an option
 * that is not in `uses` has not its default value, or if the stream has a handle but no device. The error messages
 * begin with `what`. Also returns the errors of tdict_options_read(). */
tdict_status tdict_run_read(tdict_run *run, const tdict_run *given, unsigned uses, const char *what, tdict_error *err);
/* Checks run->num_threads for a call with a context, whose pool is `pool`, or without a context. `pool` is NULL without
 * a context, and in a forked process. Returns TDICT_EINVAL if the number is out of range. */
tdict_status tdict_run_check_threads(const tdict_run *run, const tdict_context *context, const tdict_pool *pool,
                                     const char *what, tdict_error *err);
/* Returns the address of the stream, or NULL if there is none. */
static inline const tdict_stream *tdict_run_stream(const tdict_run *run) {
  return tdict_has_stream(run->stream) ? &run->stream : NULL;
}

#endif
