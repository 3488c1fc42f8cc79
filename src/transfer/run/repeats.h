/* Declares the repeats of a transfer's result: results on other devices with the same keys and bytes. The transfer
 * writes its new storage from the host. As soon as a chunk has arrived, the device copies the chunk to the storages of
 * the repeats, on the same stream. So the host's memory is read once, and no other thread must wait for the arrival.
 *
 * Ownership: the transfer owns its repeats, and job.c frees them. Thread rule: the starting thread creates them, one
 * thread builds the trees, any worker queues copies, and the thread that ends the transfer calls the other
 * functions. */
#ifndef TDICT_TRANSFER_RUN_REPEATS_H
#define TDICT_TRANSFER_RUN_REPEATS_H

#include "transfer/job.h"
#include "transfer/plan/pair.h"

/* Allocates a storage like t->arena for each target. Returns TDICT_ENOMEM, TDICT_EOVERFLOW, and the errors of device
 * memory. */
tdict_status tdict_repeats_create(tdict_transfer *t, const tdict_repeat_target *targets, size_t count,
                                  tdict_error *err);
/* Builds a tree like t->future.result for each repeat. Does nothing without repeats. Returns TDICT_ENOMEM and
 * TDICT_EOVERFLOW. */
tdict_status tdict_repeats_build(tdict_transfer *t, tdict_error *err);
/* Queues the copies of a chunk that the stream of `gpu` writes. Does nothing without repeats. Returns the errors of the
 * driver. The path of the promise's error is then the position of the repeat. */
tdict_status tdict_repeats_queue(const tdict_transfer *t, const tdict_chunk *chunk, tdict_gpu *gpu,
                                 tdict_cu_stream stream, tdict_error *err);
/* Marks all bytes of the storages as lost. */
void tdict_repeats_lose(const tdict_transfer *t);
/* Releases the storages. The trees still hold them. */
void tdict_repeats_end(tdict_transfer *t);

#endif
