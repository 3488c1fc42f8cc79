/* The work of a thread on a transfer: claims chunks, fills slots, queues copies, empties slots. A worker's lane
 * belongs to one thread at a time.
 * Thread rule: each worker is called by one thread. Any thread may call tdict_deferred_tail_run(). */
#ifndef TDICT_TRANSFER_RUN_WORKER_H
#define TDICT_TRANSFER_RUN_WORKER_H

#include "transfer/job.h"

/* Works until no chunk is left, then waits for its copies. The last worker ends the transfer. `task` is the task of
 * a tdict_worker. */
void tdict_work(tdict_task *task);
/* Works like tdict_work() on the starting thread. Then removes the tasks of workers that have not begun from the
 * pool. */
void tdict_work_with_others(tdict_worker *worker);
/* Works on the starting thread and returns when the last copy is queued. The deferred tail does the waiting: a pool
 * thread runs it, or a thread that waits for the transfer if that comes first. It is allocated before, so that
 * nothing can fail after copies are queued. */
typedef struct tdict_deferred_tail tdict_deferred_tail;
bool tdict_deferred_tail_create(tdict_future *transfer); /* returns false without memory; freed with the transfer */
void tdict_work_and_return(tdict_worker *worker);
/* Runs the deferred tail on this thread, if there is one and no other thread has begun it. */
void tdict_deferred_tail_run(tdict_future *transfer);

#endif
