/* Packs elements on the host, so that they need fewer bytes. The kernel UNPACK restores them, see words.h for the format.
 * The caller owns all memory. Thread rule: a packer belongs to one thread at a time. */
#ifndef TDICT_KERNEL_PACK_H
#define TDICT_KERNEL_PACK_H

#include "base/stream_copy.h"
#include "kernel/words.h"
#include "tdict/values.h"

/* Returns true for integers of 2, 4 or 8 bytes and for bools. */
bool tdict_pack_supports(tdict_dtype dtype);
/* Returns how many bytes the elements need at most. `bytes` is their size. The result is a multiple of 16. */
size_t tdict_pack_most_bytes(size_t bytes);

/* A packer writes packed elements to `packed`. */
typedef struct tdict_packer {
  char *packed;        /* aligned to 8 bytes */
  size_t filled;       /* bytes that are written */
  uint64_t num_blocks; /* blocks that are written */
  unsigned item_bytes;
  bool is_signed, is_bool;
  tdict_stream_kind kind;   /* the vector instructions that compute */
  tdict_stream_kind stores; /* the stores that write packed elements */
} tdict_packer;

/* Begins to pack elements of `bytes` bytes, at least 1. The caller sets `kind` and `stores`. */
void tdict_pack_begin(tdict_packer *packer, tdict_dtype dtype, void *packed, size_t bytes);
/* Packs the next elements. Their bytes must be a multiple of TDICT_PACK_BLOCK_BYTES, unless they are the last elements.
 * `ahead` is NULL, or the bytes that the caller will read next; they are prefetched. */
void tdict_pack_add(tdict_packer *packer, const void *src, size_t bytes, const void *ahead);
/* Writes the total size. Returns this size, a multiple of 16. If `stores` is not TDICT_STREAM_PLAIN, call
 * tdict_stream_fence() before other threads or devices read the bytes. */
size_t tdict_pack_end(tdict_packer *packer);
/* Returns the result of tdict_pack_end() for packed elements. */
static inline size_t tdict_pack_size(const void *packed) { return (size_t)((const uint64_t *)packed)[TDICT_PACK_SIZE]; }

#endif
