/* Converts elements. If the elements are scaled, works in blocks that stay in the cache: converts a block to float32,
 * scales the block, and converts the block to the dtype of the result. See cast.h for ownership and threads. */
#include "core/tensor/cast.h"

#include <string.h>

#include "core/tensor/convert.h"

enum { CODE_UINT = 1, CODE_FLOAT = 2, CODE_BFLOAT = 4, BLOCK = 1024 };

bool tdict_cast_scales(tdict_dtype to, tdict_dtype from) {
  const unsigned code = to & 0xffu, bits = to >> 8 & 0xffu;
  const bool to_float = (code == CODE_FLOAT || code == CODE_BFLOAT) && bits >= 16;
  return to_float && tdict_kernel_converts(to, from) && ((from & 0xffu) <= CODE_UINT || from == TDICT_BOOL);
}

/* The product and the sum are two statements, so that no compiler merges them into one instruction that rounds only
 * once. */
static void scale_each(float *values, size_t count, float scale, float offset) {
  for (size_t i = 0; i < count; i++) {
    const float product = values[i] * scale;
    values[i] = product + offset;
  }
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

/* Scales the values in whole vectors, and returns their number. */
__attribute__((target("avx512f"))) static size_t scale_512(float *values, size_t count, float scale, float offset) {
  const __m512 factor = _mm512_set1_ps(scale), added = _mm512_set1_ps(offset);
  size_t at = 0;
  for (; at + 16 <= count; at += 16) {
    const __m512 product = _mm512_mul_ps(_mm512_loadu_ps(values + at), factor);
    _mm512_storeu_ps(values + at, _mm512_add_ps(product, added));
  }
  return at;
}
__attribute__((target("avx2"))) static size_t scale_256(float *values, size_t count, float scale, float offset) {
  const __m256 factor = _mm256_set1_ps(scale), added = _mm256_set1_ps(offset);
  size_t at = 0;
  for (; at + 8 <= count; at += 8) {
    const __m256 product = _mm256_mul_ps(_mm256_loadu_ps(values + at), factor);
    _mm256_storeu_ps(values + at, _mm256_add_ps(product, added));
  }
  return at;
}
static size_t scale_vectors(tdict_stream_kind kind, float *values, size_t count, float scale, float offset) {
  if (kind == TDICT_STREAM_AVX512) return scale_512(values, count, scale, offset);
  return kind == TDICT_STREAM_AVX2 ? scale_256(values, count, scale, offset) : 0;
}
#else
static size_t scale_vectors(tdict_stream_kind kind, float *values, size_t count, float scale, float offset) {
  (void)kind, (void)values, (void)count, (void)scale, (void)offset;
  return 0;
}
#endif

static void cast_scaled(tdict_stream_kind kind, const tdict_cast *c, char *dst, const char *src, size_t count) {
  const size_t to_bytes = tdict_dtype_bytes(c->to), from_bytes = tdict_dtype_bytes(c->from);
  float values[BLOCK];
  for (size_t at = 0, some; at < count; at += some) {
    some = count - at < BLOCK ? count - at : BLOCK;
    (void)tdict_convert_vector(kind, TDICT_F32, values, c->from, src + at * from_bytes, some);
    const size_t done = scale_vectors(kind, values, some, c->scale, c->offset);
    scale_each(values + done, some - done, c->scale, c->offset);
    if (c->to == TDICT_F32)
      memcpy(dst + at * to_bytes, values, some * to_bytes);
    else
      (void)tdict_convert_vector(kind, c->to, dst + at * to_bytes, TDICT_F32, values, some);
  }
}

size_t tdict_cast_elements(tdict_stream_kind kind, const tdict_cast *cast, void *dst, const void *src, size_t count) {
  if (cast->is_scaled)
    cast_scaled(kind, cast, dst, src, count);
  else if (cast->to == cast->from)
    memcpy(dst, src, count * tdict_dtype_bytes(cast->to));
  else
    return tdict_convert_vector(kind, cast->to, dst, cast->from, src, count);
  return count;
}
