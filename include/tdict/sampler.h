/* Samplers: which sample stands at which position of an epoch. A sampler is a function of seed, epoch and position,
 * with no state of its own: the same on every machine, for any number of workers, and from any place in an epoch.
 * Counted. Thread rule: safe from any thread. */
#ifndef TDICT_SAMPLER_H
#define TDICT_SAMPLER_H

#include <string.h>

#include "tdict/values.h"

TDICT_BEGIN_DECLS

typedef struct tdict_sampler tdict_sampler;

typedef enum tdict_sampler_kind {
  TDICT_SAMPLER_SEQUENTIAL,       /**< 0, 1, 2, ... in every epoch */
  TDICT_SAMPLER_SHUFFLED,         /**< every index once, in another order in each epoch */
  TDICT_SAMPLER_WITH_REPLACEMENT, /**< each index equally likely at each position */
  TDICT_SAMPLER_WEIGHTED          /**< each index as likely as its weight says, with replacement */
} tdict_sampler_kind;
typedef struct tdict_sampler_options {
  size_t struct_size;
  int32_t kind; /**< a tdict_sampler_kind */
  uint64_t seed;
  /** Drawn in an epoch by all ranks together; 0 (default): the length. SEQUENTIAL and SHUFFLED take at most the
   *  length. */
  int64_t num_samples;
  const double *weights; /**< WEIGHTED: `num_weights` of them, finite, none negative, one positive; copied */
  /** This process takes positions rank, rank + world_size, ...; default 0 of 1. */
  int32_t rank, world_size;
  /** What does not go round is left out; else the first of the epoch fill it up, so that all ranks have as many. */
  bool drop_uneven;
  int64_t num_weights; /**< WEIGHTED: the number of `weights`, which must be the `length` of the sampler */
} tdict_sampler_options;
static inline tdict_sampler_options tdict_sampler_options_default(void) {
  tdict_sampler_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  o.world_size = 1;
  return o;
}

/** @brief A sampler of indices 0 to @p length - 1.
 *  @param[in] options  NULL for the defaults.
 *  @return #TDICT_OK; #TDICT_EINVAL a negative length, a rank outside the world, weights that are missing, too few, too
 *          many or no weights, draws from nothing, num_samples below 0 or, where none is drawn twice, above @p length;
 *          #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_sampler_create(int64_t length, const tdict_sampler_options *options,
                                                            tdict_sampler **out, tdict_error *err);
/** @brief Adds a reference and returns @p s. */
TDICT_API tdict_sampler *tdict_sampler_retain(const tdict_sampler *s);
/** @brief Drops a reference; NULL is allowed. */
TDICT_API void tdict_sampler_release(tdict_sampler *s);
/** @brief The number of positions of an epoch for this rank. */
TDICT_API int64_t tdict_sampler_length(const tdict_sampler *s);
/** @brief The index at a position of an epoch, or -1 for a position that the epoch has not, or a negative epoch. Cost:
 *  constant. */
TDICT_API int64_t tdict_sampler_at(const tdict_sampler *s, int64_t epoch, int64_t position);

TDICT_END_DECLS
#endif
