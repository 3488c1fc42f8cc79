/* Reads the struct that says how a call on elements runs. Keeps no state. Thread-safe. */
#include "core/memory/run.h"

#include "core/base/error.h"
#include "core/base/options.h"

tdict_status tdict_run_read(tdict_run *run, const tdict_run *given, unsigned uses, const char *what, tdict_error *err) {
  *run = tdict_run_default();
  if (!given) return TDICT_OK;
  tdict_status status = tdict_options_read(run, sizeof *run, given, "run", err);
  if (status == TDICT_OK) status = tdict_stream_check_device(run->stream, what, err);
  if (status != TDICT_OK) return status;
  const char *unused = NULL;
  if (!(uses & TDICT_USES_MEMORY) && run->memory) unused = "memory";
  if (!(uses & TDICT_USES_STREAM) && tdict_has_stream(run->stream)) unused = "stream";
  if (!(uses & TDICT_USES_THREADS) && run->num_threads != -1) unused = "num_threads";
  if (!unused) return TDICT_OK;
  return tdict_fail(err, TDICT_EINVAL, "%s: the option %s is set, but this function does not use it", what, unused);
}

tdict_status tdict_run_check_threads(const tdict_run *run, const tdict_context *context, const tdict_pool *pool,
                                     const char *what, tdict_error *err) {
  if (run->num_threads == -1 || run->num_threads == 0) return TDICT_OK;
  if (context && (!pool || (run->num_threads > 0 && run->num_threads <= tdict_pool_size(pool)))) return TDICT_OK;
  if (context) return tdict_pool_refuse_threads(pool, run->num_threads, what, err);
  return tdict_fail(err, TDICT_EINVAL, "%s: num_threads is %d, but context is NULL, wanted -1 or 0 without a context",
                    what, (int)run->num_threads);
}
