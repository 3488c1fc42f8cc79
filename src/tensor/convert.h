/* Numbers as elements of a dtype. Pure functions; thread-safe. */
#ifndef TDICT_TENSOR_CONVERT_H
#define TDICT_TENSOR_CONVERT_H

#include "tdict/values.h"

/* True for the integer and float types that tdict_convert_double() knows: one lane, and neither bool, complex nor a
 * float of 8 bits. */
bool tdict_convert_knows(tdict_dtype dtype);
/* Writes `value` as one element of `dtype`: floats rounded to the nearest (ties to even), infinite when too large;
 * integers truncated. False, with nothing written, when an integer type cannot hold it or the dtype is not known. */
bool tdict_convert_double(tdict_dtype dtype, double value, void *element);

#endif
