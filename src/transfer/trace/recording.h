/* The inside of a recording, for the files that fill it (trace.c) and write it (trace_json.c). See trace.h for ownership
 * and threads. */
#ifndef TDICT_TRANSFER_TRACE_RECORDING_H
#define TDICT_TRANSFER_TRACE_RECORDING_H

#include <pthread.h>
#include <stdatomic.h>

#include "device/gpu.h"

enum { TDICT_TRACE_TRACKS = 512, TDICT_TRACE_GPUS = 64 };

typedef struct tdict_slice {
  _Atomic(bool) complete;   /* release: all else is written */
  uint8_t range;            /* a tdict_range */
  uint16_t track;           /* of the thread; not used on streams */
  uint32_t transfer;        /* its number */
  int64_t begin_ns, end_ns; /* on streams: begin is when it was about to be queued */
  size_t bytes;
  int32_t gpu; /* its index in the recording; -1: on a thread */
  tdict_cu_stream stream;
  tdict_cu_event from, to; /* owned */
} tdict_slice;

typedef struct tdict_track {
  _Atomic(uintptr_t) thread; /* 0: free. acq_rel */
  _Atomic(int32_t) id;       /* the system's; 0: not known yet. Release: the rest is written */
  int32_t number;            /* of its kind, from 1 */
  bool worker;
} tdict_track;

/* When a gpu's own clock stood where. */
typedef struct tdict_trace_gpu {
  tdict_gpu *gpu;      /* counted */
  tdict_cu_event base; /* owned; NULL: it could not be recorded, and no slice is timed */
  int64_t base_ns;
} tdict_trace_gpu;

typedef struct tdict_recording {
  _Atomic(int64_t) refs;
  _Atomic(bool) on; /* relaxed */
  int64_t begin_ns;
  _Atomic(uint32_t) num_transfers; /* relaxed: numbers them */
  /* A ticket counter; above capacity it counts what is dropped. A ticket is taken by a release, after its thread has named
   * its track and its gpu has been entered, and the writer begins with an acquire: without them a processor that
   * reorders could show the ticket first, and the slice would stand on a track without a name. What is in a slice is
   * ordered by its own `complete`. */
  _Atomic(int64_t) next;
  _Atomic(int64_t) dropped; /* relaxed: for other reasons */
  int64_t capacity;
  _Atomic(int32_t) num_workers, num_callers; /* relaxed: numbers them */
  tdict_track tracks[TDICT_TRACE_TRACKS];
  pthread_mutex_t lock; /* guards: what follows */
  tdict_trace_gpu gpus[TDICT_TRACE_GPUS];
  int num_gpus;
  tdict_slice slices[];
} tdict_recording;

tdict_recording *tdict_recording_retain(tdict_recording *recording);
void tdict_recording_release(tdict_recording *recording); /* NULL is allowed */

/* Writes it as JSON. TDICT_OK or what `write` answered; TDICT_ENOMEM. */
typedef tdict_status (*tdict_trace_sink)(void *user, const char *text, size_t bytes);
tdict_status tdict_recording_write(tdict_recording *recording, tdict_trace_sink write, void *user, tdict_error *err);

#endif
