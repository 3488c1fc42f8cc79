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
#include "device/gpu.h"
#include "transfer/trace/ranges.h"

typedef struct tdict_future tdict_future;
typedef struct tdict_recording tdict_recording;

/* What an engine holds of it. */
typedef struct tdict_tracer {
  pthread_mutex_t lock;       /* guards: recording, numbers */
  tdict_recording *recording; /* counted; NULL: none was made */
  _Atomic(bool) on;           /* relaxed: a transfer that sees it late is not recorded */
} tdict_tracer;
void tdict_tracer_init(tdict_tracer *tracer);
void tdict_tracer_reset(tdict_tracer *tracer);

/* A slice on a stream, begun and not ended; NULL: none. */
typedef struct tdict_slice tdict_slice;

/* A new transfer is recorded from here on if a recording is on; it has neither engine's lock nor result yet. */
void tdict_trace_join(tdict_future *transfer, tdict_tracer *tracer);
/* Its last slice was recorded; its plan is still there. A second call does nothing. */
void tdict_trace_leave(tdict_future *transfer);

/* A piece of work of the calling thread that belongs to no transfer, from begin_ns to now, with its bytes; or a count, of
 * TDICT_RANGE_READY. Nothing when no recording is on. */
void tdict_trace_note(tdict_tracer *tracer, const tdict_pool *pool, tdict_range range, int64_t begin_ns, size_t value);

/* Behind the macros below; the transfer has a recording. */
void tdict_trace_add(tdict_future *transfer, tdict_range range, int64_t begin_ns, size_t bytes);
tdict_slice *tdict_trace_open(tdict_future *transfer, tdict_gpu *gpu, tdict_cu_stream stream, size_t bytes);
void tdict_trace_close(tdict_slice *slice, tdict_driver *driver);

/* Around a piece of work of the calling thread: `int64_t begin = TDICT_SPAN_BEGIN(t, kind); ...; TDICT_SPAN_END(...)`.
 * Macros, since a tdict_future is only declared here. */
#define TDICT_SPAN_BEGIN(transfer, range) (tdict_range_push(range), (transfer)->recording ? tdict_now_ns() : 0)
#define TDICT_SPAN_END(transfer, range, begin_ns, bytes)                          \
  do {                                                                            \
    tdict_range_pop();                                                            \
    if ((transfer)->recording) tdict_trace_add(transfer, range, begin_ns, bytes); \
  } while (0)
/* Around what is queued on a stream. Inside a scope of the gpu. */
#define TDICT_SLICE_BEGIN(transfer, gpu, stream, bytes) \
  ((transfer)->recording ? tdict_trace_open(transfer, gpu, stream, bytes) : NULL)
#define TDICT_SLICE_END(slice, gpu)                     \
  do {                                                  \
    if (slice) tdict_trace_close(slice, (gpu)->driver); \
  } while (0)

#endif
