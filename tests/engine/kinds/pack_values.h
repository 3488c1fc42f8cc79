/* Elements that need few or many bits, and a naive model of their packed size, which does not use the library. Thread
 * rule: one thread. */
#ifndef TDICT_TESTS_ENGINE_KINDS_PACK_VALUES_H
#define TDICT_TESTS_ENGINE_KINDS_PACK_VALUES_H

#include <math.h>
#include <string.h>

#include "support/random.h"
#include "tdict/values.h"

enum { PV_BLOCK = 32768 }; /* bytes of a block */

/* How much elements differ. For 1, 2 and 4 bytes, one kind has the largest difference that fits, the next 1 more. */
typedef enum pv_kind {
  PV_EQUAL,    /* all elements are equal */
  PV_BYTE,     /* differences up to 255 */
  PV_BYTE_1,   /* up to 256 */
  PV_HALF,     /* up to 65535 */
  PV_HALF_1,   /* up to 65536 */
  PV_WORD,     /* up to 2^32 - 1 */
  PV_WORD_1,   /* up to 2^32 */
  PV_RANDOM,   /* random bits */
  PV_EXTREMES, /* near one value, plus the lowest and the highest value of the dtype */
  PV_OUTLIER,  /* differences up to 255, except for one element */
  PV_WIDTH,    /* differences of a random number of bits */
  PV_MIDDLE,   /* differences up to 255, around 0 or, if unsigned, around the middle of the range */
  PV_MIXED,    /* each block has a different kind */
  PV_KINDS
} pv_kind;

static const tdict_dtype pv_dtypes[] = {TDICT_I16, TDICT_I32, TDICT_I64, TDICT_U16, TDICT_U32, TDICT_U64, TDICT_BOOL};
enum { PV_DTYPES = sizeof pv_dtypes / sizeof *pv_dtypes };

static inline bool pv_is_unsigned(tdict_dtype dtype) {
  return dtype == TDICT_U16 || dtype == TDICT_U32 || dtype == TDICT_U64 || dtype == TDICT_BOOL;
}
static inline unsigned pv_item(tdict_dtype dtype) { return (unsigned)tdict_dtype_bytes(dtype); }
static inline void pv_store(tdict_dtype dtype, void *data, size_t i, uint64_t number) {
  memcpy((char *)data + i * pv_item(dtype), &number, pv_item(dtype)); /* GPUs are little-endian, too */
}

/* Returns element `i`. A long double represents all 64-bit integers exactly. */
static inline long double pv_value(tdict_dtype dtype, const void *data, size_t i) {
  const unsigned item = pv_item(dtype);
  uint64_t bits = 0;
  memcpy(&bits, (const char *)data + i * item, item);
  const bool is_negative = !pv_is_unsigned(dtype) && bits >> (8 * item - 1) & 1;
  return (long double)bits - (is_negative ? ldexpl(1, 8 * (int)item) : 0);
}

/* Fills bools with random 0s and 1s, or only 1s for PV_EQUAL. Some kinds also contain other bytes. */
static inline void pv_fill_bools(rng *r, unsigned char *out, size_t count, pv_kind kind) {
  for (size_t i = 0; i < count; i++) out[i] = kind == PV_EQUAL ? 1 : next_random(r) & 1;
  if (kind == PV_EXTREMES) out[0] = 2, out[count - 1] = 255;
  if (kind == PV_OUTLIER) out[next_random(r) % count] = (unsigned char)pick(r, 2, 255);
  if (kind == PV_RANDOM)
    for (size_t i = 0; i < count; i++) out[i] = (unsigned char)next_random(r);
}

/* Fills `data` with random integers. Their differences from the lowest integer need exactly `bits` bits. */
static inline void pv_fill_width(rng *r, tdict_dtype dtype, void *data, size_t count, unsigned bits) {
  const unsigned unused = 64 - 8 * pv_item(dtype);
  const uint64_t all = ~(uint64_t)0 >> unused, top = bits ? ~(uint64_t)0 >> (64 - bits) : 0;
  const uint64_t lowest = top == all ? 0 : next_random(r) % (all - top);
  const uint64_t sign = pv_is_unsigned(dtype) ? 0 : (uint64_t)1 << (63 - unused); /* 0 ^ sign is the lowest value */
  for (size_t i = 0; i < count; i++) pv_store(dtype, data, i, (lowest + (next_random(r) & top)) ^ sign);
  pv_store(dtype, data, 0, (lowest + top) ^ sign);
  if (count > 1) pv_store(dtype, data, count - 1, lowest ^ sign);
}

static inline void pv_fill(rng *r, tdict_dtype dtype, void *data, size_t count, pv_kind kind) {
  static const uint64_t most[] = {0, 0xff, 0x100, 0xffff, 0x10000, 0xffffffff, 0x100000000};
  const unsigned item = pv_item(dtype), bits = 8 * item;
  const uint64_t all = ~(uint64_t)0 >> (64 - bits), sign = (uint64_t)1 << (bits - 1);
  if (count == 0) return;
  if (kind == PV_MIXED) {
    for (size_t at = 0, some; at < count; at += some) {
      some = count - at < PV_BLOCK / item ? count - at : PV_BLOCK / item;
      pv_fill(r, dtype, (char *)data + at * item, some, (pv_kind)pick(r, 0, PV_MIXED - 1));
    }
    return;
  }
  if (dtype == TDICT_BOOL) {
    pv_fill_bools(r, data, count, kind);
    return;
  }
  if (kind == PV_WIDTH) {
    pv_fill_width(r, dtype, data, count, (unsigned)pick(r, 0, (int64_t)bits));
    return;
  }
  const uint64_t span = kind <= PV_WORD_1 ? most[kind] : 0xff, top = all < span ? all : span;
  uint64_t base = next_random(r) % (all - top + 1 ? all - top + 1 : 1); /* base + top does not overflow */
  if (!pv_is_unsigned(dtype)) base ^= sign;
  if (kind == PV_MIDDLE) base = (pv_is_unsigned(dtype) ? sign : 0) - 100;
  for (size_t i = 0; i < count; i++) {
    const uint64_t number = kind == PV_RANDOM ? next_random(r) : base + next_random(r) % (top == all ? all : top + 1);
    pv_store(dtype, data, i, number);
  }
  if (kind <= PV_WORD_1 && count > 1) { /* includes both ends of the range */
    pv_store(dtype, data, next_random(r) % (count / 2), base);
    pv_store(dtype, data, count - 1 - next_random(r) % (count / 2), base + top);
  }
  if (kind == PV_EXTREMES) {
    pv_store(dtype, data, next_random(r) % count, pv_is_unsigned(dtype) ? 0 : sign);
    pv_store(dtype, data, next_random(r) % count, pv_is_unsigned(dtype) ? all : sign - 1);
  }
  if (kind == PV_OUTLIER) pv_store(dtype, data, next_random(r) % count, next_random(r));
}

static inline size_t pv_round(size_t bytes, size_t step) { return (bytes + step - 1) / step * step; }
/* Returns the number of bits that each packed element of a block needs. For bools, AND and OR of each of the 64 columns
 * stand for the lowest and highest element. The last row is filled up with element 0. */
static inline unsigned pv_bits(tdict_dtype dtype, const void *data, size_t count) {
  long double low = pv_value(dtype, data, 0), high = low;
  for (size_t column = 0; column < 64 && dtype == TDICT_BOOL; column++) {
    unsigned all = 0xff, any = 0;
    for (size_t i = column; i < pv_round(count, 64); i += 64) {
      const unsigned value = ((const unsigned char *)data)[i < count ? i : 0];
      all &= value;
      any |= value;
    }
    low = all < low ? all : low;
    high = any > high ? any : high;
  }
  for (size_t i = 1; i < count; i++) {
    const long double value = pv_value(dtype, data, i);
    low = value < low ? value : low;
    high = value > high ? value : high;
  }
  unsigned bits = 0;
  while (high - low >= ldexpl(1, (int)bits)) bits++;
  return dtype == TDICT_BOOL && bits > 1 ? 8 : bits;
}
static inline size_t pv_packed_bytes(tdict_dtype dtype, const void *data, size_t bytes) {
  const unsigned item = pv_item(dtype);
  size_t sum = pv_round(8 + 16 * ((bytes + PV_BLOCK - 1) / PV_BLOCK), 64);
  for (size_t at = 0; at < bytes; at += PV_BLOCK) {
    const size_t count = (bytes - at < PV_BLOCK ? bytes - at : PV_BLOCK) / item;
    const size_t rows = (count * item + 63) / 64, bits = pv_bits(dtype, (const char *)data + at, count);
    sum += (rows * bits + 8 * item - 1) / (8 * item) * 64;
  }
  return sum;
}

#endif
