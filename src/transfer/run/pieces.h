/* The pieces of leaves that a chunk holds, and copying them between a slot and leaves. Pure; thread-safe. */
#ifndef TDICT_TRANSFER_RUN_PIECES_H
#define TDICT_TRANSFER_RUN_PIECES_H

#include "base/stream_copy.h"
#include "transfer/plan/plan.h"

/* Fills the slot from the leaves of the chunk, which are on the host, by stores of that kind; bytes between leaves become
 * zero. */
void tdict_pieces_gather(const tdict_plan *plan, const tdict_chunk *chunk, char *slot, tdict_stream_kind stores);
/* Writes the slot to the places of the chunk's leaves, which are on the host. */
void tdict_pieces_scatter(const tdict_plan *plan, const tdict_chunk *chunk, const char *slot, tdict_stream_kind stores);
/* Copies the chunk's leaves to their places, both on the host. */
void tdict_pieces_copy(const tdict_plan *plan, const tdict_chunk *chunk, tdict_stream_kind stores);
/* Writes to each page of the chunk's places in a new result on the host, so that the system has put them there when the
 * bytes come. */
void tdict_pieces_touch(const tdict_plan *plan, const tdict_chunk *chunk);
/* The copy between the slot and the device side of the chunk, if one does; else false. */
bool tdict_pieces_line(const tdict_plan *plan, const tdict_chunk *chunk, char *slot, tdict_cu_line *out);
/* Queues copies between the slot and the device side of the chunk, as few as the layout allows. *item is the leaf that is
 * to blame when it fails. */
typedef struct tdict_pieces_queue {
  tdict_gpu *gpu;
  tdict_cu_stream stream;
  char *slot;
  uint32_t item;
} tdict_pieces_queue;
tdict_status tdict_pieces_submit(const tdict_plan *plan, const tdict_chunk *chunk, tdict_pieces_queue *queue,
                                 tdict_error *err);

#endif
