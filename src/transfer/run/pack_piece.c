/* Packs a piece. Leaves that are not in memory in C order are copied through a buffer. See pack_piece.h for ownership
 * and threads. */
#include "transfer/run/pack_piece.h"

#include <stdlib.h>

#include "base/error.h"
#include "kernel/pack.h"
#include "transfer/run/leaf_bytes.h"

/* Bytes of the buffer. The buffer is large enough for efficient reads of files. */
enum { BUFFER_BYTES = 8 * TDICT_PACK_BLOCK_BYTES };

/* Packs a piece through the buffer. */
static tdict_status pack_buffered(const tdict_pack_piece *p, tdict_packer *packer, char *buffer, tdict_error *err) {
  tdict_status status = TDICT_OK;
  for (size_t at = p->begin, end; at < p->end && status == TDICT_OK; at = end) {
    end = p->end - at < BUFFER_BYTES ? p->end : at + BUFFER_BYTES;
    const tdict_pair_part part = {tdict_shift_back(buffer, at), p->item->src->data, at, end};
    status = tdict_leaf_copy(p->item, false, true, &part, err);
    if (status == TDICT_OK) tdict_pack_add(packer, buffer, end - at, NULL);
  }
  return status;
}

tdict_status tdict_pack_piece_run(const tdict_pack_piece *p, size_t *size, tdict_error *err) {
  tdict_packer packer = {.kind = tdict_stream_best(), .stores = p->stores};
  const size_t bytes = p->end - p->begin, room = bytes < BUFFER_BYTES ? bytes : BUFFER_BYTES;
  tdict_status status = TDICT_OK;
  tdict_pack_begin(&packer, p->item->src->dtype, p->to, bytes);
  if (p->item->src_plain) {
    tdict_pack_add(&packer, p->item->src_data + p->begin, bytes, p->ahead);
  } else {
    char *buffer = malloc(room);
    if (!buffer) return tdict_fail(err, TDICT_ENOMEM, "transfer: no host memory for a buffer of %zu bytes", room);
    status = pack_buffered(p, &packer, buffer, err);
    free(buffer);
  }
  *size = tdict_pack_end(&packer);
  return status;
}
