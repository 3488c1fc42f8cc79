/* Converts elements of an item on the host: between its leaves, or between a leaf and a slot. The caller owns all
 * memory. The functions keep no state and are thread-safe. */
#ifndef TDICT_TRANSFER_RUN_CAST_PIECE_H
#define TDICT_TRANSFER_RUN_CAST_PIECE_H

#include "tensor/cast.h"
#include "transfer/plan/plan.h"

typedef struct tdict_cast_piece {
  const tdict_item *item;
  const tdict_cast *cast;
  size_t first, count; /* the elements, in C order */
  const char *from;    /* the elements in a slot; NULL: the source of the item */
  char *to;            /* the elements in a slot; NULL: the destination of the item */
} tdict_cast_piece;
/* Converts the elements. Source and destination may have any strides. The source may be in an unloaded storage, and the
 * destination may be in a sink. Returns TDICT_EOVERFLOW for an element that an integer dtype cannot hold, the errors of
 * tdict_storage_read() and tdict_storage_write(), and TDICT_ENOMEM if there is no memory for a buffer. */
tdict_status tdict_cast_piece_run(const tdict_cast_piece *piece, tdict_error *err);

#endif
