/* Random numbers for cases (splitmix64). A seed produces the same numbers on every machine. */
#ifndef TDICT_TESTS_SUPPORT_RANDOM_H
#define TDICT_TESTS_SUPPORT_RANDOM_H

#include <stdint.h>

typedef struct rng {
  uint64_t state;
} rng;
static inline uint64_t next_random(rng *r) {
  uint64_t x = r->state += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}
/* Returns a number from `low` to `high`. */
static inline int64_t pick(rng *r, int64_t low, int64_t high) {
  return low + (int64_t)(next_random(r) % (uint64_t)(high - low + 1));
}

#endif
