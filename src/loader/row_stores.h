/* How rows are written into a batch. What a core has just written and still holds, a device reads slowly; what was written
 * before that has left the core, and is read faster from the cache that cores share than from memory. So the last rows of
 * a pinned leaf are written by stores that pass by the cache. Pure; thread-safe. */
#ifndef TDICT_LOADER_ROW_STORES_H
#define TDICT_LOADER_ROW_STORES_H

#include <stdint.h>

#include "base/stream_copy.h"
#include "tdict/tensor.h"

#define TDICT_ROW_STORES_TAIL_BYTES ((size_t)1 << 20) /* about what a core holds for itself */

typedef struct tdict_row_stores {
  tdict_stream_kind tail_kind; /* of rows from here on; those before are plain */
  int64_t tail_begin;
} tdict_row_stores;

static inline tdict_row_stores tdict_row_stores_choose(const tdict_tensor *leaf, int64_t rows, size_t row_bytes) {
  tdict_row_stores s = {TDICT_STREAM_PLAIN, rows};
  if (!tdict_tensor_is_pinned(leaf) || row_bytes == 0) return s;
  size_t tail_rows = (TDICT_ROW_STORES_TAIL_BYTES + row_bytes - 1) / row_bytes;
  s.tail_kind = tdict_stream_best();
  s.tail_begin = tail_rows < (size_t)rows ? rows - (int64_t)tail_rows : 0;
  return s;
}
static inline tdict_stream_kind tdict_row_stores_at(const tdict_row_stores *s, int64_t row) {
  return row < s->tail_begin ? TDICT_STREAM_PLAIN : s->tail_kind;
}

#endif
