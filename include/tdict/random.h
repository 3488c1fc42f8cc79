/* Declares random numbers that depend on a seed alone, for choices such as crops of images.
 *
 * The generator is Philox4x32-10, by J. K. Salmon and others ("Parallel random numbers: as easy as 1, 2, 3", SC 2011).
 * Ten rounds mix a counter of 128 bits with a key of 64 bits. Equal seeds give equal numbers on every machine, and
 * different seeds give independent numbers, so each sample can have its own generator; see tdict_sample_seed(). The
 * generator is not for cryptography. Thread rule: thread-safe, but a generator belongs to one thread at a time. */
#ifndef TDICT_RANDOM_H
#define TDICT_RANDOM_H

#include "tdict/status.h"

TDICT_BEGIN_DECLS

/** @brief Writes the four random words of a counter and a key. All words are least significant first. */
TDICT_API void tdict_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/** A generator. A program may copy it; the copy continues on its own with the same numbers. */
typedef struct tdict_random {
  uint64_t seed;
  uint64_t num_drawn; /**< 64-bit numbers drawn so far; a program may set it to jump to a place */
} tdict_random;
/** @brief Returns a generator at its first number. */
static inline tdict_random tdict_random_from(uint64_t seed) {
  tdict_random r;
  r.seed = seed;
  r.num_drawn = 0;
  return r;
}
/** @brief Draws 64 random bits. */
TDICT_API uint64_t tdict_random_bits(tdict_random *random);
/** @brief Draws a number from 0 to @p count - 1, all with equal probabilities up to 2^-64. @p count is at least 1. */
TDICT_API int64_t tdict_random_below(tdict_random *random, int64_t count);
/** @brief Draws a multiple of 2^-53 that is at least 0 and less than 1. */
TDICT_API double tdict_random_uniform(tdict_random *random);
/** @brief Shuffles @p items in place, all orders with equal probabilities. Draws @p count - 1 numbers. */
TDICT_API void tdict_random_shuffle(tdict_random *random, int64_t *items, size_t count);

TDICT_END_DECLS
#endif
