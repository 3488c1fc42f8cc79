/* Converts numbers from one element type to another. The kernels and the host compile this header, so the results have
 * equal bits. Floats are unpacked, rounded and packed with integer arithmetic, so the results do not depend on how a
 * processor treats subnormal numbers. Only the scaling of elements and conversions through float32 compute with floats.
 * The sums and products of the latter are the same if subnormal numbers of float32 count as 0. The kernels are compiled
 * as CUDA C, so this header includes no header of the library except words.h. Pure functions; thread-safe. */
#ifndef TDICT_CORE_KERNEL_NUMBER_H
#define TDICT_CORE_KERNEL_NUMBER_H

#include "core/kernel/words.h"

#ifdef __CUDA__
#define TDICT_BODY static inline __attribute__((device, always_inline))
#else
#define TDICT_BODY static inline __attribute__((always_inline))
#endif

TDICT_BODY unsigned tdict_type_bytes(unsigned type) {
  switch (type) {
  case TDICT_KERNEL_I8:
  case TDICT_KERNEL_U8:
  case TDICT_KERNEL_BOOL:
  case TDICT_KERNEL_F8E4M3:
  case TDICT_KERNEL_F8E5M2:
    return 1;
  case TDICT_KERNEL_I16:
  case TDICT_KERNEL_U16:
  case TDICT_KERNEL_F16:
  case TDICT_KERNEL_BF16:
    return 2;
  case TDICT_KERNEL_I32:
  case TDICT_KERNEL_U32:
  case TDICT_KERNEL_F32:
    return 4;
  default:
    return 8;
  }
}
TDICT_BODY int tdict_type_is_float(unsigned type) { return type >= TDICT_KERNEL_F16; }
TDICT_BODY int tdict_type_is_signed(unsigned type) { return type <= TDICT_KERNEL_I64; }

/* The layout of a float type. The sign bit is above the exponent. */
typedef struct tdict_float_layout {
  int mantissa, exponent; /* numbers of stored bits */
  int has_infinity;       /* 0: numbers that are too large become NaN */
  uint64_t top;           /* smallest magnitude bits that are not finite: infinity, or the only NaN */
} tdict_float_layout;
TDICT_BODY tdict_float_layout tdict_layout_of(unsigned type) {
  const tdict_float_layout f16 = {10, 5, 1, 0x7c00}, bf16 = {7, 8, 1, 0x7f80}, e4m3 = {3, 4, 0, 0x7f};
  const tdict_float_layout e5m2 = {2, 5, 1, 0x7c}, f32 = {23, 8, 1, 0x7f800000};
  const tdict_float_layout f64 = {52, 11, 1, (uint64_t)0x7ff << 52};
  switch (type) {
  case TDICT_KERNEL_F16:
    return f16;
  case TDICT_KERNEL_BF16:
    return bf16;
  case TDICT_KERNEL_F8E4M3:
    return e4m3;
  case TDICT_KERNEL_F8E5M2:
    return e5m2;
  case TDICT_KERNEL_F32:
    return f32;
  default:
    return f64;
  }
}

typedef enum tdict_number_kind { TDICT_NUMBER_FINITE, TDICT_NUMBER_INFINITE, TDICT_NUMBER_NAN } tdict_number_kind;
/* A number of any type: significand * 2^(exponent - 63), with bit 63 of the significand set. Zero has significand 0. */
typedef struct tdict_number {
  tdict_number_kind kind;
  int is_negative, exponent;
  uint64_t significand;
} tdict_number;

/* Moves the highest set bit to bit 63. */
TDICT_BODY void tdict_number_normalize(tdict_number *n) {
  if (n->significand == 0) return;
  const int shift = __builtin_clzll(n->significand);
  n->significand <<= shift;
  n->exponent -= shift;
}

TDICT_BODY tdict_number tdict_unpack_float(tdict_float_layout f, uint64_t bits) {
  const int places = f.mantissa + f.exponent;
  const uint64_t magnitude = bits & (((uint64_t)1 << places) - 1);
  tdict_number n = {TDICT_NUMBER_FINITE, (int)(bits >> places & 1), 0, 0};
  if (magnitude >= f.top) {
    n.kind = magnitude > f.top || !f.has_infinity ? TDICT_NUMBER_NAN : TDICT_NUMBER_INFINITE;
    return n;
  }
  int biased = (int)(magnitude >> f.mantissa);
  n.significand = magnitude << (63 - f.mantissa);
  if (biased == 0) {
    biased = 1; /* subnormal: no implicit bit */
    n.significand &= ~((uint64_t)1 << 63);
  } else {
    n.significand |= (uint64_t)1 << 63;
  }
  n.exponent = biased - ((1 << (f.exponent - 1)) - 1);
  tdict_number_normalize(&n);
  return n;
}

/* Rounds to nearest, ties to even. A number that is too large becomes infinite, or NaN if the type has no infinity. */
TDICT_BODY uint64_t tdict_pack_float(tdict_float_layout f, const tdict_number *n) {
  const uint64_t sign = (uint64_t)n->is_negative << (f.mantissa + f.exponent);
  if (n->kind == TDICT_NUMBER_NAN) return sign | f.top | (uint64_t)1 << (f.mantissa - 1);
  if (n->kind == TDICT_NUMBER_INFINITE) return sign | f.top;
  if (n->significand == 0) return sign;
  int shift = 63 - f.mantissa, biased = n->exponent + (1 << (f.exponent - 1)) - 1;
  if (biased <= 0) { /* subnormal: fewer bits are kept */
    shift += 1 - biased;
    biased = 1;
  }
  if (biased >= 1 << f.exponent) return sign | f.top;
  uint64_t kept = 0; /* a shift of 65 or more bits rounds to 0 */
  if (shift <= 63) {
    const uint64_t rest = n->significand & (((uint64_t)1 << shift) - 1), half = (uint64_t)1 << (shift - 1);
    kept = n->significand >> shift;
    kept += rest > half || (rest == half && (kept & 1));
  } else if (shift == 64) {
    kept = n->significand > (uint64_t)1 << 63;
  }
  /* The implicit leading bit adds one to the exponent. A carry out of the mantissa also adds one. */
  const uint64_t magnitude = ((uint64_t)(biased - 1) << f.mantissa) + kept;
  return sign | (magnitude < f.top ? magnitude : f.top);
}

/* Reads an integer or a bool. */
TDICT_BODY tdict_number tdict_unpack_integer(unsigned type, uint64_t bits) {
  const int unused = 64 - 8 * (int)tdict_type_bytes(type);
  if (type == TDICT_KERNEL_BOOL) bits = bits != 0;
  tdict_number n = {TDICT_NUMBER_FINITE, tdict_type_is_signed(type) && bits >> (63 - unused) & 1, 63, bits};
  if (n.is_negative) n.significand = (0 - (bits << unused)) >> unused;
  tdict_number_normalize(&n);
  return n;
}

/* Truncates toward zero. Returns 0 if the type cannot hold the number. */
TDICT_BODY int tdict_pack_integer(unsigned type, const tdict_number *n, uint64_t *out) {
  const int bits = 8 * (int)tdict_type_bytes(type), is_signed = tdict_type_is_signed(type);
  if (n->kind != TDICT_NUMBER_FINITE) return 0;
  uint64_t magnitude = 0;
  if (n->significand != 0 && n->exponent >= 0) {
    if (n->exponent > 63) return 0;
    magnitude = n->significand >> (63 - n->exponent);
  }
  uint64_t highest = ~(uint64_t)0 >> (64 - bits + is_signed);
  if (n->is_negative) highest = is_signed ? highest + 1 : 0;
  if (magnitude > highest) return 0;
  *out = n->is_negative ? 0 - magnitude : magnitude;
  return 1;
}

TDICT_BODY float tdict_f32_of(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}
TDICT_BODY uint32_t tdict_f32_bits(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return bits;
}

/* Computes x * scale + offset in float32, rounded after each operation. */
TDICT_BODY float tdict_scale_f32(float x, uint64_t scale_offset) {
  x = x * tdict_f32_of((uint32_t)scale_offset);
  x = x + tdict_f32_of((uint32_t)(scale_offset >> 32));
  return x;
}
TDICT_BODY tdict_number tdict_scale_number(const tdict_number *x, uint64_t scale_offset) {
  const tdict_float_layout f32 = tdict_layout_of(TDICT_KERNEL_F32);
  const float value = tdict_f32_of((uint32_t)tdict_pack_float(f32, x));
  return tdict_unpack_float(f32, tdict_f32_bits(tdict_scale_f32(value, scale_offset)));
}

/* Extends an integer to 64 bits. */
TDICT_BODY uint64_t tdict_extend_integer(unsigned type, uint64_t bits) {
  const unsigned unused = 64 - 8 * tdict_type_bytes(type);
  return tdict_type_is_signed(type) ? (uint64_t)((int64_t)(bits << unused) >> unused) : bits << unused >> unused;
}

/* Converts an integer or a bool. Returns 0 if the integer type `to` cannot hold the number. */
TDICT_BODY int tdict_convert_integer(unsigned to, unsigned from, uint64_t bits, uint64_t *out) {
  const uint64_t number = from == TDICT_KERNEL_BOOL ? bits != 0 : tdict_extend_integer(from, bits);
  const int is_negative = tdict_type_is_signed(from) && number >> 63;
  if (tdict_extend_integer(to, number) != number || is_negative != (tdict_type_is_signed(to) && number >> 63)) return 0;
  *out = number;
  return 1;
}

/* A pair of types, and the words of the scale and the flags. */
typedef struct tdict_type_pair {
  unsigned to, from, flags;
  uint64_t scale_offset;
} tdict_type_pair;

/* Every number of these types is a number of float32. So kernels convert their elements to floats of 16 and 32 bits
 * through float32. The results are those of tdict_convert_bits(), except for bits of a NaN, in fewer instructions. */
enum {
  TDICT_WIDENED_TYPES = 1 << TDICT_KERNEL_I8 | 1 << TDICT_KERNEL_U8 | 1 << TDICT_KERNEL_BOOL | 1 << TDICT_KERNEL_I16 |
                        1 << TDICT_KERNEL_U16 | 1 << TDICT_KERNEL_F16 | 1 << TDICT_KERNEL_BF16 | 1 << TDICT_KERNEL_F32,
  TDICT_NARROWED_TYPES = 1 << TDICT_KERNEL_F16 | 1 << TDICT_KERNEL_BF16 | 1 << TDICT_KERNEL_F32
};
TDICT_BODY int tdict_goes_through_f32(const tdict_type_pair *c) {
  return TDICT_WIDENED_TYPES >> c->from & TDICT_NARROWED_TYPES >> c->to & 1 &&
         (c->to != c->from || c->flags & TDICT_FLAG_SCALED);
}

TDICT_BODY float tdict_widen_f16(uint32_t bits) {
  const uint32_t sign = (bits & 0x8000) << 16, magnitude = bits & 0x7fff;
  const uint32_t normal = (magnitude << 13) + (magnitude < 0x7c00 ? 0x38000000 : 0x70000000); /* or infinity, NaN */
  const uint32_t subnormal = tdict_f32_bits((float)magnitude * 0x1p-24f);
  return tdict_f32_of(sign | (magnitude < 0x400 ? subnormal : normal));
}
/* Converts an element of TDICT_WIDENED_TYPES to float32. */
TDICT_BODY float tdict_widen(unsigned from, uint32_t bits) {
  switch (from) {
  case TDICT_KERNEL_I8:
    return (float)(int8_t)bits;
  case TDICT_KERNEL_U8:
    return (float)(uint8_t)bits;
  case TDICT_KERNEL_BOOL:
    return bits ? 1.0f : 0.0f;
  case TDICT_KERNEL_I16:
    return (float)(int16_t)bits;
  case TDICT_KERNEL_U16:
    return (float)(uint16_t)bits;
  case TDICT_KERNEL_F16:
    return tdict_widen_f16(bits);
  case TDICT_KERNEL_BF16:
    return tdict_f32_of(bits << 16);
  default:
    return tdict_f32_of(bits);
  }
}

TDICT_BODY uint32_t tdict_narrow_to_bf16(float value) {
  const uint32_t bits = tdict_f32_bits(value);
  return (value != value ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
TDICT_BODY uint32_t tdict_narrow_to_f16(float value) {
  const uint32_t bits = tdict_f32_bits(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  const uint32_t rebased = magnitude - 0x38000000, normal = (rebased + 0xfff + (rebased >> 13 & 1)) >> 13;
  /* the last bit of a float32 from 0.5 to 1 is worth as much as the last bit of a subnormal float16 */
  const uint32_t subnormal = tdict_f32_bits(tdict_f32_of(magnitude) + 0.5f) - tdict_f32_bits(0.5f);
  if (magnitude >= 0x47800000) return sign | (value != value ? 0x7e00 : 0x7c00); /* 65536 or more */
  return sign | (magnitude < 0x38800000 ? subnormal : normal);
}
/* Rounds a float32 to a type of TDICT_NARROWED_TYPES: to nearest, ties to even. Numbers that are too large become
 * infinite. */
TDICT_BODY uint32_t tdict_narrow(unsigned to, float value) {
  return to == TDICT_KERNEL_F32   ? tdict_f32_bits(value)
         : to == TDICT_KERNEL_F16 ? tdict_narrow_to_f16(value)
                                  : tdict_narrow_to_bf16(value);
}

/* Converts an element if tdict_goes_through_f32() returns true. */
TDICT_BODY uint64_t tdict_convert_through_f32(const tdict_type_pair *c, uint64_t bits) {
  const float value = tdict_widen(c->from, (uint32_t)bits);
  return tdict_narrow(c->to, c->flags & TDICT_FLAG_SCALED ? tdict_scale_f32(value, c->scale_offset) : value);
}

/* Converts the bits of an element. Returns 0 if the integer type `to` cannot hold the number. */
TDICT_BODY int tdict_convert_bits(const tdict_type_pair *c, uint64_t bits, uint64_t *out) {
  if (c->to == c->from && c->to != TDICT_KERNEL_BOOL && !(c->flags & TDICT_FLAG_SCALED)) {
    *out = bits; /* NaNs keep their bits, too */
    return 1;
  }
  if (!tdict_type_is_float(c->from) && c->to < TDICT_KERNEL_BOOL && !(c->flags & TDICT_FLAG_SCALED))
    return tdict_convert_integer(c->to, c->from, bits, out);
  tdict_number n = tdict_type_is_float(c->from) ? tdict_unpack_float(tdict_layout_of(c->from), bits)
                                                : tdict_unpack_integer(c->from, bits);
  if (c->flags & TDICT_FLAG_SCALED) n = tdict_scale_number(&n, c->scale_offset);
  if (c->to == TDICT_KERNEL_BOOL) {
    *out = n.kind != TDICT_NUMBER_FINITE || n.significand != 0;
    return 1;
  }
  if (!tdict_type_is_float(c->to)) return tdict_pack_integer(c->to, &n, out);
  *out = tdict_pack_float(tdict_layout_of(c->to), &n);
  return 1;
}

#endif
