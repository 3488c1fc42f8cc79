/* Converts elements. If the elements are scaled, works in blocks that stay in the cache: converts a block to float32,
 * scales the block, and converts the block to the dtype of the result. See cast.h for ownership and threads. */
#include "core/tensor/cast.h"

#include <string.h>

#include "core/base/dtype.h"
#include "core/tensor/convert.h"

enum { CODE_FLOAT = 2, CODE_BFLOAT = 4, BLOCK = 1024 };

bool tdict_cast_scales(tdict_dtype to, tdict_dtype from) {
  const unsigned code = to & 0xffu, bits = to >> 8 & 0xffu;
  const bool to_float = (code == CODE_FLOAT || code == CODE_BFLOAT) && bits >= 16;
  return to_float && tdict_kernel_converts(to, from) && (tdict_dtype_is_integer(from) || from == TDICT_BOOL);
}

/* Two statements, so that no compiler merges product and sum into an instruction that rounds once. */
static inline __attribute__((always_inline)) void scale_each(float *values, size_t count, float scale, float offset) {
  for (size_t i = 0; i < count; i++) {
    const float product = values[i] * scale;
    values[i] = product + offset;
  }
}

#if defined(__x86_64__) && defined(__GNUC__)
/* The compiler makes vector instructions of the loop. */
__attribute__((target("avx512f"))) static void scale_512(float *values, size_t count, float scale, float offset) {
  scale_each(values, count, scale, offset);
}
__attribute__((target("avx2"))) static void scale_256(float *values, size_t count, float scale, float offset) {
  scale_each(values, count, scale, offset);
}
static void scale_all(tdict_stream_kind kind, float *values, size_t count, float scale, float offset) {
  if (kind == TDICT_STREAM_AVX512)
    scale_512(values, count, scale, offset);
  else if (kind == TDICT_STREAM_AVX2)
    scale_256(values, count, scale, offset);
  else
    scale_each(values, count, scale, offset);
}
#else
static void scale_all(tdict_stream_kind kind, float *values, size_t count, float scale, float offset) {
  (void)kind;
  scale_each(values, count, scale, offset);
}
#endif

static void cast_scaled(tdict_stream_kind kind, const tdict_cast *c, char *dst, const char *src, size_t count) {
  const size_t to_bytes = tdict_dtype_bytes(c->to), from_bytes = tdict_dtype_bytes(c->from);
  float values[BLOCK];
  for (size_t at = 0, some; at < count; at += some) {
    some = count - at < BLOCK ? count - at : BLOCK;
    (void)tdict_convert_vector(kind, TDICT_F32, values, c->from, src + at * from_bytes, some);
    scale_all(kind, values, some, c->scale, c->offset);
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
