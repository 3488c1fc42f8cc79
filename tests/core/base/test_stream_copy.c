/* Tests each kind of streaming copy with many alignments of the source and the destination. */

#include "core/base/stream_copy.h"
#include "support/test.h"

enum { ROOM = 4096, EDGE = 96 };

/* An unreadable address. Copies may prefetch from it, but must not read it. */
static const void *const nowhere = (const void *)(uintptr_t)(1 << 12);

/* Copies `bytes` bytes and checks them. The next `more` bytes must become zero. No other byte may change. */
static void try_padded(tdict_stream_kind kind, size_t to, size_t from, size_t bytes, size_t more) {
  scoped_bytes block = NULL;
  if (posix_memalign((void **)&block, 4096, 2 * ROOM)) fail_msg("no memory");
  scoped_bytes src = malloc(from + bytes + 1); /* ends after the copied bytes, so a sanitizer reports reads past them */
  assert_non_null(src);
  for (size_t i = 0; i < bytes; i++) src[from + i] = (unsigned char)(i * 7 + i / 251 + 1);
  memset(block, 0xEE, 2 * ROOM);
  if (more)
    tdict_stream_copy_padded(kind, block + EDGE + to, src + from, bytes, bytes + more, more % 3 ? nowhere : NULL);
  else
    tdict_stream_copy(kind, block + EDGE + to, src + from, bytes);
  tdict_stream_fence();
  for (size_t i = 0; i < EDGE + to; i++) assert_int_equal(block[i], 0xEE);
  if (bytes) assert_memory_equal(block + EDGE + to, src + from, bytes);
  for (size_t i = EDGE + to + bytes; i < 2 * ROOM; i++)
    assert_int_equal(block[i], i < EDGE + to + bytes + more ? 0 : 0xEE);
}

static void try_copy(tdict_stream_kind kind, size_t to, size_t from, size_t bytes) {
  try_padded(kind, to, from, bytes, 0);
}

CASE(stream_copy_copies_what_memcpy_does) {
  static const size_t sizes[] = {0, 1, 31, 63, 64, 65, 255, 256, 257, 319, 320, 511, 512, 513, 1000, 2047, 2048, 3900};
  for (int kind = 0; kind < TDICT_STREAM_KINDS; kind++) {
    if (!tdict_stream_has((tdict_stream_kind)kind)) continue;
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
      for (size_t to = 0; to < 64; to += s < 8 ? 1 : 7)
        for (size_t from = 0; from < 64; from += 9) try_copy((tdict_stream_kind)kind, to, from, sizes[s]);
    for (size_t bytes = 0; bytes < 700; bytes++) try_copy((tdict_stream_kind)kind, bytes % 64, bytes % 5, bytes);
  }
}

CASE(stream_copy_fills_up_with_zeros) {
  for (int kind = 0; kind < TDICT_STREAM_KINDS; kind++) {
    if (!tdict_stream_has((tdict_stream_kind)kind)) continue;
    for (size_t bytes = 0; bytes < 700; bytes += bytes < 250 ? 17 : 1)
      for (size_t more = 1; more < 260; more += 1 + more / 3)
        try_padded((tdict_stream_kind)kind, bytes % 64, 3, bytes, more);
    try_padded((tdict_stream_kind)kind, 32, 0, 4000 - 256, 96);
    try_padded((tdict_stream_kind)kind, 32, 0, 4000 - 256, 97);
  }
}

CASE(stream_copy_selects_a_supported_kind) {
  assert_true(tdict_stream_has(TDICT_STREAM_PLAIN));
  assert_true(tdict_stream_has(tdict_stream_best()));
  assert_false(tdict_stream_has(TDICT_STREAM_KINDS));
  for (int kind = (int)tdict_stream_best() + 1; kind < TDICT_STREAM_KINDS; kind++)
    assert_false(tdict_stream_has((tdict_stream_kind)kind));
#if defined(__x86_64__)
  assert_true(tdict_stream_best() >= TDICT_STREAM_SSE2);
#endif
}
