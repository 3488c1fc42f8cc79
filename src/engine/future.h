/* Defines the struct of a future: its references, its first error and its result. A transfer (transfer.h), a promise
 * (promise.h) and a save are structs of their own that begin with a future. Each has a table of the functions in which
 * the kinds differ. Storages see a future as a fence. Thread rule: safe from any thread, if no comment says otherwise.
 * The comment of a field names the lock or the memory order of the field. Fields without such a comment do not change
 * after the future was handed out, or the thread that ends the future writes them before the latch `ended` opens. */
#ifndef TDICT_ENGINE_FUTURE_H
#define TDICT_ENGINE_FUTURE_H

#include "core/memory/storage.h"
#include "core/sched/latch.h"
#include "device/stream.h"
#include "engine/engine.h"
#include "tdict/transfer.h"

/* Where kinds of futures differ. Thread rule: from any thread without a lock, unless a comment says otherwise. */
typedef struct tdict_future_kind {
  tdict_fence_ops fence; /* first member, so that the `ops` of a future's fence are also the kind of the future */
  const char *name;      /* what the future stands for, such as "transfer", for messages */
  /* Before a thread waits for the end of the future: does the work that no thread has begun yet. */
  void (*help)(tdict_future *future);
  /* Waits until the program may write the source. NULL: the end of the future says so. */
  tdict_status (*wait_source)(tdict_future *future, tdict_error *err);
  /* Makes a checked stream wait for the future's copies. If that is impossible, waits until the future has ended. If
   * this call returns TDICT_OK and the future has not failed, the result exists. */
  tdict_status (*wait_on_stream)(tdict_future *future, tdict_stream stream, tdict_error *err);
  void (*cancel)(tdict_future *future); /* after the error was stored; NULL: nothing more to do */
  bool decides_cancel; /* true: a cancel stores no error, because the work decides whether the cancel comes in time */
  /* Returns true if the calling thread runs a hook of the future. */
  bool (*is_inside)(const tdict_future *future);
  /* Called once for each part of the future, before the part begins, and again on the thread that has ended the part.
   * The second call may end the future. NULL: the future has no parts */
  void (*part_began)(tdict_future *future);
  void (*part_ended)(tdict_future *future, tdict_future *part);
  void (*free)(tdict_future *future); /* with the last reference: releases what the kind adds to the future */
} tdict_future_kind;

struct tdict_future {
  tdict_fence fence; /* first member, so that a pointer to the fence is also a pointer to the future */

  _Atomic(int64_t) refs;    /* counts the program's handles, references to `fence`, one reference for the work, and
                             * further references of the kind */
  _Atomic(int64_t) handles; /* acq_rel: number of references that the program holds. If the future has ended,
                             * releasing the last handle drops `result` */

  tdict_engine *engine; /* must not be used after `ended` is open, because the program may then destroy the context */
  tdict_pool *pool;     /* the engine's pool; the rule for `engine` applies */
  tdict_forkmark *mark; /* retained; keeps the log */
  tdict_stream_range streams; /* devices whose streams may wait for the future */

  /* retained; the promise of which this future is a part. NULL: the future is not a part, or the promise knows that the
   * part has ended. acq_rel: the thread that sets the field to NULL tells the promise */
  _Atomic(tdict_future *) part_of;

  _Atomic(bool) failed;             /* relaxed: tells workers to stop. error_lock guards the error itself */
  _Atomic(bool) error_was_reported; /* relaxed: true if the program has the error, which is then not logged */
  /* guards: error, error_leaf, outcome_is_final, result_was_returned, and a transfer's tails until the outcome is
   * final */
  pthread_mutex_t error_lock;
  tdict_error error; /* status 0: no error */
  /* the number of the leaf of the error. UINT32_MAX: none, or the error's path is set already */
  uint32_t error_leaf;
  bool outcome_is_final;    /* true: later errors and cancels are ignored */
  bool result_was_returned; /* true: the program has received `result` and may change the tree, so no path is looked up
                             * in `result` */
  tdict_tree *result;       /* retained; returned to the caller after success */

  tdict_latch ended; /* open after the future has ended */
  int64_t begin_ns;  /* 0: no caller can read the statistics and no recording was on, so no times are measured */
  tdict_transfer_stats stats;
};

/* Initializes a future that was allocated with zeros. The future has one reference, which is a handle. */
void tdict_future_init(tdict_future *f, tdict_engine *engine, const tdict_future_kind *kind);
/* Adds a reference for the future's work, and counts the future in num_live. The caller holds the engine's lock. */
void tdict_future_count_live(tdict_future *f);
/* Takes back tdict_future_count_live() after the end. The context may be gone afterwards. */
void tdict_future_end_live(tdict_future *f);
/* Makes `part`, which has not begun, a part of a promise. The part retains the promise. */
void tdict_future_begin_part(tdict_future *promise, tdict_future *part);
/* Reports the end of a part to its promise, also of a part that failed to begin. Does nothing if the future is no part,
 * or if its end was reported. */
void tdict_future_end_part(tdict_future *part);
/* Drops a reference that is not a handle of the program. The last reference frees the future. */
void tdict_future_drop(tdict_future *f);
/* Stores the error if the future has no error yet and its outcome is not final. The error names leaf number `leaf` in
 * tree order. Only the number is stored, because another thread may still be building the tree. If `leaf` is
 * UINT32_MAX, the error names `path`, which may be empty. */
void tdict_future_fail(tdict_future *f, uint32_t leaf, const char *path, const tdict_error *error);
/* Ends a future that is counted in num_live. For a transfer, see finish.h instead. If `error` is not NULL, fails the
 * future first. Takes over the reference to `result`. If `result` is NULL, the future keeps the result that it has. The
 * caller must not use the future or the context afterwards. */
void tdict_future_end(tdict_future *f, tdict_tree *result, const tdict_error *error);
/* Returns true after an error or a cancel. May be out of date, so use it only to stop early. */
bool tdict_future_has_failed(const tdict_future *f);
/* Returns true if the latch is open. A forked child may call this function. */
bool tdict_future_is_open(const tdict_future *f, tdict_latch *latch);
/* Waits for a latch until a deadline, and returns true if it is open. A forked child does not wait. A pool thread runs
 * other tasks meanwhile, which may include the work that opens the latch. */
bool tdict_future_wait_latch(tdict_future *f, tdict_latch *latch, int64_t deadline_ns);
/* The functions of tdict_fence_ops that all kinds of futures share. */
bool tdict_future_fence_poll(tdict_fence *fence);
bool tdict_future_fence_wait(tdict_fence *fence, int64_t deadline_ns);
void tdict_future_fence_retain(tdict_fence *fence);
void tdict_future_fence_release(tdict_fence *fence);

#endif
