/* Plans an epoch with the function plan_epoch of the program. The tdict_epoch owns its arrays until the function has
 * returned. The plan then owns the indices. Thread rule: see tdict/epoch.h. */
#include "tdict/epoch.h"

#include "core/base/array.h"
#include "core/base/error.h"
#include "services/loader/loader_internal.h"
#include "services/loader/shuffle.h"

struct tdict_epoch {
  int64_t num_indices; /* of the dataset */
  tdict_division *division;
  int64_t *indices; /* division->num_samples elements */
  size_t capacity;
  tdict_error failure; /* the first failure of tdict_epoch_add(); status 0: none */
};

void tdict_epoch_add(tdict_epoch *epoch, int64_t index) {
  tdict_division *d = epoch->division;
  if (epoch->failure.status != 0) return;
  if (index < 0 || index >= epoch->num_indices) {
    tdict_fail(&epoch->failure, TDICT_EINVAL, "sample %lld was added, but the dataset has %lld samples",
               (long long)index, (long long)epoch->num_indices);
    return;
  }
  if (!TDICT_RESERVE(epoch->indices, epoch->capacity, (size_t)d->num_samples + 1) || !tdict_division_add(d, 0)) {
    tdict_fail(&epoch->failure, TDICT_ENOMEM, "no host memory for %lld samples", (long long)d->num_samples + 1);
    return;
  }
  epoch->indices[d->num_samples - 1] = index;
}

void tdict_epoch_end_batch(tdict_epoch *epoch) { epoch->division->is_open = false; }

/* Returns a hash of the indices and of the ends of batches. It is never 0. */
static uint64_t hash_plan(const tdict_division *d, const int64_t *indices) {
  uint64_t hash = 0;
  for (int64_t b = 0; b < d->num_batches; b++) {
    hash = tdict_mix(hash, ~(uint64_t)d->ranges[b].count);
    for (int64_t i = 0; i < d->ranges[b].count; i++) hash = tdict_mix(hash, (uint64_t)indices[d->ranges[b].first + i]);
  }
  return hash ? hash : 1;
}

tdict_status tdict_epoch_call_program(tdict_epoch_plan *plan, tdict_division *division, const tdict_loader_options *o,
                                      int64_t num_indices, tdict_error *err) {
  tdict_epoch epoch = {.num_indices = num_indices, .division = division};
  tdict_epoch_info info = tdict_epoch_info_default();
  tdict_fetch_info seeds = tdict_fetch_info_default();
  tdict_error why = {0};
  info.epoch = seeds.epoch = plan->epoch;
  seeds.seed = o->seed;
  info.seed = tdict_sample_seed(&seeds, -1); /* no sample has this index */
  info.num_indices = num_indices;
  info.batch_size = o->batch_size;
  division->max_tokens = INT64_MAX;
  tdict_status status = tdict_callback_status(o->plan_epoch(o->plan_user, &info, &epoch, &why), "plan_epoch", &why);
  if (status == TDICT_OK && epoch.failure.status != 0) {
    why = epoch.failure;
    status = (tdict_status)why.status;
  }
  plan->indices = epoch.indices;
  if (status == TDICT_OK) {
    plan->hash = hash_plan(division, epoch.indices);
    return TDICT_OK;
  }
  tdict_fail_native(err, status, why.native, "loader: plan_epoch for epoch %lld: %.160s", (long long)plan->epoch,
                    why.message);
  return why.path[0] ? tdict_error_at(err, status, why.path) : status;
}
