/* A piece is the part of a leaf that lies in a chunk. The functions copy pieces between a slot and the leaves. The
 * caller owns all memory. The functions keep no state and are thread-safe. */
#ifndef TDICT_TRANSFER_RUN_PIECES_H
#define TDICT_TRANSFER_RUN_PIECES_H

#include "base/stream_copy.h"
#include "transfer/plan/plan.h"

/* Copies the chunk's leaves, which are on the host, into the slot with stores of the given kind. Leaves of unloaded
 * storages are read into the slot. Bytes between leaves become zero. Returns the errors of tdict_storage_read(). On
 * failure, sets *error_item to the number of the item whose leaf the error names. */
tdict_status tdict_pieces_gather(const tdict_plan *plan, const tdict_chunk *chunk, char *slot, tdict_stream_kind stores,
                                 uint32_t *error_item, tdict_error *err);
/* Copies the slot to the destinations of the chunk's leaves, which are on the host. Passes the bytes of leaves in sinks
 * to tdict_storage_write(). Returns the errors of this function, and sets *error_item like tdict_pieces_gather(). */
tdict_status tdict_pieces_scatter(const tdict_plan *plan, const tdict_chunk *chunk, const char *slot,
                                  tdict_stream_kind stores, uint32_t *error_item, tdict_error *err);
/* Copies the chunk's leaves to their destinations, both on the host. Leaves of unloaded storages are read into their
 * destinations. Destinations in sinks are written as in tdict_pieces_scatter(). Fails like these two functions. Returns
 * TDICT_ENOMEM if there is no memory for a buffer. */
tdict_status tdict_pieces_copy(const tdict_plan *plan, const tdict_chunk *chunk, tdict_stream_kind stores,
                               uint32_t *error_item, tdict_error *err);
/* Writes one byte to each page of the chunk's destinations in a new host result, so that page faults happen before
 * the bytes arrive. */
void tdict_pieces_touch(const tdict_plan *plan, const tdict_chunk *chunk);
/* Writes the copy between the slot and the device to *out if one copy is enough for the chunk. Otherwise returns
 * false. */
bool tdict_pieces_line(const tdict_plan *plan, const tdict_chunk *chunk, char *slot, tdict_cu_line *out);
/* The arguments of tdict_pieces_submit(). */
typedef struct tdict_pieces_queue {
  tdict_gpu *gpu;
  tdict_cu_stream stream;
  char *slot;
  uint32_t item;
  char *scratch; /* device memory as large as the slot; NULL if the plan uses no kernels */
} tdict_pieces_queue;
/* Queues copies between the slot and the device, as few as the layout allows. If kernels convert pieces, these pieces
 * are copied between the slot and the scratch memory, and one launch converts the pieces. On failure, queue->item is the number of
 * the item whose leaf the error names. */
tdict_status tdict_pieces_submit(const tdict_plan *plan, const tdict_chunk *chunk, tdict_pieces_queue *queue,
                                 tdict_error *err);

#endif
