/* Converts numbers to elements of a dtype. Pure functions; thread-safe. */
#ifndef TDICT_TENSOR_CONVERT_H
#define TDICT_TENSOR_CONVERT_H

#include "tdict/values.h"

/* Returns true for the types that tdict_convert_double() supports: integers and floats of 16 bits or more, with one
 * lane. */
bool tdict_convert_knows(tdict_dtype dtype);
/* Writes `value` as one element of `dtype`. Floats are rounded to nearest, ties to even, and become infinite if too
 * large. Integers are truncated.
 * Returns false and writes nothing if an integer type cannot hold the value or the dtype is not supported. */
bool tdict_convert_double(tdict_dtype dtype, double value, void *element);

#endif
