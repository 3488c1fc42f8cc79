/* Copying to memory that this core will not read: stores that pass by the cache, so that a device finds no line there
 * that a core still holds. Pure; thread-safe. */
#ifndef TDICT_BASE_STREAM_COPY_H
#define TDICT_BASE_STREAM_COPY_H

#include <stdbool.h>
#include <stddef.h>

typedef enum tdict_stream_kind {
  TDICT_STREAM_PLAIN, /* common stores: where there are no others */
  TDICT_STREAM_SSE2,
  TDICT_STREAM_AVX2,
  TDICT_STREAM_AVX512,
  TDICT_STREAM_KINDS
} tdict_stream_kind;

/* The widest that this processor has. */
tdict_stream_kind tdict_stream_best(void);
bool tdict_stream_has(tdict_stream_kind kind);
/* Copies; the two do not overlap. Nobody else may count on seeing the bytes before tdict_stream_fence(), called by the
 * same thread. The processor must have the kind. */
void tdict_stream_copy(tdict_stream_kind kind, void *to, const void *from, size_t bytes);
/* The same, and zeros behind the bytes up to `padded`, which is no less: a last line that is written as a whole need not be
 * read before. Meanwhile as many bytes at `ahead`, in whole blocks of 256, are asked for, to be near when they are copied,
 * and with common stores, on processors with AVX-512, lines 1024 bytes behind those that are being written. None of them
 * need be mapped. ahead NULL: nothing is asked for. */
void tdict_stream_copy_padded(tdict_stream_kind kind, void *to, const void *from, size_t bytes, size_t padded,
                              const void *ahead);
void tdict_stream_fence(void);

#endif
