/* Chooses the stores that write the rows of a batch. A device reads a cache line slowly while the line is in the
 * private cache of the core that wrote the line. The lines of earlier rows have moved to the shared cache, which a
 * device reads faster than memory. Plain stores would leave the last rows in the private cache. The last rows of a
 * pinned tensor are therefore written with non-temporal stores, which bypass the caches. The functions own no data.
 * Thread rule: thread-safe. */
#ifndef TDICT_SERVICES_LOADER_ROW_STORES_H
#define TDICT_SERVICES_LOADER_ROW_STORES_H

#include <stdint.h>

#include "core/base/stream_copy.h"
#include "tdict/tensor.h"

#define TDICT_ROW_STORES_TAIL_BYTES ((size_t)1 << 20) /* about the size of a core's private cache */

typedef struct tdict_row_stores {
  tdict_stream_kind tail_kind; /* kind of stores for the rows from tail_begin on */
  int64_t tail_begin;          /* first row of the tail; earlier rows use plain stores */
} tdict_row_stores;

/* Returns the kinds of stores for `rows` rows of `row_bytes` bytes each, in the memory of `leaf`. */
static inline tdict_row_stores tdict_row_stores_choose(const tdict_tensor *leaf, int64_t rows, size_t row_bytes) {
  tdict_row_stores s = {TDICT_STREAM_PLAIN, rows};
  if (!tdict_tensor_is_pinned(leaf) || row_bytes == 0) return s;
  size_t tail_rows = (TDICT_ROW_STORES_TAIL_BYTES + row_bytes - 1) / row_bytes;
  s.tail_kind = tdict_stream_best();
  s.tail_begin = tail_rows < (size_t)rows ? rows - (int64_t)tail_rows : 0;
  return s;
}
/* Returns the kind of stores for one row. */
static inline tdict_stream_kind tdict_row_stores_at(const tdict_row_stores *s, int64_t row) {
  return row < s->tail_begin ? TDICT_STREAM_PLAIN : s->tail_kind;
}

#endif
