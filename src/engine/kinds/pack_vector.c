/* Packs elements by bits. The compiler makes vector instructions of each set from one source. See pack_vector.h for
 * ownership and threads. */
#include "engine/kinds/pack_vector.h"

#include "core/kernel/words.h"

/* AHEAD: bytes from the packed row to the prefetched line, which is in the next block. On an H200 machine, 8 threads
 * packed int64 of 17 bits at 60 GB/s with the prefetch, and at 43 to 46 GB/s without. */
enum { ROW = TDICT_PACK_ROW, AHEAD = 32768 };

/* Takes the lanes of `a` for which the condition is true, and the others of `b`. */
#define SELECT(condition, a, b) (((a) & (condition)) | ((b) & ~(condition)))

/* Defines a function that finds the range in a row of lowest and a row of highest elements. If it were inlined, gcc
 * would keep the vectors of the calling loop in memory. */
#define RANGE(width, isa)                                                                           \
  static __attribute__((noinline))                                                                  \
  tdict_pack_range range_##width##_##isa(const int##width##_t *lows, const int##width##_t *highs) { \
    tdict_pack_range range = {lows[0], highs[0]};                                                   \
    for (int i = 1; i < ROW * 8 / (width); i++) {                                                   \
      if (lows[i] < range.low) range.low = lows[i];                                                 \
      if (highs[i] > range.high) range.high = highs[i];                                             \
    }                                                                                               \
    return range;                                                                                   \
  }

/* Defines a tdict_pack_rows for integers, which packs the columns of the rows one after another. A column is as wide as
 * a vector of `bytes` bytes. */
#define PACK(width, bytes, isa, target)                                                                       \
  RANGE(width, isa)                                                                                           \
  target static tdict_pack_range pack_##width##_##isa(char *dst, const char *src, size_t rows, uint64_t flip, \
                                                      uint64_t base, unsigned bits) {                         \
    typedef int##width##_t numbers __attribute__((vector_size(bytes), aligned(1), may_alias));                \
    typedef uint##width##_t lanes __attribute__((vector_size(bytes), aligned(1), may_alias));                 \
    int##width##_t lows[ROW * 8 / (width)], highs[ROW * 8 / (width)];                                         \
    for (size_t column = 0; column < ROW; column += bytes) {                                                  \
      const char *from = src + column, *const end = from + ROW * rows;                                        \
      char *to = dst + column;                                                                                \
      numbers low = *(const numbers *)from ^ (int##width##_t)flip, high = low;                                \
      lanes word = {0};                                                                                       \
      unsigned filled = 0;                                                                                    \
      for (; from < end; from += ROW) {                                                                       \
        __builtin_prefetch((const void *)((uintptr_t)from + AHEAD), 0, 2);                                    \
        const numbers found = *(const numbers *)from ^ (int##width##_t)flip;                                  \
        const lanes difference = *(const lanes *)from - (uint##width##_t)base;                                \
        low = SELECT(found < low, found, low);                                                                \
        high = SELECT(found > high, found, high);                                                             \
        word |= difference << filled;                                                                         \
        filled += bits;                                                                                       \
        if (filled < (width)) continue;                                                                       \
        *(lanes *)to = word;                                                                                  \
        to += ROW;                                                                                            \
        filled -= (width);                                                                                    \
        word = filled ? difference >> (bits - filled) : (lanes){0}; /* the bits that did not fit */           \
      }                                                                                                       \
      if (filled > 0) *(lanes *)to = word;                                                                    \
      *(numbers *)((char *)lows + column) = low;                                                              \
      *(numbers *)((char *)highs + column) = high;                                                            \
    }                                                                                                         \
    return range_##width##_##isa(lows, highs);                                                                \
  }

/* Defines a tdict_pack_rows for bools. Each row of bits enters at the top of the bytes of `word`, and the rows before
 * it move down. If all bools are 0 or 1, AND and OR give the lowest and the highest one. Otherwise no bool is outside
 * the range that they give. */
#define PACK_BOOLS(bytes, isa, target)                                                                               \
  RANGE(8, isa)                                                                                                      \
  target static tdict_pack_range pack_8_##isa(char *dst, const char *src, size_t rows, uint64_t flip, uint64_t base, \
                                              unsigned bits) {                                                       \
    typedef uint64_t lanes __attribute__((vector_size(bytes), aligned(1), may_alias));                               \
    const uint64_t ones = UINT64_C(0x0101010101010101);                                                              \
    int8_t lows[ROW], highs[ROW];                                                                                    \
    for (size_t column = 0; column < ROW; column += bytes) {                                                         \
      const char *from = src + column, *const end = from + ROW * rows;                                               \
      char *to = dst + column;                                                                                       \
      lanes all = *(const lanes *)from, any = all, word = {0};                                                       \
      unsigned filled = 0;                                                                                           \
      for (; from < end; from += ROW) {                                                                              \
        __builtin_prefetch((const void *)((uintptr_t)from + AHEAD), 0, 2);                                           \
        const lanes found = *(const lanes *)from;                                                                    \
        all &= found;                                                                                                \
        any |= found;                                                                                                \
        word = word >> 1 | (found - (uint8_t)base * ones) << 7;                                                      \
        filled += bits;                                                                                              \
        if (filled < 8) continue;                                                                                    \
        *(lanes *)to = word;                                                                                         \
        to += ROW;                                                                                                   \
        word = (lanes){0};                                                                                           \
        filled = 0;                                                                                                  \
      }                                                                                                              \
      if (filled > 0) *(lanes *)to = word >> (8 - filled);                                                           \
      *(lanes *)(lows + column) = all ^ (uint8_t)flip * ones;                                                        \
      *(lanes *)(highs + column) = any ^ (uint8_t)flip * ones;                                                       \
    }                                                                                                                \
    return range_8_##isa(lows, highs);                                                                               \
  }

#define ALL(bytes, isa, target)  \
  PACK_BOOLS(bytes, isa, target) \
  PACK(16, bytes, isa, target)   \
  PACK(32, bytes, isa, target)   \
  PACK(64, bytes, isa, target)   \
  static const tdict_pack_rows pack_##isa[] = {pack_8_##isa, pack_16_##isa, pack_32_##isa, pack_64_##isa};

ALL(16, any, )
#if defined(__x86_64__)
ALL(32, avx2, __attribute__((target("avx2"))))
ALL(64, avx512, __attribute__((target("avx512f,avx512bw"))))
#endif

tdict_pack_rows tdict_pack_rows_of(tdict_stream_kind kind, unsigned item_bytes) {
  const tdict_pack_rows *of_size = pack_any;
#if defined(__x86_64__)
  if (kind == TDICT_STREAM_AVX512 && __builtin_cpu_supports("avx512bw"))
    of_size = pack_avx512;
  else if ((kind == TDICT_STREAM_AVX512 || kind == TDICT_STREAM_AVX2) && tdict_stream_has(TDICT_STREAM_AVX2))
    of_size = pack_avx2;
#else
  (void)kind;
#endif
  return of_size[__builtin_ctz(item_bytes)];
}
