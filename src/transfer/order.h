/* The order among transfers that share bytes. The lock of the engine guards who waits for whom.
 * Thread rule: the starting thread begins a transfer; the thread that ends the last transfer before it launches it. */
#ifndef TDICT_TRANSFER_ORDER_H
#define TDICT_TRANSFER_ORDER_H

#include "transfer/job.h"

/* Marks the storages and launches the transfer, or leaves that to the transfers it must wait for. Plan, result, mode, gates
 * and the workers' tasks are filled in. On failure nothing has begun. */
tdict_status tdict_transfer_begin(tdict_future *transfer, tdict_error *err);
/* No transfer is before this one any more: submits its tasks, or lets the starting thread work. */
void tdict_transfer_launch(tdict_future *transfer);
/* Takes off the marks on the sources, unless the finish has done so, and the first num_writes marks on what is written. */
void tdict_transfer_unmark(tdict_future *transfer, uint32_t num_writes);
/* Counts the transfer's work: a reference to the transfer, and one transfer more that the engine waits for. Under the
 * engine's lock. */
void tdict_transfer_count_live(tdict_future *transfer);

#endif
