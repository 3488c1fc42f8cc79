/* Converts elements to another dtype, if wanted with a scale and an offset. Keeps no state. Thread-safe. */
#ifndef TDICT_CORE_TENSOR_CAST_H
#define TDICT_CORE_TENSOR_CAST_H

#include "core/base/stream_copy.h"
#include "core/kernel/work.h"

/* Returns true if elements of this pair can be scaled: an integer or bool to a float of 16 bits or more. */
bool tdict_cast_scales(tdict_dtype to, tdict_dtype from);
/* Converts `count` elements like tdict_convert_vector(). If cast->is_scaled is true, converts each element to float32,
 * multiplies by `scale` and rounds the product to float32. Then adds `offset`, rounds the sum to float32, and converts
 * the sum to `to`. For a scaled cast, tdict_cast_scales() must return true for the pair. For any other cast,
 * tdict_kernel_converts() must return true, or the dtypes must be equal. Returns `count`, or the index of the first
 * element that the integer dtype `to` cannot hold. */
size_t tdict_cast_elements(tdict_stream_kind kind, const tdict_cast *cast, void *dst, const void *src, size_t count);

#endif
