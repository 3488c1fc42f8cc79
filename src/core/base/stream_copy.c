/* Implements streaming copies for each tdict_stream_kind. See stream_copy.h for ownership and threads. */
#include "core/base/stream_copy.h"

#include <stdint.h>
#include <string.h>

enum { LINE_BYTES = 64, BLOCK_BYTES = 4 * LINE_BYTES, WRITE_PREFETCH_BYTES = 1024 };

/* Prefetches for reading into the second-level cache. The first is too small for data that is needed later. */
static inline void prefetch_to_read(const char *ahead) {
  for (size_t at = 0; at < BLOCK_BYTES; at += LINE_BYTES) __builtin_prefetch(ahead + at, 0, 2);
}

/* Prefetches a block for writing: takes ownership of the block's cache lines from other cores in advance. The
 * instruction is illegal on some old processors, so call this function only if the processor has AVX-512. */
static inline void prefetch_to_write(const char *dst) {
#if defined(__x86_64__) && defined(__GNUC__)
  for (size_t at = 0; at < BLOCK_BYTES; at += LINE_BYTES) __asm__ volatile("prefetchw %0" : : "m"(dst[at]));
#else
  (void)dst;
#endif
}

/* Copies with ordinary stores. If `ahead` is not NULL, prefetches whole blocks at `ahead` for reading. If the processor
 * has AVX-512, a copy with an `ahead` also prefetches the destination for writing. */
static void copy_cached(char *dst, const char *src, size_t bytes, const char *ahead) {
  const bool has_prefetchw = ahead && tdict_stream_has(TDICT_STREAM_AVX512);
  size_t at = 0;
  for (; ahead && bytes - at >= BLOCK_BYTES; at += BLOCK_BYTES) {
    if (has_prefetchw) prefetch_to_write(dst + WRITE_PREFETCH_BYTES + at);
    prefetch_to_read(ahead + at);
    for (size_t k = at; k < at + BLOCK_BYTES; k += LINE_BYTES) memcpy(dst + k, src + k, LINE_BYTES);
  }
  if (bytes > at) memcpy(dst + at, src + at, bytes - at);
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

bool tdict_stream_has(tdict_stream_kind kind) {
  switch (kind) {
  case TDICT_STREAM_PLAIN:
  case TDICT_STREAM_SSE2: /* part of every x86-64 */
    return true;
  case TDICT_STREAM_AVX2:
    return __builtin_cpu_supports("avx2") != 0;
  case TDICT_STREAM_AVX512:
    return __builtin_cpu_supports("avx512f") != 0;
  case TDICT_STREAM_KINDS:
    break;
  }
  return false;
}

/* The next three copy whole lines or blocks to an aligned `dst`, and prefetch at `ahead` if it is not NULL. */
static void copy_lines_sse2(char *dst, const char *src, size_t bytes, const char *ahead) {
  for (size_t at = 0; at < bytes; at += LINE_BYTES) {
    if (ahead) __builtin_prefetch(ahead + at, 0, 2);
    const __m128i a = _mm_loadu_si128((const __m128i *)(const void *)(src + at));
    const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(src + at + 16));
    const __m128i c = _mm_loadu_si128((const __m128i *)(const void *)(src + at + 32));
    const __m128i d = _mm_loadu_si128((const __m128i *)(const void *)(src + at + 48));
    _mm_stream_si128((__m128i *)(void *)(dst + at), a);
    _mm_stream_si128((__m128i *)(void *)(dst + at + 16), b);
    _mm_stream_si128((__m128i *)(void *)(dst + at + 32), c);
    _mm_stream_si128((__m128i *)(void *)(dst + at + 48), d);
  }
}

__attribute__((target("avx2"))) static void copy_blocks_avx2(char *dst, const char *src, size_t bytes,
                                                             const char *ahead) {
  for (size_t at = 0; at < bytes; at += (size_t)2 * LINE_BYTES) {
    if (ahead && at % BLOCK_BYTES == 0) prefetch_to_read(ahead + at);
    const __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)(src + at));
    const __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(src + at + 32));
    const __m256i c = _mm256_loadu_si256((const __m256i *)(const void *)(src + at + 64));
    const __m256i d = _mm256_loadu_si256((const __m256i *)(const void *)(src + at + 96));
    _mm256_stream_si256((__m256i *)(void *)(dst + at), a);
    _mm256_stream_si256((__m256i *)(void *)(dst + at + 32), b);
    _mm256_stream_si256((__m256i *)(void *)(dst + at + 64), c);
    _mm256_stream_si256((__m256i *)(void *)(dst + at + 96), d);
  }
}

__attribute__((target("avx512f"))) static void copy_blocks_avx512(char *dst, const char *src, size_t bytes,
                                                                  const char *ahead) {
  for (size_t at = 0; at < bytes; at += BLOCK_BYTES) {
    if (ahead) prefetch_to_read(ahead + at);
    const __m512i a = _mm512_loadu_si512(src + at);
    const __m512i b = _mm512_loadu_si512(src + at + 64);
    const __m512i c = _mm512_loadu_si512(src + at + 128);
    const __m512i d = _mm512_loadu_si512(src + at + 192);
    _mm512_stream_si512((__m512i *)(void *)(dst + at), a);
    _mm512_stream_si512((__m512i *)(void *)(dst + at + 64), b);
    _mm512_stream_si512((__m512i *)(void *)(dst + at + 128), c);
    _mm512_stream_si512((__m512i *)(void *)(dst + at + 192), d);
  }
}

/* Copies the last bytes of a copy to `dst`, which is the start of a cache line. Then writes zeros up to dst + padded.
 * Writes whole lines where possible, because the processor must read a line before it can write a part of the line. */
static void copy_tail_padded(char *dst, const char *src, size_t bytes, size_t padded) {
  static const char zeros[LINE_BYTES];
  char line[LINE_BYTES] = {0};
  size_t at = bytes / LINE_BYTES * LINE_BYTES;
  copy_lines_sse2(dst, src, at, NULL);
  memcpy(line, src + at, bytes - at);
  if (padded < at + LINE_BYTES) { /* The padding ends within this line. */
    memcpy(dst + at, line, padded - at);
    return;
  }
  copy_lines_sse2(dst + at, line, LINE_BYTES, NULL);
  for (at += LINE_BYTES; at + LINE_BYTES <= padded; at += LINE_BYTES)
    copy_lines_sse2(dst + at, zeros, LINE_BYTES, NULL);
  memset(dst + at, 0, padded - at);
}

void tdict_stream_copy_padded(tdict_stream_kind kind, void *to, const void *from, size_t bytes, size_t padded,
                              const void *ahead) {
  char *dst = to;
  const char *src = from, *next = ahead;
  size_t head = (size_t)(-(uintptr_t)dst % LINE_BYTES);
  /* Use ordinary stores if the caller wants them, or if the destination has no aligned block. */
  if (kind == TDICT_STREAM_PLAIN || bytes < head + BLOCK_BYTES) {
    copy_cached(dst, src, bytes, next);
    if (padded > bytes) memset(dst + bytes, 0, padded - bytes);
    return;
  }
  /* Copy up to the first line boundary, since streaming stores need aligned addresses. */
  memcpy(dst, src, head);
  dst += head, src += head, bytes -= head, padded -= head;
  /* Stream the whole blocks, then the tail. */
  size_t whole = bytes / BLOCK_BYTES * BLOCK_BYTES;
  if (kind == TDICT_STREAM_AVX512)
    copy_blocks_avx512(dst, src, whole, next);
  else if (kind == TDICT_STREAM_AVX2)
    copy_blocks_avx2(dst, src, whole, next);
  else
    copy_lines_sse2(dst, src, whole, next);
  copy_tail_padded(dst + whole, src + whole, bytes - whole, padded - whole);
}

void tdict_stream_fence(void) { _mm_sfence(); }

#else

bool tdict_stream_has(tdict_stream_kind kind) { return kind == TDICT_STREAM_PLAIN; }

void tdict_stream_copy_padded(tdict_stream_kind kind, void *to, const void *from, size_t bytes, size_t padded,
                              const void *ahead) {
  (void)kind;
  copy_cached(to, from, bytes, ahead);
  if (padded > bytes) memset((char *)to + bytes, 0, padded - bytes);
}

void tdict_stream_fence(void) {}

#endif

void tdict_stream_copy(tdict_stream_kind kind, void *to, const void *from, size_t bytes) {
  tdict_stream_copy_padded(kind, to, from, bytes, bytes, NULL);
}

tdict_stream_kind tdict_stream_best(void) {
  int kind = TDICT_STREAM_KINDS - 1;
  while (!tdict_stream_has((tdict_stream_kind)kind)) kind--;
  return (tdict_stream_kind)kind;
}
