/* The engine: one a context. It numbers transfers, makes them wait for each other where they share bytes, gives their
 * chunks to threads, and holds the staging rings. A transfer is its own future and its own fence.
 * Thread rule: safe from any thread. */
#ifndef TDICT_TRANSFER_ENGINE_H
#define TDICT_TRANSFER_ENGINE_H

#include "base/forkmark.h"
#include "base/log.h"
#include "base/stream_copy.h"
#include "device/stream.h"
#include "sched/latch.h"
#include "transfer/plan/plan.h"
#include "transfer/plan/tuning.h"
#include "transfer/run/ring.h"
#include "transfer/trace/trace.h"

enum { TDICT_MAX_GATES = 16 };

typedef struct tdict_engine tdict_engine;
typedef struct tdict_engine_config {
  tdict_devices *devices; /* borrowed, like the pool */
  tdict_pool *pool;
  size_t staging_bytes;
  tdict_forkmark *mark; /* retained, like the log */
  tdict_log *log;
  const tdict_tuning *tuning; /* copied; NULL: the built-in one */
} tdict_engine_config;
tdict_status tdict_engine_create(const tdict_engine_config *config, tdict_engine **out, tdict_error *err);
/* Another table, for programs that measure. No transfer is being started or under way. */
void tdict_engine_set_tuning(tdict_engine *engine, const tdict_tuning *tuning);
const tdict_tuning *tdict_engine_tuning(const tdict_engine *engine);
void tdict_engine_wait(tdict_engine *engine);    /* until no transfer is under way */
void tdict_engine_destroy(tdict_engine *engine); /* after the last wait; NULL is allowed */
tdict_devices *tdict_engine_devices(const tdict_engine *engine);
tdict_pool *tdict_engine_pool(const tdict_engine *engine);
tdict_forkmark *tdict_engine_mark(const tdict_engine *engine);
tdict_tracer *tdict_engine_tracer(tdict_engine *engine);
/* The ring of a gpu, made when it is first asked for; borrowed. Inside a scope of the gpu. */
tdict_status tdict_engine_ring(tdict_engine *engine, tdict_gpu *gpu, tdict_ring **out, tdict_error *err);
/* How the ring of a gpu came by its memory: a tdict_pinned_way, -1 when it is not pinned, 0 when there is no ring. */
int tdict_engine_ring_way(tdict_engine *engine, const tdict_gpu *gpu);
/* The bytes of each slot of a ring. */
size_t tdict_engine_slot_bytes(const tdict_engine *engine);
size_t tdict_engine_num_slots(const tdict_engine *engine);
/* The next transfer is likely to want as many threads of the pool as this one: they are woken while its tree is read. */
void tdict_engine_rouse(tdict_engine *engine);
void tdict_engine_note_helpers(tdict_engine *engine, int count);
/* The memory of an ended plan, which may be none; and giving such memory back, to be kept when it is not too much. */
void tdict_engine_take_plan(tdict_engine *engine, tdict_plan *out);
void tdict_engine_give_plan(tdict_engine *engine, tdict_plan *plan);
/* This layer's piece of a context; the composition root defines it. */
tdict_engine *tdict_context_engine(const tdict_context *context);

/* Work of a transfer on one thread, see work.h. */
typedef struct tdict_worker {
  tdict_task task; /* first: the pool gives it back */
  tdict_future *transfer;
  tdict_gpu *tail_gpu; /* counted; the stream's last copy is behind `tail`, for streams that wait for the transfer */
  tdict_cu_event tail;
  bool worked;
  int64_t copy_ns, wait_ns, cpu_ns;
} tdict_worker;

/* Somebody who must not begin before this transfer has ended. */
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
  tdict_fence fence;        /* first: a transfer is a fence */
  _Atomic(int64_t) refs;    /* handles, fences and the work itself */
  _Atomic(int64_t) handles; /* acq_rel: of those, the program's; the result goes with the last one */
  tdict_engine *engine;     /* not touched once finished */
  tdict_pool *pool;         /* the same; compared only */
  tdict_plan plan;
  tdict_storage *arena;     /* counted; NULL when nothing new is made */
  tdict_tree *result;       /* counted; handed out when it is done */
  tdict_tree *mirror;       /* counted; where paths are found, NULL: in result */
  const tdict_tree *source; /* borrowed until the start is over: paths, while there is no result */
  tdict_fence_node *writes; /* the marks on what is written; those on sources are the plan's */
  uint32_t num_writes;
  bool marked; /* the marks are on; then some may be gone already, their storage NULL */
  tdict_gate gates[TDICT_MAX_GATES];
  int num_gates;
  int32_t mode;
  int num_helpers;      /* threads that may help the starting one to mark very many sources */
  bool places_late;     /* of very many items: whoever marks an item gives it its place, too */
  bool on_caller;       /* the starting thread is the first worker; threads of the pool are the others */
  bool if_free;         /* on_caller no more, once there is another transfer to wait for; both settled by the begin */
  tdict_tuning_row row; /* how leaves go through slots */
  tdict_stream_kind stores; /* by which host threads copy */
  int64_t spin_ns;          /* so long a wait for the end looks before it sleeps */
  tdict_dependent *waits_for;
  uint32_t num_waits_for, pending; /* pending, dependents and finished: guarded by the engine's lock */
  tdict_dependent *dependents;
  bool finished;
  bool pins;            /* pin_memory */
  bool waits;           /* the starting call waits for the end, so nobody asks for less */
  bool uncounted;       /* nobody can ask for the statistics */
  tdict_forkmark *mark; /* counted, like the log */
  tdict_log *log;
  tdict_fence **uses; /* counted: what programs have queued on the bytes that are written */
  uint32_t num_uses;
  tdict_stream_range streams; /* those of the context's devices */
  tdict_gpu *gpu;             /* counted; the first that takes part; NULL: none does */
  uint64_t *hashes; /* of the sources, one an item, when they are checked; else NULL. Taken when its turn comes */
  struct tdict_hooks *hooks;     /* owned; NULL: the tree has no objects */
  struct tdict_rest *rest;       /* owned; NULL: no thread leaves its waiting to others, see work.h */
  tdict_latch queued;            /* down once for each worker that has nothing more to queue */
  _Atomic(bool) tailless;        /* relaxed: a worker could not record its tail; ordered by `queued` */
  _Atomic(bool) observed;        /* relaxed: somebody was told how it ended */
  tdict_latch may_start;         /* for on_caller */
  uint32_t num_parts;            /* in which a chunk that goes through a slot to a device is filled */
  struct tdict_share *shares;    /* owned, one a chunk; NULL: each has one part. See share.h */
  struct tdict_outbox *outbox;   /* owned; NULL: each copy is queued at once. See outbox.h */
  _Atomic(uint32_t) next_part;   /* relaxed: a ticket counter */
  _Atomic(bool) failed;          /* relaxed: a hint to stop early; the error is under error_lock */
  _Atomic(int32_t) workers_left; /* acq_rel: the last one ends the transfer; who builds the result meanwhile counts */
  _Atomic(int64_t) slots_held, peak_slots; /* relaxed: statistics */
  _Atomic(bool) asked;        /* relaxed: a lane has asked for a slot, and takes any there is: it is the first */
  _Atomic(bool) flows;        /* relaxed: one of its copies has ended, so no stream holds up the others */
  pthread_mutex_t error_lock; /* guards: error, decided, shown, and the workers' tails until then */
  tdict_error error;          /* status 0: none */
  uint32_t error_item;        /* names the leaf when it ends; UINT32_MAX: none, or the path is known */
  bool decided;               /* how it ended is settled: later errors and cancels are too late */
  bool shown; /* the result was handed out before the end: the program may change it, so no path is looked up in it */
  tdict_latch ended; /* from zero on everything here is only read */
  int64_t begin_ns;
  tdict_traced traced;
  tdict_transfer_stats stats;
  int num_workers;
  tdict_worker workers[];
};

/* A new transfer with nothing in it but room for its workers; one reference. TDICT_ENOMEM. */
tdict_status tdict_transfer_create(tdict_engine *engine, int num_workers, tdict_future **out, tdict_error *err);
/* Begins: marks storages, orders the transfer behind others, hands it to its threads or works here. The plan, result,
 * mode and gates are filled in. On failure nothing has begun. */
tdict_status tdict_transfer_begin(tdict_future *transfer, tdict_error *err);
/* Before it begins: it will not end before tdict_transfer_built(), which the starting thread calls when it has built the
 * result. */
void tdict_transfer_will_build(tdict_future *transfer);
void tdict_transfer_built(tdict_future *transfer);
/* The chunk's bytes are in a slot: sources that lie in it as a whole are let go, if the transfer needs them no more. */
void tdict_transfer_chunk_read(tdict_future *transfer, const tdict_chunk *chunk);
/* Begins a transfer with hooks: they run first, the rest follows when the last has ended. Cannot fail at once. */
void tdict_transfer_begin_hooks(tdict_future *transfer);
/* Ends a transfer that has failed before it began. */
void tdict_transfer_abort(tdict_future *transfer);
/* A transfer without work: it has ended. */
void tdict_transfer_end_at_once(tdict_future *transfer);
/* Notes the first error; `item` (or UINT32_MAX) names the leaf. */
void tdict_transfer_fail(tdict_future *transfer, uint32_t item, const tdict_error *error);
/* The same with a path that is known. */
void tdict_transfer_fail_at(tdict_future *transfer, const char *path, const tdict_error *error);
/* A hint to stop early: an error was noted, or the transfer was cancelled. */
static inline bool tdict_transfer_has_failed(const tdict_future *transfer) {
  return atomic_load_explicit(&transfer->failed, memory_order_relaxed);
}
/* Drops a reference that is no handle. */
void tdict_transfer_release(tdict_future *f);
/* The last worker calls it: unmarks, publishes, starts those who waited. May free the transfer. */
void tdict_transfer_finish(tdict_future *transfer);

#endif
