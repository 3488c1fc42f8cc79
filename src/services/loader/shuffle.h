/* Computes pseudo-random numbers and permutations that depend only on the arguments, such as a key. Results are the
 * same on every machine. The functions own no data. Thread rule: thread-safe. */
#ifndef TDICT_SERVICES_LOADER_SHUFFLE_H
#define TDICT_SERVICES_LOADER_SHUFFLE_H

#include <stdint.h>

/* Returns 64 pseudo-random bits for a key and a counter. */
uint64_t tdict_mix(uint64_t key, uint64_t counter);
__extension__ typedef unsigned __int128 tdict_u128;
/* Maps 64 random bits to a number from 0 to count - 1. The probabilities of two numbers differ by at most 2^-64. */
static inline uint64_t tdict_pick_below(uint64_t bits, uint64_t count) {
  return (uint64_t)(((tdict_u128)bits * count) >> 64);
}

typedef struct tdict_shuffle {
  uint64_t count, key;
  uint64_t width, height; /* for large counts: width * height is at least count; else 0 */
} tdict_shuffle;
/* Returns a random permutation of 0 to count - 1 that the key and the count determine. The permutations of different
 * counts are independent, even if the key is the same. `count` is at least 1. */
tdict_shuffle tdict_shuffle_make(uint64_t count, uint64_t key);
/* Returns the number at position i of the permutation; i is less than count. */
uint64_t tdict_shuffle_at(const tdict_shuffle *p, uint64_t i);

#endif
