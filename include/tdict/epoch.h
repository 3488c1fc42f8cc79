/* Declares functions that plan the epochs of a loader. Such a function chooses the samples of an epoch, their order and
 * the ends of the batches. A program writes one, or uses one of the three at the end of this header. The loader gives
 * batch b to rank b % world_size, see docs/howto/samplers.md.
 *
 * A plan must depend only on the tdict_epoch_info and on data that does not change. All ranks and a resumed program
 * then plan the same epoch. A loader keeps one plan, and the last one while it makes another. A plan has 8 to 16
 * bytes for each sample of all ranks. The options and arrays of the functions must outlive the loader.
 * Thread rule: a tdict_epoch belongs to the call of the function that plans it. */
#ifndef TDICT_EPOCH_H
#define TDICT_EPOCH_H

#include "tdict/values.h"

TDICT_BEGIN_DECLS

/** An epoch that is being planned. */
typedef struct tdict_epoch tdict_epoch;
/** Says which epoch to plan. Valid during the call. */
typedef struct tdict_epoch_info {
  size_t struct_size;
  int64_t epoch;       /**< the number of the epoch, from 0 */
  int64_t num_indices; /**< the length of the dataset */
  int64_t batch_size;  /**< the option of the loader: most samples in a batch */
  uint64_t seed;       /**< for tdict_random_from(); depends on the loader's option `seed` and on `epoch` alone */
} tdict_epoch_info;
static inline tdict_epoch_info tdict_epoch_info_default(void) {
  tdict_epoch_info i;
  tdict_init_struct_(i);
  i.batch_size = 1;
  return i;
}

/** Plans an epoch: calls tdict_epoch_add() for each sample of all ranks together. Reports errors as the functions of a
 *  dataset do (tdict/dataset.h). One thread of a loader calls it at a time: the program's thread in
 *  tdict_loader_create() and tdict_loader_set_state(), and a worker, if there is one, otherwise. */
typedef tdict_status (*tdict_plan_epoch)(void *user, const tdict_epoch_info *info, tdict_epoch *epoch,
                                         tdict_error *err);
/** @brief Adds a sample, which may already be in the epoch. After `batch_size` samples, a new batch begins.
 *
 *  If the index is not between 0 and `num_indices` - 1, or memory is exhausted, the epoch fails with this reason. */
TDICT_API void tdict_epoch_add(tdict_epoch *epoch, int64_t index);
/** @brief Ends a batch: the next sample begins a new one. Has no effect if that is already so. */
TDICT_API void tdict_epoch_end_batch(tdict_epoch *epoch);

/** Options of tdict_plan_balanced(). */
typedef struct tdict_balanced_options {
  size_t struct_size;
  const int64_t *labels; /**< the class of each sample, 0 to num_classes - 1 */
  size_t num_labels;     /**< the length of the dataset */
  int64_t num_classes;   /**< classes without a sample are left out */
  int64_t num_samples;   /**< samples of an epoch, for all ranks together; 0 (default): `num_labels` */
} tdict_balanced_options;
static inline tdict_balanced_options tdict_balanced_options_default(void) {
  tdict_balanced_options o;
  tdict_init_struct_(o);
  return o;
}
/** @brief Plans an epoch that has each class equally often; the numbers differ by at most 1.
 *
 *  Each round takes a sample of each class, in random order. A class repeats a sample after all its samples were drawn.
 *  @param[in] user  the tdict_balanced_options.
 *  @return #TDICT_OK; #TDICT_EINVAL a label or an option is out of range, or no class has a sample; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_plan_balanced(void *user, const tdict_epoch_info *info, tdict_epoch *epoch,
                                                           tdict_error *err);

/** Options of tdict_plan_bucketed(). */
typedef struct tdict_bucketed_options {
  size_t struct_size;
  const int64_t *lengths; /**< the number of tokens of each sample */
  size_t num_lengths;     /**< the length of the dataset */
  int64_t max_tokens;     /**< most tokens in a batch, 1 or more */
  int64_t bucket_width;   /**< samples whose lengths divided by this number agree share a bucket; default 16 */
  bool counts_padding;    /**< true (default): a batch has as many tokens as its samples padded to the longest one.
                               false: the sum of the lengths */
} tdict_bucketed_options;
static inline tdict_bucketed_options tdict_bucketed_options_default(void) {
  tdict_bucketed_options o;
  tdict_init_struct_(o);
  o.bucket_width = 16;
  o.counts_padding = true;
  return o;
}
/** @brief Plans an epoch that has each sample once, in batches of similar lengths.
 *
 *  Sorts the samples by bucket, in random order within a bucket. Fills batches up to `max_tokens` and the loader's
 *  `batch_size`, and shuffles the batches.
 *  @param[in] user  the tdict_bucketed_options.
 *  @return #TDICT_OK; #TDICT_EINVAL a length is negative or above `max_tokens`, or an option is out of range;
 *          #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_plan_bucketed(void *user, const tdict_epoch_info *info, tdict_epoch *epoch,
                                                           tdict_error *err);

/** Options of tdict_plan_mixed(). */
typedef struct tdict_mixed_options {
  size_t struct_size;
  const int64_t *lengths; /**< the number of samples of each part */
  const double *weights;  /**< of each part: a finite number of 0 or more */
  size_t num_parts;
  int64_t num_samples; /**< samples of an epoch, for all ranks together; 0 (default): the length of the dataset */
} tdict_mixed_options;
static inline tdict_mixed_options tdict_mixed_options_default(void) {
  tdict_mixed_options o;
  tdict_init_struct_(o);
  return o;
}
/** @brief Plans an epoch of samples from several parts of the dataset, in proportion to their weights.
 *
 *  The parts follow one another: the first part has the indices 0 to lengths[0] - 1. A part repeats a sample after all
 *  its samples were drawn. Up to any position, the number of samples of a part differs from the exact share by less
 *  than the number of parts.
 *  @param[in] user  the tdict_mixed_options.
 *  @return #TDICT_OK; #TDICT_EINVAL a weight or an option is out of range, or all weights are 0; #TDICT_EINVAL also if
 *          the sum of the lengths is not the length of the dataset, or a part with a weight is empty; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_plan_mixed(void *user, const tdict_epoch_info *info, tdict_epoch *epoch,
                                                        tdict_error *err);

TDICT_END_DECLS
#endif
