/* Converts elements. Each pair of dtypes has its own loop, in which both are constants. See convert.h for threads. */
#include "core/tensor/convert.h"

#include <string.h>

#include "core/kernel/number.h"

enum { BLOCK = 256 };

#define INLINE static inline __attribute__((always_inline))

/* Types that the processor converts, faster than tdict_convert_bits() and equal except for bits of a NaN. */
INLINE bool is_native(unsigned type) { return type <= TDICT_KERNEL_BOOL || type >= TDICT_KERNEL_F32; }

/* Converts an integer or a bool. Returns false if the integer type `to` cannot hold the number. */
INLINE bool convert_integer(unsigned to, unsigned from, uint64_t bits, uint64_t *out) {
  const int unused = 64 - 8 * (int)tdict_type_bytes(from);
  if (from == TDICT_KERNEL_BOOL) bits = bits != 0; /* any byte but 0 is true */
  const int64_t value = tdict_type_is_signed(from) ? (int64_t)(bits << unused) >> unused : (int64_t)bits;
  const bool is_negative = from != TDICT_KERNEL_U64 && value < 0;
  const uint64_t highest = UINT64_MAX >> (64 - 8 * tdict_type_bytes(to) + (unsigned)tdict_type_is_signed(to));
  *out = (uint64_t)value;
  if (to == TDICT_KERNEL_F32) { /* directly, because rounding to double first would round twice */
    const float number = from == TDICT_KERNEL_U64 ? (float)bits : (float)value;
    memcpy(out, &number, sizeof number);
  } else if (to == TDICT_KERNEL_F64) {
    const double number = from == TDICT_KERNEL_U64 ? (double)bits : (double)value;
    memcpy(out, &number, sizeof number);
  } else if (to == TDICT_KERNEL_BOOL) {
    *out = value != 0;
  } else {
    return is_negative ? tdict_type_is_signed(to) && value >= -(int64_t)highest - 1 : (uint64_t)value <= highest;
  }
  return true;
}

/* Converts a float32 or a float64. */
INLINE bool convert_real(unsigned to, double value, uint64_t *out) {
  const bool is_signed = tdict_type_is_signed(to);
  const double half = (double)((uint64_t)1 << (8 * tdict_type_bytes(to) - 1)), end = is_signed ? half : 2 * half;
  const double low = is_signed ? -end : 0;
  if (to == TDICT_KERNEL_F32) {
    const float number = (float)value;
    memcpy(out, &number, sizeof number);
  } else if (to == TDICT_KERNEL_F64) {
    memcpy(out, &value, sizeof value);
  } else if (to == TDICT_KERNEL_BOOL) {
    *out = value != 0; /* also true for NaN */
  } else {
    /* Numbers between low - 1 and low truncate to low. For int64, low - 1 rounds to low, so low itself must pass, too.
     * A comparison with NaN is false. */
    if (!((value >= low || value > low - 1) && value < end)) return false;
    *out = value < 0x1p63 ? (uint64_t)(int64_t)value : (uint64_t)value;
  }
  return true;
}

INLINE bool convert_native(unsigned to, unsigned from, uint64_t bits, uint64_t *out) {
  const uint32_t low = (uint32_t)bits;
  float single;
  double number;
  if (from <= TDICT_KERNEL_BOOL) return convert_integer(to, from, bits, out);
  if (from == TDICT_KERNEL_F32) {
    memcpy(&single, &low, sizeof single);
    return convert_real(to, (double)single, out);
  }
  memcpy(&number, &bits, sizeof number);
  return convert_real(to, number, out);
}

/* Reads a little-endian element. gcc vectorizes only if a variable has the element's own size. */
INLINE uint64_t load_bits(const char *at, unsigned bytes) {
  uint8_t bits8;
  uint16_t bits16;
  uint32_t bits32;
  uint64_t bits64;
  if (bytes == 1) return memcpy(&bits8, at, 1), bits8;
  if (bytes == 2) return memcpy(&bits16, at, 2), bits16;
  if (bytes == 4) return memcpy(&bits32, at, 4), bits32;
  return memcpy(&bits64, at, 8), bits64;
}

INLINE size_t convert_pair(unsigned to, unsigned from, char *restrict dst, const char *restrict src, size_t count) {
  const tdict_type_pair pair = {.to = to, .from = from};
  const unsigned to_bytes = tdict_type_bytes(to), from_bytes = tdict_type_bytes(from);
  if (to == from && to != TDICT_KERNEL_BOOL) { /* NaNs keep their bits, too */
    memcpy(dst, src, count * to_bytes);
    return count;
  }
  for (size_t i = 0; i < count; i++) {
    const uint64_t bits = load_bits(src + i * from_bytes, from_bytes);
    uint64_t made = 0;
    if (is_native(to) && is_native(from) ? !convert_native(to, from, bits, &made)
                                         : !tdict_convert_bits(&pair, bits, &made))
      return i;
    memcpy(dst + i * to_bytes, &made, to_bytes);
  }
  return count;
}

#define EACH_TYPE(X, other) \
  X(other, I8)              \
  X(other, I16)             \
  X(other, I32)             \
  X(other, I64)             \
  X(other, U8)              \
  X(other, U16)             \
  X(other, U32)             \
  X(other, U64)             \
  X(other, BOOL)            \
  X(other, F16)             \
  X(other, BF16)            \
  X(other, F8E4M3)          \
  X(other, F8E5M2)          \
  X(other, F32)             \
  X(other, F64)
#define CASE_FROM(to, from) \
  case TDICT_##from:        \
    return convert_pair(TDICT_KERNEL_##to, TDICT_KERNEL_##from, dst, src, count);
/* Defines the function of one dtype. */
#define CONVERT_TO(to)                                                                        \
  static size_t convert_to_##to(void *dst, tdict_dtype from, const void *src, size_t count) { \
    switch (from) {                                                                           \
      EACH_TYPE(CASE_FROM, to)                                                                \
    default:                                                                                  \
      return 0;                                                                               \
    }                                                                                         \
  }
CONVERT_TO(I8)
CONVERT_TO(I16)
CONVERT_TO(I32)
CONVERT_TO(I64)
CONVERT_TO(U8)
CONVERT_TO(U16)
CONVERT_TO(U32)
CONVERT_TO(U64)
CONVERT_TO(BOOL)
CONVERT_TO(F16)
CONVERT_TO(BF16)
CONVERT_TO(F8E4M3)
CONVERT_TO(F8E5M2)
CONVERT_TO(F32)
CONVERT_TO(F64)

/* Converts to complex elements, whose imaginary parts are 0. */
static void convert_to_complex(tdict_dtype part, char *dst, tdict_dtype from, const char *src, size_t count) {
  const size_t bytes = tdict_dtype_bytes(part), from_bytes = tdict_dtype_bytes(from);
  char reals[BLOCK * sizeof(double)];
  memset(dst, 0, 2 * count * bytes);
  for (size_t at = 0; at < count; at += BLOCK) {
    const size_t some = count - at < BLOCK ? count - at : BLOCK;
    (void)tdict_convert_simple(part, reals, from, src + at * from_bytes, some);
    for (size_t i = 0; i < some && bytes == 4; i++) memcpy(dst + 8 * (at + i), reals + 4 * i, 4);
    for (size_t i = 0; i < some && bytes == 8; i++) memcpy(dst + 16 * (at + i), reals + 8 * i, 8);
  }
}

#define CASE_TO(unused, to) \
  case TDICT_##to:          \
    return convert_to_##to(dst, from, src, count);

size_t tdict_convert_simple(tdict_dtype to, void *dst, tdict_dtype from, const void *src, size_t count) {
  const tdict_dtype part = to == TDICT_C64 ? TDICT_F32 : TDICT_F64;
  switch (to) {
    EACH_TYPE(CASE_TO, )
  default: /* complex */
    if (from == TDICT_C64 || from == TDICT_C128)
      (void)tdict_convert_simple(part, dst, from == TDICT_C64 ? TDICT_F32 : TDICT_F64, src, 2 * count);
    else
      convert_to_complex(part, dst, from, src, count);
    return count;
  }
}
