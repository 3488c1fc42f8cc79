/* Converts numbers to elements of a dtype, and small floats to numbers. Pure functions; thread-safe. */
#ifndef TDICT_CORE_TENSOR_CONVERT_H
#define TDICT_CORE_TENSOR_CONVERT_H

#include "tdict/values.h"

/* Returns true for the types that tdict_convert_double() supports: integers and floats. Types with several lanes are
 * not supported. */
bool tdict_convert_knows(tdict_dtype dtype);
/* Writes `value` as one element of `dtype`. If `dtype` is a float type, rounds the value to nearest, ties to even; a
 * value that is too large becomes infinite, or NaN if the type has no infinity. If `dtype` is an integer type,
 * truncates the value toward zero. Returns false and writes nothing if an integer type cannot hold the value or the
 * dtype is not supported. */
bool tdict_convert_double(tdict_dtype dtype, double value, void *element);

/* The layout of a float of at most 16 bits. The sign bit is above the exponent. */
typedef struct tdict_small_float {
  int mantissa, exponent; /* numbers of stored bits */
  bool has_infinity;      /* false: numbers that are too large become NaN */
  unsigned top;           /* smallest magnitude bits that are not finite: infinity, or the only NaN */
} tdict_small_float;
/* Returns the layout of float16, bfloat16, float8_e4m3fn or float8_e5m2, and NULL for any other dtype. */
const tdict_small_float *tdict_small_float_of(tdict_dtype dtype);
/* Returns the bits of the small float. Rounds to nearest, ties to even. A NaN stays NaN. */
unsigned tdict_small_float_encode(const tdict_small_float *layout, double value);
/* Returns the exact value of the small float. Does not compute with subnormal numbers, because the processor can be set
 * to treat such numbers as zero. */
double tdict_small_float_decode(const tdict_small_float *layout, unsigned bits);

#endif
