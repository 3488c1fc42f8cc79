/* The struct of a GPU: its context, memory, and pooled streams and events, on the driver's table. Each storage in the
 * memory of the gpu holds a reference. Thread rule: safe from any thread. */
#ifndef TDICT_DEVICE_GPU_H
#define TDICT_DEVICE_GPU_H

#include <pthread.h>

#include "core/base/forkmark.h"
#include "core/kernel/work.h"
#include "core/memory/memory.h"
#include "core/memory/pinned_pages.h"
#include "core/memory/storage.h"
#include "device/block_cache.h"
#include "device/driver.h"
#include "tdict/memory.h"

enum { TDICT_KEPT_TABLES = 8 };
/* A buffer for the table and the results of a launch. The host writes the table to the pinned half, and a copy on the
 * stream of the launch fills the device half. The kernel writes the results to the pinned half. */
typedef struct tdict_launch_table {
  void *host, *device;
  size_t bytes;         /* of each half */
  tdict_cu_event event; /* recorded after the last use; NULL: the buffer is idle */
} tdict_launch_table;

/* The module with the kernels, and buffers for results, and for tables that do not fit a launch's parameters. */
typedef struct tdict_kernel_state {
  pthread_mutex_t lock;   /* guards all fields */
  tdict_cu_module module; /* NULL: not loaded yet */
  bool logged_failure;    /* a message about kernels that cannot be loaded was logged */
  tdict_cu_function functions[TDICT_KERNEL_NUM_OPS];
  int num_tables;
  tdict_launch_table tables[TDICT_KEPT_TABLES];
} tdict_kernel_state;

/* Bytes of the pinned buffer through which single tensors are copied to the host. */
#define TDICT_GPU_BOUNCE_BYTES ((size_t)1 << 20)
typedef struct tdict_gpu tdict_gpu;
struct tdict_gpu {
  tdict_memory memory; /* first, so that a tdict_gpu * is also a tdict_memory * */
  _Atomic(int64_t) refs;
  tdict_driver *driver; /* retained */
  int ordinal;
  tdict_cu_context context;
  tdict_cu_pool pool;
  tdict_cu_stream alloc_stream, free_stream; /* two streams, so that an allocation need not wait for frees */
  size_t cache_bytes;                        /* limit of freed memory that is kept for reuse */
  tdict_block_cache kept;
  char name[64];
  int node;            /* NUMA node of the gpu; -1: unknown, or only one node. Set before other threads use the gpu */
  size_t pin_piece;    /* piece size in bytes, see tdict_pinner. Set before other threads use the gpu */
  bool reads_pageable; /* the gpu reads ordinary host memory through the page tables of the host. Constant after open */
  _Atomic(bool) logged_refused_node; /* relaxed: a message about a failed binding was logged */
  tdict_forkmark *mark;              /* retained; NULL: forks are not detected. Set before other threads use the gpu */
  _Atomic(uint64_t) peers_asked;     /* relaxed; bit n: allow_peer_access() ran for ordinal n */
  _Atomic(int32_t) lost;             /* relaxed; the driver's code if the device is lost, else 0 */
  pthread_mutex_t lock;              /* guards: the fields from `streams` to large_bytes */
  tdict_cu_stream *streams;          /* idle streams */
  tdict_cu_event *events;            /* idle events */
  int num_streams, num_events;
  size_t cap_streams, cap_events;
  tdict_memory_counts counts;
  size_t peak_live_bytes;
  size_t large_bytes;          /* bytes of large blocks, live and kept, see tdict_gpu_allocate_block() */
  pthread_mutex_t queue_lock;  /* limits how many threads queue copies, see tdict_gpu_begin_queue() */
  pthread_mutex_t bounce_lock; /* guards: `bounce` and the bytes of the buffer. Held until all copies through the buffer
                                * are done */
  void *bounce;                /* pinned buffer of TDICT_GPU_BOUNCE_BYTES, allocated at first use */
  tdict_kernel_state kernels;
};

tdict_gpu *tdict_gpu_retain(tdict_gpu *gpu);
/* Drops a reference, or nothing for NULL. The last frees the gpu's resources, except in a forked child. */
void tdict_gpu_release(tdict_gpu *gpu);

/* The state of the calling thread before tdict_gpu_enter(). tdict_gpu_leave() restores this state. */
typedef struct tdict_gpu_scope {
  int capture_mode;
  bool entered;
} tdict_gpu_scope;
/* Makes the gpu's context current on this thread, with capture mode relaxed. tdict_gpu_leave() restores the previous
 * context and mode, or does nothing if this failed. Scopes may be nested. Functions marked "inside a scope" must be
 * called in between. Returns TDICT_ELOST for a lost device, TDICT_EFORKED in a forked child, and the errors of
 * tdict_gpu_check(). */
tdict_status tdict_gpu_enter(tdict_gpu *gpu, tdict_gpu_scope *scope, tdict_error *err);
void tdict_gpu_leave(tdict_gpu *gpu, tdict_gpu_scope *scope);
/* Enters a scope to wait for work, or to free resources. Unlike tdict_gpu_enter(), this function also enters if the
 * device is lost, and tries twice to push the context. Without a scope, memory would be reused while work uses it, or
 * resources would leak. In a forked child, the scope is not entered. */
void tdict_gpu_enter_for_cleanup(tdict_gpu *gpu, tdict_gpu_scope *scope);
/* Converts a driver's code to a status and an error that names `call`: TDICT_ENOMEM for TDICT_CU_OUT_OF_MEMORY,
 * TDICT_ELOST if the device counts as lost, so that tdict_gpu_enter() fails, and else TDICT_EDEVICE. */
tdict_status tdict_gpu_check(tdict_gpu *gpu, tdict_cu result, const char *call, tdict_error *err);

/* Creates a non-blocking stream, inside a scope. Waits for queued allocations, because compute-sanitizer does not see
 * an earlier wait (gpu.c). The caller destroys it with tdict_counted_stream_destroy(). Returns the errors of
 * tdict_gpu_check(). */
tdict_status tdict_gpu_create_stream(tdict_gpu *gpu, tdict_cu_stream *out, tdict_error *err);

/* Streams and events are pooled. The streams are non-blocking, and the events have no timing. Taking one, inside a
 * scope, creates it if none is idle. The caller owns it until tdict_gpu_give_*(). Returns the errors of
 * tdict_gpu_check(). */
tdict_status tdict_gpu_take_stream(tdict_gpu *gpu, tdict_cu_stream *out, tdict_error *err);
void tdict_gpu_give_stream(tdict_gpu *gpu, tdict_cu_stream stream); /* the stream must have no pending work */
tdict_status tdict_gpu_take_event(tdict_gpu *gpu, tdict_cu_event *out, tdict_error *err);
void tdict_gpu_give_event(tdict_gpu *gpu, tdict_cu_event event);
/* Buffers for launches are also pooled. tdict_gpu_take_table() takes an idle buffer whose halves have at least `bytes`
 * bytes. If there is none, creates a buffer. Call inside a scope. Returns the errors of tdict_gpu_check(). */
tdict_status tdict_gpu_take_table(tdict_gpu *gpu, size_t bytes, tdict_launch_table *out, tdict_error *err);
/* Keeps a buffer for later launches. If the list is full, frees the buffer after its last use. Call inside a scope. */
void tdict_gpu_give_table(tdict_gpu *gpu, tdict_launch_table *t);
/* Frees the idle buffers for tables of launches. If `all` is true, first waits for the buffers that are in use, and
 * unloads the module. No other thread may then use the gpu. Call inside a scope. */
void tdict_gpu_free_tables(tdict_gpu *gpu, bool all);
/* Makes later work on `stream` wait for what is queued on `after`. Inside a scope. Errors of tdict_gpu_check(). */
tdict_status tdict_gpu_follow(tdict_gpu *gpu, tdict_cu_stream stream, tdict_cu_stream after, tdict_error *err);

/* The next five call the driver, inside a scope, and return tdict_gpu_check() of its code. */
tdict_status tdict_gpu_record(tdict_gpu *gpu, tdict_cu_event event, tdict_cu_stream stream, tdict_error *err);
/* Takes an event and records it on a stream. A failure leaves *out unchanged. Returns the errors of
 * tdict_gpu_take_event() and tdict_gpu_record(). */
tdict_status tdict_gpu_take_recorded(tdict_gpu *gpu, tdict_cu_stream stream, tdict_cu_event *out, tdict_error *err);
tdict_status tdict_gpu_stream_wait(tdict_gpu *gpu, tdict_cu_stream stream, tdict_cu_event event, tdict_error *err);
/* Waits on the host until all work on the stream is done. */
tdict_status tdict_gpu_sync_stream(tdict_gpu *gpu, tdict_cu_stream stream, tdict_error *err);
/* Waits on the host until the recorded event is done. */
tdict_status tdict_gpu_sync_event(tdict_gpu *gpu, tdict_cu_event event, tdict_error *err);
/* Queries an event: returns TDICT_CU_SUCCESS if the work before the event is done, TDICT_CU_NOT_READY, or an error. */
tdict_cu tdict_gpu_query_event(tdict_gpu *gpu, tdict_cu_event event);
/* Writes the milliseconds between two timing events. Both events must be done. */
tdict_status tdict_gpu_elapsed(tdict_gpu *gpu, tdict_cu_event from, tdict_cu_event to, float *ms, tdict_error *err);

bool tdict_stream_is_of(tdict_stream stream, const tdict_gpu *gpu);
/* Returns TDICT_ECAPTURE if the stream is captured into a graph, or errors of tdict_gpu_check(). Inside a scope. */
tdict_status tdict_gpu_refuse_capture(tdict_gpu *gpu, tdict_cu_stream stream, const char *what, tdict_error *err);
/* Tries to take the gpu's queue lock, without which threads would sleep on a lock inside the driver. After a short time
 * returns false, and the caller queues without it, so that one driver call that hangs does not block other threads.
 * Pass the result to tdict_gpu_end_queue(). */
bool tdict_gpu_begin_queue(tdict_gpu *gpu);
void tdict_gpu_end_queue(tdict_gpu *gpu, bool locked);
/* Queues the copy of a rectangle. Pitches may be negative. The host memory of the rectangle should be pinned. One
 * driver call cannot copy host memory of two registrations, so the function splits the copy at the end of a
 * registration. The function splits only at multiples of TDICT_PINNED_GRAIN. Call inside a scope. Returns the errors of
 * tdict_gpu_check(). After a failure, a part of the copy may be queued. */
tdict_status tdict_gpu_queue_rect(tdict_gpu *gpu, tdict_cu_kind kind, const tdict_rect *rect, tdict_cu_stream stream,
                                  tdict_error *err);
/* Queues up to TDICT_CU_MOST_COPIES contiguous copies between host and device, which can run in any order. Uses one
 * driver call if the driver supports batches, no copy is empty, and the host memory of each copy is in one
 * registration. With one driver call, the gaps between the copies are shorter. `stream` must not be the legacy stream.
 * Call inside a scope. Returns the errors of tdict_gpu_queue_rect(). */
tdict_status tdict_gpu_queue_copies(tdict_gpu *gpu, tdict_cu_kind kind, const tdict_cu_copy *copies, size_t count,
                                    tdict_cu_stream stream, tdict_error *err);
/* Returns true if the driver gives the two GPUs peer access to each other. Returns false for one and the same GPU. */
bool tdict_gpu_has_peer_access(tdict_gpu *gpu, tdict_gpu *other);
/* Queues the copy of a rectangle from memory of `from`, another gpu of the same driver, to memory of `gpu`. The driver
 * copies over a link between the gpus if a link exists, else through host memory. If `from` is NULL, copies within the
 * memory of `gpu`. Call inside a scope. Returns the errors of tdict_gpu_queue_rect(). */
tdict_status tdict_gpu_queue_from(tdict_gpu *gpu, tdict_gpu *from, const tdict_rect *rect, tdict_cu_stream stream,
                                  tdict_error *err);
/* Implements the operation `run` of tdict_memory_ops for memory of the gpu. Defined in run.c. */
tdict_status tdict_gpu_run(tdict_gpu *gpu, tdict_kernel_work *work, tdict_run_order *order, tdict_error *err);
/* Loads the kernels if they are not loaded yet. Loading takes some milliseconds or more. Returns TDICT_ENOTSUP if the
 * driver cannot compile the kernels, and the driver's other errors. Defined in run.c. */
tdict_status tdict_gpu_load_kernels(tdict_gpu *gpu, tdict_error *err);
/* Queues a work, whose table is copied, and waits only for results. After an error, a part may be queued. Returns the
 * errors of the operation `run`. Defined in run.c. Call inside a scope. */
tdict_status tdict_gpu_queue_work(tdict_gpu *gpu, tdict_kernel_work *work, tdict_cu_stream stream, tdict_error *err);
/* Allocates device memory, which any stream may use at once and the gpu's counts do not include. Call inside a scope.
 * Returns TDICT_ENOMEM or another error of tdict_gpu_check(). */
tdict_status tdict_gpu_allocate(tdict_gpu *gpu, size_t bytes, void **out, tdict_error *err);
/* Returns true if all of [address, address + bytes) is pinned memory, which the gpu's copy engines can access. The
 * range may span several registrations if tdict_gpu_queue_rect() can split copies at their boundaries. `storage`
 * contains the range. Returns false if neither the library nor the program has flagged the storage as pinned. */
bool tdict_gpu_is_pinned(tdict_gpu *gpu, const tdict_storage *storage, const void *address, size_t bytes);
/* Allocates a block as tdict_gpu_allocate() does, but a large block with cuMemAlloc() and not from the pool. */
tdict_status tdict_gpu_allocate_block(tdict_gpu *gpu, size_t bytes, void **out, tdict_error *err);
/* Queues the free of a block on free_stream. If the block is large, frees the block with cuMemFree() instead, which
 * waits for the device. If the block has an event, returns the event to the gpu's pool of idle events. */
void tdict_gpu_free_block(tdict_gpu *gpu, const tdict_kept_block *block);
/* Returns kept blocks to the driver, oldest first, until at most keep_count blocks and keep_bytes bytes are kept. */
void tdict_gpu_free_kept(tdict_gpu *gpu, size_t keep_bytes, int keep_count);
/* Returns freed memory to the driver until at most keep_bytes are kept. Does nothing if tdict_gpu_enter() fails. */
void tdict_gpu_trim(tdict_gpu *gpu, size_t keep_bytes);
/* Returns how this gpu page-locks host memory. The result borrows the gpu and the pool. */
tdict_pinner tdict_gpu_pinner(tdict_gpu *gpu, tdict_pool *pool);
/* Returns the gpu of a device memory, or NULL if `memory` is NULL or not device memory. The caller borrows the gpu. */
tdict_gpu *tdict_gpu_of_memory(tdict_memory *memory);
/* Implements tdict_memory_ops.reaches. */
bool tdict_gpu_memory_reaches(tdict_memory *memory, tdict_memory *other);

/* gpu_open.c */
/* Opens the gpu with number `ordinal` of a driver, and retains the driver. The gpu keeps at most cache_bytes of freed
 * memory for reuse. *out holds one reference. Returns TDICT_ENODEVICE if the driver has no such device, or if the
 * device has no memory pools. Other errors: TDICT_EDEVICE, TDICT_ELOST, TDICT_ENOMEM. */
tdict_status tdict_gpu_open(tdict_driver *driver, int ordinal, size_t cache_bytes, tdict_gpu **out, tdict_error *err);
/* gpu_memory.c */
/* Sets the operations and the device of a gpu's memory. Thread rule: call before other threads can access the gpu. */
void tdict_gpu_memory_init(tdict_memory *memory, tdict_device device);

#endif
