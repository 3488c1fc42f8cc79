/* Recording what transfers do. A recording is counted: the engine holds the last one, and each transfer that began while it
 * was on holds it until it has ended. It owns its slices and the driver's events in them, and keeps the gpus of those.
 *
 * Slices are taken from one array by a ticket and never given back: nothing waits, and memory is bounded.
 * Thread rule: safe from any thread; a slice belongs to the thread that took it until it is published. */
#ifndef TDICT_TRANSFER_TRACE_TRACE_H
#define TDICT_TRANSFER_TRACE_TRACE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/forkmark.h"
#include "device/gpu.h"
#include "sched/pool.h"
#include "tdict/context.h"
#include "transfer/trace/ranges.h"

typedef struct tdict_recording tdict_recording;

/* The engine's holder of the last recording. */
typedef struct tdict_tracer {
  const tdict_forkmark *mark; /* borrowed from the engine */
  pthread_mutex_t lock;       /* guards: recording, numbers */
  tdict_recording *recording; /* counted; NULL: none was made */
  _Atomic(bool) on;           /* relaxed: a transfer that sees it late is not recorded */
} tdict_tracer;
void tdict_tracer_init(tdict_tracer *tracer, const tdict_forkmark *mark);
void tdict_tracer_reset(tdict_tracer *tracer);
/* This folder's piece of a context; the composition root defines it. */
tdict_tracer *tdict_context_tracer(const tdict_context *context);

/* A transfer's place in a recording. */
typedef struct tdict_traced {
  tdict_recording *recording; /* counted; NULL: the transfer is not recorded */
  uint32_t number;
  const tdict_pool *pool; /* whose threads are shown as workers */
} tdict_traced;
/* The transfer is recorded from here on, if the recording is still on. */
void tdict_trace_join(tdict_traced *traced, tdict_tracer *tracer, const tdict_pool *pool);
/* Adds the transfer's own slice, from begin_ns to now, and lets the recording go. A second call does nothing. */
void tdict_trace_leave(tdict_traced *traced, int64_t begin_ns, size_t bytes);

/* Adds a piece of work of the calling thread that belongs to no transfer, from begin_ns to now, with its bytes; or a count,
 * of TDICT_RANGE_READY. Does nothing when no recording is on. */
void tdict_trace_note(tdict_tracer *tracer, const tdict_pool *pool, tdict_range range, int64_t begin_ns, size_t value);

/* Adds a slice of the calling thread, from begin_ns to now. The transfer is recorded. */
void tdict_trace_add(const tdict_traced *traced, tdict_range range, int64_t begin_ns, size_t bytes);

/* The statistics have the time of these phases. */
static inline bool tdict_phase_is_counted(tdict_range range) {
  return range == TDICT_RANGE_COPY || range == TDICT_RANGE_WAIT;
}
/* Begins a phase of the calling thread: a range for profilers, and a slice if the transfer is recorded. Returns the time,
 * which tdict_phase_end() needs; 0 if nobody asks for it. */
static inline int64_t tdict_phase_begin(const tdict_traced *traced, tdict_range range) {
  tdict_range_push(range);
  return tdict_phase_is_counted(range) || traced->recording ? tdict_now_ns() : 0;
}
/* Ends a phase. Returns its nanoseconds if it is counted, else 0. */
static inline int64_t tdict_phase_end(const tdict_traced *traced, tdict_range range, int64_t begin_ns, size_t bytes) {
  tdict_range_pop();
  if (traced->recording) tdict_trace_add(traced, range, begin_ns, bytes);
  return tdict_phase_is_counted(range) ? tdict_now_ns() - begin_ns : 0;
}

/* Begins a slice on a stream before copies are queued, and ends it after them. NULL: none. The transfer is recorded. Inside
 * a scope of the gpu. */
typedef struct tdict_slice tdict_slice;
tdict_slice *tdict_trace_open(const tdict_traced *traced, tdict_gpu *gpu, tdict_cu_stream stream, size_t bytes);
void tdict_trace_close(tdict_slice *slice, tdict_gpu *gpu);

#endif
