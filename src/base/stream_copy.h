/* Copies to memory that this core will not read soon, with stores that bypass the cache. A device that reads the
 * memory then finds no line in this core's cache. Pure functions; thread-safe. */
#ifndef TDICT_BASE_STREAM_COPY_H
#define TDICT_BASE_STREAM_COPY_H

#include <stdbool.h>
#include <stddef.h>

typedef enum tdict_stream_kind {
  TDICT_STREAM_PLAIN, /* ordinary stores; works on every processor */
  TDICT_STREAM_SSE2,
  TDICT_STREAM_AVX2,
  TDICT_STREAM_AVX512,
  TDICT_STREAM_KINDS
} tdict_stream_kind;

/* Returns the widest kind that this processor supports. */
tdict_stream_kind tdict_stream_best(void);
/* Returns true if this processor supports this kind of stores. */
bool tdict_stream_has(tdict_stream_kind kind);
/* Copies `bytes` bytes; the ranges must not overlap. The processor must support `kind`.
 * Before other threads or devices read the bytes, the same thread must call tdict_stream_fence(). */
void tdict_stream_copy(tdict_stream_kind kind, void *to, const void *from, size_t bytes);
/* Copies like tdict_stream_copy(), then writes zeros up to `padded` bytes; padded >= bytes. The last cache line is then
 * written completely, so the processor need not read this line first. Also prefetches `bytes` bytes at `ahead`, in
 * whole blocks of 256 bytes, because the next copy reads these bytes. On processors with AVX-512, ordinary stores also
 * prefetch the destination 1024 bytes ahead. Prefetched addresses need not be mapped. If `ahead` is NULL, nothing is
 * prefetched. */
void tdict_stream_copy_padded(tdict_stream_kind kind, void *to, const void *from, size_t bytes, size_t padded,
                              const void *ahead);
/* Makes all streaming stores of this thread visible to other threads and devices. */
void tdict_stream_fence(void);

#endif
