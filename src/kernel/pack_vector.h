/* Declares the vector functions that pack integers and bools. Pure functions; thread-safe. */
#ifndef TDICT_KERNEL_PACK_VECTOR_H
#define TDICT_KERNEL_PACK_VECTOR_H

#include <stdint.h>

#include "base/stream_copy.h"

/* The functions work on whole steps of this many bytes of the source. */
enum { TDICT_PACK_STEP = 256 };

/* The functions for elements of one size. `ahead` is NULL, or the bytes that are read next: each function prefetches
 * half of the lines there. */
typedef struct tdict_pack_ops {
  /* Widens the interval [*low, *high], so that it contains all elements. The elements and the interval are signed
   * numbers, after XOR with `flip`. NULL for bools. */
  void (*scan)(const char *src, size_t steps, uint64_t flip, const char *ahead, int64_t *low, int64_t *high);
  /* Write the elements minus `base`, as integers of 1, 2 and 4 bytes. All differences fit. NULL if an element is not
   * larger than the integer. */
  void (*narrow[3])(char *dst, const char *src, size_t steps, uint64_t base, const char *ahead);
  /* Writes one bit for each byte. Returns the OR of all bytes. The bits are right if the result is at most 1. NULL for
   * integers. */
  unsigned (*bits)(char *dst, const char *src, size_t steps, const char *ahead);
} tdict_pack_ops;

/* Returns the functions for elements of 1 byte (bools), 2, 4 or 8 bytes. Returns NULL if the processor has none of this
 * kind. */
const tdict_pack_ops *tdict_pack_vectors(tdict_stream_kind kind, unsigned item_bytes);

#endif
