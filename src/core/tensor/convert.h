/* Converts elements to another dtype, without vector instructions. Keeps no state. Thread-safe. */
#ifndef TDICT_CORE_TENSOR_CONVERT_H
#define TDICT_CORE_TENSOR_CONVERT_H

#include <stddef.h>

#include "tdict/values.h"

/* Converts `count` elements, which are adjacent in both arrays. tdict_kernel_converts() must return true for the pair.
 * The addresses need not be aligned. The arrays must not overlap. Returns `count` if all elements were converted. If
 * `to` is an integer dtype, returns the index of the first element that `to` cannot hold. This element and the
 * elements after it are not written. */
size_t tdict_convert_simple(tdict_dtype to, void *dst, tdict_dtype from, const void *src, size_t count);

#endif
