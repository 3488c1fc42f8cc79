/* Implements the division of an epoch into batches. See loader_internal.h for ownership and threads. */
#include "services/loader/loader_internal.h"

#include <stdlib.h>

#include "core/base/error.h"
#include "services/loader/sampler.h"

static tdict_status check_length(int64_t length, int64_t index, int64_t max_tokens, tdict_error *err) {
  if (length < 0)
    return tdict_fail(err, TDICT_EINVAL, "loader: sample_length returned %lld for sample %lld, wanted 0 or more",
                      (long long)length, (long long)index);
  if (length > max_tokens)
    return tdict_fail(err, TDICT_EINVAL, "loader: sample %lld has %lld tokens, but max_tokens is %lld",
                      (long long)index, (long long)length, (long long)max_tokens);
  return TDICT_OK;
}

/* Divides all samples of an epoch into batches, in the order of the sampler. The batches include those of other
 * ranks. */
static tdict_status divide_by_tokens(tdict_division *d, const tdict_dataset_table *t, const tdict_sampler *sampler,
                                     int64_t epoch, tdict_error *err) {
  for (int64_t draw = 0; draw < sampler->num_drawn; draw++) {
    int64_t index = tdict_sampler_draw(sampler, epoch, draw), length = t->sample_length(t->self, index);
    tdict_status status = check_length(length, index, d->max_tokens, err);
    if (status != TDICT_OK) return status;
    if (!tdict_division_add(d, length))
      return tdict_fail_memory(err, "loader", NULL, "the batches of epoch %lld", (long long)epoch);
  }
  return TDICT_OK;
}

/* Gives this rank the batches rank, rank + world_size, ... of the division. All ranks get the same number of batches.
 * If the number of batches is not a multiple of world_size, batches from the start of the epoch are used again. If
 * drop_uneven is set, the remaining batches are left out instead. */
static tdict_status take_rank(tdict_epoch_plan *plan, const tdict_division *d, const tdict_sampler *sampler,
                              tdict_error *err) {
  const tdict_sampler_options *order = &sampler->options;
  plan->num_batches = tdict_divide(d->num_batches, order->world_size, order->drop_uneven);
  plan->num_batches_of_all = d->num_batches;
  plan->ranges = calloc((size_t)plan->num_batches + 1, sizeof *plan->ranges);
  if (!plan->ranges) return tdict_fail_memory(err, "loader", NULL, "the batches of epoch %lld", (long long)plan->epoch);
  for (int64_t k = 0; k < plan->num_batches; k++)
    plan->ranges[k] = d->ranges[(k * order->world_size + order->rank) % d->num_batches];
  return TDICT_OK;
}

tdict_status tdict_epoch_plan_make(tdict_epoch_plan *plan, const tdict_loader *l, const tdict_sampler *sampler,
                                   int64_t epoch) {
  const tdict_loader_options *o = &l->options;
  *plan = (tdict_epoch_plan){.epoch = epoch};
  tdict_division d = {.batch_size = o->batch_size, .max_tokens = o->max_tokens, .counts_padding = o->pad};
  tdict_error error = {0};
  tdict_status status = o->plan_epoch ? tdict_epoch_call_program(plan, &d, o, sampler->length, &error)
                                      : divide_by_tokens(&d, l->table, sampler, epoch, &error);
  if (status == TDICT_OK && o->drop_last) tdict_division_drop_last(&d);
  if (status == TDICT_OK) status = take_rank(plan, &d, sampler, &error);
  free(d.ranges);
  if (status == TDICT_OK) return TDICT_OK;
  tdict_epoch_plan_reset(plan);
  plan->num_batches = 1;
  plan->failure = error;
  return status;
}

tdict_batch_range tdict_epoch_plan_at(const tdict_epoch_plan *plan, int64_t batch) {
  if (batch >= plan->num_batches || plan->failure.status != 0) return (tdict_batch_range){0, 0};
  return plan->ranges[batch];
}

void tdict_epoch_plan_reset(tdict_epoch_plan *plan) {
  free(plan->ranges);
  free(plan->indices);
  plan->ranges = NULL;
  plan->indices = NULL;
}
