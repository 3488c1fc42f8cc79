/* Copies to memory that this core will not read soon. All stores but TDICT_STREAM_PLAIN bypass the cache, so a device
 * need not fetch lines from this core's cache. Keeps no state; thread-safe. */
#ifndef TDICT_CORE_BASE_STREAM_COPY_H
#define TDICT_CORE_BASE_STREAM_COPY_H

#include <stdbool.h>
#include <stddef.h>

typedef enum tdict_stream_kind {
  TDICT_STREAM_PLAIN, /* ordinary stores; works on every processor */
  TDICT_STREAM_SSE2,
  TDICT_STREAM_AVX2,
  TDICT_STREAM_AVX512,
  TDICT_STREAM_KINDS
} tdict_stream_kind;

/* Returns the widest kind of stores that this processor supports. */
tdict_stream_kind tdict_stream_best(void);
bool tdict_stream_has(tdict_stream_kind kind);
/* Copies `bytes` bytes. The ranges must not overlap, and the processor must support `kind`. Before other threads or
 * devices read the bytes, the same thread must call tdict_stream_fence(). A copy uses ordinary stores if its
 * destination contains no block of 256 bytes that starts at a cache line. */
void tdict_stream_copy(tdict_stream_kind kind, void *to, const void *from, size_t bytes);
/* Copies like tdict_stream_copy(), then sets the bytes [bytes, padded) of `to` to zero. `padded` must be at least
 * `bytes`. If the zeros reach the end of a cache line, the processor can write the line without reading it first.
 * `ahead` points to the bytes that the next copy will read, or is NULL. If `ahead` is not NULL, the function also
 * prefetches at most `bytes` bytes at `ahead`. If `ahead` is not NULL and the processor has AVX-512, a copy with
 * ordinary stores also prefetches its destination, 1024 bytes in advance. Prefetched addresses need not be mapped. */
void tdict_stream_copy_padded(tdict_stream_kind kind, void *to, const void *from, size_t bytes, size_t padded,
                              const void *ahead);
/* Makes all earlier streaming stores of this thread visible to other threads and devices. */
void tdict_stream_fence(void);

#endif
