/* Packs integers and bools with AVX-512 and AVX2. See pack_vector.h for ownership and threads. */
#include "engine/kinds/pack_vector.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define AVX512 __attribute__((target("avx512f,avx512bw")))
#define AVX2 __attribute__((target("avx2")))
#define LOAD_512(at) _mm512_loadu_si512(src + (at))
#define LOAD_256(at) _mm256_loadu_si256((const __m256i *)(const void *)(src + (at)))
#define STORE_512(at, v) _mm512_storeu_si512(dst + (at), v)
#define STORE_256(at, v) _mm256_storeu_si256((__m256i *)(void *)(dst + (at)), v)
#define STORE_128(at, v) _mm_storeu_si128((__m128i *)(void *)(dst + (at)), v)
enum { STEP = TDICT_PACK_STEP, LINE = 64, EVEN_QUARTERS = 0x88, IN_ORDER = 0xd8 };

/* `scan` prefetches the next block's even lines, `narrow` the odd ones: both passes read memory. */
static inline void prefetch_lines(const char *ahead, size_t first) {
  if (!ahead) return;
  __builtin_prefetch(ahead + first, 0, 2);
  __builtin_prefetch(ahead + first + STEP / 2, 0, 2);
}
static inline const char *next_ahead(const char *ahead) { return ahead ? ahead + STEP : NULL; }

#define SCAN_512(bits)                                                                                                \
  AVX512 static void scan_##bits##_512(const char *src, size_t steps, uint64_t flip, const char *ahead, int64_t *low, \
                                       int64_t *high) {                                                               \
    const __m512i f = _mm512_set1_epi##bits((int##bits##_t)flip);                                                     \
    __m512i low_a = _mm512_set1_epi##bits((int##bits##_t) * low), low_b = low_a;                                      \
    __m512i high_a = _mm512_set1_epi##bits((int##bits##_t) * high), high_b = high_a;                                  \
    for (; steps > 0; steps--, src += STEP, ahead = next_ahead(ahead)) {                                              \
      prefetch_lines(ahead, 0);                                                                                       \
      for (int at = 0; at < STEP; at += 128) {                                                                        \
        const __m512i a = _mm512_xor_si512(LOAD_512(at), f), b = _mm512_xor_si512(LOAD_512(at + 64), f);              \
        low_a = _mm512_min_epi##bits(low_a, a), high_a = _mm512_max_epi##bits(high_a, a);                             \
        low_b = _mm512_min_epi##bits(low_b, b), high_b = _mm512_max_epi##bits(high_b, b);                             \
      }                                                                                                               \
    }                                                                                                                 \
    int##bits##_t lows[512 / (bits)], highs[512 / (bits)];                                                            \
    _mm512_storeu_si512(lows, _mm512_min_epi##bits(low_a, low_b));                                                    \
    _mm512_storeu_si512(highs, _mm512_max_epi##bits(high_a, high_b));                                                 \
    for (int i = 0; i < 512 / (bits); i++) {                                                                          \
      if (lows[i] < *low) *low = lows[i];                                                                             \
      if (highs[i] > *high) *high = highs[i];                                                                         \
    }                                                                                                                 \
  }
SCAN_512(16)
SCAN_512(32)
SCAN_512(64)

AVX2 static inline __m256i set_16(uint64_t value) { return _mm256_set1_epi16((int16_t)value); }
AVX2 static inline __m256i set_32(uint64_t value) { return _mm256_set1_epi32((int32_t)value); }
AVX2 static inline __m256i set_64(uint64_t value) { return _mm256_set1_epi64x((int64_t)value); }
AVX2 static inline __m256i min_16(__m256i a, __m256i b) { return _mm256_min_epi16(a, b); }
AVX2 static inline __m256i max_16(__m256i a, __m256i b) { return _mm256_max_epi16(a, b); }
AVX2 static inline __m256i min_32(__m256i a, __m256i b) { return _mm256_min_epi32(a, b); }
AVX2 static inline __m256i max_32(__m256i a, __m256i b) { return _mm256_max_epi32(a, b); }
AVX2 static inline __m256i min_64(__m256i a, __m256i b) { return _mm256_blendv_epi8(a, b, _mm256_cmpgt_epi64(a, b)); }
AVX2 static inline __m256i max_64(__m256i a, __m256i b) { return _mm256_blendv_epi8(b, a, _mm256_cmpgt_epi64(a, b)); }

#define SCAN_256(bits)                                                                                                \
  AVX2 static void scan_##bits##_256(const char *src, size_t steps, uint64_t flip, const char *ahead, int64_t *low,   \
                                     int64_t *high) {                                                                 \
    const __m256i f = set_##bits(flip);                                                                               \
    __m256i low_a = set_##bits((uint64_t)*low), low_b = low_a, high_a = set_##bits((uint64_t)*high), high_b = high_a; \
    for (; steps > 0; steps--, src += STEP, ahead = next_ahead(ahead)) {                                              \
      prefetch_lines(ahead, 0);                                                                                       \
      for (int at = 0; at < STEP; at += 64) {                                                                         \
        const __m256i a = _mm256_xor_si256(LOAD_256(at), f), b = _mm256_xor_si256(LOAD_256(at + 32), f);              \
        low_a = min_##bits(low_a, a), high_a = max_##bits(high_a, a);                                                 \
        low_b = min_##bits(low_b, b), high_b = max_##bits(high_b, b);                                                 \
      }                                                                                                               \
    }                                                                                                                 \
    int##bits##_t lows[256 / (bits)], highs[256 / (bits)];                                                            \
    _mm256_storeu_si256((__m256i *)(void *)lows, min_##bits(low_a, low_b));                                           \
    _mm256_storeu_si256((__m256i *)(void *)highs, max_##bits(high_a, high_b));                                        \
    for (int i = 0; i < 256 / (bits); i++) {                                                                          \
      if (lows[i] < *low) *low = lows[i];                                                                             \
      if (highs[i] > *high) *high = highs[i];                                                                         \
    }                                                                                                                 \
  }
SCAN_256(16)
SCAN_256(32)
SCAN_256(64)

/* Defines the function that writes differences of `from` bits as integers of `to` bits. */
#define NARROW_512(from, to, store)                                                                        \
  AVX512 static void narrow_##from##_##to##_512(char *dst, const char *src, size_t steps, uint64_t base,   \
                                                const char *ahead) {                                       \
    const __m512i b = _mm512_set1_epi##from((int##from##_t)base);                                          \
    for (; steps > 0; steps--, src += STEP, dst += STEP / ((from) / (to)), ahead = next_ahead(ahead)) {    \
      prefetch_lines(ahead, LINE);                                                                         \
      for (int at = 0; at < STEP; at += 64)                                                                \
        store(at / ((from) / (to)), _mm512_cvtepi##from##_epi##to(_mm512_sub_epi##from(LOAD_512(at), b))); \
    }                                                                                                      \
  }
#define STORE_64(at, v) _mm_storel_epi64((__m128i *)(void *)(dst + (at)), v)
NARROW_512(64, 32, STORE_256)
NARROW_512(64, 16, STORE_128)
NARROW_512(64, 8, STORE_64)
NARROW_512(32, 16, STORE_256)
NARROW_512(32, 8, STORE_128)
NARROW_512(16, 8, STORE_256)

/* Return eight differences as integers of 32 bits. The differences must fit into 32 bits. */
AVX2 static inline __m256i eight_64(const char *src, __m256i base) {
  const __m256 a = _mm256_castsi256_ps(_mm256_sub_epi64(LOAD_256(0), base));
  const __m256 b = _mm256_castsi256_ps(_mm256_sub_epi64(LOAD_256(32), base));
  return _mm256_permute4x64_epi64(_mm256_castps_si256(_mm256_shuffle_ps(a, b, EVEN_QUARTERS)), IN_ORDER);
}
AVX2 static inline __m256i eight_32(const char *src, __m256i base) { return _mm256_sub_epi32(LOAD_256(0), base); }

#define NARROW_256(from)                                                                                               \
  AVX2 static inline __m256i sixteen_##from(const char *src, __m256i base) {                                           \
    const __m256i mixed = _mm256_packus_epi32(eight_##from(src, base), eight_##from(src + (from), base));              \
    return _mm256_permute4x64_epi64(mixed, IN_ORDER);                                                                  \
  }                                                                                                                    \
  AVX2 static void narrow_##from##_16_256(char *dst, const char *src, size_t steps, uint64_t base,                     \
                                          const char *ahead) {                                                         \
    const __m256i b = set_##from(base);                                                                                \
    for (; steps > 0; steps--, ahead = next_ahead(ahead)) {                                                            \
      prefetch_lines(ahead, LINE);                                                                                     \
      for (size_t at = 0; at < STEP; at += (size_t)2 * (from), src += (size_t)2 * (from), dst += 32)                   \
        STORE_256(0, sixteen_##from(src, b));                                                                          \
    }                                                                                                                  \
  }                                                                                                                    \
  AVX2 static void narrow_##from##_8_256(char *dst, const char *src, size_t steps, uint64_t base, const char *ahead) { \
    const __m256i b = set_##from(base);                                                                                \
    for (; steps > 0; steps--, ahead = next_ahead(ahead)) {                                                            \
      prefetch_lines(ahead, LINE);                                                                                     \
      for (size_t at = 0; at < STEP; at += (size_t)4 * (from), src += (size_t)4 * (from), dst += 32) {                 \
        const __m256i mixed =                                                                                          \
            _mm256_packus_epi16(sixteen_##from(src, b), sixteen_##from(src + (size_t)2 * (from), b));                  \
        STORE_256(0, _mm256_permute4x64_epi64(mixed, IN_ORDER));                                                       \
      }                                                                                                                \
    }                                                                                                                  \
  }
NARROW_256(64)
NARROW_256(32)

AVX2 static void narrow_64_32_256(char *dst, const char *src, size_t steps, uint64_t base, const char *ahead) {
  const __m256i b = set_64(base);
  for (; steps > 0; steps--, ahead = next_ahead(ahead)) {
    prefetch_lines(ahead, LINE);
    for (int at = 0; at < STEP; at += 64, src += 64, dst += 32) STORE_256(0, eight_64(src, b));
  }
}
AVX2 static void narrow_16_8_256(char *dst, const char *src, size_t steps, uint64_t base, const char *ahead) {
  const __m256i b = set_16(base);
  for (; steps > 0; steps--, ahead = next_ahead(ahead)) {
    prefetch_lines(ahead, LINE);
    for (int at = 0; at < STEP; at += 64, src += 64, dst += 32) {
      const __m256i mixed = _mm256_packus_epi16(_mm256_sub_epi16(LOAD_256(0), b), _mm256_sub_epi16(LOAD_256(32), b));
      STORE_256(0, _mm256_permute4x64_epi64(mixed, IN_ORDER));
    }
  }
}

/* Returns the bitwise OR of the bytes of a vector. */
static inline unsigned fold_bytes(const unsigned char *bytes, size_t count) {
  unsigned all = 0;
  for (size_t i = 0; i < count; i++) all |= bytes[i];
  return all;
}
AVX512 static unsigned bits_512(char *dst, const char *src, size_t steps, const char *ahead) {
  __m512i all = _mm512_setzero_si512();
  for (; steps > 0; steps--, src += STEP, dst += STEP / 8, ahead = next_ahead(ahead)) {
    prefetch_lines(ahead, 0);
    prefetch_lines(ahead, LINE);
    for (int at = 0; at < STEP; at += 64) {
      const __m512i bytes = LOAD_512(at);
      const uint64_t mask = _mm512_test_epi8_mask(bytes, bytes);
      all = _mm512_or_si512(all, bytes);
      __builtin_memcpy(dst + at / 8, &mask, sizeof mask);
    }
  }
  unsigned char bytes[64];
  _mm512_storeu_si512(bytes, all);
  return fold_bytes(bytes, sizeof bytes);
}
AVX2 static unsigned bits_256(char *dst, const char *src, size_t steps, const char *ahead) {
  __m256i all = _mm256_setzero_si256();
  for (; steps > 0; steps--, src += STEP, dst += STEP / 8, ahead = next_ahead(ahead)) {
    prefetch_lines(ahead, 0);
    prefetch_lines(ahead, LINE);
    for (int at = 0; at < STEP; at += 32) {
      const __m256i bytes = LOAD_256(at);
      const uint32_t mask = (uint32_t)_mm256_movemask_epi8(_mm256_slli_epi16(bytes, 7)); /* bit 0 of each byte */
      all = _mm256_or_si256(all, bytes);
      __builtin_memcpy(dst + at / 8, &mask, sizeof mask);
    }
  }
  unsigned char bytes[32];
  _mm256_storeu_si256((__m256i *)(void *)bytes, all);
  return fold_bytes(bytes, sizeof bytes);
}

const tdict_pack_ops *tdict_pack_vectors(tdict_stream_kind kind, unsigned item_bytes) {
  static const tdict_pack_ops wide[] = {{NULL, {NULL, NULL, NULL}, bits_512},
                                        {scan_16_512, {narrow_16_8_512, NULL, NULL}, NULL},
                                        {scan_32_512, {narrow_32_8_512, narrow_32_16_512, NULL}, NULL},
                                        {scan_64_512, {narrow_64_8_512, narrow_64_16_512, narrow_64_32_512}, NULL}};
  static const tdict_pack_ops narrow[] = {{NULL, {NULL, NULL, NULL}, bits_256},
                                          {scan_16_256, {narrow_16_8_256, NULL, NULL}, NULL},
                                          {scan_32_256, {narrow_32_8_256, narrow_32_16_256, NULL}, NULL},
                                          {scan_64_256, {narrow_64_8_256, narrow_64_16_256, narrow_64_32_256}, NULL}};
  const int row = item_bytes == 8 ? 3 : item_bytes == 4 ? 2 : (int)item_bytes - 1;
  if (kind == TDICT_STREAM_AVX512 && __builtin_cpu_supports("avx512bw")) return &wide[row];
  return (kind == TDICT_STREAM_AVX512 || kind == TDICT_STREAM_AVX2) && tdict_stream_has(TDICT_STREAM_AVX2)
             ? &narrow[row]
             : NULL;
}

#else

const tdict_pack_ops *tdict_pack_vectors(tdict_stream_kind kind, unsigned item_bytes) {
  (void)kind, (void)item_bytes;
  return NULL;
}

#endif
