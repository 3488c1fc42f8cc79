/* What a transfer is: its plan, how it is carried out, what it waits for, its first error and its references. A transfer is
 * its own future (public) and its own fence (the mark on the storages that it reads and writes).
 * The fields are grouped by the file that works with them. Nothing here knows how a transfer is ordered, run or ended: see
 * order.h, run/worker.h and finish.h.
 * Thread rule: one thread fills a transfer in until it begins; each field says what guards it after that. */
#ifndef TDICT_TRANSFER_JOB_H
#define TDICT_TRANSFER_JOB_H

#include "device/stream.h"
#include "sched/latch.h"
#include "transfer/engine.h"

enum { TDICT_MAX_GATES = 16 };

/* Work of a transfer on one thread, see run/worker.h. */
typedef struct tdict_worker {
  tdict_task task; /* first: the pool gives it back */
  tdict_future *transfer;
  tdict_gpu *tail_gpu; /* counted; the stream's last copy is behind `tail`, for streams that wait for the transfer */
  tdict_cu_event tail;
  bool worked;
  int64_t copy_ns, wait_ns, cpu_ns;
} tdict_worker;

/* A transfer that must not begin before another has ended. */
typedef struct tdict_dependent {
  tdict_future *waiting; /* counted by being pending */
  tdict_future *on;
  struct tdict_dependent *next;
} tdict_dependent;

/* Copies wait for this event before they touch the device. */
typedef struct tdict_gate {
  tdict_gpu *gpu;
  tdict_cu_event event;
} tdict_gate;

struct tdict_future {
  tdict_fence fence; /* first: a transfer is a fence */

  /* References */
  _Atomic(int64_t) refs;    /* handles, fences and the work itself */
  _Atomic(int64_t) handles; /* acq_rel: of those, the program's; the result goes with the last one */

  /* Where it belongs */
  tdict_engine *engine; /* not touched once finished */
  tdict_pool *pool;     /* the same; compared only */
  tdict_forkmark *mark; /* counted, like the log */
  tdict_log *log;
  tdict_stream_range streams; /* those of the context's devices */

  /* What is moved */
  tdict_plan plan;
  tdict_storage *arena;     /* counted; NULL when nothing new is made */
  tdict_tree *result;       /* counted; returned when the transfer is done */
  tdict_tree *mirror;       /* counted; where paths are found, NULL: in result */
  const tdict_tree *source; /* borrowed until the start is over: paths, while there is no result */

  /* How: settled before it begins */
  int32_t mode;
  tdict_tuning_row row;     /* how leaves go through slots */
  tdict_stream_kind stores; /* by which host threads copy */
  int64_t spin_ns;          /* a wait for the end spins so long before it sleeps */
  uint32_t num_parts;       /* in which a chunk that goes through a slot to a device is filled */
  int num_helpers;          /* threads that may help the starting one to mark very many sources */
  bool places_late;         /* of very many items: the thread that marks an item gives it its place, too */
  bool on_caller;           /* the starting thread is the first worker; threads of the pool are the others */
  bool if_free;             /* on_caller ends if there is another transfer to wait for; both settled by the begin */
  bool pins;                /* pin_memory */
  bool waits;               /* the starting call waits for the end, so no other thread waits on a stream */
  bool uncounted;           /* no caller can ask for the statistics */
  tdict_gpu *gpu;           /* counted; the first that takes part; NULL: none does */

  /* What copies wait for */
  tdict_gate gates[TDICT_MAX_GATES];
  int num_gates;
  tdict_fence **uses; /* counted: what programs have queued on the bytes that are written */
  uint32_t num_uses;

  /* The order among transfers: order.c */
  tdict_fence_node *writes; /* the marks on what is written; those on sources are the plan's */
  uint32_t num_writes;
  bool marked; /* the marks are on; then some may be gone already, their storage NULL */
  tdict_dependent *waits_for;
  uint32_t num_waits_for, pending; /* pending, dependents and finished: guarded by the engine's lock */
  tdict_dependent *dependents;
  bool finished;
  tdict_latch may_start; /* for on_caller */

  /* Parts that few transfers have */
  uint64_t *hashes;                          /* owned, one an item: check_sources.h. NULL: sources are not checked */
  struct tdict_hooks *hooks;                 /* owned: hooks.h. NULL: the tree has no objects */
  struct tdict_deferred_tail *deferred_tail; /* owned: run/worker.h. NULL: no thread leaves its waiting to others */
  struct tdict_chunk_parts *chunk_parts;     /* owned, one a chunk: run/chunk_parts.h. NULL: each has one part */
  struct tdict_batch *batch;                 /* owned: run/batch.h. NULL: each copy is queued at once */
  pthread_mutex_t batch_lock;                /* guards: the batch's copies; held while they are queued */

  /* Progress of the workers */
  tdict_latch queued;               /* down once for each worker that has nothing more to queue */
  _Atomic(bool) missing_tail_event; /* relaxed: a worker could not record its tail; ordered by `queued` */
  _Atomic(uint32_t) next_part;      /* relaxed: a ticket counter */
  _Atomic(int32_t) workers_left; /* acq_rel: the last one ends the transfer; a thread that builds the result counts */
  _Atomic(int64_t) slots_held, peak_slots; /* relaxed: statistics */
  _Atomic(bool) slot_was_asked;  /* relaxed: a lane has asked for a slot, and takes any there is: it is the first */
  _Atomic(bool) first_copy_done; /* relaxed: one of its copies has ended, so no stream holds up the others */

  /* The first error */
  _Atomic(bool) failed;       /* relaxed: a hint to stop early; the error is under error_lock */
  _Atomic(bool) observed;     /* relaxed: a caller was told how it ended */
  pthread_mutex_t error_lock; /* guards: error, decided, shown, and the workers' tails until then */
  tdict_error error;          /* status 0: none */
  uint32_t error_item;        /* names the leaf when it ends; UINT32_MAX: none, or the path is known */
  bool decided;               /* how it ended is settled: later errors and cancels are too late */
  bool shown; /* the result was returned before the end: the program may change it, so no path is looked up in it */

  /* The end */
  tdict_latch ended; /* from zero on everything here is only read */
  int64_t begin_ns;
  tdict_traced traced;
  tdict_transfer_stats stats;

  int num_workers;
  tdict_worker workers[];
};

/* Makes an empty transfer with room for its workers; one reference. TDICT_ENOMEM. */
tdict_status tdict_transfer_create(tdict_engine *engine, int num_workers, tdict_future **out, tdict_error *err);
/* Drops a reference that is no handle. */
void tdict_transfer_release(tdict_future *f);
/* Notes the first error; `item` (or UINT32_MAX) names the leaf. */
void tdict_transfer_fail(tdict_future *transfer, uint32_t item, const tdict_error *error);
/* The same with a path that is known. */
void tdict_transfer_fail_at(tdict_future *transfer, const char *path, const tdict_error *error);
/* A hint to stop early: an error was noted, or the transfer was cancelled. */
static inline bool tdict_transfer_has_failed(const tdict_future *transfer) {
  return atomic_load_explicit(&transfer->failed, memory_order_relaxed);
}
/* Whether a latch of the transfer is open; safe in a fork. */
bool tdict_transfer_is_open(const tdict_future *transfer, tdict_latch *latch);
/* Waits for a latch of the transfer, up to a deadline; returns whether it is open. A thread of the pool runs other tasks
 * meanwhile, since the work that opens the latch may be queued after its own. */
bool tdict_transfer_wait(tdict_future *transfer, tdict_latch *latch, int64_t deadline_ns);

#endif
