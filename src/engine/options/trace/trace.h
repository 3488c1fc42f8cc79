/* Records what transfers do and when. A recording consists of slices. A slice is an interval of time in which a thread
 * did one kind of work, or a stream made copies. A recording is reference counted. The engine holds the last recording.
 * Each transfer that began during a recording holds that recording until the transfer ends. A recording owns its slices
 * and their driver events, and retains the GPUs.
 *
 * A ticket counter hands out the slices of one array, and slices are never returned. Therefore no thread waits for a
 * slice, and the memory is bounded. Thread rule: safe from any thread. Until a slice is complete, only the thread that
 * took the slice may access it. */
#ifndef TDICT_ENGINE_OPTIONS_TRACE_TRACE_H
#define TDICT_ENGINE_OPTIONS_TRACE_TRACE_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/base/forkmark.h"
#include "core/sched/pool.h"
#include "device/gpu.h"
#include "engine/options/trace/ranges.h"
#include "tdict/context.h"

typedef struct tdict_recording tdict_recording;

/* The part of an engine that holds the last recording. */
typedef struct tdict_tracer {
  const tdict_forkmark *mark; /* mark and pool: borrowed from the engine */
  const tdict_pool *pool;
  pthread_mutex_t lock;       /* guards: recording */
  tdict_recording *recording; /* retained; NULL: no recording was started yet */
  _Atomic(bool) on;           /* relaxed: a transfer that reads an old value is not recorded */
} tdict_tracer;
void tdict_tracer_init(tdict_tracer *tracer, const tdict_forkmark *mark, const tdict_pool *pool);
void tdict_tracer_reset(tdict_tracer *tracer);
/* Returns the context's tracer. src/context.c defines this function. */
tdict_tracer *tdict_context_tracer(const tdict_context *context);

/* The place of a transfer in a recording. */
typedef struct tdict_traced {
  tdict_recording *recording; /* retained; NULL: this transfer is not recorded */
  uint32_t number;            /* of the transfer in the recording */
} tdict_traced;
/* Makes a transfer part of the tracer's recording, if the recording is still on. */
void tdict_trace_join(tdict_traced *traced, tdict_tracer *tracer);
/* Adds the slice of the whole transfer, from begin_ns to now, and releases the recording. A second call does
 * nothing. */
void tdict_trace_leave(tdict_traced *traced, int64_t begin_ns, size_t bytes);

/* Adds a slice of the calling thread that belongs to no transfer, from begin_ns to now. `value` is the slice's number
 * of bytes. For TDICT_RANGE_READY, `value` is the number of batches. Does nothing if no recording is on. */
void tdict_trace_note(tdict_tracer *tracer, tdict_range range, int64_t begin_ns, size_t value);

/* Adds this thread's slice of a recorded transfer, from begin_ns to now. */
void tdict_trace_add(const tdict_traced *traced, tdict_range range, int64_t begin_ns, size_t bytes);

typedef struct tdict_slice tdict_slice;
/* Opens a slice on a stream before copies are queued. After the copies are queued, tdict_trace_close() ends the slice.
 * Returns NULL if the recording is off or full, or if the driver cannot record the times. The transfer must be
 * recorded. The caller must be inside a scope of the GPU. */
tdict_slice *tdict_trace_open(const tdict_traced *traced, tdict_gpu *gpu, tdict_cu_stream stream, size_t bytes);
void tdict_trace_close(tdict_slice *slice, tdict_gpu *gpu);

#endif
