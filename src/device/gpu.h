/* One GPU over a driver's table: its context, its memory, its streams and events. Counted: storages in its memory keep
 * it. Thread rule: safe from any thread. */
#ifndef TDICT_DEVICE_GPU_H
#define TDICT_DEVICE_GPU_H

#include <pthread.h>

#include "base/forkmark.h"
#include "device/block_cache.h"
#include "device/driver.h"
#include "memory/memory.h"
#include "memory/pinned_pages.h"
#include "memory/storage.h"

/* The pinned buffer through which single tensors come to the host. */
#define TDICT_GPU_BOUNCE_BYTES ((size_t)1 << 20)
typedef struct tdict_gpu tdict_gpu;
struct tdict_gpu {
  tdict_memory memory; /* first: a gpu is its memory */
  _Atomic(int64_t) refs;
  tdict_driver *driver; /* counted */
  int ordinal;
  tdict_cu_context context;
  tdict_cu_pool pool;
  tdict_cu_stream alloc_stream, free_stream; /* allocations never queue behind a free that waits */
  size_t cache_bytes;                        /* the most that is kept of freed memory */
  tdict_block_cache kept;
  char name[64];
  int node;         /* of memory, that it hangs on; -1: not known, or there is one. Set before the gpu is shared */
  size_t pin_piece; /* see tdict_pinner. Set before the gpu is shared */
  _Atomic(bool) told_far; /* relaxed: the log has had its line about pages that could not be bound to a node */
  tdict_forkmark *mark;   /* counted; NULL: forks are not looked for */
  tdict_log *log;         /* counted; NULL: nobody is told */
  _Atomic(uint64_t) met;  /* a bit for each ordinal whose gpu and this one have let each other in; relaxed: a hint */
  _Atomic(int32_t)
      lost; /* the driver's code once the device is reset or lost; relaxed: nothing hangs on when it is seen */
  pthread_mutex_t lock;     /* guards what follows */
  tdict_cu_stream *streams; /* idle ones */
  int num_streams, cap_streams;
  tdict_cu_event *events; /* idle ones */
  int num_events, cap_events;
  tdict_memory_counts counts;
  size_t peak_live_bytes;
  pthread_mutex_t
      queue_lock; /* held while a copy and its event are queued: inside the driver threads would sleep for it */
  pthread_mutex_t bounce_lock; /* guards: bounce; held over the copies that use it */
  void *bounce;                /* pinned, for copies of single tensors to the host */
};

tdict_gpu *tdict_gpu_retain(tdict_gpu *gpu);
void tdict_gpu_release(tdict_gpu *gpu);

/* From here on calls in a fork of this process answer TDICT_EFORKED. Before the gpu is shared. */
void tdict_gpu_set_mark(tdict_gpu *gpu, tdict_forkmark *mark);
/* Who is told how pinned memory was come by when the first way failed. Before the gpu is shared. */
void tdict_gpu_set_log(tdict_gpu *gpu, tdict_log *log);

/* Makes the gpu's context current and the thread's capture mode relaxed; leave puts both back. They nest.
 * TDICT_EFORKED, TDICT_ELOST; TDICT_EDEVICE. */
typedef struct tdict_gpu_scope {
  int capture_mode;
  bool entered;
} tdict_gpu_scope;
tdict_status tdict_gpu_enter(tdict_gpu *gpu, tdict_gpu_scope *scope, tdict_error *err);
void tdict_gpu_leave(tdict_gpu *gpu, tdict_gpu_scope *scope);
/* TDICT_OK for TDICT_CU_SUCCESS, else an error that names the call and the driver's code: TDICT_ENOMEM for out of memory,
 * TDICT_ELOST for codes after which the context is of no use, TDICT_EDEVICE for the rest. */
tdict_status tdict_gpu_check(tdict_gpu *gpu, tdict_cu result, const char *call, tdict_error *err);

/* Idle streams (non-blocking) and events are kept. Inside a scope. */
tdict_status tdict_gpu_take_stream(tdict_gpu *gpu, tdict_cu_stream *out, tdict_error *err);
void tdict_gpu_give_stream(tdict_gpu *gpu, tdict_cu_stream stream); /* nothing is queued on it any more */
tdict_status tdict_gpu_take_event(tdict_gpu *gpu, tdict_cu_event *out, tdict_error *err);
void tdict_gpu_give_event(tdict_gpu *gpu, tdict_cu_event event);
/* Work queued on `stream` from here on waits for what is on `after` now. Inside a scope. */
tdict_status tdict_gpu_follow(tdict_gpu *gpu, tdict_cu_stream stream, tdict_cu_stream after, tdict_error *err);

/* Calls of the driver on the gpu's streams and events. Inside a scope. */
tdict_status tdict_gpu_record(tdict_gpu *gpu, tdict_cu_event event, tdict_cu_stream stream, tdict_error *err);
tdict_status tdict_gpu_stream_wait(tdict_gpu *gpu, tdict_cu_stream stream, tdict_cu_event event, tdict_error *err);
tdict_status tdict_gpu_sync_stream(tdict_gpu *gpu, tdict_cu_stream stream, tdict_error *err);
tdict_status tdict_gpu_sync_event(tdict_gpu *gpu, tdict_cu_event event, tdict_error *err);
/* Returns the driver's code: TDICT_CU_SUCCESS when the work before the event is done, TDICT_CU_NOT_READY, or an error. */
tdict_cu tdict_gpu_query_event(tdict_gpu *gpu, tdict_cu_event event);
/* Writes the milliseconds between two timing events that are done. */
tdict_status tdict_gpu_elapsed(tdict_gpu *gpu, tdict_cu_event from, tdict_cu_event to, float *ms, tdict_error *err);

/* TDICT_ECAPTURE when the stream is being captured into a graph; `what` begins the message. Inside a scope. */
tdict_status tdict_gpu_refuse_capture(tdict_gpu *gpu, tdict_cu_stream stream, const char *what, tdict_error *err);
/* Threads that queue copies take turns between these two, and do nothing else meanwhile. A thread whose turn does not come
 * goes ahead without (false): a call of another that does not return must hold up nobody. */
bool tdict_gpu_begin_queue(tdict_gpu *gpu);
void tdict_gpu_end_queue(tdict_gpu *gpu, bool has_turn);
/* Queues the copy of a rectangle with pitches of any sign; host memory in it should be pinned. The driver refuses a copy
 * that goes over the border of two registrations, so it is cut there; borders are looked for on addresses that are
 * multiples of TDICT_PINNED_GRAIN. Inside a scope. */
tdict_status tdict_gpu_queue_rect(tdict_gpu *gpu, tdict_cu_kind kind, const tdict_rect *rect, tdict_cu_stream stream,
                                  tdict_error *err);
/* The same for several lines between host and device, at most TDICT_CU_MOST_LINES, in one call of the driver where it has
 * one: the gaps between copies are shorter then. */
tdict_status tdict_gpu_queue_lines(tdict_gpu *gpu, tdict_cu_kind kind, const tdict_cu_line *lines, size_t count,
                                   tdict_cu_stream stream, tdict_error *err);
/* The same, plain copies included, from memory of another gpu of the same driver: over the link between them where there
 * is one, else through the host. `from` NULL: from the gpu's own memory. */
tdict_status tdict_gpu_queue_from(tdict_gpu *gpu, tdict_gpu *from, const tdict_rect *rect, tdict_cu_stream stream,
                                  tdict_error *err);
/* The gpu's copy engines can read and write [address, address + bytes) by themselves: it is registered, in one piece or
 * in several between which tdict_gpu_queue_rect() cuts. */
bool tdict_gpu_is_pinned(tdict_gpu *gpu, const tdict_storage *storage, const void *address, size_t bytes);
/* Gives a freed block to the driver, after its uses. */
void tdict_gpu_free_block(tdict_gpu *gpu, const tdict_kept_block *block);
/* Gives kept blocks to the driver until at most keep_count of them with keep_bytes are left. */
void tdict_gpu_free_kept(tdict_gpu *gpu, size_t keep_bytes, int keep_count);
/* Device memory that is freed and kept, down to keep_bytes. */
void tdict_gpu_trim(tdict_gpu *gpu, size_t keep_bytes);
/* How this gpu page-locks memory, and on which node. */
tdict_pinner tdict_gpu_pinner(tdict_gpu *gpu, tdict_pool *pool);
/* The gpu whose memory this is, or NULL. */
tdict_gpu *tdict_gpu_of_memory(tdict_memory *memory);

#endif
