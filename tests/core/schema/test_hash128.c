/* Compares the hash with published values of MurmurHash3_x64_128. */
#include "core/schema/hash128.h"

#include "support/test.h"

CASE(hash128_matches_published_vectors) {
  static const struct {
    const char *text;
    uint64_t lo, hi;
  } vectors[] = {{"", 0, 0},
                 {"hello", 0xcbd8a7b341bd9b02u, 0x5b1e906a48ae1d19u},
                 {"hello, world", 0x342fac623a5ebc8eu, 0x4cdcbc079642414du},
                 {"The quick brown fox jumps over the lazy dog.", 0xcd99481f9ee902c9u, 0x695da1a38987b6e7u},
                 {"The quick brown fox jumps over the lazy dog", 0xe34bbc7bbc071b6cu, 0x7a433ca9c49a9347u}};
  for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
    tdict_hash128 h = tdict_hash128_of(vectors[i].text, strlen(vectors[i].text), 0);
    assert_int_equal(h.lo, vectors[i].lo);
    assert_int_equal(h.hi, vectors[i].hi);
  }
}

/* Computes SMHasher's verification value: the hash of the hashes of 256 keys with different lengths and seeds. */
CASE(hash128_has_the_verification_value) {
  uint8_t key[256], hashes[256 * 16];
  for (int i = 0; i < 256; i++) {
    key[i] = (uint8_t)i;
    tdict_hash128 h = tdict_hash128_of(key, (size_t)i, 256 - (uint32_t)i);
    for (int b = 0; b < 8; b++) hashes[16 * i + b] = (uint8_t)(h.lo >> 8 * b);
    for (int b = 0; b < 8; b++) hashes[16 * i + 8 + b] = (uint8_t)(h.hi >> 8 * b);
  }
  assert_int_equal(tdict_hash128_of(hashes, sizeof hashes, 0).lo & 0xffffffffu, 0x6384BA69u);
}

CASE(hash128_reads_no_byte_beyond) {
  for (size_t n = 0; n < 70; n++) {
    uint8_t *exact = malloc(n ? n : 1), longer[71];
    td_fill_random(longer, sizeof longer, n + 1);
    memcpy(exact, longer, n);
    tdict_hash128 a = tdict_hash128_of(exact, n, 7), b = tdict_hash128_of(longer, n, 7);
    assert_true(a.lo == b.lo && a.hi == b.hi);
    free(exact);
  }
}
