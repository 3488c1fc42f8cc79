/* Defines the struct of a transfer: its plan, its settings, its order among transfers, its first error and its
 * references. The program sees this struct as the future of the transfer. Storages see this struct as a fence. See
 * order.h for the order, run/worker.h for the work, and finish.h for the end of a transfer. Thread rule: only the
 * starting thread uses the fields until the hooks or the copies begin. Later, several threads use the fields. The
 * comment of a field then names the lock or the memory order of the field. Workers only read fields without such a
 * comment. The thread that ends the transfer releases the objects that these fields hold. */
#ifndef TDICT_TRANSFER_JOB_H
#define TDICT_TRANSFER_JOB_H

#include "device/stream.h"
#include "sched/latch.h"
#include "transfer/engine.h"
#include "transfer/plan/plan.h"

enum { TDICT_MAX_WAIT_EVENTS = 16 };

/* The work of one thread on a transfer, see run/worker.h. */
typedef struct tdict_worker {
  tdict_task task; /* first member, because the pool passes a pointer to the task to the task's function */
  tdict_future *transfer;
  tdict_gpu *tail_gpu; /* retained; the device of `tail`, NULL if there is no tail */
  tdict_cu_event tail; /* recorded after the worker's last copy, for streams that wait for the transfer */
  bool worked;
  int64_t copy_ns, wait_ns, cpu_ns;
  size_t packed_bytes; /* bytes of packed elements in the copies that the worker queued */
} tdict_worker;

/* An edge of the order: the copies of `waiting` must not begin before `awaited` has ended. */
typedef struct tdict_dependent {
  tdict_future *waiting; /* not retained: this transfer cannot end while its num_pending is above 0 */
  tdict_future *awaited;
  struct tdict_dependent *next;
} tdict_dependent;

/* An event recorded on a stream of the program. All copies of the transfer that access a device wait for the event. */
typedef struct tdict_wait_event {
  tdict_gpu *gpu;
  tdict_cu_event event;
} tdict_wait_event;

/* The parts of a promise, see parts.h. */
typedef struct tdict_parts {
  /* guards: list, num_parts, num_open, and while the promise has not ended: its result and its statistics */
  pthread_mutex_t lock;
  size_t num_open; /* parts that have not ended, and 1 until the owner closes the promise */
  size_t num_parts;
  tdict_future *list[]; /* a handle of each part */
} tdict_parts;

/* A result on another device with the same keys and bytes, see run/repeats.h. */
typedef struct tdict_repeat {
  tdict_storage *storage; /* retained until the transfer has ended */
  tdict_tree *tree;       /* retained; NULL until the tree is built */
  size_t position;        /* of the tree in the result of the promise */
} tdict_repeat;
typedef struct tdict_repeats {
  size_t count;
  tdict_repeat list[];
} tdict_repeats;

/* The functions in which kinds of futures differ. future.c has the table of transfers, parts.c the table of promises.
 * Thread rule: safe from any thread, if no comment says otherwise. The caller holds no lock. */
typedef struct tdict_future_kind {
  tdict_fence_ops fence;
  /* Before a thread waits for the end of the future: does the work that no thread has begun yet. */
  void (*help)(tdict_future *future);
  /* Makes a checked stream wait for the future's copies. If that is impossible, waits until the future has ended. If
   * this call returns TDICT_OK and the future has not failed, the result exists. */
  tdict_status (*wait_on_stream)(tdict_future *future, tdict_stream stream, tdict_error *err);
  void (*cancel)(tdict_future *future); /* after the error was stored; NULL: nothing more to do */
  /* Returns true if the calling thread runs a hook of the future. */
  bool (*is_inside)(const tdict_future *future);
  /* Called once for each part of the future, on the thread that has ended the part. May end the future. NULL: the
   * future has no parts */
  void (*part_ended)(tdict_future *future, tdict_future *part);
  void (*free)(tdict_future *future); /* with the last reference; NULL: nothing more to free */
} tdict_future_kind;

struct tdict_future {
  tdict_fence fence; /* first member, so that a pointer to the fence is also a pointer to the transfer */
  const tdict_future_kind *kind;

  /* References */
  _Atomic(int64_t) refs;    /* counts the program's handles, references to `fence`, one reference for the work, and one
                             * for the task of a deferred tail */
  _Atomic(int64_t) handles; /* acq_rel: number of references that the program holds. If the transfer has ended,
                             * releasing the last handle drops `result` */

  /* The parts of the context that the transfer uses */
  tdict_engine *engine; /* must not be used after tdict_transfer_finish() has returned, because the program may then
                         * destroy the context */
  tdict_pool *pool;     /* the engine's pool; the rule for `engine` applies */
  tdict_forkmark *mark; /* mark and log: retained */
  tdict_log *log;
  tdict_stream_range streams; /* devices whose streams may wait for the transfer */

  /* Source and result */
  tdict_plan plan;
  tdict_storage *arena;     /* retained; the storage of all new leaves, or NULL */
  tdict_tree *result;       /* retained; returned to the caller after success */
  tdict_tree *mirror;       /* retained; the tree in which error paths are looked up; NULL: error paths are looked up in
                             * `result` */
  const tdict_tree *source; /* borrowed until the starting call returns; error paths are looked up in this tree if
                             * `mirror` and `result` are NULL */

  /* Settings, which do not change after the transfer has begun */
  int32_t mode;
  tdict_tuning_row row;      /* chunk sizes, threads and slots */
  tdict_stream_kind stores;  /* store instructions with which host threads copy */
  int64_t spin_ns;           /* a thread that waits for the transfer's end spins for this time before it sleeps */
  uint32_t num_parts;        /* maximum number of parts of a chunk; threads fill the parts in parallel */
  int num_helpers;           /* threads that may help the starting thread to mark many sources */
  bool places_while_marking; /* true if the transfer has many items: the thread that marks an item's source also sets
                              * the item's dst_data */
  bool on_caller;            /* true: the starting thread is the first worker, and pool threads are the other workers */
  /* true: on_caller becomes false if the transfer must wait for another transfer. Neither on_caller nor
   * on_caller_if_ready changes after the transfer has begun */
  bool on_caller_if_ready;
  size_t max_queued_bytes; /* value of the option; 0: no limit */
  bool pins_result;        /* the result is pinned host memory */
  bool caller_waits;       /* the starting call blocks until the transfer has ended, so no stream can wait for the
                       * transfer */
  bool skips_stats;        /* true: no caller can read the statistics, so the workers gather no statistics */
  tdict_gpu *gpu; /* retained; the first GPU that copies, else the target's GPU; NULL: the transfer uses no GPU */

  /* Events and uses that copies wait for */
  tdict_wait_event wait_events[TDICT_MAX_WAIT_EVENTS];
  int num_wait_events;
  /* retained: recorded uses of the bytes that the transfer writes, and fillers of the bytes that the transfer reads.
   * Copies wait for these uses */
  tdict_fence **uses;
  uint32_t num_uses, cap_uses;

  /* The order among transfers, see order.c */
  tdict_fence_node *writes; /* the marks on written storages; the marks on sources are in the plan */
  uint32_t num_writes;
  bool marked; /* true while marks are attached. A mark that was removed early has the flag `was_detached` */
  tdict_dependent *waits_for;
  /* num_pending, dependents and finished: guarded by the engine's lock. num_pending: transfers in waits_for that
   * have not ended */
  uint32_t num_waits_for, num_pending;
  tdict_dependent *dependents;
  bool finished;
  tdict_latch may_start; /* opened when the starting thread may copy */

  /* Optional parts */
  tdict_parts *parts; /* owned; the transfer is a promise with these parts. NULL: the transfer is no promise */
  /* retained; the promise of which this transfer is a part. NULL: the transfer is no part, or the promise knows that
   * the part has ended. acq_rel: the thread that sets the field to NULL tells the promise */
  _Atomic(tdict_future *) part_of;
  size_t position;             /* of the part's tree in the result of the promise */
  tdict_future *const *awaits; /* transfers that must end before the copies begin. Borrowed until the starting call has
                                 * begun the transfer */
  size_t num_awaits;
  /* owned, one for each item or leaf, see check_sources.h. NULL: sources are not checked */
  uint64_t *hashes;
  struct tdict_hooks *hooks; /* owned, see hooks.h. NULL: no hook must run */
  /* owned, see run/worker.h. NULL: every worker waits for its copies itself */
  struct tdict_deferred_tail *deferred_tail;
  /* owned, one for each chunk, see run/chunk_parts.h. NULL: every chunk has one part */
  struct tdict_chunk_parts *chunk_parts;
  tdict_repeats *repeats;                /* owned. NULL: the result is on one device */
  struct tdict_queue_limit *queue_limit; /* owned, see run/queue_limit.h. NULL: no limit of queued bytes */
  struct tdict_batch *batch;             /* owned, see run/batch.h. NULL: each copy is queued at once */
  pthread_mutex_t batch_lock; /* guards: the copies in the batch. Held while the driver queues these copies */

  /* Progress of the workers */
  tdict_latch queued; /* counts workers that still queue copies, and a thread that builds the result */
  /* relaxed: a worker could not record its tail, so a stream cannot wait for the copies of this worker. The latch
   * `queued` makes the store visible */
  _Atomic(bool) missing_tail_event;
  _Atomic(uint32_t) next_part; /* relaxed: a ticket counter for parts of chunks */
  /* acq_rel: the last worker ends the transfer. A thread that builds the result counts as a worker */
  _Atomic(int32_t) workers_left;
  _Atomic(int64_t) slots_held, peak_slots; /* relaxed: statistics */
  /* relaxed: a lane has requested a slot. The first request may take the last free slots */
  _Atomic(bool) slot_was_requested;
  _Atomic(bool) first_copy_done; /* relaxed: a copy has ended, so no stream blocks the transfer */

  /* The first error */
  _Atomic(bool) failed;             /* relaxed: tells workers to stop. error_lock guards the error itself */
  _Atomic(bool) error_was_reported; /* relaxed: true if the program has the error, which is then not logged */
  /* guards: error, error_leaf, outcome_is_final, result_was_returned, and the workers' tails until the outcome is
   * final */
  pthread_mutex_t error_lock;
  tdict_error error; /* status 0: no error */
  /* the number of the leaf that the error names. UINT32_MAX: the error names no leaf, or the path of the error is set
   * already */
  uint32_t error_leaf;
  bool outcome_is_final;    /* true: later errors and cancels are ignored */
  bool result_was_returned; /* true: the program has received `result` and may change the tree, so no path is looked up
                             * in `result` */

  /* State after the end */
  tdict_latch ended; /* open after the transfer has ended */
  int64_t begin_ns;
  tdict_traced traced;
  tdict_transfer_stats stats;

  int num_workers;
  tdict_worker workers[];
};

extern const tdict_future_kind tdict_transfer_kind;
/* Creates an empty future with space for its workers. *out has one reference, which is a handle. Errors:
 * TDICT_ENOMEM. */
tdict_status tdict_transfer_create(tdict_engine *engine, const tdict_future_kind *kind, int num_workers,
                                   tdict_future **out, tdict_error *err);
/* Drops a reference that is not a handle of the program. The last reference frees the transfer. */
void tdict_transfer_release(tdict_future *f);
/* Stores the error if the transfer has no error yet and the outcome of the transfer is not final. Tells the workers to
 * stop. The error names the leaf of item number `item`. If `item` is UINT32_MAX or the item of a consolidated tree, the
 * error names no leaf. */
void tdict_transfer_fail(tdict_future *transfer, uint32_t item, const tdict_error *error);
/* Stores an error like tdict_transfer_fail(). The error names leaf number `leaf` in tree order. */
void tdict_transfer_fail_leaf(tdict_future *transfer, uint32_t leaf, const tdict_error *error);
/* Stores an error like tdict_transfer_fail(). The error names `path`, which may be empty. */
void tdict_transfer_fail_at(tdict_future *transfer, const char *path, const tdict_error *error);
/* Returns true if an error was stored or the transfer was cancelled. The returned value may be out of date, so use it
 * only to stop early. */
static inline bool tdict_transfer_has_failed(const tdict_future *transfer) {
  return atomic_load_explicit(&transfer->failed, memory_order_relaxed);
}
/* Returns true if the latch is open. A forked child may call this function. */
bool tdict_transfer_is_open(const tdict_future *transfer, tdict_latch *latch);
/* Waits for a latch of the transfer until a deadline, and returns true if the latch is open. In a forked child, does
 * not wait. A pool thread runs other tasks meanwhile, because the work that opens the latch may be queued after the
 * task of the waiting thread. */
bool tdict_transfer_wait(tdict_future *transfer, tdict_latch *latch, int64_t deadline_ns);
/* Like tdict_transfer_wait(), but pthread_cancel() ends the wait. The calling thread must hold nothing that another
 * thread waits for. */
bool tdict_transfer_wait_cancellable(tdict_future *transfer, tdict_latch *latch, int64_t deadline_ns);
/* The functions of tdict_fence_ops that all kinds of futures share. */
bool tdict_future_fence_poll(tdict_fence *fence);
bool tdict_future_fence_wait(tdict_fence *fence, int64_t deadline_ns);
void tdict_future_fence_retain(tdict_fence *fence);
void tdict_future_fence_release(tdict_fence *fence);

#endif
