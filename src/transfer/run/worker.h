/* What a thread does for a transfer: claims chunks, fills slots, queues copies, empties slots.
 * A worker's lane (its stream and the copies in flight on it) belongs to one thread at a time. */
#ifndef TDICT_TRANSFER_RUN_WORKER_H
#define TDICT_TRANSFER_RUN_WORKER_H

#include "transfer/job.h"

/* Works until no chunk is left, then waits for its copies; the last worker ends the transfer. `task` is a tdict_worker's. */
void tdict_work(tdict_task *task);
/* The same on the thread that started the transfer: others that have not begun when no chunk is left need not. */
void tdict_work_with_others(tdict_worker *worker);
/* The same but for the waiting, which is left to a thread of the pool, or to who waits for the transfer if that comes
 * first: returns when the last copy is queued. The transfer's `rest` is made beforehand, so that nothing can fail. */
typedef struct tdict_deferred_tail tdict_deferred_tail;
bool tdict_deferred_tail_create(tdict_future *transfer); /* false without memory; goes with the transfer */
void tdict_work_and_return(tdict_worker *worker);
/* Does the rest here, if there is one that nobody has begun. */
void tdict_deferred_tail_run(tdict_future *transfer);

#endif
