/* Creates, ends and frees transfers. Also releases sources early, while a transfer still runs. Thread rule: the last
 * worker ends a transfer. If the workers end before the result is built, the starting thread ends the transfer. If no
 * copy begins after the hooks, the thread in tdict_hooks_begin_copies() ends the transfer. The thread that queued the
 * copy of a slot calls tdict_transfer_chunk_read(). */
#ifndef TDICT_ENGINE_FINISH_H
#define TDICT_ENGINE_FINISH_H

#include "engine/transfer.h"

/* Creates an empty transfer with space for its workers and targets. *out has one reference, which is a handle. Errors:
 * TDICT_ENOMEM. */
tdict_status tdict_transfer_create(tdict_engine *engine, int num_workers, size_t num_targets, tdict_transfer **out,
                                   tdict_error *err);
/* Releases what a transfer adds to its future, see tdict_future_kind. */
void tdict_transfer_free(tdict_future *future);
/* Ends a transfer: removes its marks, opens its latches, and launches each transfer that now waits for no other. May
 * free the transfer. */
void tdict_transfer_finish(tdict_transfer *transfer);
/* Delays the transfer's end until the starting thread calls tdict_transfer_built(). Call before it begins. */
void tdict_transfer_will_build(tdict_transfer *transfer);
void tdict_transfer_built(tdict_transfer *transfer);
/* Ends a transfer that has nothing to copy. */
void tdict_transfer_end_at_once(tdict_transfer *transfer);
/* Releases the sources of items that lie completely in the chunk, whose bytes are in a slot. Sources in memory of the
 * program stay until the end. Does nothing if one of the items shares its mark with another, or with the option
 * check_sources, which hashes the sources again. */
void tdict_transfer_chunk_read(tdict_transfer *transfer, const tdict_chunk *chunk);

#endif
