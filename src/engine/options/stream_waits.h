/* Declares the stream waits of a transfer: the work on streams that its copies wait for. The transfer owns its stream
 * waits, and has none if there is no such work. Thread rule: only the thread that begins the transfer adds work. Later,
 * any worker may call tdict_stream_waits_queue() and use the two atomic fields. */
#ifndef TDICT_ENGINE_OPTIONS_STREAM_WAITS_H
#define TDICT_ENGINE_OPTIONS_STREAM_WAITS_H

#include "device/use.h"
#include "engine/transfer.h"

typedef struct tdict_stream_waits {
  /* recorded uses of the bytes that the transfer writes, and fillers of the bytes that the transfer reads */
  tdict_fences recorded;
  /* relaxed: a lane has requested a slot. The first request may take the last free slots */
  _Atomic(bool) slot_was_requested;
  _Atomic(bool) first_copy_done; /* relaxed: a copy has ended, so no stream blocks the transfer */
  /* the work on `after`, or on the legacy streams: at most one use a device. Copies on the host do not wait */
  int num_uses;
  tdict_use uses[];
} tdict_stream_waits;

/* Records the work that is queued now on the stream `after`. If `after` is no stream, records the work on the legacy
 * stream of each device that copies, or whose bytes are copied. `is_new` is true if the program cannot have the
 * destination yet. Then only `after` counts. Returns TDICT_ENOMEM, and the errors of tdict_use_init(). */
tdict_status tdict_stream_waits_record(tdict_transfer *transfer, tdict_stream after, bool is_new, tdict_error *err);
/* Adds a recorded use or a filler, which is retained. Returns false if host memory is exhausted. */
bool tdict_stream_waits_add(tdict_transfer *transfer, tdict_fence *fence);
/* Makes a stream of `gpu` wait for all work. If the stream cannot wait, because the work is on a device of another
 * driver, the calling thread waits. Call inside a scope of the gpu. */
tdict_status tdict_stream_waits_queue(tdict_stream_waits *waits, tdict_gpu *gpu, tdict_cu_stream stream,
                                      tdict_error *err);
/* Releases the work. */
void tdict_stream_waits_free(tdict_stream_waits *waits);

#endif
