/* Implements MurmurHash3_x64_128. Builds words from bytes, for the same result on all machines. Thread-safe. */
#include "core/schema/hash128.h"

static const uint64_t c1 = 0x87c37b91114253d5u, c2 = 0x4cf5ad432745937fu;

/* Loads up to 8 bytes as a little-endian word. */
static uint64_t load(const uint8_t *bytes, size_t count) {
  uint64_t word = 0;
  for (size_t i = 0; i < count; i++) word |= (uint64_t)bytes[i] << 8 * i;
  return word;
}

static uint64_t rotate(uint64_t word, int by) { return word << by | word >> (64 - by); }
static uint64_t mix_first(uint64_t k) { return rotate(k * c1, 31) * c2; }
static uint64_t mix_second(uint64_t k) { return rotate(k * c2, 33) * c1; }

static uint64_t finish(uint64_t h) {
  h = (h ^ h >> 33) * 0xff51afd7ed558ccdu;
  h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53u;
  return h ^ h >> 33;
}

tdict_hash128 tdict_hash128_of(const void *bytes, size_t count, uint32_t seed) {
  const uint8_t *at = bytes;
  uint64_t first = seed, second = seed;
  size_t left = count;
  for (; left >= 16; at += 16, left -= 16) {
    first = (rotate(first ^ mix_first(load(at, 8)), 27) + second) * 5 + 0x52dce729;
    second = (rotate(second ^ mix_second(load(at + 8, 8)), 31) + first) * 5 + 0x38495ab5;
  }
  /* Mix the last 0 to 15 bytes. A word of no bytes is 0 and changes nothing. */
  if (left > 8) second ^= mix_second(load(at + 8, left - 8));
  first ^= mix_first(load(at, left < 8 ? left : 8));
  first ^= count;
  second ^= count;
  first += second;
  second += first;
  first = finish(first);
  second = finish(second);
  first += second;
  second += first;
  return (tdict_hash128){first, second};
}
