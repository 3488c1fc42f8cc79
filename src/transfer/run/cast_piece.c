/* Converts a piece in blocks. Leaves that are not in memory in C order are copied through a buffer. See cast_piece.h
 * for ownership and threads. */
#include "transfer/run/cast_piece.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/float_env.h"
#include "tensor/convert_tensor.h"
#include "transfer/run/leaf_bytes.h"

/* Elements of a block. A block is large enough for efficient reads and writes of files. */
enum { BLOCK = 16384 };

/* The buffers of a conversion. An address is NULL if the elements need no buffer. */
typedef struct buffers {
  char *from, *to;
} buffers;

/* Converts the elements [first, first + count) of the item, at most a block if a buffer is used. */
static tdict_status cast_block(const tdict_cast_piece *p, const buffers *b, size_t first, size_t count,
                               tdict_error *err) {
  const tdict_item *item = p->item;
  const size_t from_bytes = tdict_dtype_bytes(p->cast->from), to_bytes = tdict_dtype_bytes(p->cast->to);
  const size_t read = first * from_bytes, written = first * to_bytes, slot = first - p->first;
  const char *from = p->from ? p->from + slot * from_bytes : b->from ? b->from : item->src_data + read;
  char *to = p->to ? p->to + slot * to_bytes : b->to ? b->to : item->dst_data + written;
  if (b->from) {
    const tdict_pair_part part = {tdict_shift_back(b->from, read), item->src->data, read, read + count * from_bytes};
    tdict_status status = tdict_leaf_copy(item, false, true, &part, err);
    if (status != TDICT_OK) return status;
  }
  /* Threads of the library have the default environment already, but a hook can change it. */
  const tdict_float_env saved = tdict_float_env_enter();
  const size_t fitting = tdict_cast_elements(tdict_stream_best(), p->cast, to, from, count);
  tdict_float_env_leave(&saved);
  if (fitting < count) {
    return tdict_convert_overflow("transfer", p->cast->to, item->src, first + fitting, from + fitting * from_bytes,
                                  err);
  }
  if (!b->to) return TDICT_OK;
  if (tdict_leaf_goes_to_sink(item)) return tdict_leaf_write_sink(item, written, to, count * to_bytes, err);
  const tdict_pair_part part = {item->dst_data, tdict_shift_back(to, written), written, written + count * to_bytes};
  return tdict_leaf_copy(item, true, false, &part, err);
}

tdict_status tdict_cast_piece_run(const tdict_cast_piece *p, tdict_error *err) {
  const bool buffers_from = !p->from && !p->item->src_plain, buffers_to = !p->to && !p->item->dst_plain;
  const size_t most = (buffers_from || buffers_to) && p->count > BLOCK ? BLOCK : p->count;
  buffers b = {0};
  if (buffers_from) b.from = malloc(most * tdict_dtype_bytes(p->cast->from));
  if (buffers_to) b.to = malloc(most * tdict_dtype_bytes(p->cast->to));
  tdict_status status = TDICT_OK;
  if ((buffers_from && !b.from) || (buffers_to && !b.to))
    status = tdict_fail(err, TDICT_ENOMEM, "transfer: no host memory for a buffer of %zu elements", most);
  for (size_t at = 0, some; at < p->count && status == TDICT_OK; at += some) {
    some = p->count - at < most ? p->count - at : most;
    status = cast_block(p, &b, p->first + at, some, err);
  }
  free(b.from);
  free(b.to);
  return status;
}
