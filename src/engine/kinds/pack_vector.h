/* Declares the vector functions that pack integers and bools. Pure functions; thread-safe. */
#ifndef TDICT_ENGINE_KINDS_PACK_VECTOR_H
#define TDICT_ENGINE_KINDS_PACK_VECTOR_H

#include <stdint.h>

#include "core/base/stream_copy.h"

/* The functions work on whole steps of this many bytes of the source. */
enum { TDICT_PACK_STEP = 256 };

/* The functions for elements of one size. If `ahead` is not NULL, the functions prefetch cache lines at this address:
 * `scan` the even lines, `narrow` the odd lines, and `bits` all lines. */
typedef struct tdict_pack_ops {
  /* Widens [*low, *high] to all elements. All are signed numbers, after XOR with `flip`. NULL for bools. */
  void (*scan)(const char *src, size_t steps, uint64_t flip, const char *ahead, int64_t *low, int64_t *high);
  /* Write the elements minus `base` as integers of 1, 2 and 4 bytes, which must hold the differences. NULL if an
   * element is not larger than the integer. */
  void (*narrow[3])(char *dst, const char *src, size_t steps, uint64_t base, const char *ahead);
  /* Writes one bit for each byte. Returns the bitwise OR of all bytes. If it is above 1, the bits are unspecified. NULL
   * for integers. */
  unsigned (*bits)(char *dst, const char *src, size_t steps, const char *ahead);
} tdict_pack_ops;

/* Returns the functions for elements of 1 byte (bools), 2, 4 or 8 bytes. NULL: the kind has none, or the processor
 * lacks AVX2. */
const tdict_pack_ops *tdict_pack_vectors(tdict_stream_kind kind, unsigned item_bytes);

#endif
