/* Converts elements to another dtype, with or without vector instructions. Keeps no state. Thread-safe. */
#ifndef TDICT_CORE_TENSOR_CONVERT_H
#define TDICT_CORE_TENSOR_CONVERT_H

#include <stddef.h>

#include "core/base/stream_copy.h"
#include "tdict/values.h"

/* Converts `count` elements, which are adjacent in both arrays. tdict_kernel_converts() must return true for the pair.
 * The addresses need not be aligned. The arrays must not overlap. Returns `count` if all elements were converted. If
 * `to` is an integer dtype, returns the index of the first element that `to` cannot hold. This element and the
 * elements after it are not written. */
size_t tdict_convert_simple(tdict_dtype to, void *dst, tdict_dtype from, const void *src, size_t count);

/* Returns true if tdict_convert_vector() has code with vector instructions of `kind` for the pair. */
bool tdict_convert_has_vector(tdict_stream_kind kind, tdict_dtype to, tdict_dtype from);
/* Converts like tdict_convert_simple(), with vector instructions of `kind` if tdict_convert_has_vector() returns true
 * for the pair. On aarch64, every `kind` means NEON and ordinary stores. The processor must support `kind`. The bits of
 * a NaN can differ from the result of tdict_convert_simple(). If vector instructions are used and the result has 4 MiB
 * or more of aligned elements, writes most of the result with stores that bypass the cache, and then calls
 * tdict_stream_fence(). */
size_t tdict_convert_vector(tdict_stream_kind kind, tdict_dtype to, void *dst, tdict_dtype from, const void *src,
                            size_t count);

#endif
