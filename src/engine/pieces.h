/* A piece is the part of a leaf that lies in a chunk. The functions copy pieces between a slot and the leaves. The
 * caller owns all memory. The functions keep no state and are thread-safe. */
#ifndef TDICT_ENGINE_PIECES_H
#define TDICT_ENGINE_PIECES_H

#include "core/base/stream_copy.h"
#include "engine/plan/plan.h"

/* Copies the chunk's leaves, which are on the host, into the slot. `stores` is the kind of stores for leaves in C
 * order. Leaves of unloaded storages are read into the slot. Bytes between leaves become zero. Returns the errors of
 * tdict_storage_read(). On failure, sets *error_item to the number of the item whose leaf the error names. */
tdict_status tdict_pieces_gather(const tdict_plan *plan, const tdict_chunk *chunk, char *slot, tdict_stream_kind stores,
                                 uint32_t *error_item, tdict_error *err);
/* Copies the slot to the chunk's destinations, which are on the host. Bytes of leaves in sinks go to
 * tdict_storage_write(), whose errors this returns. On failure, sets *error_item like tdict_pieces_gather(). */
tdict_status tdict_pieces_scatter(const tdict_plan *plan, const tdict_chunk *chunk, const char *slot,
                                  tdict_stream_kind stores, uint32_t *error_item, tdict_error *err);
/* Copies the chunk's leaves to their destinations. Leaves and destinations are on the host. Reads leaves of unloaded
 * storages into the destinations of the leaves. Writes destinations in sinks as tdict_pieces_scatter() does. Returns
 * the errors of tdict_storage_read() and tdict_storage_write(), or TDICT_ENOMEM if there is no memory for a buffer. On
 * failure, sets *error_item like tdict_pieces_gather(). */
tdict_status tdict_pieces_copy(const tdict_plan *plan, const tdict_chunk *chunk, tdict_stream_kind stores,
                               uint32_t *error_item, tdict_error *err);
/* Writes one byte in every 4096 bytes of the chunk's destinations, so that page faults happen before the bytes arrive.
 * Does nothing for destinations that existed before the transfer. */
void tdict_pieces_touch(const tdict_plan *plan, const tdict_chunk *chunk);
/* If one copy between the slot and the device is enough for the chunk, writes it to *out and returns true. */
bool tdict_pieces_as_copy(const tdict_plan *plan, const tdict_chunk *chunk, char *slot, tdict_cu_copy *out);
typedef struct tdict_pieces_queue {
  tdict_gpu *gpu;
  tdict_cu_kind kind; /* of all items of the chunk */
  tdict_cu_stream stream;
  char *slot;
  uint32_t item;
  char *scratch;       /* device memory as large as the slot; `slot` if kernels read the slot; NULL if the plan uses no
                        * kernels */
  size_t packed_bytes; /* output: bytes of packed elements in the copies */
} tdict_pieces_queue;
/* Queues copies between the slot and the device. One copy covers leaves that follow each other on the device as in the
 * slot. If kernels convert or restore pieces, these pieces are copied between the slot and the scratch memory. One
 * launch then converts pieces, and one launch restores packed pieces. Returns the errors of tdict_gpu_queue_rect() and
 * tdict_gpu_queue_work(). On failure, queue->item is the number of the item whose leaf the error names. */
tdict_status tdict_pieces_submit(const tdict_plan *plan, const tdict_chunk *chunk, tdict_pieces_queue *queue,
                                 tdict_error *err);

#endif
