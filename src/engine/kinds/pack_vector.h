/* Declares the functions that find the range of elements and pack the elements by bits, for several sets of vector
 * instructions. Pure functions; thread-safe. */
#ifndef TDICT_ENGINE_KINDS_PACK_VECTOR_H
#define TDICT_ENGINE_KINDS_PACK_VECTOR_H

#include <stdint.h>

#include "core/base/stream_copy.h"

/* The functions for elements of one size. They read `rows` rows of TDICT_PACK_ROW bytes, which come in pairs. `scan`
 * prefetches the even cache lines at `ahead`, and `pack` the odd ones: both passes read memory. */
typedef struct tdict_pack_ops {
  /* Finds the lowest and the highest element. All are signed numbers, after XOR with `flip`. */
  void (*scan)(const char *src, size_t rows, uint64_t flip, const char *ahead, int64_t *low, int64_t *high);
  /* Writes the elements minus `base` as rows of lanes, see words.h. Each difference must fit into `bits` bits, which
   * are at least 1 and fewer than an element has. Elements of 1 byte need 1 bit. */
  void (*pack)(char *dst, const char *src, size_t rows, uint64_t base, unsigned bits, const char *ahead);
} tdict_pack_ops;

/* Returns the functions for elements of 1, 2, 4 or 8 bytes. They use the instructions of `kind`, or older ones. */
const tdict_pack_ops *tdict_pack_ops_of(tdict_stream_kind kind, unsigned item_bytes);

#endif
