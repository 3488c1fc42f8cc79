/* Converts elements to another dtype, with or without vector instructions. Keeps no state. Thread-safe. */
#ifndef TDICT_CORE_TENSOR_CONVERT_H
#define TDICT_CORE_TENSOR_CONVERT_H

#include <stddef.h>

#include "core/base/stream_copy.h"
#include "tdict/values.h"

/* Converts `count` adjacent elements of a pair of tdict_kernel_converts(). The addresses need not be aligned, and must
 * not overlap. Returns `count`, or the index of the first element that the integer dtype `to` cannot hold. From there
 * on, nothing is written. */
size_t tdict_convert_simple(tdict_dtype to, void *dst, tdict_dtype from, const void *src, size_t count);

/* Returns true if tdict_convert_vector() has code with vector instructions of `kind` for the pair. */
bool tdict_convert_has_vector(tdict_stream_kind kind, tdict_dtype to, tdict_dtype from);
/* Converts like tdict_convert_simple(), with vector instructions of `kind` if tdict_convert_has_vector() is true. The
 * processor must support `kind`, which means NEON on aarch64. The bits of a NaN can differ. From 4 MiB of aligned
 * elements on, most stores bypass the cache, and tdict_stream_fence() follows. */
size_t tdict_convert_vector(tdict_stream_kind kind, tdict_dtype to, void *dst, tdict_dtype from, const void *src,
                            size_t count);

#endif
