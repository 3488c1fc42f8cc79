/* Determines the samples of an epoch: the length of the dataset and the sampler. If the length of the dataset varies,
 * each epoch begins with a call of tdict_loader_next(). No batch of the epoch is prefetched before that call.
 * Ownership: a tdict_loader_epoch owns a reference to its sampler.
 * Thread rule: see tdict/loader.h. The loader's lock is not held while a function of the dataset runs. */
#include "core/base/error.h"
#include "services/loader/loader_internal.h"
#include "services/loader/sampler.h"

/* Creates or retains the sampler of an epoch over `length` samples. */
static tdict_status make_sampler(const tdict_loader *l, int64_t length, tdict_sampler **out, tdict_error *err) {
  const tdict_loader_options *o = &l->options;
  if (!o->sampler) {
    tdict_sampler_options s = tdict_sampler_options_default();
    s.kind = o->shuffle ? TDICT_SAMPLER_SHUFFLED : TDICT_SAMPLER_SEQUENTIAL;
    s.seed = o->seed;
    s.rank = o->rank;
    s.world_size = o->world_size;
    return tdict_sampler_create(length, &s, out, err);
  }
  if (!l->table->length_varies) {
    *out = tdict_sampler_retain(o->sampler);
    return TDICT_OK;
  }
  if (o->sampler->options.kind == TDICT_SAMPLER_WEIGHTED)
    return tdict_fail(err, TDICT_EINVAL,
                      "loader: the length of the dataset varies, so the sampler must not be WEIGHTED");
  return tdict_sampler_resize(o->sampler, length, out, err);
}

/* Checks the sampler's indices, and counts the batches of the epoch. */
static tdict_status count_batches(const tdict_loader *l, tdict_loader_epoch *epoch, tdict_error *err) {
  const tdict_loader_options *o = &l->options;
  int64_t num_indices = epoch->sampler->length;
  if (num_indices > epoch->dataset_length)
    return tdict_fail(err, TDICT_EINVAL, "loader: the sampler draws from %lld samples, but the dataset has %lld",
                      (long long)num_indices, (long long)epoch->dataset_length);
  if (tdict_loader_has_plans(l)) { /* The plan of the epoch determines the number of batches. */
    epoch->num_batches = l->epoch.num_batches;
    return TDICT_OK;
  }
  int64_t drawn = tdict_sampler_length(epoch->sampler);
  epoch->num_batches = tdict_divide(drawn, o->batch_size, o->drop_last);
  if (o->endless && epoch->num_batches == 0 && !l->table->length_varies)
    return tdict_fail(
        err, TDICT_EINVAL,
        "loader: endless is set, but an epoch has no batch: %lld samples for this rank, batch_size is %lld%s",
        (long long)drawn, (long long)o->batch_size, o->drop_last ? " and drop_last is set" : "");
  return TDICT_OK;
}

tdict_status tdict_loader_plan_epoch(const tdict_loader *l, int64_t length, tdict_loader_epoch *out, tdict_error *err) {
  const tdict_loader_options *o = &l->options;
  tdict_loader_epoch epoch = {NULL, length, -1, 0};
  if (length < 0) {
    if (l->table->length_varies)
      return tdict_fail(err, TDICT_EINVAL,
                        "loader: the length of the dataset varies, so it must not be negative or missing");
    if (o->sampler || o->shuffle || o->plan_epoch || o->world_size > 1)
      return tdict_fail(
          err, TDICT_EINVAL,
          "loader: the dataset is a stream, so sampler, shuffle, plan_epoch and world_size must not be set");
    *out = epoch;
    return TDICT_OK;
  }
  tdict_status status = make_sampler(l, length, &epoch.sampler, err);
  if (status != TDICT_OK) return status;
  status = count_batches(l, &epoch, err);
  if (status == TDICT_OK)
    *out = epoch;
  else
    tdict_sampler_release(epoch.sampler);
  return status;
}

void tdict_loader_replace_epoch(tdict_loader *l, const tdict_loader_epoch *epoch) {
  tdict_sampler_release(l->epoch.sampler);
  l->epoch = *epoch;
  l->plan.epoch = -1; /* The plan belongs to the previous sampler. */
}

tdict_status tdict_loader_begin_epoch(tdict_loader *l, tdict_error *err) {
  if (!l->table->length_varies) return TDICT_OK;
  pthread_mutex_lock(&l->lock);
  bool is_due = l->awaits_epoch && l->num_begun == l->num_taken && l->failure.status == 0;
  pthread_mutex_unlock(&l->lock);
  if (!is_due) return TDICT_OK;
  tdict_loader_epoch epoch;
  tdict_status status = tdict_loader_plan_epoch(l, l->table->length(l->table->self), &epoch, err);
  if (status != TDICT_OK) return status;
  pthread_mutex_lock(&l->lock);
  tdict_loader_replace_epoch(l, &epoch);
  l->awaits_epoch = false;
  pthread_cond_broadcast(&l->can_begin);
  pthread_mutex_unlock(&l->lock);
  return TDICT_OK;
}

tdict_status tdict_loader_restart(tdict_loader *l, tdict_error *err) {
  if (!l) return tdict_fail(err, TDICT_EINVAL, "loader restart: the loader is NULL");
  tdict_status status = tdict_forkmark_check(l->mark, "loader restart", err);
  if (status != TDICT_OK) return status;
  pthread_mutex_lock(&l->lock);
  tdict_batch_position to = l->next_to_take;
  if (to.batch > 0) to = (tdict_batch_position){to.epoch + 1, 0};
  tdict_loader_seek(l, to);
  l->awaits_epoch = l->table->length_varies;
  pthread_mutex_unlock(&l->lock);
  return TDICT_OK;
}
