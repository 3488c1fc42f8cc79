/* Declares samplers. A sampler returns the index of a sample for each position of each epoch. The index depends only on
 * the length and options of the sampler, the epoch and the position, so it is the same on every machine. If
 * `world_size` processes share the samples of each epoch, each process has a number, called rank, from 0.
 * Ownership: reference counted. Thread rule: any thread may call any function. */
#ifndef TDICT_SAMPLER_H
#define TDICT_SAMPLER_H

#include "tdict/values.h"

TDICT_BEGIN_DECLS

typedef struct tdict_sampler tdict_sampler;

typedef enum tdict_sampler_kind {
  TDICT_SAMPLER_SEQUENTIAL,       /**< 0, 1, 2, ... in every epoch */
  TDICT_SAMPLER_SHUFFLED,         /**< a random order of the indices, drawn anew for each epoch */
  TDICT_SAMPLER_WITH_REPLACEMENT, /**< an independent random index at each position; all indices are equally likely */
  TDICT_SAMPLER_WEIGHTED          /**< as WITH_REPLACEMENT, but the probabilities are proportional to `weights` */
} tdict_sampler_kind;
typedef struct tdict_sampler_options {
  size_t struct_size;
  int32_t kind; /**< a tdict_sampler_kind */
  uint64_t seed;
  /** Number of samples that all ranks together draw in an epoch, before `drop_uneven` is applied. 0 (default): the
   *  `length` of tdict_sampler_create(). For SEQUENTIAL and SHUFFLED, the number must not exceed this length. */
  int64_t num_samples;
  const double *weights; /**< WEIGHTED: `num_weights` numbers of 0 or more with finite sum above 0; read by the call */
  /** This process draws positions rank, rank + world_size and so on of each epoch. Default: rank 0, world_size 1. */
  int32_t rank, world_size;
  /** In each round, every rank draws one sample. true: leaves out an incomplete last round. false (default): draws the
   *  first samples of the epoch again to complete the round. */
  bool drop_uneven;
  size_t num_weights; /**< WEIGHTED: the number of `weights`; must equal the `length` of tdict_sampler_create() */
} tdict_sampler_options;
static inline tdict_sampler_options tdict_sampler_options_default(void) {
  tdict_sampler_options o;
  tdict_init_struct_(o);
  o.world_size = 1;
  return o;
}

/** @brief Creates a sampler that draws from the indices 0 to @p length - 1. NULL options are the defaults.
 *  @param[in]  length   number of indices, 0 or more.
 *  @param[out] out      a new reference; release it with tdict_sampler_release().
 *  @return #TDICT_OK; #TDICT_EINVAL @p out is NULL, @p length or an option is out of range, or the weights are missing
 *          or invalid; #TDICT_EINVAL also if @p length is 0 and `num_samples` is not; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_sampler_create(int64_t length, const tdict_sampler_options *options,
                                                            tdict_sampler **out, tdict_error *err);
/** @brief Adds a reference and returns @p sampler. */
TDICT_API tdict_sampler *tdict_sampler_retain(const tdict_sampler *sampler);
/** @brief Releases a reference. NULL is allowed. */
TDICT_API void tdict_sampler_release(tdict_sampler *sampler);
/** @brief Returns the number of samples that this rank draws in an epoch. */
TDICT_API int64_t tdict_sampler_length(const tdict_sampler *sampler);
/** @brief Returns the index of the sample at a position of an epoch, in constant time on average. Returns -1 if @p
 *  epoch is negative or @p position is out of range.
 *  @param[in] position  0 to tdict_sampler_length() - 1. Positions count only the samples of this rank. */
TDICT_API int64_t tdict_sampler_get(const tdict_sampler *sampler, int64_t epoch, int64_t position);

TDICT_END_DECLS
#endif
