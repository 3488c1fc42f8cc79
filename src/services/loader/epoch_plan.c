/* Implements the division of an epoch into batches. See loader_internal.h for ownership and threads. */
#include "services/loader/loader_internal.h"

#include <stdlib.h>

#include "core/base/array.h"
#include "core/base/error.h"
#include "services/loader/sampler.h"

/* A growing list of batches. */
typedef struct batch_list {
  const tdict_loader_options *options;
  tdict_batch_range *ranges;
  int64_t num_batches;
  size_t capacity;
  int64_t sum, longest; /* sum and maximum of the lengths in the last batch */
} batch_list;

/* Returns true if a sample fits into the last batch. `length` is at most max_tokens. */
static bool has_room(const batch_list *list, int64_t length) {
  int64_t count = list->ranges[list->num_batches - 1].count;
  if (count >= list->options->batch_size) return false;
  if (!list->options->pad) return length <= list->options->max_tokens - list->sum;
  return (length > list->longest ? length : list->longest) <= list->options->max_tokens / (count + 1);
}

/* Adds an empty batch to the list. Returns false if memory is exhausted. */
static bool add_batch(batch_list *list, int64_t first) {
  if (!TDICT_RESERVE(list->ranges, list->capacity, (size_t)list->num_batches + 1)) return false;
  list->ranges[list->num_batches++] = (tdict_batch_range){first, 0};
  list->sum = list->longest = 0;
  return true;
}

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
static tdict_status divide_epoch(batch_list *list, const tdict_dataset_table *t, const tdict_sampler *sampler,
                                 int64_t epoch, tdict_error *err) {
  for (int64_t draw = 0; draw < sampler->num_drawn; draw++) {
    int64_t index = tdict_sampler_draw(sampler, epoch, draw), length = t->sample_length(t->self, index);
    tdict_status status = check_length(length, index, list->options->max_tokens, err);
    if (status != TDICT_OK) return status;
    if ((list->num_batches == 0 || !has_room(list, length)) && !add_batch(list, draw))
      return tdict_fail(err, TDICT_ENOMEM, "loader: no host memory for the batches of epoch %lld", (long long)epoch);
    list->ranges[list->num_batches - 1].count++;
    list->sum += length;
    if (length > list->longest) list->longest = length;
  }

  /* If drop_last is set, leave out the last batch if that batch is not full. */
  if (!list->options->drop_last || list->num_batches == 0) return TDICT_OK;
  int64_t count = list->ranges[list->num_batches - 1].count;
  int64_t tokens = list->options->pad ? count * list->longest : list->sum;
  if (count < list->options->batch_size && tokens < list->options->max_tokens) list->num_batches--;
  return TDICT_OK;
}

/* Gives this rank the batches rank, rank + world_size, ... of the list. All ranks get the same number of batches. If
 * the number of batches is not a multiple of world_size, batches from the start of the list are used again. If
 * drop_uneven is set, the remaining batches are left out instead. */
static tdict_status take_rank(tdict_epoch_plan *plan, const batch_list *list, const tdict_sampler *sampler,
                              tdict_error *err) {
  const tdict_sampler_options *order = &sampler->options;
  bool completes = !order->drop_uneven && list->num_batches % order->world_size != 0;
  plan->num_batches = list->num_batches / order->world_size + (completes ? 1 : 0);
  plan->ranges = calloc((size_t)plan->num_batches + 1, sizeof *plan->ranges);
  if (!plan->ranges)
    return tdict_fail(err, TDICT_ENOMEM, "loader: no host memory for the batches of epoch %lld",
                      (long long)plan->epoch);
  for (int64_t k = 0; k < plan->num_batches; k++)
    plan->ranges[k] = list->ranges[(k * order->world_size + order->rank) % list->num_batches];
  return TDICT_OK;
}

tdict_status tdict_epoch_plan_make(tdict_epoch_plan *plan, const tdict_loader *l, const tdict_sampler *sampler,
                                   int64_t epoch) {
  *plan = (tdict_epoch_plan){.epoch = epoch};
  batch_list list = {.options = &l->options};
  tdict_error error = {0};
  tdict_status status = divide_epoch(&list, l->table, sampler, epoch, &error);
  if (status == TDICT_OK) status = take_rank(plan, &list, sampler, &error);
  free(list.ranges);
  if (status == TDICT_OK) return TDICT_OK;
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
  plan->ranges = NULL;
}
