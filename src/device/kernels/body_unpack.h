/* The body of the kernel UNPACK, which restores packed elements. A unit is 16 bytes of the destination. Pure functions;
 * thread-safe. */
#ifndef TDICT_DEVICE_KERNELS_BODY_UNPACK_H
#define TDICT_DEVICE_KERNELS_BODY_UNPACK_H

#include "device/kernels/body.h"

/* The words of a packed block. */
typedef struct tdict_packed_block {
  uint64_t differences, base; /* `differences` is an address */
  unsigned bits, item_bytes;
} tdict_packed_block;

TDICT_BODY uint64_t tdict_unpack_word(tdict_kernel_env *env, uint64_t address) {
  const TDICT_GLOBAL tdict_unit8 *at = (const TDICT_GLOBAL tdict_unit8 *)tdict_kernel_at(env, address, 8);
  return at ? *at : 0;
}

TDICT_BODY tdict_packed_block tdict_unpack_block(tdict_kernel_env *env, const tdict_kernel_span *span,
                                                 uint64_t number) {
  const uint64_t packed = span->src;
  const uint64_t words = packed + 8 * (TDICT_PACK_HEAD + TDICT_WORDS_PER_BLOCK * number);
  const uint64_t place = tdict_unpack_word(env, words + (uint64_t)8 * TDICT_BLOCK_PLACE);
  tdict_packed_block block;
  block.differences = packed + (place >> TDICT_PLACE_OFFSET);
  block.base = tdict_unpack_word(env, words + (uint64_t)8 * TDICT_BLOCK_BASE);
  block.bits = (unsigned)(place & (((uint64_t)1 << TDICT_PLACE_OFFSET) - 1));
  block.item_bytes = tdict_form(span->layout, TDICT_FORM_WIDTH);
  return block;
}

/* Reads the differences of a unit, which have at most 8 bytes. `unit` is the number of the unit in the packed block. */
TDICT_BODY uint64_t tdict_unpack_load(tdict_kernel_env *env, const tdict_packed_block *b, uint64_t unit) {
  const unsigned bytes = 16 / b->item_bytes * b->bits / 8;
  if (bytes == 0) return 0;
  const TDICT_GLOBAL void *at = tdict_kernel_at(env, b->differences + unit * bytes, bytes);
  if (!at) return 0;
  switch (bytes) {
  case 2:
    return *(const TDICT_GLOBAL tdict_unit2 *)at;
  case 4:
    return *(const TDICT_GLOBAL tdict_unit4 *)at;
  default:
    return *(const TDICT_GLOBAL tdict_unit8 *)at;
  }
}

/* Expands each of the lowest 8 bits to a byte of value 0 or 1. */
TDICT_BODY uint64_t tdict_unpack_bits(uint64_t bits) {
  bits &= 0xff;
  bits = (bits | bits << 28) & 0x0000000f0000000fu;
  bits = (bits | bits << 14) & 0x0003000300030003u;
  return (bits | bits << 7) & 0x0101010101010101u;
}

/* Returns element `i` of a unit: the difference number `i`, plus the base. */
TDICT_BODY uint64_t tdict_unpack_item(const tdict_packed_block *b, uint64_t differences, unsigned i) {
  const uint64_t mask = ((uint64_t)1 << b->bits) - 1; /* bits is at most 32 */
  return (differences >> i * b->bits & mask) + b->base;
}

/* Restores 8 of the 16 bytes of a unit: the first half (0) or the second half (1). */
TDICT_BODY uint64_t tdict_unpack_half(const tdict_packed_block *b, uint64_t differences, unsigned half) {
  switch (b->item_bytes) {
  case 1:
    return tdict_unpack_bits(differences >> 8 * half);
  case 2: {
    uint64_t made = 0;
    for (unsigned i = 0; i < 4; i++) made |= (tdict_unpack_item(b, differences, 4 * half + i) & 0xffff) << 16 * i;
    return made;
  }
  case 4:
    return (tdict_unpack_item(b, differences, 2 * half) & 0xffffffffu) | tdict_unpack_item(b, differences, 2 * half + 1)
                                                                             << 32;
  default:
    return tdict_unpack_item(b, differences, half);
  }
}

/* Restores the bytes of a unit. */
TDICT_BODY tdict_unit16 tdict_unpack_unit(tdict_kernel_env *env, const tdict_packed_block *b, uint64_t unit) {
  if (b->bits == 8 * b->item_bytes) { /* the elements themselves */
    const TDICT_GLOBAL tdict_unit16 *at =
        (const TDICT_GLOBAL tdict_unit16 *)tdict_kernel_at(env, b->differences + 16 * unit, 16);
    const tdict_unit16 nothing = {0, 0};
    return at ? *at : nothing;
  }
  const uint64_t differences = tdict_unpack_load(env, b, unit);
  const tdict_unit16 made = {tdict_unpack_half(b, differences, 0), tdict_unpack_half(b, differences, 1)};
  return made;
}

/* Writes the first `bytes` bytes of a unit one by one. Needed if the destination is not aligned or ends inside the
 * unit. */
TDICT_BODY void tdict_unpack_bytes(tdict_kernel_env *env, uint64_t dst, tdict_unit16 made, unsigned bytes) {
  for (unsigned i = 0; i < bytes; i++) {
    TDICT_GLOBAL tdict_unit1 *at = (TDICT_GLOBAL tdict_unit1 *)tdict_kernel_at(env, dst + i, 1);
    if (at) *at = (tdict_unit1)((i < 8 ? made[0] : made[1]) >> 8 * (i % 8));
  }
}

TDICT_BODY void tdict_unpack_store(tdict_kernel_env *env, const tdict_kernel_span *span, uint64_t unit,
                                   tdict_unit16 made) {
  const uint64_t dst = span->dst + 16 * unit, left = span->layout[TDICT_UNPACK_BYTES] - 16 * unit;
  if (dst % 16 != 0 || left < 16) {
    tdict_unpack_bytes(env, dst, made, left < 16 ? (unsigned)left : 16);
    return;
  }
  TDICT_GLOBAL tdict_unit16 *at = (TDICT_GLOBAL tdict_unit16 *)tdict_kernel_at(env, dst, 16);
  if (at) *at = made;
}

TDICT_BODY void tdict_kernel_unpack(tdict_kernel_env *env, const tdict_kernel_span *span) {
  TDICT_EACH_BATCH(span, at) {
    /* a batch of all threads lies in one packed block */
    const tdict_packed_block block = tdict_unpack_block(env, span, at / TDICT_PACK_BLOCK_UNITS);
    tdict_unit16 made[TDICT_KERNEL_BATCH];
    TDICT_EACH_IN_BATCH(k)
    made[k] = tdict_unpack_unit(env, &block, tdict_kernel_unit(span, at, k) % TDICT_PACK_BLOCK_UNITS);
    TDICT_EACH_IN_BATCH(k)
    if (tdict_kernel_has_unit(span, at, k))
      tdict_unpack_store(env, span, at + (uint64_t)k * TDICT_KERNEL_THREADS, made[k]);
  }
}

#endif
