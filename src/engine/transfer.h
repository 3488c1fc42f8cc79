/* Defines the struct of a transfer: its plan, its settings, its order among transfers and the progress of its workers.
 * A transfer begins with a future, see future.h. See order.h for the order, worker.h for the work, and finish.h for
 * the end of a transfer. Thread rule: only the starting thread uses the fields until the hooks or the copies begin.
 * Later, several threads use the fields. The comment of a field then names the lock or the memory order of the field.
 * Workers only read fields without such a comment. The thread that ends the transfer releases the objects that these
 * fields hold. */
#ifndef TDICT_ENGINE_TRANSFER_H
#define TDICT_ENGINE_TRANSFER_H

#include "core/base/clock.h"
#include "engine/future.h"
#include "engine/plan/choose.h"

typedef struct tdict_transfer tdict_transfer;

/* The work of one thread on a transfer, see worker.h. */
typedef struct tdict_worker {
  tdict_task task; /* first member, because the pool passes a pointer to the task to the task's function */
  tdict_transfer *transfer;
  tdict_gpu *tail_gpu; /* retained; the device of `tail`, NULL if there is no tail */
  tdict_cu_event tail; /* recorded after the worker's last copy, for streams that wait for the transfer */
  bool lacks_tail; /* true: the tail could not be recorded, so no stream can wait for this worker's copies. The latch
                        * `queued` makes the store visible */
  bool worked;
  int64_t copy_ns, wait_ns, cpu_ns;
  size_t packed_bytes; /* bytes of packed elements in the copies that the worker queued */
  /* Only of the first worker, guarded by error_lock: the stream that all lanes on the transfer's GPU share if slots are
   * copied to the host. NULL: not taken */
  tdict_cu_stream out_stream;
} tdict_worker;

/* An edge of the order: the copies of `waiting` must not begin before `awaited` has ended. */
typedef struct tdict_edge {
  tdict_transfer *waiting; /* not retained: this transfer cannot end while its num_pending is above 0 */
  tdict_transfer *awaited;
  struct tdict_edge *next; /* in the list `waiters` of `awaited` */
} tdict_edge;

/* A place of the new leaves. Target 0 is written, and its bytes are copied to targets on other devices: see lane.c. */
typedef struct tdict_target {
  tdict_storage *storage; /* retained until the transfer has ended; NULL: no leaf is new */
  tdict_tree *tree;       /* retained; NULL until the tree is built, and for target 0, whose tree is future.result */
  size_t position;        /* of the tree in the result of the promise; 0 if the transfer is not part of a promise */
} tdict_target;

struct tdict_transfer {
  tdict_future future; /* first member, so that a pointer to the transfer is also a pointer to the future */

  /* Source and result */
  tdict_plan plan;
  tdict_target *targets; /* at least one; in the memory of this struct, after the workers */
  size_t num_targets;
  /* retained; the tree in which error paths are looked up; NULL: error paths are looked up in the result */
  tdict_tree *named;

  tdict_how how;
  tdict_gpu *gpu; /* retained; the first GPU that copies, else the target's GPU; NULL: the transfer uses no GPU */

  /* The order among transfers, see order.c */
  /* owned; the marks on written storages. The marks on sources are in the plan; a mark that was removed early has the
   * flag `was_detached`. NULL: the transfer has not begun, or its marks were removed */
  tdict_fence_node *writes;
  uint32_t num_writes;
  tdict_edge *edges; /* from the transfers that this transfer waits for */
  /* guarded by the engine's lock, with waiters and finished. num_pending: transfers of `edges` not ended */
  uint32_t num_edges, num_pending;
  tdict_edge *waiters; /* edges to the transfers that wait for this transfer */
  bool finished;
  tdict_latch may_start; /* opened when the starting thread may copy */

  /* Optional parts */
  /* owned, one for each item or leaf, see check_sources.h. NULL: sources are not checked */
  uint64_t *hashes;
  struct tdict_stream_waits *stream_waits; /* owned, see stream_waits.h. NULL: copies wait for no work on a stream */
  struct tdict_hooks *hooks;               /* owned, see hooks.h. NULL: no hook must run */
  /* owned, see worker.h. NULL: every worker waits for its copies itself */
  struct tdict_deferred_tail *deferred_tail;
  /* owned, see options/strips.h. NULL: every chunk has one strip */
  struct tdict_strips *strips;
  struct tdict_queue_limit *queue_limit; /* owned, see options/queue_limit.h. NULL: no limit of queued bytes */
  struct tdict_pace *pace;               /* owned, see options/pace.h. NULL: copies begin at once */
  struct tdict_burst *burst;             /* owned, see options/burst.h. NULL: each copy is queued at once */

  tdict_latch queued;           /* counts workers that still queue copies, and a thread that builds the result */
  _Atomic(uint32_t) next_strip; /* relaxed: a ticket counter for strips of chunks */
  /* acq_rel: the last worker ends the transfer. A thread that builds the result counts as a worker */
  _Atomic(int32_t) workers_left;
  _Atomic(int64_t) slots_held, peak_slots; /* relaxed: statistics */

  tdict_traced traced; /* see options/trace/trace.h */

  tdict_worker workers[]; /* how.num_workers */
};

extern const tdict_future_kind tdict_transfer_kind; /* see transfer_kind.c */
/* Stores the error like tdict_future_fail(), and so tells the workers to stop. The error names the leaf of item number
 * `item`. If `item` is UINT32_MAX or the item of one block, the error names no leaf. */
static inline void tdict_transfer_fail(tdict_transfer *t, uint32_t item, const tdict_error *error) {
  tdict_future_fail(&t->future, item < t->plan.num_items ? t->plan.items[item].leaf : UINT32_MAX, "", error);
}
/* Returns true if the statistics contain the time of this phase. */
static inline bool tdict_phase_is_counted(tdict_range range) {
  return range == TDICT_RANGE_COPY || range == TDICT_RANGE_WAIT;
}
/* Begins a phase of the calling thread. Profilers show the phase as a range. If the transfer is recorded, the phase
 * becomes a slice. Returns the current time for tdict_phase_end(), or 0 if the time is not needed. */
static inline int64_t tdict_phase_begin(const tdict_transfer *t, tdict_range range) {
  tdict_range_push(range);
  return t->future.begin_ns && (t->traced.recording || tdict_phase_is_counted(range)) ? tdict_now_ns() : 0;
}
/* Ends a phase. Returns the duration in nanoseconds if statistics are gathered and contain this phase, else 0. */
static inline int64_t tdict_phase_end(const tdict_transfer *t, tdict_range range, int64_t begin_ns, size_t bytes) {
  tdict_range_pop();
  if (t->traced.recording) tdict_trace_add(&t->traced, range, begin_ns, bytes);
  return t->future.begin_ns && tdict_phase_is_counted(range) ? tdict_now_ns() - begin_ns : 0;
}

#endif
