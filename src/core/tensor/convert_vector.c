/* Converts elements of frequent pairs with AVX2, AVX-512 or NEON. See convert.h for ownership and threads. */
#include "core/tensor/convert.h"

#include <stdint.h>
#include <string.h>

/* A step is a fixed number of elements, the same for all pairs. Every step fills whole cache lines of the result. */
enum { STEP = 32, BLOCK = 64 * STEP, LINE_BYTES = 64, MOST_ITEM_BYTES = 8, MIN_STREAM_BYTES = 4 << 20 };

/* Converts `steps` steps. If `streams` is true, `to` is aligned to a cache line and is written by streaming stores.
 * Returns false if the destination cannot hold an element; the elements of `to` are then unspecified. */
typedef bool (*steps_fn)(void *to, const void *from, size_t steps, bool streams);

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define AVX512 __attribute__((target("avx512f")))
/* Every processor with AVX2 has F16C. */
#define AVX2 __attribute__((target("avx2,f16c")))
/* A converter makes one vector of the elements at `src`. It sets *fits to false if one of them cannot be held. */
#define TO_512(name) AVX512 static inline __m512i name##_512(const char *src, bool *fits)
#define TO_256(name) AVX2 static inline __m256i name##_256(const char *src, bool *fits)
#define LOAD_512(at) _mm512_loadu_si512(src + (at))
#define LOAD_256(at) _mm256_loadu_si256((const __m256i *)(const void *)(src + (at)))
#define LOAD_128(at) _mm_loadu_si128((const __m128i *)(const void *)(src + (at)))
#define JOIN_512(low, high) _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1)
#define JOIN_256(low, high) _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1)
enum { EVEN_QUARTERS = 0x88, ODD_QUARTERS = 0xdd, IN_ORDER = 0xd8, NEAREST_EVEN = 0 };

/* Rounds each float to a bfloat16 in the low half of the item. Adds 0x7fff, and 1 more if the last kept bit is 1, so
 * that ties go to even. Sets a kept bit in the mantissa of a NaN, so that the result is a NaN. */
AVX512 static inline __m512i round_to_bf16_512(__m512i bits) {
  const __m512 value = _mm512_castsi512_ps(bits);
  const __m512i last = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(last, _mm512_set1_epi32(0x7fff)));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  return _mm512_srli_epi32(_mm512_mask_or_epi32(rounded, is_nan, bits, _mm512_set1_epi32(0x400000)), 16);
}
AVX2 static inline __m256i round_to_bf16_256(__m256i bits) {
  const __m256 value = _mm256_castsi256_ps(bits);
  const __m256i last = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(last, _mm256_set1_epi32(0x7fff)));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
  const __m256i kept = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, kept, is_nan), 16);
}
TO_512(f32_bf16) {
  (void)fits;
  return JOIN_512(_mm512_cvtepi32_epi16(round_to_bf16_512(LOAD_512(0))),
                  _mm512_cvtepi32_epi16(round_to_bf16_512(LOAD_512(64))));
}
TO_256(f32_bf16) {
  (void)fits;
  const __m256i mixed = _mm256_packus_epi32(round_to_bf16_256(LOAD_256(0)), round_to_bf16_256(LOAD_256(32)));
  return _mm256_permute4x64_epi64(mixed, IN_ORDER);
}
TO_512(bf16_f32) {
  (void)fits;
  return _mm512_slli_epi32(_mm512_cvtepu16_epi32(LOAD_256(0)), 16);
}
TO_256(bf16_f32) {
  (void)fits;
  return _mm256_slli_epi32(_mm256_cvtepu16_epi32(LOAD_128(0)), 16);
}

/* With a mask, because without one this is a macro that converts -1 to a mask without a cast. */
AVX512 static inline __m256i round_to_f16_512(__m512i bits) {
  return _mm512_maskz_cvtps_ph((__mmask16)0xffff, _mm512_castsi512_ps(bits), NEAREST_EVEN);
}
TO_512(f32_f16) {
  (void)fits;
  return JOIN_512(round_to_f16_512(LOAD_512(0)), round_to_f16_512(LOAD_512(64)));
}
TO_256(f32_f16) {
  (void)fits;
  return JOIN_256(_mm256_cvtps_ph(_mm256_castsi256_ps(LOAD_256(0)), NEAREST_EVEN),
                  _mm256_cvtps_ph(_mm256_castsi256_ps(LOAD_256(32)), NEAREST_EVEN));
}
TO_512(f16_f32) {
  (void)fits;
  return _mm512_castps_si512(_mm512_cvtph_ps(LOAD_256(0)));
}
TO_256(f16_f32) {
  (void)fits;
  return _mm256_castps_si256(_mm256_cvtph_ps(LOAD_128(0)));
}

/* An int64 fits in 32 bits if its high half repeats the sign of its low half. */
TO_512(i64_i32) {
  const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  const __m512i odd = _mm512_set_epi32(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
  const __m512i first = LOAD_512(0), second = LOAD_512(64);
  const __m512i low = _mm512_permutex2var_epi32(first, even, second);
  const __m512i high = _mm512_permutex2var_epi32(first, odd, second);
  *fits &= _mm512_cmpneq_epi32_mask(high, _mm512_srai_epi32(low, 31)) == 0;
  return low;
}
TO_256(i64_i32) {
  const __m256 first = _mm256_castsi256_ps(LOAD_256(0)), second = _mm256_castsi256_ps(LOAD_256(32));
  const __m256i low = _mm256_castps_si256(_mm256_shuffle_ps(first, second, EVEN_QUARTERS));
  const __m256i high = _mm256_castps_si256(_mm256_shuffle_ps(first, second, ODD_QUARTERS));
  const __m256i wrong = _mm256_xor_si256(high, _mm256_srai_epi32(low, 31));
  *fits &= _mm256_testz_si256(wrong, wrong) != 0;
  return _mm256_permute4x64_epi64(low, IN_ORDER);
}
TO_512(i32_i64) {
  (void)fits;
  return _mm512_cvtepi32_epi64(LOAD_256(0));
}
TO_256(i32_i64) {
  (void)fits;
  return _mm256_cvtepi32_epi64(LOAD_128(0));
}

/* An int64 fits in 16 bits without a sign if its upper 48 bits are 0. */
AVX512 static inline __m128i low_words_512(const char *src, bool *fits) {
  const __m512i items = LOAD_512(0);
  *fits &= _mm512_test_epi64_mask(items, _mm512_set1_epi64(~0xffffLL)) == 0;
  return _mm512_cvtepi64_epi16(items);
}
TO_512(i64_u16) {
  const __m256i low = JOIN_256(low_words_512(src, fits), low_words_512(src + 64, fits));
  const __m256i high = JOIN_256(low_words_512(src + 128, fits), low_words_512(src + 192, fits));
  return JOIN_512(low, high);
}
TO_256(i64_u16) {
  const __m256i a = LOAD_256(0), b = LOAD_256(32), c = LOAD_256(64), d = LOAD_256(96);
  const __m256i all = _mm256_or_si256(_mm256_or_si256(a, b), _mm256_or_si256(c, d));
  *fits &= _mm256_testz_si256(all, _mm256_set1_epi64x(~0xffffLL)) != 0;
  /* packing works in the halves of the vectors, so the pairs of items are mixed */
  const __m256i mixed = _mm256_packus_epi32(_mm256_packus_epi32(a, b), _mm256_packus_epi32(c, d));
  return _mm256_permutevar8x32_epi32(mixed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}
TO_512(u16_i64) {
  (void)fits;
  return _mm512_cvtepu16_epi64(LOAD_128(0));
}
TO_256(u16_i64) {
  (void)fits;
  return _mm256_cvtepu16_epi64(_mm_loadl_epi64((const __m128i *)(const void *)src));
}

/* A float fits in an int32 if it is in [-2^31, 2^31). A comparison with NaN is false. */
TO_512(f32_i32) {
  const __m512 value = _mm512_castsi512_ps(LOAD_512(0));
  const __mmask16 fitting = _mm512_cmp_ps_mask(value, _mm512_set1_ps(-0x1p31F), _CMP_GE_OQ) &
                            _mm512_cmp_ps_mask(value, _mm512_set1_ps(0x1p31F), _CMP_LT_OQ);
  *fits &= fitting == 0xffff;
  return _mm512_cvttps_epi32(value);
}
TO_256(f32_i32) {
  const __m256 value = _mm256_castsi256_ps(LOAD_256(0));
  const __m256 fitting = _mm256_and_ps(_mm256_cmp_ps(value, _mm256_set1_ps(-0x1p31F), _CMP_GE_OQ),
                                       _mm256_cmp_ps(value, _mm256_set1_ps(0x1p31F), _CMP_LT_OQ));
  *fits &= _mm256_movemask_ps(fitting) == 0xff;
  return _mm256_cvttps_epi32(value);
}
TO_512(i32_f32) {
  (void)fits;
  return _mm512_castps_si512(_mm512_cvtepi32_ps(LOAD_512(0)));
}
TO_256(i32_f32) {
  (void)fits;
  return _mm256_castps_si256(_mm256_cvtepi32_ps(LOAD_256(0)));
}
TO_512(u8_f32) {
  (void)fits;
  return _mm512_castps_si512(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(LOAD_128(0))));
}
TO_256(u8_f32) {
  (void)fits;
  const __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)src);
  return _mm256_castps_si256(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)));
}
TO_512(f64_f32) {
  (void)fits;
  return JOIN_512(_mm256_castps_si256(_mm512_cvtpd_ps(_mm512_castsi512_pd(LOAD_512(0)))),
                  _mm256_castps_si256(_mm512_cvtpd_ps(_mm512_castsi512_pd(LOAD_512(64)))));
}
TO_256(f64_f32) {
  (void)fits;
  return JOIN_256(_mm_castps_si128(_mm256_cvtpd_ps(_mm256_castsi256_pd(LOAD_256(0)))),
                  _mm_castps_si128(_mm256_cvtpd_ps(_mm256_castsi256_pd(LOAD_256(32)))));
}

/* Defines the AVX-512 and the AVX2 function of a pair, which call its converters. */
#define STEPS(name, to_bytes, from_bytes)                                                         \
  AVX512 static bool steps_##name##_512(void *to, const void *from, size_t steps, bool streams) { \
    bool fits = true;                                                                             \
    char *dst = to;                                                                               \
    const char *src = from, *end = src + steps * STEP * (from_bytes);                             \
    for (; src < end; src += 64 * (from_bytes) / (to_bytes), dst += 64) {                         \
      const __m512i made = name##_512(src, &fits);                                                \
      if (streams)                                                                                \
        _mm512_stream_si512((__m512i *)(void *)dst, made);                                        \
      else                                                                                        \
        _mm512_storeu_si512(dst, made);                                                           \
    }                                                                                             \
    return fits;                                                                                  \
  }                                                                                               \
  AVX2 static bool steps_##name##_256(void *to, const void *from, size_t steps, bool streams) {   \
    bool fits = true;                                                                             \
    char *dst = to;                                                                               \
    const char *src = from, *end = src + steps * STEP * (from_bytes);                             \
    for (; src < end; src += 32 * (from_bytes) / (to_bytes), dst += 32) {                         \
      const __m256i made = name##_256(src, &fits);                                                \
      if (streams)                                                                                \
        _mm256_stream_si256((__m256i *)(void *)dst, made);                                        \
      else                                                                                        \
        _mm256_storeu_si256((__m256i *)(void *)dst, made);                                        \
    }                                                                                             \
    return fits;                                                                                  \
  }
STEPS(f32_bf16, 2, 4)
STEPS(bf16_f32, 4, 2)
STEPS(f32_f16, 2, 4)
STEPS(f16_f32, 4, 2)
STEPS(i64_i32, 4, 8)
STEPS(i32_i64, 8, 4)
STEPS(i64_u16, 2, 8)
STEPS(u16_i64, 8, 2)
STEPS(f32_i32, 4, 4)
STEPS(i32_f32, 4, 4)
STEPS(u8_f32, 4, 1)
STEPS(f64_f32, 4, 8)

/* Returns the function of a pair of dtypes, or NULL if the pair has no function. */
static steps_fn find_steps(tdict_stream_kind kind, tdict_dtype to, tdict_dtype from) {
  static const struct {
    tdict_dtype to, from;
    steps_fn avx512, avx2;
  } pairs[] = {
#define PAIR(to, from, name) {to, from, steps_##name##_512, steps_##name##_256}
      PAIR(TDICT_BF16, TDICT_F32, f32_bf16), PAIR(TDICT_F32, TDICT_BF16, bf16_f32), PAIR(TDICT_F16, TDICT_F32, f32_f16),
      PAIR(TDICT_F32, TDICT_F16, f16_f32),   PAIR(TDICT_I32, TDICT_I64, i64_i32),   PAIR(TDICT_I64, TDICT_I32, i32_i64),
      PAIR(TDICT_I32, TDICT_F32, f32_i32),   PAIR(TDICT_F32, TDICT_I32, i32_f32),   PAIR(TDICT_F32, TDICT_U8, u8_f32),
      PAIR(TDICT_F32, TDICT_F64, f64_f32),   PAIR(TDICT_U16, TDICT_I64, i64_u16),   PAIR(TDICT_I64, TDICT_U16, u16_i64),
  };
  if (kind != TDICT_STREAM_AVX512 && kind != TDICT_STREAM_AVX2) return NULL;
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
    if (pairs[i].to == to && pairs[i].from == from)
      return kind == TDICT_STREAM_AVX512 ? pairs[i].avx512 : pairs[i].avx2;
  return NULL;
}

#elif defined(__aarch64__) && defined(__GNUC__)
#include <arm_neon.h>

/* NEON is on every aarch64, so the kind of stores does not matter. gcc 12 does not vectorize these four pairs. Memory
 * is accessed as bytes, because the elements need not be aligned. */
static inline uint32x4_t load_words(const char *src) { return vreinterpretq_u32_u8(vld1q_u8((const uint8_t *)src)); }
static inline uint16x8_t load_halves(const char *src) { return vreinterpretq_u16_u8(vld1q_u8((const uint8_t *)src)); }
static inline uint16x4_t round_to_bf16(uint32x4_t bits) {
  const uint32x4_t last = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  const uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(last, vdupq_n_u32(0x7fff)));
  const uint32x4_t is_nan = vcgtq_u32(vandq_u32(bits, vdupq_n_u32(0x7fffffff)), vdupq_n_u32(0x7f800000));
  return vshrn_n_u32(vbslq_u32(is_nan, vorrq_u32(bits, vdupq_n_u32(0x400000)), rounded), 16);
}
static inline uint16x4_t round_to_f16(uint32x4_t bits) {
  return vreinterpret_u16_f16(vcvt_f16_f32(vreinterpretq_f32_u32(bits)));
}
static inline uint32x4_t widen_bf16(uint16x4_t halves) { return vshll_n_u16(halves, 16); }
static inline uint32x4_t widen_f16(uint16x4_t halves) {
  return vreinterpretq_u32_f32(vcvt_f32_f16(vreinterpret_f16_u16(halves)));
}

/* Defines the function of a pair. Eight elements are converted at once. */
#define NARROW(name, round)                                                                      \
  static bool steps_##name(void *to, const void *from, size_t steps, bool streams) {             \
    char *dst = to;                                                                              \
    const char *src = from, *end = src + steps * STEP * 4;                                       \
    (void)streams;                                                                               \
    for (; src < end; src += 32, dst += 16) {                                                    \
      const uint16x8_t made = vcombine_u16(round(load_words(src)), round(load_words(src + 16))); \
      vst1q_u8((uint8_t *)dst, vreinterpretq_u8_u16(made));                                      \
    }                                                                                            \
    return true;                                                                                 \
  }
#define WIDEN(name, widen)                                                               \
  static bool steps_##name(void *to, const void *from, size_t steps, bool streams) {     \
    char *dst = to;                                                                      \
    const char *src = from, *end = src + steps * STEP * 2;                               \
    (void)streams;                                                                       \
    for (; src < end; src += 16, dst += 32) {                                            \
      const uint16x8_t halves = load_halves(src);                                        \
      vst1q_u8((uint8_t *)dst, vreinterpretq_u8_u32(widen(vget_low_u16(halves))));       \
      vst1q_u8((uint8_t *)dst + 16, vreinterpretq_u8_u32(widen(vget_high_u16(halves)))); \
    }                                                                                    \
    return true;                                                                         \
  }
NARROW(f32_bf16, round_to_bf16)
NARROW(f32_f16, round_to_f16)
WIDEN(bf16_f32, widen_bf16)
WIDEN(f16_f32, widen_f16)

static steps_fn find_steps(tdict_stream_kind kind, tdict_dtype to, tdict_dtype from) {
  (void)kind;
  if (to == TDICT_BF16 && from == TDICT_F32) return steps_f32_bf16;
  if (to == TDICT_F16 && from == TDICT_F32) return steps_f32_f16;
  if (to == TDICT_F32 && from == TDICT_BF16) return steps_bf16_f32;
  return to == TDICT_F32 && from == TDICT_F16 ? steps_f16_f32 : NULL;
}

#else

static steps_fn find_steps(tdict_stream_kind kind, tdict_dtype to, tdict_dtype from) {
  (void)kind, (void)to, (void)from;
  return NULL;
}

#endif

bool tdict_convert_has_vector(tdict_stream_kind kind, tdict_dtype to, tdict_dtype from) {
  return find_steps(kind, to, from) != NULL;
}

/* A pair of dtypes, the function of the pair, and the sizes of the elements. */
typedef struct vector {
  tdict_dtype to, from;
  size_t to_bytes, from_bytes;
  steps_fn steps;
} vector;

/* Converts fewer elements than one step. Copies the elements through buffers of one whole step. */
static bool convert_rest(const vector *v, char *dst, const char *src, size_t count) {
  char from[STEP * MOST_ITEM_BYTES] = {0}, to[STEP * MOST_ITEM_BYTES];
  memcpy(from, src, count * v->from_bytes);
  if (!v->steps(to, from, 1, false)) return false;
  memcpy(dst, to, count * v->to_bytes);
  return true;
}

/* Returns the number of elements before the first whole cache line of `dst`. If the result is small or no element
 * begins at a cache line, returns SIZE_MAX. The caller then uses no streaming stores. */
static size_t count_before_line(const vector *v, const char *dst, size_t count) {
  const size_t head = (size_t)(-(uintptr_t)dst % LINE_BYTES);
  return count * v->to_bytes >= MIN_STREAM_BYTES && head % v->to_bytes == 0 ? head / v->to_bytes : SIZE_MAX;
}

size_t tdict_convert_vector(tdict_stream_kind kind, tdict_dtype to, void *dst, tdict_dtype from, const void *src,
                            size_t count) {
  const vector v = {to, from, tdict_dtype_bytes(to), tdict_dtype_bytes(from), find_steps(kind, to, from)};
  if (!v.steps) return tdict_convert_simple(to, dst, from, src, count);
  const size_t head = count_before_line(&v, dst, count);
  const bool streams = head != SIZE_MAX;
  size_t at = 0;
  for (size_t some; at < count; at += some) {
    char *block = (char *)dst + at * v.to_bytes;
    const char *source = (const char *)src + at * v.from_bytes;
    const size_t most = streams && at < head ? head : count - at < BLOCK ? count - at : BLOCK;
    some = most < STEP ? most : most / STEP * STEP;
    if (some < STEP ? convert_rest(&v, block, source, some) : v.steps(block, source, some / STEP, streams)) continue;
    at += tdict_convert_simple(to, block, from, source, some); /* finds the element that does not fit */
    break;
  }
  if (streams) tdict_stream_fence();
  return at;
}
