/* Builds the result of a transfer after its starting call has returned. This is possible if the source is a locked tree
 * whose record holds a snapshot, see plan/tree_plans.h. The starting call then need not create the result's tensors. A
 * pool thread, the thread of the deferred tail, or a thread that waits for the transfer builds the result. If the
 * result cannot be built, the transfer fails.
 * Thread rule: see each function. */
#ifndef TDICT_TRANSFER_LATE_RESULT_H
#define TDICT_TRANSFER_LATE_RESULT_H

#include "transfer/job.h"

/* Counts the building as a worker, so that the transfer does not end before its result is built. `device` is the device
 * of the result. The starting thread calls this function before the transfer begins. */
void tdict_late_result_prepare(tdict_future *transfer, tdict_device device);
/* Submits the building to the pool. The starting thread calls this function after the transfer has begun. */
void tdict_late_result_submit(tdict_future *transfer);
/* Builds the result on this thread if no other thread has begun to build the result. Does nothing for a transfer
 * without a late result. This call can end the transfer, so the caller must hold a reference. Safe from any thread. */
void tdict_late_result_run(tdict_future *transfer);

#endif
