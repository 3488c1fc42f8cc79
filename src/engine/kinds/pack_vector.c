/* Packs elements by bits. The compiler makes vector instructions of each set from one source. See pack_vector.h for
 * ownership and threads. */
#include "engine/kinds/pack_vector.h"

#include "core/kernel/words.h"

enum { ROW = TDICT_PACK_ROW, LINE = 64, PAIR = 2 * LINE };

/* A vector of lanes at any address. */
#define LANES(type, vector) typedef type lanes __attribute__((vector_size(vector), aligned(1), may_alias))
#define AT(address) (*(lanes *)(address))
#define CONST_AT(address) (*(const lanes *)(address))
/* Takes the lanes of `a` for which the condition is true, and the others of `b`. */
#define SELECT(condition, a, b) (((a) & (condition)) | ((b) & ~(condition)))

#define SCAN(bits, vector, isa, target)                                                                                \
  target static void scan_##bits##_##isa(const char *src, size_t rows, uint64_t flip, const char *ahead, int64_t *low, \
                                         int64_t *high) {                                                              \
    LANES(int##bits##_t, vector);                                                                                      \
    const int##bits##_t f = (int##bits##_t)flip;                                                                       \
    lanes low_a = CONST_AT(src) ^ f, low_b = low_a, high_a = low_a, high_b = low_a;                                    \
    for (const char *end = src + ROW * rows; src < end; ahead += PAIR) {                                               \
      __builtin_prefetch(ahead, 0, 2);                                                                                 \
      for (int i = 0; i < PAIR / (vector) / 2; i++, src += 2 * (vector)) {                                             \
        const lanes a = CONST_AT(src) ^ f, b = CONST_AT(src + (vector)) ^ f;                                           \
        low_a = SELECT(a < low_a, a, low_a), high_a = SELECT(a > high_a, a, high_a);                                   \
        low_b = SELECT(b < low_b, b, low_b), high_b = SELECT(b > high_b, b, high_b);                                   \
      }                                                                                                                \
    }                                                                                                                  \
    const lanes least = SELECT(low_a < low_b, low_a, low_b), most = SELECT(high_a > high_b, high_a, high_b);           \
    *low = least[0], *high = most[0];                                                                                  \
    for (size_t i = 1; i < sizeof least / sizeof least[0]; i++) {                                                      \
      if (least[i] < *low) *low = least[i];                                                                            \
      if (most[i] > *high) *high = most[i];                                                                            \
    }                                                                                                                  \
  }

/* `lane` is the size of the numbers that the instructions compute with. `ones` has a 1 for each element of a lane. */
#define PACK(width, lane, ones, vector, isa, target)                                                             \
  target static void pack_##width##_##isa(char *dst, const char *src, size_t rows, uint64_t base, unsigned bits, \
                                          const char *ahead) {                                                   \
    LANES(uint##lane##_t, vector);                                                                               \
    for (size_t column = 0; column < ROW; column += vector) {                                                    \
      lanes word = {0};                                                                                          \
      unsigned filled = 0;                                                                                       \
      char *to = dst + column;                                                                                   \
      const char *from = src + column, *next = ahead + LINE;                                                     \
      for (const char *end = from + ROW * rows; from < end; next += PAIR) {                                      \
        if (column == 0) __builtin_prefetch(next, 0, 2);                                                         \
        for (int i = 0; i < 2; i++, from += ROW) {                                                               \
          const lanes difference = CONST_AT(from) - (uint##lane##_t)((uint##width##_t)base * (ones));            \
          word |= difference << filled;                                                                          \
          filled += bits;                                                                                        \
          if (filled < (width)) continue;                                                                        \
          AT(to) = word;                                                                                         \
          to += ROW;                                                                                             \
          filled -= (width);                                                                                     \
          word = filled ? difference >> (bits - filled) : (lanes){0}; /* the bits that did not fit */            \
        }                                                                                                        \
      }                                                                                                          \
      if (filled > 0) AT(to) = word;                                                                             \
    }                                                                                                            \
  }

#define BYTES UINT64_C(0x0101010101010101)
#define ALL(vector, isa, target)                                             \
  SCAN(8, vector, isa, target)                                               \
  SCAN(16, vector, isa, target)                                              \
  SCAN(32, vector, isa, target)                                              \
  SCAN(64, vector, isa, target)                                              \
  PACK(8, 64, BYTES, vector, isa, target)                                    \
  PACK(16, 16, 1, vector, isa, target)                                       \
  PACK(32, 32, 1, vector, isa, target)                                       \
  PACK(64, 64, 1, vector, isa, target)                                       \
  static const tdict_pack_ops ops_##isa[] = {{scan_8_##isa, pack_8_##isa},   \
                                             {scan_16_##isa, pack_16_##isa}, \
                                             {scan_32_##isa, pack_32_##isa}, \
                                             {scan_64_##isa, pack_64_##isa}};

ALL(16, any, )
#if defined(__x86_64__)
ALL(32, avx2, __attribute__((target("avx2"))))
ALL(64, avx512, __attribute__((target("avx512f,avx512bw"))))
#endif

const tdict_pack_ops *tdict_pack_ops_of(tdict_stream_kind kind, unsigned item_bytes) {
  const tdict_pack_ops *ops = ops_any;
#if defined(__x86_64__)
  const bool wide = kind == TDICT_STREAM_AVX512 && __builtin_cpu_supports("avx512bw");
  if (wide)
    ops = ops_avx512;
  else if ((kind == TDICT_STREAM_AVX512 || kind == TDICT_STREAM_AVX2) && tdict_stream_has(TDICT_STREAM_AVX2))
    ops = ops_avx2;
#else
  (void)kind;
#endif
  return &ops[__builtin_ctz(item_bytes)];
}
