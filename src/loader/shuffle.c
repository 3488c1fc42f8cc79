/* Computes random permutations without a table, by a Feistel network over the cells of a rectangle. The rectangle has
 * at least `count` cells. The number of further cells is less than one row. A result outside the range [0, count) is
 * permuted again, until the result is inside the range. Because the network permutes the cells, the results are a
 * permutation of the range. This method is called cycle walking (Black and Rogaway, "Ciphers with arbitrary finite
 * domains", 2002). The functions own no data. Thread rule: thread-safe. */
#include "loader/shuffle.h"

enum { ROUNDS = 8 };

/* Mixes the bits of x with the finalizer of splitmix64 (Steele, Lea and Flood, 2014). */
static uint64_t scramble(uint64_t x) {
  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

uint64_t tdict_mix(uint64_t key, uint64_t counter) {
  return scramble(scramble(key + UINT64_C(0x9e3779b97f4a7c15)) ^ (counter * UINT64_C(0x9e3779b97f4a7c15)));
}

/* Returns the smallest integer whose square is at least count. */
static uint64_t ceil_sqrt(uint64_t count) {
  uint64_t low = 1, high = UINT64_C(1) << 32;
  while (low < high) {
    uint64_t middle = low + (high - low) / 2;
    if (middle * middle >= count)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

tdict_shuffle tdict_shuffle_make(uint64_t count, uint64_t key) {
  uint64_t width = ceil_sqrt(count);
  return (tdict_shuffle){count, width, (count + width - 1) / width, key};
}

/* Permutes the cells of the rectangle. Each round adds a keyed hash of one coordinate to the other coordinate, modulo
 * the range of the other coordinate. */
static uint64_t permute_cell(const tdict_shuffle *p, uint64_t i) {
  uint64_t left = i % p->width, right = i / p->width;
  for (uint64_t round = 0; round < ROUNDS; round += 2) {
    left += tdict_pick_below(tdict_mix(p->key + round, right), p->width);
    if (left >= p->width) left -= p->width;
    right += tdict_pick_below(tdict_mix(p->key + round + 1, left), p->height);
    if (right >= p->height) right -= p->height;
  }
  return right * p->width + left;
}

uint64_t tdict_shuffle_at(const tdict_shuffle *p, uint64_t i) {
  do i = permute_cell(p, i);
  while (i >= p->count);
  return i;
}
