/* Computes random permutations without a table. For a small count, a position is followed through a Fisher-Yates
 * shuffle, so all orders are equally likely. The time grows with the count, so larger counts use a Feistel network over
 * the cells of a rectangle. The rectangle has `count` cells, and at most one incomplete row of further cells.
 * A result outside the range [0, count) is permuted again, until the result is inside the range. Because the network
 * permutes the cells, the results are a permutation of the range. This method is called cycle walking (Black and
 * Rogaway, "Ciphers with arbitrary finite domains", 2002). The functions own no data. Thread rule: thread-safe. */
#include "services/loader/shuffle.h"

/* MOST_EXACT: largest count that uses the Fisher-Yates shuffle. ROUNDS: rounds of the Feistel network. Two rounds make
 * the remaining correlation of two neighbours smaller by the side of the rectangle. At the smallest rectangle, 17 by
 * 16, ten rounds leave less than 10^7 permutations can show. */
enum { MOST_EXACT = 256, ROUNDS = 12 };

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
  uint64_t low = 1, high = 1;
  while (high < (UINT64_C(1) << 32) && high * high < count) high *= 2;
  low = high / 2 + 1;
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
  tdict_shuffle p = {.count = count, .key = tdict_mix(key, count)};
  if (count <= MOST_EXACT) return p;
  p.width = ceil_sqrt(count);
  p.height = (count + p.width - 1) / p.width;
  return p;
}

/* Returns element i of a Fisher-Yates shuffle. For each place from the last to the first, the shuffle swaps the element
 * there with the element at a random place that is not later. This function follows place i through the swaps from the
 * last swap to the first. Swaps of places before i do not touch place i. */
static uint64_t shuffle_exactly(const tdict_shuffle *p, uint64_t i) {
  uint64_t place = tdict_pick_below(tdict_mix(p->key, i), i + 1);
  for (uint64_t swapped = i + 1; swapped < p->count; swapped++)
    if (tdict_pick_below(tdict_mix(p->key, swapped), swapped + 1) == place) place = swapped;
  return place;
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
  if (p->count <= MOST_EXACT) return shuffle_exactly(p, i);
  do i = permute_cell(p, i);
  while (i >= p->count);
  return i;
}
