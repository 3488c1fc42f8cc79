/* Converts single elements slowly, for comparison. Values are held exactly in a long double. The nearest float is one
 * of the two beside the value. Uses no library code. Thread rule: one thread. */
#ifndef TDICT_TESTS_CORE_TENSOR_NAIVE_CONVERT_H
#define TDICT_TESTS_CORE_TENSOR_NAIVE_CONVERT_H

#include <math.h>

#include "naive.h"

typedef struct naive_dtype {
  tdict_dtype dtype;
  char kind; /* i: signed, u: unsigned, b: bool, f: float */
  int bits, mantissa;
} naive_dtype;
static const naive_dtype naive_dtypes[] = {
    {TDICT_I8, 'i', 8, 0},    {TDICT_I16, 'i', 16, 0},   {TDICT_I32, 'i', 32, 0},   {TDICT_I64, 'i', 64, 0},
    {TDICT_U8, 'u', 8, 0},    {TDICT_U16, 'u', 16, 0},   {TDICT_U32, 'u', 32, 0},   {TDICT_U64, 'u', 64, 0},
    {TDICT_BOOL, 'b', 8, 0},  {TDICT_F16, 'f', 16, 10},  {TDICT_BF16, 'f', 16, 7},  {TDICT_F32, 'f', 32, 23},
    {TDICT_F64, 'f', 64, 52}, {TDICT_F8E4M3, 'f', 8, 3}, {TDICT_F8E5M2, 'f', 8, 2},
};
enum { NAIVE_DTYPES = sizeof naive_dtypes / sizeof *naive_dtypes };

static inline const naive_dtype *naive_find(tdict_dtype dtype) {
  for (int i = 0; i < NAIVE_DTYPES; i++)
    if (naive_dtypes[i].dtype == dtype) return &naive_dtypes[i];
  fail_msg("no such dtype");
  return NULL;
}

/* Returns 2 to the power of `exponent`. Caches the powers, because ldexpl() would take most of the time. */
static inline long double naive_power(int exponent) {
  enum { MOST = 1200 };
  static long double powers[2 * MOST];
  long double *power = &powers[MOST + exponent];
  if (*power == 0) *power = ldexpl(1, exponent);
  return *power;
}
/* Returns the magnitude of a float whose sign bit is 0. Does not treat the largest exponent as infinity or NaN. */
static inline long double naive_magnitude(const naive_dtype *d, uint64_t bits) {
  const int places = d->bits - 1 - d->mantissa, bias = (1 << (places - 1)) - 1, exponent = (int)(bits >> d->mantissa);
  const uint64_t one = (uint64_t)1 << d->mantissa, low = bits & (one - 1);
  return (long double)(exponent ? low + one : low) * naive_power((exponent ? exponent : 1) - bias - d->mantissa);
}
/* Returns the bits of the smallest magnitude that is not a finite number. */
static inline uint64_t naive_top(const naive_dtype *d) {
  const uint64_t all = ((uint64_t)1 << (d->bits - 1)) - 1;
  return d->dtype == TDICT_F8E4M3 ? all : all >> d->mantissa << d->mantissa;
}
static inline bool naive_is_nan(const naive_dtype *d, uint64_t bits) {
  const uint64_t magnitude = bits & (((uint64_t)1 << (d->bits - 1)) - 1);
  return d->kind == 'f' && (d->dtype == TDICT_F8E4M3 ? magnitude == naive_top(d) : magnitude > naive_top(d));
}

static inline long double naive_value(const naive_dtype *d, uint64_t bits) {
  if (d->kind == 'b') return bits != 0;
  if (d->kind == 'u') return (long double)bits;
  const bool is_negative = bits >> (d->bits - 1) & 1;
  if (d->kind == 'i') return (long double)bits - (is_negative ? ldexpl(1, d->bits) : 0);
  if (naive_is_nan(d, bits)) return (long double)NAN;
  const uint64_t magnitude = bits & (((uint64_t)1 << (d->bits - 1)) - 1);
  const long double value = magnitude == naive_top(d) ? (long double)INFINITY : naive_magnitude(d, magnitude);
  return is_negative ? -value : value;
}

/* Returns the bits of the nearest float. At a tie, returns the even float. */
static inline uint64_t naive_float(const naive_dtype *d, long double value) {
  const uint64_t sign = signbit(value) ? (uint64_t)1 << (d->bits - 1) : 0, top = naive_top(d);
  const int bias = (1 << (d->bits - 2 - d->mantissa)) - 1;
  int exponent;
  if (isnan(value)) return ((uint64_t)1 << (d->bits - 1)) - 1;
  if (value < 0) value = -value;
  if (value >= naive_magnitude(d, top)) return sign | top;
  frexpl(value, &exponent);
  if (exponent < 2 - bias || value == 0) exponent = 2 - bias; /* the floats below have the same distance */
  const uint64_t units = (uint64_t)(value / naive_power(exponent - 1 - d->mantissa));
  const uint64_t low = ((uint64_t)(exponent - 2 + bias) << d->mantissa) + units;
  const long double below = value - naive_magnitude(d, low), above = naive_magnitude(d, low + 1) - value;
  assert_true(below >= 0 && above > 0);
  return sign | (below < above || (below == above && low % 2 == 0) ? low : low + 1);
}

/* Converts the bits of one element. Returns false if the destination cannot hold the value. */
static inline bool naive_convert(const naive_dtype *to, const naive_dtype *from, uint64_t bits, uint64_t *out) {
  long double value = naive_value(from, bits);
  if (to->kind == 'f') {
    *out = naive_float(to, value);
    return true;
  }
  if (to->kind == 'b') {
    *out = !(value == 0);
    return true;
  }
  const long double end = ldexpl(1, to->kind == 'i' ? to->bits - 1 : to->bits), low = to->kind == 'i' ? -end : 0;
  if (!(value > low - 1 && value < end)) return false;
  const uint64_t magnitude = (uint64_t)(value < 0 ? -value : value);
  *out = (value < 0 ? 0 - magnitude : magnitude) & (UINT64_MAX >> (64 - to->bits));
  return true;
}

static inline uint64_t naive_load(const naive_dtype *d, const void *array, size_t i) {
  uint64_t bits = 0;
  memcpy(&bits, (const char *)array + i * (size_t)(d->bits / 8), (size_t)(d->bits / 8));
  return bits;
}
static inline void naive_store(const naive_dtype *d, void *array, size_t i, uint64_t bits) {
  memcpy((char *)array + i * (size_t)(d->bits / 8), &bits, (size_t)(d->bits / 8));
}
/* Returns true if the bits are equal, or if both elements are NaN. */
static inline bool naive_equal(const naive_dtype *d, uint64_t a, uint64_t b) {
  return a == b || (naive_is_nan(d, a) && naive_is_nan(d, b));
}

/* Returns random bits, or bits next to a power of two, a limit of an integer dtype, or a tie between two floats. */
static inline uint64_t naive_bits(naive_random *r, const naive_dtype *d) {
  const uint64_t mask = UINT64_MAX >> (64 - d->bits), random = naive_next(r);
  const naive_dtype *other = &naive_dtypes[naive_below(r, NAIVE_DTYPES)];
  if (d->kind != 'f') {
    const int shift = (int)naive_below(r, d->bits);
    const uint64_t around = ((uint64_t)1 << shift) + (uint64_t)naive_below(r, 5) - 2;
    switch (naive_below(r, 4)) {
    case 0:
      return random & mask;
    case 1:
      return (random >> shift) & mask;
    case 2:
      return around & mask;
    default:
      return (0 - around) & mask;
    }
  }
  const uint64_t top = naive_top(other);
  long double value = other->kind == 'f' ? naive_magnitude(other, random % top) : 0;
  switch (naive_below(r, 5)) {
  case 0:
    return random & mask;
  case 1: /* a limit of an integer dtype, or a number near it */
    value = ldexpl(1, (int)naive_below(r, 66) - 1) + (long double)((int)naive_below(r, 5) - 2) / 2;
    break;
  case 2: /* a float of another dtype, or the midpoint of two such floats */
    if (other->kind == 'f') value = (value + naive_magnitude(other, random % top + 1)) / 2;
    break;
  case 3:
    return (naive_top(d) + (uint64_t)naive_below(r, 3) - 1 + (random >> 63 << (d->bits - 1))) & mask;
  default:
    value = (long double)(random % 2000) / 8;
  }
  const uint64_t near = naive_float(d, naive_below(r, 2) ? -value : value);
  return (near + (uint64_t)naive_below(r, 3) - 1) & mask;
}

#endif
