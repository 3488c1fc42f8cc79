/* Implements the samplers. A sampler owns its alias table.
 * Thread rule: see tdict/sampler.h. After creation only the reference count changes. */
#include "tdict/sampler.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/base/float_env.h"
#include "core/base/options.h"
#include "services/loader/sampler.h"
#include "services/loader/shuffle.h"

static tdict_status check_sampler_options(int64_t length, const tdict_sampler_options *o, tdict_error *err) {
  if (length < 0)
    return tdict_fail(err, TDICT_EINVAL, "sampler: the length is %lld, wanted 0 or more", (long long)length);
  if (o->kind < TDICT_SAMPLER_SEQUENTIAL || o->kind > TDICT_SAMPLER_WEIGHTED)
    return tdict_fail(err, TDICT_EINVAL, "sampler: kind is %d, wanted a tdict_sampler_kind", (int)o->kind);
  if (o->world_size < 1 || o->rank < 0 || o->rank >= o->world_size)
    return tdict_fail(err, TDICT_EINVAL, "sampler: rank is %d of %d, wanted 0 to world_size - 1", (int)o->rank,
                      (int)o->world_size);
  if (o->num_samples < 0)
    return tdict_fail(err, TDICT_EINVAL, "sampler: num_samples is %lld, wanted 0 or more", (long long)o->num_samples);
  bool draws = o->kind >= TDICT_SAMPLER_WITH_REPLACEMENT;
  if (!draws && o->num_samples > length)
    return tdict_fail(err, TDICT_EINVAL,
                      "sampler: num_samples is %lld, wanted at most the length %lld, since no index is drawn twice",
                      (long long)o->num_samples, (long long)length);
  if (draws && length == 0 && o->num_samples > 0)
    return tdict_fail(err, TDICT_EINVAL, "sampler: num_samples is %lld, but the length is 0",
                      (long long)o->num_samples);
  if (o->kind == TDICT_SAMPLER_WEIGHTED && !o->weights && length > 0)
    return tdict_fail(err, TDICT_EINVAL, "sampler: weights is NULL, wanted an array of %lld", (long long)length);
  if (o->kind == TDICT_SAMPLER_WEIGHTED && o->num_weights != (size_t)length)
    return tdict_fail(err, TDICT_EINVAL, "sampler: num_weights is %zu, wanted the length %lld", o->num_weights,
                      (long long)length);
  return TDICT_OK;
}

static tdict_status sum_weights(const double *weights, int64_t length, double *out, tdict_error *err) {
  double sum = 0;
  for (int64_t i = 0; i < length; i++) {
    if (!(weights[i] >= 0) || !isfinite(weights[i]))
      return tdict_fail(err, TDICT_EINVAL, "sampler: weight %lld is %g, wanted a finite number of 0 or more",
                        (long long)i, weights[i]);
    sum += weights[i];
  }
  if (!(sum > 0) || !isfinite(sum))
    return tdict_fail(err, TDICT_EINVAL, "sampler: the weights add up to %g, wanted a positive finite sum", sum);
  *out = sum;
  return TDICT_OK;
}

/* Returns share * 2^64, at most UINT64_MAX. The factor is the largest double below 2^64, so the product cannot
 * overflow. */
static uint64_t to_fraction64(double share) {
  return share >= 1 ? UINT64_MAX : (uint64_t)(share * 18446744073709549568.0);
}

/* Fills the alias table. A column with less than the average weight ("poor") is filled up by a column with more
 * ("rich"). `share` and `order` are scratch arrays with one element per column. `order` lists poor columns from its
 * front and rich columns from its back. */
static void fill_alias_table(tdict_sampler *s, const double *weights, double sum, double *share, int64_t *order) {
  int64_t poor = 0, rich = s->length;
  for (int64_t i = 0; i < s->length; i++) {
    share[i] = weights[i] / sum * (double)s->length;
    s->columns[i] = (tdict_alias_column){UINT64_MAX, i};
    if (share[i] < 1)
      order[poor++] = i;
    else
      order[--rich] = i;
  }
  while (poor > 0 && rich < s->length) {
    int64_t low = order[--poor], high = order[rich];
    s->columns[low] = (tdict_alias_column){to_fraction64(share[low]), high};
    share[high] -= 1 - share[low];
    if (share[high] < 1) {
      rich++;
      order[poor++] = high;
    }
  }
}

/* Allocates and fills the alias table, and computes its hash for saved states. */
TDICT_FLOAT_ENV_BODY static tdict_status build_alias_table(tdict_sampler *s, const double *weights, tdict_error *err) {
  double sum = 0;
  if (s->length == 0) return TDICT_OK;
  tdict_status status = sum_weights(weights, s->length, &sum, err);
  if (status != TDICT_OK) return status;
  size_t count = (size_t)s->length, bytes;
  double *share = NULL;
  int64_t *order = NULL;
  if (tdict_mul_size(count, sizeof *s->columns, &bytes)) {
    s->columns = malloc(bytes);
    share = malloc(count * sizeof *share);
    order = malloc(count * sizeof *order);
  }
  if (s->columns && share && order) {
    fill_alias_table(s, weights, sum, share, order);
    for (int64_t i = 0; i < s->length; i++)
      s->weights_hash = tdict_mix(tdict_mix(s->weights_hash, s->columns[i].own_share), (uint64_t)s->columns[i].other);
  } else {
    status = tdict_fail_memory(err, "sampler", NULL, "%lld weights", (long long)s->length);
  }
  free(share);
  free(order);
  return status;
}

tdict_status tdict_sampler_create(int64_t length, const tdict_sampler_options *options, tdict_sampler **out,
                                  tdict_error *err) {
  if (!out) return tdict_fail(err, TDICT_EINVAL, "sampler: out is NULL");
  tdict_sampler_options o = tdict_sampler_options_default();
  tdict_status status = tdict_options_read(&o, sizeof o, options, "sampler options", err);
  if (status == TDICT_OK) status = check_sampler_options(length, &o, err);
  if (status != TDICT_OK) return status;
  tdict_sampler *s = calloc(1, sizeof *s);
  if (!s) return tdict_fail_memory(err, "sampler", NULL, "its record");
  atomic_init(&s->references, 1);
  s->length = length;
  s->num_drawn = o.num_samples ? o.num_samples : length;
  s->options = o;
  s->num_per_rank = tdict_sampler_share(s, o.world_size);
  s->options.weights = NULL;
  s->options.num_weights = 0;
  if (o.kind == TDICT_SAMPLER_SEQUENTIAL) s->options.seed = 0; /* saved states of all seeds are equal */
  const tdict_float_env saved = tdict_float_env_enter();
  if (o.kind == TDICT_SAMPLER_WEIGHTED) status = build_alias_table(s, o.weights, err);
  tdict_float_env_leave(&saved);
  return TDICT_HAND_OVER(status, s, out, tdict_sampler_release);
}

tdict_status tdict_sampler_resize(const tdict_sampler *s, int64_t length, tdict_sampler **out, tdict_error *err) {
  tdict_sampler_options o = s->options;
  if (length == 0 || (o.kind != TDICT_SAMPLER_WITH_REPLACEMENT && o.num_samples > length)) o.num_samples = length;
  return tdict_sampler_create(length, &o, out, err);
}

tdict_sampler *tdict_sampler_retain(const tdict_sampler *sampler) {
  tdict_sampler *counted = (tdict_sampler *)sampler; /* The reference count changes even for a const sampler. */
  atomic_fetch_add_explicit(&counted->references, 1, memory_order_relaxed);
  return counted;
}

void tdict_sampler_release(tdict_sampler *sampler) {
  if (!sampler || atomic_fetch_sub_explicit(&sampler->references, 1, memory_order_acq_rel) != 1) return;
  free(sampler->columns);
  free(sampler);
}

int64_t tdict_sampler_length(const tdict_sampler *sampler) { return sampler->num_per_rank; }

int64_t tdict_sampler_draw(const tdict_sampler *sampler, int64_t epoch, int64_t draw) {
  if (sampler->options.kind == TDICT_SAMPLER_SEQUENTIAL) return draw;

  /* The kinds below draw at random. For a given sampler, the result depends only on the epoch and the position. */
  uint64_t key = tdict_mix(sampler->options.seed, (uint64_t)epoch);
  if (sampler->options.kind == TDICT_SAMPLER_SHUFFLED) {
    tdict_shuffle p = tdict_shuffle_make((uint64_t)sampler->length, key);
    return (int64_t)tdict_shuffle_at(&p, (uint64_t)draw);
  }
  /* Each kind has draws of its own. A shuffle uses numbers of `key` itself, so take those of `~key`. */
  key = tdict_mix(~key, (uint64_t)sampler->options.kind);
  int64_t drawn = (int64_t)tdict_pick_below(tdict_mix(key, (uint64_t)draw), (uint64_t)sampler->length);
  if (sampler->options.kind == TDICT_SAMPLER_WITH_REPLACEMENT) return drawn;
  const tdict_alias_column *c = &sampler->columns[drawn];
  return tdict_mix(~key, (uint64_t)draw) < c->own_share ? drawn : c->other;
}

int64_t tdict_sampler_get(const tdict_sampler *sampler, int64_t epoch, int64_t position) {
  if (epoch < 0 || position < 0 || position >= sampler->num_per_rank) return -1;
  /* The sum is unsigned, because it may exceed INT64_MAX. The sum is less than num_drawn + 2 * world_size. */
  uint64_t position_of_all =
      (uint64_t)position * (uint64_t)sampler->options.world_size + (uint64_t)sampler->options.rank;
  return tdict_sampler_draw(sampler, epoch, (int64_t)(position_of_all % (uint64_t)sampler->num_drawn));
}
