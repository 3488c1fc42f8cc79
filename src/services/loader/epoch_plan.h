/* Divides an epoch into batches that have at most max_tokens tokens and at most batch_size samples. A plan depends on
 * the sampler, the epoch, the limits and the lengths of the samples, but not on the workers. Ownership: the plan owns
 * its ranges. Thread rule: the functions take no lock. The loader's lock guards the loader's plan. */
#ifndef TDICT_SERVICES_LOADER_EPOCH_PLAN_H
#define TDICT_SERVICES_LOADER_EPOCH_PLAN_H

#include "tdict/dataset.h"
#include "tdict/sampler.h"

/* Consecutive samples of an epoch. */
typedef struct tdict_batch_range {
  int64_t first, count;
} tdict_batch_range;

typedef struct tdict_epoch_plan {
  int64_t epoch;             /* -1: the plan is out of date */
  int64_t num_batches;       /* number of batches of this rank */
  tdict_batch_range *ranges; /* the batches of this rank, as positions among the samples of all ranks */
  tdict_error failure;       /* if failure.status is not 0, the epoch has one batch, which fails with this error */
} tdict_epoch_plan;

/* The limits of the batches. */
typedef struct tdict_batch_limits {
  int64_t batch_size, max_tokens;
  bool counts_padding; /* true: a batch has (number of samples) * (largest length) tokens; false: the number of
                        * tokens is the sum of the lengths */
  bool drop_last;
} tdict_batch_limits;

/* Divides an epoch into batches. Calls the dataset's `sample_length` for each sample of the epoch, so the caller must
 * hold no lock. Returns TDICT_EINVAL for a length that is negative or above max_tokens. Returns TDICT_ENOMEM if host
 * memory is exhausted. After a failure, the plan has one batch that fails with the same error. */
tdict_status tdict_epoch_plan_make(tdict_epoch_plan *plan, const tdict_dataset_table *table,
                                   const tdict_sampler *sampler, const tdict_batch_limits *limits, int64_t epoch);
/* Returns the samples of a batch. The count is 0 at the end of the epoch, and for a batch that fails. */
tdict_batch_range tdict_epoch_plan_at(const tdict_epoch_plan *plan, int64_t batch);
void tdict_epoch_plan_reset(tdict_epoch_plan *plan);

#endif
