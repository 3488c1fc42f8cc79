/* Reads and sets the state of a loader. A saved state holds the position and the settings that the order of
 * samples depends on. If the settings of a state differ from the loader's settings, the call fails and the message
 * names the difference. The functions own no data. Thread rule: thread-safe. */
#include "core/base/error.h"
#include "core/base/options.h"
#include "core/base/thread.h"
#include "services/loader/loader_internal.h"
#include "services/loader/sampler.h"

/* Maximum epoch of a saved state. Counting from here to INT64_MAX takes centuries, so the code that increments epochs
 * and batches needs no overflow check. */
#define MAX_EPOCH (INT64_MAX / 2)
/* ORDER_VERSION: raise this number if a sampler draws other indices than before. Version 1, of tdict 0.1, had no field
 * for its number. */
enum { STREAM = -1, PLANNED = -2, ORDER_VERSION = 2 };

/* Returns the public state for a position of an epoch. */
static tdict_loader_state describe_state(const tdict_loader *l, const tdict_loader_epoch *epoch,
                                         tdict_batch_position position) {
  tdict_loader_state s = tdict_loader_state_default();
  s.epoch = position.epoch;
  s.batch = position.batch;
  s.dataset_length = epoch->dataset_length;
  s.batch_size = l->options.batch_size;
  s.max_tokens = l->options.max_tokens;
  s.counts_padding = l->options.max_tokens > 0 && l->options.pad;
  s.loader_seed = l->options.seed;
  s.order_version = ORDER_VERSION;
  s.num_indices = s.num_samples = s.rank_samples = s.sampler_kind = STREAM;
  s.world_size = 1;
  if (!epoch->sampler) return s;
  const tdict_sampler *sampler = epoch->sampler;
  s.num_indices = sampler->length;
  s.world_size = sampler->options.world_size;
  if (l->options.plan_epoch) {
    s.sampler_kind = PLANNED;
    s.plan_hash = position.batch > 0 ? epoch->plan_hash : 0;
    return s;
  }
  s.num_samples = sampler->num_drawn;
  s.rank_samples = sampler->num_per_rank;
  s.seed = sampler->options.seed;
  s.weights_hash = sampler->weights_hash;
  s.sampler_kind = sampler->options.kind;
  return s;
}

static const char *sampler_name(int32_t kind) {
  static const char *const names[] = {"a sequential sampler", "a shuffled sampler", "a sampler with replacement",
                                      "a weighted sampler"};
  if (kind == STREAM) return "a stream";
  if (kind == PLANNED) return "plan_epoch";
  return kind >= TDICT_SAMPLER_SEQUENTIAL && kind <= TDICT_SAMPLER_WEIGHTED ? names[kind] : "an unknown sampler";
}

/* Returns TDICT_EINVAL if the two states differ in a setting that changes the order of samples. The rank is not
 * compared, because all ranks can use one saved state. check_ranks() and continue_with_ranks() handle the number of
 * ranks. */
static tdict_status compare_orders(const tdict_loader_state *saved, const tdict_loader_state *mine, tdict_error *err) {
  const struct {
    const char *what;
    int64_t saved, mine;
  } counts[] = {
      {"samples", saved->dataset_length, mine->dataset_length},
      {"samples in a batch", saved->batch_size, mine->batch_size},
      {"tokens in a batch", saved->max_tokens, mine->max_tokens},
      {"indices to draw from", saved->num_indices, mine->num_indices},
      {"samples drawn in an epoch", saved->num_samples, mine->num_samples},
  };
  if (saved->order_version != mine->order_version)
    return tdict_fail(err, TDICT_EINVAL, "loader state: saved for version %lld of the orders, this library has %lld",
                      (long long)saved->order_version, (long long)mine->order_version);
  if (saved->sampler_kind != mine->sampler_kind)
    return tdict_fail(err, TDICT_EINVAL, "loader state: saved for %s, this loader has %s",
                      sampler_name(saved->sampler_kind), sampler_name(mine->sampler_kind));
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
    if (counts[i].saved != counts[i].mine)
      return tdict_fail(err, TDICT_EINVAL, "loader state: saved for %lld %s, this loader has %lld",
                        (long long)counts[i].saved, counts[i].what, (long long)counts[i].mine);
  if (saved->counts_padding != mine->counts_padding)
    return tdict_fail(err, TDICT_EINVAL, "loader state: saved with%s padding in max_tokens, this loader has it %s",
                      saved->counts_padding ? "" : "out", mine->counts_padding ? "in" : "out");
  if (saved->seed != mine->seed)
    return tdict_fail(err, TDICT_EINVAL, "loader state: saved for seed %llu, this loader has %llu",
                      (unsigned long long)saved->seed, (unsigned long long)mine->seed);
  if (saved->loader_seed != mine->loader_seed)
    return tdict_fail(err, TDICT_EINVAL, "loader state: saved for samples of seed %llu, this loader has %llu",
                      (unsigned long long)saved->loader_seed, (unsigned long long)mine->loader_seed);
  if (saved->weights_hash != mine->weights_hash)
    return tdict_fail(err, TDICT_EINVAL, "loader state: saved for other weights than this loader's sampler has");
  return TDICT_OK;
}

/* Returns TDICT_EINVAL if each rank of the state draws another number of samples than it would draw from the sampler,
 * which is NULL for a stream. Also returns TDICT_EINVAL if the number of ranks is below 1, or above 1 for a stream.
 * `mine` is the state of the loader. */
static tdict_status check_ranks(const tdict_sampler *sampler, const tdict_loader_state *mine,
                                const tdict_loader_state *s, tdict_error *err) {
  if (s->world_size < 1 || (!sampler && s->world_size > 1))
    return tdict_fail(err, TDICT_EINVAL, "loader state: saved for %d ranks, wanted 1%s", (int)s->world_size,
                      sampler ? " or more" : "");
  const int64_t drawn = mine->rank_samples < 0 ? mine->rank_samples : tdict_sampler_share(sampler, s->world_size);
  if (s->rank_samples == drawn) return TDICT_OK;
  return tdict_fail(err, TDICT_EINVAL,
                    "loader state: saved for %lld samples of each of %d ranks, this loader would draw %lld",
                    (long long)s->rank_samples, (int)s->world_size, (long long)drawn);
}

/* Returns TDICT_EINVAL if the state belongs to a loader with another order of samples, or if the epoch in the state is
 * invalid. */
static tdict_status check_state(const tdict_loader *l, const tdict_loader_epoch *epoch, const tdict_loader_state *state,
                                tdict_error *err) {
  tdict_loader_state mine = describe_state(l, epoch, (tdict_batch_position){0, 0});
  tdict_status status = compare_orders(state, &mine, err);
  if (status == TDICT_OK) status = check_ranks(epoch->sampler, &mine, state, err);
  if (status != TDICT_OK) return status;
  if (state->epoch < 0 || state->epoch > MAX_EPOCH)
    return tdict_fail(err, TDICT_EINVAL, "loader state: epoch is %lld, wanted 0 to %lld", (long long)state->epoch,
                      (long long)MAX_EPOCH);
  return TDICT_OK;
}

/* Returns TDICT_EINVAL if an epoch of `num_batches` does not have the batch of the state. */
static tdict_status check_batch(const tdict_loader *l, int64_t num_batches, const tdict_loader_state *state,
                                tdict_error *err) {
  int64_t last_batch = num_batches >= 0 ? num_batches : MAX_EPOCH / l->options.batch_size;
  if (state->batch < 0 || state->batch > last_batch)
    return tdict_fail(err, TDICT_EINVAL, "loader state: batch is %lld, wanted 0 to %lld", (long long)state->batch,
                      (long long)last_batch);
  return TDICT_OK;
}

/* If another number of ranks has saved the state, converts the number of its batch: together, these ranks have taken
 * the first batches or samples of the epoch, whose order does not depend on the number of ranks. */
static tdict_status continue_with_ranks(const tdict_loader *l, const tdict_loader_epoch *epoch,
                                        const tdict_epoch_plan *plan, tdict_loader_state *s, tdict_error *err) {
  const tdict_sampler_options *o = &epoch->sampler->options;
  if (s->world_size == o->world_size || s->batch == 0) return TDICT_OK;
  const int64_t saved_batches =
      tdict_loader_has_plans(l)
          ? tdict_divide(plan->num_batches_of_all, s->world_size, o->drop_uneven)
          : tdict_divide(tdict_sampler_share(epoch->sampler, s->world_size), s->batch_size, l->options.drop_last);
  if (s->batch < 0 || s->batch > saved_batches)
    return tdict_fail(err, TDICT_EINVAL, "loader state: batch is %lld of %d ranks, wanted 0 to %lld",
                      (long long)s->batch, (int)s->world_size, (long long)saved_batches);
  if (s->batch == saved_batches) { /* the end of the epoch; with batch 0, the epoch would begin again */
    s->batch = epoch->num_batches;
    s->epoch += s->batch == 0;
    return TDICT_OK;
  }
  const int64_t taken = s->batch * s->world_size; /* these are full batches, so the product does not overflow */
  if (taken % o->world_size)
    return tdict_fail(err, TDICT_EINVAL,
                      "loader state: %d ranks have taken %lld batches of epoch %lld, which is no multiple of the %d "
                      "ranks of this loader",
                      (int)s->world_size, (long long)taken, (long long)s->epoch, (int)o->world_size);
  s->batch = taken / o->world_size;
  return TDICT_OK;
}

/* Makes the epoch of a saved state. If the dataset's length varies, the epoch uses the length that the state contains.
 * Returns TDICT_EINVAL if the state is inside an epoch and the dataset is now shorter than this length. Also returns
 * the errors of tdict_loader_plan_epoch(). */
static tdict_status plan_saved_epoch(const tdict_loader *l, const tdict_loader_state *state, tdict_loader_epoch *out,
                                     tdict_error *err) {
  if (!l->table->length_varies) {
    *out = l->epoch;
    if (out->sampler) tdict_sampler_retain(out->sampler);
    return TDICT_OK;
  }
  int64_t now = l->table->length(l->table->self);
  if (state->batch > 0 && state->dataset_length > now)
    return tdict_fail(err, TDICT_EINVAL, "loader state: the epoch has %lld samples, but the dataset has %lld",
                      (long long)state->dataset_length, (long long)now);
  /* The length in a stream's state is negative. For such a state, check_state() fails with every epoch, so
   * the length does not matter here. */
  return tdict_loader_plan_epoch(l, state->dataset_length < 0 ? 0 : state->dataset_length, out, err);
}

tdict_status tdict_loader_get_state(tdict_loader *l, tdict_loader_state *out, tdict_error *err) {
  if (!l || !out) return tdict_fail_null(err, "loader state", l ? "out" : "the loader");
  tdict_status status =
      tdict_forkmark_check(l->mark, "loader state", err); /* In a forked child, the lock may stay locked for ever. */
  if (status != TDICT_OK) return status;
  pthread_mutex_lock(&l->lock);
  tdict_loader_state s = describe_state(l, &l->epoch, l->next_to_take);
  pthread_mutex_unlock(&l->lock);
  return tdict_options_write(out, &s, sizeof s, "loader state", err);
}

static void end_pause(tdict_loader *l) {
  pthread_mutex_lock(&l->lock);
  l->is_paused = false;
  pthread_cond_broadcast(&l->can_begin);
  pthread_mutex_unlock(&l->lock);
}

/* Makes the plan of a state's epoch. From then on, workers begin nothing until end_pause() or tdict_loader_seek(), so
 * that the program does not plan two epochs at the same time. */
static tdict_status make_plan_alone(tdict_loader *l, const tdict_sampler *sampler, int64_t epoch,
                                    tdict_epoch_plan *plan) {
  pthread_mutex_lock(&l->lock);
  tdict_loader_end_abandoned(l);
  l->is_paused = true;
  while (l->is_planning) tdict_cond_wait(&l->batch_done, &l->lock);
  pthread_mutex_unlock(&l->lock);
  return tdict_epoch_plan_make(plan, l, sampler, epoch);
}

/* Checks the batch of a state. If epochs have plans, first plans the epoch of the state, except if
 * tdict_loader_begin_epoch() will begin it with another length. After a plan, workers are still paused. */
static tdict_status plan_saved_batches(tdict_loader *l, tdict_loader_state *s, tdict_loader_epoch *epoch,
                                       tdict_epoch_plan *plan, tdict_error *err) {
  const bool plans = tdict_loader_has_plans(l) && !(l->table->length_varies && s->batch == 0);
  tdict_status status = plans ? make_plan_alone(l, epoch->sampler, s->epoch, plan) : TDICT_OK;
  if (status != TDICT_OK && err) *err = plan->failure;
  if (status == TDICT_OK && plans) {
    epoch->num_batches = plan->num_batches;
    epoch->plan_hash = plan->hash;
  }
  if (status == TDICT_OK && l->options.plan_epoch && s->plan_hash && s->plan_hash != plan->hash && s->batch > 0)
    status = tdict_fail(err, TDICT_EINVAL, "loader state: plan_epoch planned epoch %lld differently before",
                        (long long)s->epoch);
  if (status == TDICT_OK && epoch->sampler) status = continue_with_ranks(l, epoch, plan, s, err);
  if (status == TDICT_OK) status = check_batch(l, epoch->num_batches, s, err);
  if (status == TDICT_OK) return TDICT_OK;
  tdict_epoch_plan_reset(plan);
  if (plans) end_pause(l);
  return status;
}

tdict_status tdict_loader_set_state(tdict_loader *l, const tdict_loader_state *state, tdict_error *err) {
  if (!l || !state) return tdict_fail_null(err, "loader state", l ? "the state" : "the loader");
  tdict_loader_epoch epoch = {0};
  tdict_epoch_plan plan = {.epoch = -1};
  tdict_loader_state s;
  tdict_status status = tdict_options_read_saved(&s, sizeof s, state, "loader state", err);
  if (status == TDICT_OK) status = tdict_forkmark_check(l->mark, "loader", err);
  if (status == TDICT_OK) status = plan_saved_epoch(l, &s, &epoch, err);
  if (status == TDICT_OK) status = check_state(l, &epoch, &s, err);
  if (status == TDICT_OK) status = plan_saved_batches(l, &s, &epoch, &plan, err);
  if (status != TDICT_OK) {
    tdict_sampler_release(epoch.sampler);
    return status;
  }
  pthread_mutex_lock(&l->lock);
  tdict_loader_seek(l, (tdict_batch_position){s.epoch, s.batch});
  tdict_loader_replace_epoch(l, &epoch);
  tdict_epoch_plan_reset(&l->plan);
  l->plan = plan;
  l->awaits_epoch = l->table->length_varies && s.batch == 0;
  pthread_mutex_unlock(&l->lock);
  return TDICT_OK;
}
