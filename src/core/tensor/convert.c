/* Converts numbers to elements of a dtype, and small floats to numbers. Owns nothing. Thread-safe. */
#include "core/tensor/convert.h"

#include <string.h>

enum { CODE_INT = 0, CODE_UINT = 1, CODE_FLOAT = 2 }; /* larger codes are those of small floats */

bool tdict_convert_knows(tdict_dtype dtype) {
  unsigned code = dtype & 0xffu;
  return tdict_dtype_bytes(dtype) != 0 && dtype >> 16 == 1 && (code <= CODE_FLOAT || tdict_small_float_of(dtype));
}

const tdict_small_float *tdict_small_float_of(tdict_dtype dtype) {
  static const tdict_small_float f16 = {10, 5, true, 0x7c00}, bf16 = {7, 8, true, 0x7f80};
  static const tdict_small_float e4m3 = {3, 4, false, 0x7f}, e5m2 = {2, 5, true, 0x7c};
  switch (dtype) {
  case TDICT_F16:
    return &f16;
  case TDICT_BF16:
    return &bf16;
  case TDICT_F8E4M3:
    return &e4m3;
  case TDICT_F8E5M2:
    return &e5m2;
  default:
    return NULL;
  }
}

/* Rounds the bits of the double. Converting to float first would round twice. */
unsigned tdict_small_float_encode(const tdict_small_float *layout, double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  const int mantissa = layout->mantissa;
  const unsigned sign = (unsigned)(bits >> 63) << (layout->exponent + mantissa);
  const uint64_t fraction = bits & (((uint64_t)1 << 52) - 1);
  const int exponent = (int)(bits >> 52 & 0x7ff);
  if (exponent == 0x7ff) return sign | layout->top | (fraction ? 1u << (mantissa - 1) : 0);
  if (exponent == 0) return sign; /* zero or a subnormal double, which rounds to zero */
  uint64_t significand = fraction | (uint64_t)1 << 52;
  int shift = 52 - mantissa, biased = exponent - 1023 + (1 << (layout->exponent - 1)) - 1;
  if (biased <= 0) { /* subnormal: fewer bits are kept */
    shift += 1 - biased;
    biased = 1;
  }
  if (shift > 54) shift = 54;
  uint64_t kept = significand >> shift, rest = significand & (((uint64_t)1 << shift) - 1);
  uint64_t half = (uint64_t)1 << (shift - 1);
  if (rest > half || (rest == half && (kept & 1))) kept++;
  /* The implicit leading bit adds one to the exponent. A carry out of the mantissa also adds one. */
  uint64_t magnitude = ((uint64_t)(biased - 1) << mantissa) + kept;
  return sign | (magnitude < layout->top ? (unsigned)magnitude : layout->top);
}

double tdict_small_float_decode(const tdict_small_float *layout, unsigned bits) {
  const int mantissa = layout->mantissa, places = layout->exponent + mantissa;
  const unsigned magnitude = bits & ((1u << places) - 1), exponent = magnitude >> mantissa;
  const uint64_t sign = (uint64_t)(bits >> places & 1) << 63;
  /* The exponent bias of a double, 1023, less the bias of the small float. */
  const uint64_t scale = (uint64_t)(1024 - (1 << (layout->exponent - 1))) << 52;
  uint64_t wide = ((uint64_t)magnitude << (52 - mantissa)) + scale;
  double value;
  if (magnitude >= layout->top) {
    wide = (uint64_t)0x7ff << 52 | (uint64_t)(magnitude > layout->top || !layout->has_infinity) << 51;
  } else if (exponent == 0) { /* subnormal: the mantissa times the value of its last bit */
    uint64_t unit = scale + ((uint64_t)(1 - mantissa) << 52);
    memcpy(&value, &unit, sizeof value);
    value *= magnitude;
    memcpy(&wide, &value, sizeof wide);
  }
  wide |= sign;
  memcpy(&value, &wide, sizeof value);
  return value;
}

static bool write_float(tdict_dtype dtype, double value, void *element) {
  if (dtype == TDICT_F64) {
    memcpy(element, &value, sizeof value);
  } else if (dtype == TDICT_F32) {
    float single = (float)value;
    memcpy(element, &single, sizeof single);
  } else {
    uint16_t bits = (uint16_t)tdict_small_float_encode(tdict_small_float_of(dtype), value);
    memcpy(element, &bits, tdict_dtype_bytes(dtype)); /* elements are little-endian */
  }
  return true;
}

/* Writes an integer. The low bytes of a 64-bit number are the element, whether the type is signed or not. */
static bool write_integer(bool is_signed, unsigned bits, double value, void *element) {
  double high = 1;
  for (unsigned i = is_signed ? 1 : 0; i < bits; i++) high *= 2;
  double low = is_signed ? -high : 0;
  /* Values between low - 1 and low truncate to low. For int64, the double low - 1 equals low, so the condition also
   * accepts low itself. */
  if (!((value >= low || value > low - 1) && value < high)) return false;
  uint64_t wide = is_signed ? (uint64_t)(int64_t)value : value <= 0 ? 0 : (uint64_t)value;
  uint8_t narrow8 = (uint8_t)wide;
  uint16_t narrow16 = (uint16_t)wide;
  uint32_t narrow32 = (uint32_t)wide;
  const void *from = bits == 8    ? (const void *)&narrow8
                     : bits == 16 ? (const void *)&narrow16
                     : bits == 32 ? (const void *)&narrow32
                                  : (const void *)&wide;
  memcpy(element, from, bits / 8);
  return true;
}

bool tdict_convert_double(tdict_dtype dtype, double value, void *element) {
  if (!tdict_convert_knows(dtype)) return false;
  unsigned code = dtype & 0xffu;
  if (code >= CODE_FLOAT) return write_float(dtype, value, element);
  return write_integer(code == CODE_INT, dtype >> 8 & 0xffu, value, element);
}
