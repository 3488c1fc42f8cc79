/* The kinds of work that a timeline, and NVIDIA's profilers as ranges, show. Without NVTX at build time, ranges are
 * empty macros; without a profiler, a range only tests one variable. Keeps no state. Thread rule: one thread pushes and
 * pops a range, and a thread's ranges are nested. */
#ifndef TDICT_ENGINE_OPTIONS_TRACE_RANGES_H
#define TDICT_ENGINE_OPTIONS_TRACE_RANGES_H

typedef enum tdict_range {
  TDICT_RANGE_PLAN,
  TDICT_RANGE_COPY,
  TDICT_RANGE_SUBMIT,
  TDICT_RANGE_WAIT,
  TDICT_RANGE_HOOK,
  TDICT_RANGE_TRANSFER, /* on a thread: the whole transfer; on a stream: copies that were queued together */
  TDICT_RANGE_FETCH,    /* a loader fetches and collates a batch, and starts its transfer */
  TDICT_RANGE_READY,    /* not a kind of work: the number of batches that a loader holds ready */
  TDICT_NUM_RANGES
} tdict_range;
static inline const char *tdict_range_name(tdict_range range) {
  static const char *const names[TDICT_NUM_RANGES] = {"plan", "copy",     "submit", "wait",
                                                      "hook", "transfer", "fetch",  "ready batches"};
  return names[range];
}

#if TDICT_NVTX
void tdict_range_push(tdict_range range);
void tdict_range_pop(void);
#else
#define tdict_range_push(range) ((void)(range))
#define tdict_range_pop() ((void)0)
#endif

#endif
