/* Declares the thread that ends calls of NCCL after their time limit. A call of a communicator that blocks can wait
 * inside NCCL for other ranks. NCCL allows no thread to free a communicator that another thread uses. So the calls use
 * a communicator that is split from another one, its parent, and shares the parent's resources. After the time limit,
 * the thread aborts the parent. The communicators share the flag that makes NCCL stop, so the call returns an error.
 * NCCL shares this flag in all versions from 2.18 to 2.30 (ncclCommSplit in its src/init.cc), but its manual does not
 * say so. The case nccl_operations_wait_until_the_limit checks it on GPUs.
 *
 * Ownership: a link owns its watch; the watch owns the parent. Thread rule: one thread makes calls, and any thread may
 * call tdict_nccl_watch_abort(). */
#ifndef TDICT_SERVICES_COMM_NCCL_WATCH_H
#define TDICT_SERVICES_COMM_NCCL_WATCH_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "services/comm/nccl/library.h"

typedef struct tdict_nccl_watch {
  const tdict_nccl_api *api; /* borrowed from the link */
  pthread_t thread;
  bool has_thread;
  pthread_mutex_t lock;   /* guards all fields below */
  pthread_cond_t changed; /* uses the monotonic clock */
  tdict_nccl_comm parent; /* NULL after an abort. While NCCL connects the ranks, only the connecting thread uses it */
  bool is_aborting;       /* a thread is inside ncclCommAbort */
  bool stops;
  bool is_late;            /* the running call has missed its time limit */
  int64_t deadline_ns;     /* of the running call, see tdict_deadline_ns(); INT64_MAX: no call is running */
  int64_t sleeps_until_ns; /* the time at which the thread wakes up by itself; INT64_MAX: never */
} tdict_nccl_watch;

void tdict_nccl_watch_init(tdict_nccl_watch *watch, const tdict_nccl_api *api);
tdict_status tdict_nccl_watch_start(tdict_nccl_watch *watch, tdict_error *err);
/* Call immediately before and after a call of NCCL. The second function returns true if the call was late. */
void tdict_nccl_watch_begin(tdict_nccl_watch *watch, int64_t deadline_ns);
bool tdict_nccl_watch_end(tdict_nccl_watch *watch);
/* Aborts and frees the parent, so that NCCL stops. Waits for another thread that does this, and does it once. */
void tdict_nccl_watch_abort(tdict_nccl_watch *watch);
/* Stops the thread. No call of NCCL may be running, and the parent must be aborted. */
void tdict_nccl_watch_reset(tdict_nccl_watch *watch);

#endif
