/* Counts and reports bytes. See progress.h for ownership and threads. */
#include "services/io/progress.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "core/base/error.h"
#include "core/base/thread.h"

/* The program's function is called at most about this often, so that the calls cost little. */
enum { NUM_REPORTS = 1024 };

struct tdict_io_progress {
  _Atomic(int32_t) refs;
  const char *what; /* static */
  bool (*report)(void *user, uint64_t done, uint64_t total);
  void *user;
  uint64_t total, step;
  /* The following fields are sequentially consistent, see tdict_io_progress_add(). */
  _Atomic(uint64_t) done;     /* bytes that were read or written */
  _Atomic(uint64_t) reported; /* the value of `done` that the last call reported */
  _Atomic(bool) is_reporting; /* true while a thread calls `report` */
  _Atomic(bool) is_cancelled; /* a call returned false */
};

tdict_status tdict_io_progress_create(const char *what, bool (*report)(void *user, uint64_t done, uint64_t total),
                                      void *user, tdict_io_progress **out, tdict_error *err) {
  tdict_io_progress *p = calloc(1, sizeof *p);
  if (!p) return tdict_fail_memory(err, what, NULL, "the progress");
  atomic_init(&p->refs, 1);
  p->what = what;
  p->report = report;
  p->user = user;
  *out = p;
  return TDICT_OK;
}

void tdict_io_progress_retain(tdict_io_progress *progress) {
  if (progress) atomic_fetch_add_explicit(&progress->refs, 1, memory_order_relaxed);
}

void tdict_io_progress_release(tdict_io_progress *progress) {
  if (progress && atomic_fetch_sub_explicit(&progress->refs, 1, memory_order_acq_rel) == 1) free(progress);
}

static tdict_status fail_cancelled(const tdict_io_progress *p, tdict_error *err) {
  return tdict_fail(err, TDICT_ECANCELLED, "%s: the function `progress` returned false", p->what);
}

tdict_status tdict_io_progress_begin(tdict_io_progress *progress, uint64_t total, tdict_error *err) {
  TDICT_UNCANCELLED;
  if (!progress) return TDICT_OK;
  progress->total = total;
  progress->step = total / NUM_REPORTS + 1;
  return progress->report(progress->user, 0, total) ? TDICT_OK : fail_cancelled(progress, err);
}

static bool is_due(tdict_io_progress *p) {
  const uint64_t reported = atomic_load(&p->reported), done = atomic_load(&p->done); /* read in this order, so that the
                                                                                      * difference is never negative */
  return done - reported >= p->step || (done == p->total && reported != done);
}

/* One thread at a time calls `report`, and others do not wait for it. After the call, that thread checks `done` again,
 * so that the last bytes are reported. */
tdict_status tdict_io_progress_add(tdict_io_progress *progress, uint64_t bytes, tdict_error *err) {
  TDICT_UNCANCELLED;
  tdict_io_progress *p = progress;
  if (!p) return TDICT_OK;
  atomic_fetch_add(&p->done, bytes);
  while (!atomic_load(&p->is_cancelled) && is_due(p) && !atomic_exchange(&p->is_reporting, true)) {
    if (is_due(p) && !atomic_load(&p->is_cancelled)) {
      const uint64_t done = atomic_load(&p->done);
      if (!p->report(p->user, done, p->total)) atomic_store(&p->is_cancelled, true);
      atomic_store(&p->reported, done);
    }
    atomic_store(&p->is_reporting, false);
  }
  return tdict_io_progress_check(p, err);
}

tdict_status tdict_io_progress_check(const tdict_io_progress *progress, tdict_error *err) {
  return progress && atomic_load(&progress->is_cancelled) ? fail_cancelled(progress, err) : TDICT_OK;
}

tdict_status tdict_io_progress_ask(tdict_io_progress *progress, tdict_error *err) {
  TDICT_UNCANCELLED;
  if (progress && !progress->report(progress->user, atomic_load(&progress->done), progress->total))
    atomic_store(&progress->is_cancelled, true);
  return tdict_io_progress_check(progress, err);
}
