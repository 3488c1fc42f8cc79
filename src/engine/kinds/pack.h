/* Packs elements on the host, so that the elements need fewer bytes. The kernel UNPACK restores the elements. words.h
 * describes the format. The caller owns all memory. Thread rule: a packer belongs to one thread at a time. */
#ifndef TDICT_ENGINE_KINDS_PACK_H
#define TDICT_ENGINE_KINDS_PACK_H

#include "core/base/stream_copy.h"
#include "core/kernel/words.h"
#include "tdict/values.h"

/* Returns true for integers of 2, 4 or 8 bytes and for bools. */
bool tdict_pack_supports(tdict_dtype dtype);
/* Returns the maximum size, a multiple of 64, of packed elements that have `bytes` bytes unpacked. */
size_t tdict_pack_most_bytes(size_t bytes);

/* A packer writes packed elements to `packed`. */
typedef struct tdict_packer {
  char *packed;        /* aligned to 8 bytes */
  size_t filled;       /* bytes that are used, including the head */
  uint64_t num_blocks; /* blocks that are written */
  unsigned item_bytes;
  bool is_signed;
  /* how to pack the next block: as the last one, if its elements were packed. `base` is as in tdict_pack_range */
  unsigned bits;
  int64_t base;
  tdict_stream_kind kind;   /* the vector instructions for the computation */
  tdict_stream_kind stores; /* the stores that write packed elements */
} tdict_packer;

/* Begins to pack elements. `bytes` is the size of all elements together, at least 1. `packed` must have
 * tdict_pack_most_bytes(bytes) bytes. The caller sets the fields `kind` and `stores`. */
void tdict_pack_begin(tdict_packer *packer, tdict_dtype dtype, void *packed, size_t bytes);
/* Packs the next elements. `bytes` must be a multiple of TDICT_PACK_BLOCK_BYTES, except in the last call. */
void tdict_pack_add(tdict_packer *packer, const void *src, size_t bytes);
/* Writes the total size to the head. Returns this size, a multiple of 64. If `stores` is not TDICT_STREAM_PLAIN, call
 * tdict_stream_fence() before other threads or devices read the bytes. */
size_t tdict_pack_end(tdict_packer *packer);
/* Returns the size that tdict_pack_end() wrote to the head of packed elements. */
static inline size_t tdict_pack_size(const void *packed) { return (size_t)((const uint64_t *)packed)[TDICT_PACK_SIZE]; }

#endif
