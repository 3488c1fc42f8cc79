/* Declares the functions that pack elements by bits, for several sets of vector instructions. Pure functions;
 * thread-safe. */
#ifndef TDICT_ENGINE_KINDS_PACK_VECTOR_H
#define TDICT_ENGINE_KINDS_PACK_VECTOR_H

#include <stdint.h>

#include "core/base/stream_copy.h"

/* The lowest and the highest element, as signed numbers after XOR with `flip`. */
typedef struct tdict_pack_range {
  int64_t low, high;
} tdict_pack_range;

/* Packs at least one row of TDICT_PACK_ROW bytes, for elements of one size, and returns the range of the elements.
 * Writes the elements minus `base` as rows of lanes, see words.h. `bits` is at least 1 and less than an element has.
 * If a difference does not fit into `bits` bits, all differences are unspecified. Elements of 1 byte are bools, for
 * which `bits` is 1. If they are not all 0 or 1, the range can be larger than theirs. */
typedef tdict_pack_range (*tdict_pack_rows)(char *dst, const char *src, size_t rows, uint64_t flip, uint64_t base,
                                            unsigned bits);

/* Returns the function for elements of 1, 2, 4 or 8 bytes, with the instructions of `kind` or older ones. */
tdict_pack_rows tdict_pack_rows_of(tdict_stream_kind kind, unsigned item_bytes);

#endif
