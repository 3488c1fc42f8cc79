/* Packs elements of an item for the option `narrow`, see kernel/pack.h. The caller owns all memory. The function keeps
 * no state and is thread-safe. */
#ifndef TDICT_TRANSFER_RUN_PACK_PIECE_H
#define TDICT_TRANSFER_RUN_PACK_PIECE_H

#include "base/stream_copy.h"
#include "transfer/plan/plan.h"

typedef struct tdict_pack_piece {
  const tdict_item *item;
  size_t begin, end;        /* byte range of the item, in C order */
  char *to;                 /* where the packed elements begin */
  tdict_stream_kind stores; /* the stores that write `to` */
  const char *ahead;        /* bytes that the caller reads next, or NULL */
} tdict_pack_piece;
/* Packs the elements, and writes the size of the packed elements to *size. The source may have any strides, and may be
 * in an unloaded storage. Returns the errors of tdict_storage_read(), and TDICT_ENOMEM if there is no memory for a
 * buffer. */
tdict_status tdict_pack_piece_run(const tdict_pack_piece *piece, size_t *size, tdict_error *err);

#endif
