/* Packs elements by bits. The compiler makes vector instructions of each set from one source. See pack_vector.h for
 * ownership and threads. */
#include "engine/kinds/pack_vector.h"

#include "core/kernel/words.h"

/* AHEAD: bytes from the packed row to the prefetched line, which is in the next block. On an H200 machine, 8 threads
 * packed int64 of 17 bits at 60 GB/s with the prefetch, and at 43 to 46 GB/s without. */
enum { ROW = TDICT_PACK_ROW, AHEAD = 32768 };

/* Takes the lanes of `a` for which the condition is true, and the others of `b`. */
#define SELECT(condition, a, b) (((a) & (condition)) | ((b) & ~(condition)))

/* Defines two functions. The second is a tdict_pack_rows, which packs the columns of the rows one after another. A
 * column is as wide as a vector of `bytes` bytes. `lane` is the size of the numbers that are shifted, and `ones` has a
 * 1 for each element of a lane. The first function finds the range in a row of lowest and a row of highest elements. If
 * it were inlined, gcc would keep the vectors of the loop in memory. */
#define PACK(width, lane, ones, bytes, isa, target)                                                           \
  static __attribute__((noinline))                                                                            \
  tdict_pack_range range_##width##_##isa(const int##width##_t *lows, const int##width##_t *highs) {           \
    tdict_pack_range range = {lows[0], highs[0]};                                                             \
    for (int i = 1; i < ROW * 8 / (width); i++) {                                                             \
      if (lows[i] < range.low) range.low = lows[i];                                                           \
      if (highs[i] > range.high) range.high = highs[i];                                                       \
    }                                                                                                         \
    return range;                                                                                             \
  }                                                                                                           \
  target static tdict_pack_range pack_##width##_##isa(char *dst, const char *src, size_t rows, uint64_t flip, \
                                                      uint64_t base, unsigned bits) {                         \
    typedef int##width##_t numbers __attribute__((vector_size(bytes), aligned(1), may_alias));                \
    typedef uint##lane##_t lanes __attribute__((vector_size(bytes), aligned(1), may_alias));                  \
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
        const lanes difference = *(const lanes *)from - (uint##lane##_t)((uint##width##_t)base * (ones));     \
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

#define ALL(bytes, isa, target)                                 \
  PACK(8, 64, UINT64_C(0x0101010101010101), bytes, isa, target) \
  PACK(16, 16, 1, bytes, isa, target)                           \
  PACK(32, 32, 1, bytes, isa, target)                           \
  PACK(64, 64, 1, bytes, isa, target)                           \
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
