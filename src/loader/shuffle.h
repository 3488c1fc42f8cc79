/* Numbers from keys: a hash that is the same on every machine, and a shuffle that is a function of its key.
 * Pure functions. Thread rule: safe from any thread. */
#ifndef TDICT_LOADER_SHUFFLE_H
#define TDICT_LOADER_SHUFFLE_H

#include <stdint.h>

/* 64 bits that look random, of a key and a counter. */
uint64_t tdict_mix(uint64_t key, uint64_t counter);
__extension__ typedef unsigned __int128 tdict_u128;
/* One of 0 to count - 1, each equally likely, from random bits. */
static inline uint64_t tdict_pick_below(uint64_t bits, uint64_t count) {
  return (uint64_t)(((tdict_u128)bits * count) >> 64);
}

typedef struct tdict_shuffle {
  uint64_t count, width, height; /* width * height is at least count, and little more */
  uint64_t key;
} tdict_shuffle;
/* A permutation of 0 to count - 1; count is at least 1. */
tdict_shuffle tdict_shuffle_make(uint64_t count, uint64_t key);
uint64_t tdict_shuffle_at(const tdict_shuffle *p, uint64_t i);

#endif
