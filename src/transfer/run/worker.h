/* Does the work of a thread on a transfer: claims chunks, fills slots, queues copies and empties slots. A worker's lane
 * belongs to one thread at a time. Thread rule: one thread calls the functions of a worker. Any thread may call
 * tdict_deferred_tail_run(). */
#ifndef TDICT_TRANSFER_RUN_WORKER_H
#define TDICT_TRANSFER_RUN_WORKER_H

#include "transfer/job.h"

/* Copies chunks until no chunk is left, then waits for the copies of this worker. The last worker ends the transfer.
 * `task` is the task of a tdict_worker. */
void tdict_work(tdict_task *task);
/* Works like tdict_work() on the starting thread. Then removes the tasks of workers that have not begun from the
 * pool. */
void tdict_work_with_others(tdict_worker *worker);
/* The wait for the copies of a worker that has returned early. */
typedef struct tdict_deferred_tail tdict_deferred_tail;
bool tdict_deferred_tail_create(tdict_future *transfer); /* returns false if out of memory; freed with the transfer */
/* Works on the starting thread and returns when the last copy is queued. The deferred tail then waits for the copies. A
 * pool thread runs the deferred tail, unless a thread that waits for the transfer runs it first. The deferred tail is
 * allocated in advance, so that no allocation can fail after copies are queued. */
void tdict_work_and_return(tdict_worker *worker);
/* Runs the deferred tail on this thread, if the transfer has one and no other thread has begun to run it. */
void tdict_deferred_tail_run(tdict_future *transfer);

#endif
