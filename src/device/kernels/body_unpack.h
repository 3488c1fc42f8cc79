/* The body of the kernel UNPACK, which restores packed elements. A unit is 16 bytes of the destination. Pure functions;
 * thread-safe. */
#ifndef TDICT_DEVICE_KERNELS_BODY_UNPACK_H
#define TDICT_DEVICE_KERNELS_BODY_UNPACK_H

#include "device/kernels/body.h"

/* What a thread needs to restore its units of a batch. They are 64 rows of the elements apart, so their differences
 * begin at the same bit of the lanes. A word has the same number in each of its lanes. */
typedef struct tdict_unpacking {
  uint64_t rows;                 /* address of the differences; if there are none, of any 64 bytes */
  unsigned bits, log_width;      /* an element has 2^log_width bits */
  unsigned down, up;             /* shifts of the differences in their first row and in the next one */
  uint64_t low, high, base, top; /* words: bits from the first row, bits from the next one, base, highest bit */
} tdict_unpacking;

TDICT_BODY uint64_t tdict_unpack_word(tdict_kernel_env *env, uint64_t address) {
  const TDICT_GLOBAL tdict_unit8 *at = (const TDICT_GLOBAL tdict_unit8 *)tdict_kernel_at(env, address, 8);
  return at ? *at : 0;
}
TDICT_BODY tdict_unit16 tdict_unpack_load(tdict_kernel_env *env, uint64_t address) {
  const TDICT_GLOBAL tdict_unit16 *at = (const TDICT_GLOBAL tdict_unit16 *)tdict_kernel_at(env, address, 16);
  const tdict_unit16 nothing = {0, 0};
  return at ? *at : nothing;
}
/* Returns a number whose lowest `count` bits are set. */
TDICT_BODY uint64_t tdict_unpack_mask(unsigned count) { return count ? ~(uint64_t)0 >> (64 - count) : 0; }

/* Returns the offset of a unit's differences in their lanes, in bits. `unit` is the number of the unit in the block. */
TDICT_BODY unsigned tdict_unpack_offset(const tdict_unpacking *u, uint64_t unit) {
  return (unsigned)unit / (TDICT_PACK_ROW / 16) * u->bits;
}

/* `unit` is a unit of the batch in the entry. */
TDICT_BODY tdict_unpacking tdict_unpack_begin(tdict_kernel_env *env, const tdict_kernel_span *span, uint64_t unit) {
  const uint64_t number = unit / TDICT_PACK_BLOCK_UNITS;
  const uint64_t words = span->src + 8 * (TDICT_PACK_HEAD + TDICT_WORDS_PER_BLOCK * number);
  const uint64_t base = tdict_unpack_word(env, words + (uint64_t)8 * TDICT_BLOCK_BASE);
  const uint64_t place = tdict_unpack_word(env, words + (uint64_t)8 * TDICT_BLOCK_PLACE);
  const unsigned width = 8 * tdict_form(span->layout, TDICT_FORM_WIDTH);
  uint64_t ones = 1;
  for (unsigned copied = width; copied < 64; copied *= 2) ones |= ones << copied;
  tdict_unpacking u;
  u.bits = (unsigned)(place & (((uint64_t)1 << TDICT_PLACE_OFFSET) - 1));
  u.rows = u.bits ? span->src + (place >> TDICT_PLACE_OFFSET) : span->src;
  u.log_width = (unsigned)__builtin_ctz(width);
  u.down = tdict_unpack_offset(&u, unit % TDICT_PACK_BLOCK_UNITS) & (width - 1);
  const uint64_t mask = tdict_unpack_mask(u.bits), here = tdict_unpack_mask(width - u.down);
  u.up = (width - u.down) & 63; /* if this is 64, no bit is in the next row */
  u.low = ones * (mask & here);
  u.high = ones * (mask & ~here);
  u.base = ones * (base & tdict_unpack_mask(width));
  u.top = ones << (width - 1);
  return u;
}

/* Restores the elements of a word, from words of two rows. No carry passes from a lane to the next. */
TDICT_BODY uint64_t tdict_unpack_lanes(const tdict_unpacking *u, uint64_t first, uint64_t next) {
  const uint64_t differences = (first >> u->down & u->low) | (next << u->up & u->high);
  return ((differences & ~u->top) + (u->base & ~u->top)) ^ ((differences ^ u->base) & u->top);
}

TDICT_BODY tdict_unit16 tdict_unpack_unit(tdict_kernel_env *env, const tdict_unpacking *u, uint64_t unit) {
  const uint64_t row = tdict_unpack_offset(u, unit) >> u->log_width;
  const uint64_t address = u->rows + row * TDICT_PACK_ROW + unit % (TDICT_PACK_ROW / 16) * 16;
  const tdict_unit16 first = tdict_unpack_load(env, address);
  const tdict_unit16 next = tdict_unpack_load(env, u->high ? address + TDICT_PACK_ROW : address);
  const tdict_unit16 made = {tdict_unpack_lanes(u, first[0], next[0]), tdict_unpack_lanes(u, first[1], next[1])};
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
    const tdict_unpacking unpacking = tdict_unpack_begin(env, span, at);
    tdict_unit16 made[TDICT_KERNEL_BATCH];
    TDICT_EACH_IN_BATCH(k)
    made[k] = tdict_unpack_unit(env, &unpacking, tdict_kernel_unit(span, at, k) % TDICT_PACK_BLOCK_UNITS);
    TDICT_EACH_IN_BATCH(k)
    if (tdict_kernel_has_unit(span, at, k))
      tdict_unpack_store(env, span, at + (uint64_t)k * TDICT_KERNEL_THREADS, made[k]);
  }
}

#endif
