/* A recording, which trace.c fills and trace_json.c writes. See trace.h for ownership and threads. */
#ifndef TDICT_ENGINE_OPTIONS_TRACE_RECORDING_H
#define TDICT_ENGINE_OPTIONS_TRACE_RECORDING_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/sched/pool.h"
#include "device/gpu.h"

enum { TDICT_TRACE_TRACKS = 512, TDICT_TRACE_GPUS = 64 };

typedef struct tdict_slice {
  _Atomic(bool) complete;   /* stored with release order, after all other fields */
  uint8_t range;            /* a value of tdict_range */
  uint16_t track;           /* index of the thread's track; unused for slices on streams */
  uint32_t transfer;        /* the transfer's number */
  int64_t begin_ns, end_ns; /* for a slice on a stream, begin_ns is the time just before the copy was queued */
  size_t bytes;
  int32_t gpu; /* index of the GPU in the recording; -1: a slice on a thread */
  tdict_cu_stream stream;
  tdict_cu_event from, to; /* owned */
} tdict_slice;

typedef struct tdict_track {
  _Atomic(uintptr_t) thread; /* the thread's handle; 0: the track is free. Accessed with acq_rel order */
  _Atomic(int32_t) id;       /* the system's thread id; 0: not set yet. Release: stored after the fields below */
  int32_t number;            /* number of the worker or of the caller, from 1. Workers and callers are numbered
                              * separately */
  bool worker;
} tdict_track;

/* Relates a GPU's clock to the host's clock. */
typedef struct tdict_trace_gpu {
  tdict_gpu *gpu;      /* retained */
  tdict_cu_event base; /* owned; NULL: the event could not be recorded, so the GPU's slices are not timed */
  int64_t base_ns;
} tdict_trace_gpu;

typedef struct tdict_recording {
  _Atomic(int64_t) refs;
  _Atomic(bool) on; /* relaxed */
  int64_t begin_ns;
  const tdict_pool *pool;          /* borrowed; the timeline shows the threads of this pool as workers */
  _Atomic(uint32_t) num_transfers; /* relaxed: a counter that numbers the transfers */
  /* A ticket counter for slices, from 0. Tickets of `capacity` and more count dropped slices. A thread takes a ticket
   * with release order, after the thread has named its track and added its GPU. The writer starts with an acquire load,
   * and therefore sees the tracks and GPUs of all slices. `complete` orders the contents of a slice. */
  _Atomic(int64_t) next;
  _Atomic(int64_t) dropped; /* relaxed: number of slices dropped because no track was free */
  int64_t capacity;
  _Atomic(int32_t) num_workers, num_callers; /* relaxed: counters that number the tracks */
  tdict_track tracks[TDICT_TRACE_TRACKS];
  pthread_mutex_t lock; /* guards: gpus, num_gpus */
  tdict_trace_gpu gpus[TDICT_TRACE_GPUS];
  int num_gpus;
  tdict_slice slices[];
} tdict_recording;

typedef tdict_status (*tdict_trace_sink)(void *user, const char *text, size_t bytes);
/* Writes the recording as JSON, in pieces. If `write` fails, returns the status of `write`, or TDICT_EHOOK if `write`
 * returns a number that is not a tdict_status. Returns TDICT_ENOMEM if host memory is exhausted. */
tdict_status tdict_recording_write(tdict_recording *recording, tdict_trace_sink write, void *user, tdict_error *err);

#endif
