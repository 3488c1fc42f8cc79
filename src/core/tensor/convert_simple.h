/* Converts elements to another dtype, without vector instructions. Keeps no state. Thread-safe. */
#ifndef TDICT_CORE_TENSOR_CONVERT_SIMPLE_H
#define TDICT_CORE_TENSOR_CONVERT_SIMPLE_H

#include <stddef.h>

#include "tdict/values.h"

/* Returns true if tdict_convert_simple() supports the pair: both dtypes are known and have one lane, and a complex
 * dtype is converted only to a complex dtype. */
bool tdict_convert_supports(tdict_dtype to, tdict_dtype from);
/* Converts `count` elements, which are adjacent in both arrays. The addresses need not be aligned. The arrays must not
 * overlap. Returns `count` if all elements were converted. If `to` is an integer dtype, returns the index of the first
 * element that `to` cannot hold. In this case, the elements of `dst` are unspecified. */
size_t tdict_convert_simple(tdict_dtype to, void *dst, tdict_dtype from, const void *src, size_t count);

#endif
