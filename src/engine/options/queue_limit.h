/* Declares the limit of a transfer's queued bytes: the option max_queued_bytes, and its default. Each chunk is counted
 * before its copies are queued. The count of a chunk ends when its copies have finished. A thread that waits for room
 * polls the copies of all threads, because the thread that queued a copy may be filling its next slot. Thread rule: the
 * starting thread creates the limit before the transfer begins. Any worker may call the other functions, inside the
 * scope of a GPU. */
#ifndef TDICT_ENGINE_OPTIONS_QUEUE_LIMIT_H
#define TDICT_ENGINE_OPTIONS_QUEUE_LIMIT_H

#include <pthread.h>

#include "device/gpu.h"
#include "engine/plan/plan.h"
#include "engine/ring.h"

/* A counted chunk whose copies are queued or wait in a burst. */
typedef struct tdict_counted_copy {
  tdict_gpu *gpu;
  const tdict_slot *slot; /* NULL: the copies use no slot */
  tdict_cu_event event; /* recorded after the copies. While the copy waits in a burst, the event must not be queried */
  size_t bytes;
} tdict_counted_copy;

typedef struct tdict_queue_limit {
  pthread_mutex_t turn;                /* held by the thread that waits for room. Taken before `lock` */
  pthread_mutex_t lock;                /* guards all fields below but max_bytes and most_copies */
  size_t max_bytes, bytes, peak_bytes; /* the limit, the bytes counted now, and their maximum */
  int num_copies, most_copies;
  tdict_counted_copy copies[];
} tdict_queue_limit;

/* Transfers of at most this many bytes have no limit by default, because they end before copies of the program can pile
 * up. */
#define TDICT_QUEUE_LIMIT_FROM ((size_t)80 << 20)
/* Returns the limit of a transfer with this plan, or 0 for no limit. option: value of max_queued_bytes. SIZE_MAX stands
 * for no limit. 0: the library chooses. A large transfer from ordinary host memory to a device then has a limit. */
size_t tdict_queue_limit_choose(size_t option, const tdict_plan *plan);
/* Returns the limit of a chunk's bytes if `max_queued_bytes` bytes may be queued, or 0 if max_queued_bytes is 0.
 * is_staged: chunks travel through slots. */
size_t tdict_queue_limit_chunk_bytes(size_t max_queued_bytes, bool is_staged);
/* Creates a limit for at most `most_copies` chunks that are queued at once. Errors: TDICT_ENOMEM. */
tdict_status tdict_queue_limit_create(size_t max_bytes, int most_copies, tdict_queue_limit **out, tdict_error *err);
/* Frees the limit. */
void tdict_queue_limit_free(tdict_queue_limit *limit);
/* Counts the bytes of a chunk. If the bytes do not fit, first waits until enough copies have finished. *out is false if
 * *failed becomes true meanwhile. Errors: the driver's, if it cannot say whether a copy has finished. */
tdict_status tdict_queue_limit_reserve(tdict_queue_limit *limit, size_t bytes, const _Atomic(bool) *failed, bool *out,
                                       tdict_error *err);
/* Adds a counted chunk whose copies are queued or wait in a burst. */
void tdict_queue_limit_add(tdict_queue_limit *limit, const tdict_counted_copy *copy);
/* Ends the count of the chunk with this event, unless another thread has ended the count already. Call before the event
 * is recorded again. */
void tdict_queue_limit_remove(tdict_queue_limit *limit, tdict_cu_event event);

#endif
