/* The work of a thread on a transfer: claims chunks, fills slots, queues copies, and copies slots to host leaves.
 * Thread rule: one thread runs a worker and its lane. Any thread may call tdict_deferred_tail_run(). */
#ifndef TDICT_ENGINE_WORKER_H
#define TDICT_ENGINE_WORKER_H

#include "engine/transfer.h"

/* Copies chunks while any is left, then waits for this worker's copies. The last worker ends the transfer. */
void tdict_work(tdict_task *task);
/* Does the work of tdict_work() on the starting thread. When no chunk is left, removes from the pool the tasks of
 * workers that have not begun. */
void tdict_work_with_others(tdict_worker *worker);
/* The work that is left when a worker returns early: to wait for the worker's copies and to close the worker's lane. */
typedef struct tdict_deferred_tail tdict_deferred_tail;
bool tdict_deferred_tail_create(tdict_transfer *transfer); /* returns false if memory is exhausted; the deferred tail is
                                                          * freed with the transfer */
/* Does the work of a worker on the starting thread. If bytes are copied through slots to the host, returns when all
 * copies of this worker have ended. In all other cases, returns when the last copy is queued. The deferred tail waits
 * for the copies that are in flight after the return, and ends the worker. A pool thread runs the deferred tail, unless
 * a thread that waits for the transfer runs the deferred tail first. If this worker fails, there is no deferred tail:
 * the function itself waits for the copies and ends the worker. Call tdict_deferred_tail_create() before this function,
 * so that no allocation can fail after copies are queued. */
void tdict_work_and_return(tdict_worker *worker);
/* Runs the deferred tail on this thread, if the transfer has a deferred tail that no other thread has begun to run. */
void tdict_deferred_tail_run(tdict_transfer *transfer);

#endif
