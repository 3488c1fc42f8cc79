/* Mixes words into a hash. The hash is not cryptographic: it serves to find equal values. Thread-safe. */
#ifndef TDICT_CORE_BASE_HASH_H
#define TDICT_CORE_BASE_HASH_H

#include <stdint.h>

static inline uint64_t tdict_mix_hash(uint64_t h, uint64_t word) {
  h = (h ^ word) * 0x9e3779b97f4a7c15u;
  return h ^ h >> 29;
}

#endif
