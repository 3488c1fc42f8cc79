/* Ending a transfer, and letting sources go before its end. A transfer that ends drops the reference of its work.
 * Thread rule: the last worker ends a transfer; tdict_transfer_chunk_read() is called by the thread that filled the chunk. */
#ifndef TDICT_TRANSFER_FINISH_H
#define TDICT_TRANSFER_FINISH_H

#include "transfer/job.h"

/* Unmarks the storages, opens the latches and launches transfers that waited. May free the transfer. */
void tdict_transfer_finish(tdict_future *transfer);
/* Called before the transfer begins: it does not end before tdict_transfer_built(), which the starting thread calls when
 * it has built the result. */
void tdict_transfer_will_build(tdict_future *transfer);
void tdict_transfer_built(tdict_future *transfer);
/* Ends a transfer that has no work. */
void tdict_transfer_end_at_once(tdict_future *transfer);
/* Ends a transfer that has failed before it began. */
void tdict_transfer_abort(tdict_future *transfer);
/* The chunk's bytes are in a slot: lets go of the sources that lie in it as a whole, unless the transfer reads them again. */
void tdict_transfer_chunk_read(tdict_future *transfer, const tdict_chunk *chunk);

#endif
