/* Implements the library's own functions that plan epochs. All memory is freed before a function returns.
 * Thread rule: thread-safe. */
#include <math.h>
#include <stdlib.h>

#include "core/base/error.h"
#include "core/base/float_env.h"
#include "core/base/options.h"
#include "services/loader/division.h"
#include "tdict/epoch.h"
#include "tdict/random.h"

/* ---- balanced and mixed ---- */

/* A class or a part of the dataset, which has the items first to first + count - 1 of an array of indices. */
typedef struct pool {
  int64_t first, count, num_drawn;
  double weight, due; /* `due`: the time of the next draw */
} pool;

/* Chooses the time of the next draw: draw k at a random time from k / weight to (k + 1) / weight. The random number has
 * 20 bits, so the sum is exact, and the draws of equal weights come in rounds. */
static void set_due(pool *p, tdict_random *random) {
  const double step = (double)tdict_random_below(random, 1 << 20) * 0x1p-20;
  p->due = ((double)p->num_drawn + step) / p->weight;
}

/* Restores the heap of pools, whose earliest is at 0, after pool `at` has become later. */
static void sift_down(pool *heap, size_t count, size_t at) {
  for (size_t child = 2 * at + 1; child < count; at = child, child = 2 * at + 1) {
    if (child + 1 < count && heap[child + 1].due < heap[child].due) child++;
    if (heap[at].due <= heap[child].due) return;
    const pool moved = heap[at];
    heap[at] = heap[child];
    heap[child] = moved;
  }
}

/* Adds `num_samples` samples to the epoch, each from the pool whose draw is due. All pools have items and weights. */
TDICT_FLOAT_ENV_BODY static void draw_from_pools(pool *pools, size_t count, int64_t *items, int64_t num_samples,
                                                 uint64_t seed, tdict_epoch *epoch) {
  tdict_random random = tdict_random_from(seed);
  double largest = 0;
  for (size_t i = 0; i < count; i++) largest = pools[i].weight > largest ? pools[i].weight : largest;
  for (size_t i = 0; i < count; i++) {
    pools[i].weight /= largest; /* a draw divided by a tiny weight would be infinite */
    set_due(&pools[i], &random);
  }
  for (size_t i = count; i > 0; i--) sift_down(pools, count, i - 1);
  for (int64_t i = 0; i < num_samples; i++) {
    pool *p = &pools[0];
    const int64_t place = p->num_drawn++ % p->count;
    if (place == 0) tdict_random_shuffle(&random, items + p->first, (size_t)p->count);
    tdict_epoch_add(epoch, items[p->first + place]);
    set_due(p, &random);
    sift_down(pools, count, 0);
  }
}

/* Draws from the pools that have items and weights. If there is none, adds nothing and returns false. */
static bool draw_samples(pool *pools, size_t count, int64_t *items, int64_t num_samples, const tdict_epoch_info *info,
                         tdict_epoch *epoch) {
  size_t used = 0;
  for (size_t i = 0; i < count; i++)
    if (pools[i].count > 0 && pools[i].weight > 0) pools[used++] = pools[i];
  if (used == 0) return num_samples == 0;
  const tdict_float_env saved = tdict_float_env_enter();
  draw_from_pools(pools, used, items, num_samples, info->seed, epoch);
  tdict_float_env_leave(&saved);
  return true;
}

static tdict_status check_balanced(const tdict_balanced_options *o, const tdict_epoch_info *info, tdict_error *err) {
  if (o->num_labels != (size_t)info->num_indices || (!o->labels && o->num_labels))
    return tdict_fail(err, TDICT_EINVAL, "balanced: %zu labels%s, wanted %lld, one for each sample", o->num_labels,
                      o->labels ? "" : " at NULL", (long long)info->num_indices);
  if (o->num_classes < 1 || o->num_samples < 0)
    return tdict_fail(err, TDICT_EINVAL, "balanced: %s is %lld, wanted %d or more",
                      o->num_classes < 1 ? "num_classes" : "num_samples",
                      (long long)(o->num_classes < 1 ? o->num_classes : o->num_samples), o->num_classes < 1);
  for (size_t i = 0; i < o->num_labels; i++)
    if (o->labels[i] < 0 || o->labels[i] >= o->num_classes)
      return tdict_fail(err, TDICT_EINVAL, "balanced: the label of sample %zu is %lld, wanted 0 to %lld", i,
                        (long long)o->labels[i], (long long)o->num_classes - 1);
  return TDICT_OK;
}

/* Sorts the samples by class. */
static void fill_classes(const tdict_balanced_options *o, pool *classes, int64_t *items) {
  int64_t first = 0;
  for (size_t i = 0; i < o->num_labels; i++) classes[o->labels[i]].count++;
  for (int64_t c = 0; c < o->num_classes; c++) {
    classes[c].weight = 1;
    classes[c].first = first;
    first += classes[c].count;
    classes[c].count = 0;
  }
  for (size_t i = 0; i < o->num_labels; i++) {
    pool *c = &classes[o->labels[i]];
    items[c->first + c->count++] = (int64_t)i;
  }
}

tdict_status tdict_plan_balanced(void *user, const tdict_epoch_info *info, tdict_epoch *epoch, tdict_error *err) {
  tdict_balanced_options o = tdict_balanced_options_default();
  tdict_status status = tdict_options_read(&o, sizeof o, user, "balanced options", err);
  if (status == TDICT_OK) status = check_balanced(&o, info, err);
  if (status != TDICT_OK) return status;
  const int64_t num_samples = o.num_samples ? o.num_samples : info->num_indices;
  pool *classes = calloc((size_t)o.num_classes, sizeof *classes);
  int64_t *items = calloc(o.num_labels + 1, sizeof *items);
  if (!classes || !items) {
    status = tdict_fail_memory(err, "balanced", NULL, "%lld samples", (long long)info->num_indices);
  } else {
    fill_classes(&o, classes, items);
    if (!draw_samples(classes, (size_t)o.num_classes, items, num_samples, info, epoch))
      status = tdict_fail(err, TDICT_EINVAL, "balanced: num_samples is %lld, but no class has a sample",
                          (long long)num_samples);
  }
  free(classes);
  free(items);
  return status;
}

/* Makes the pools of the parts, and checks lengths and weights. */
static tdict_status fill_parts(const tdict_mixed_options *o, int64_t num_indices, pool *parts, tdict_error *err) {
  int64_t left = num_indices;
  for (size_t i = 0; i < o->num_parts; i++) {
    const double weight = o->weights[i];
    if (!(weight >= 0) || !isfinite(weight))
      return tdict_fail(err, TDICT_EINVAL, "mixed: weight %zu is %g, wanted a finite number of 0 or more", i, weight);
    if (weight > 0 && o->lengths[i] == 0)
      return tdict_fail(err, TDICT_EINVAL, "mixed: part %zu has a weight, but no sample", i);
    if (o->lengths[i] < 0 || o->lengths[i] > left)
      return tdict_fail(err, TDICT_EINVAL, "mixed: part %zu has %lld samples, wanted 0 to %lld", i,
                        (long long)o->lengths[i], (long long)left);
    parts[i] = (pool){.first = num_indices - left, .count = o->lengths[i], .weight = weight};
    left -= o->lengths[i];
  }
  if (left == 0) return TDICT_OK;
  return tdict_fail(err, TDICT_EINVAL, "mixed: the parts have %lld samples, but the dataset has %lld",
                    (long long)(num_indices - left), (long long)num_indices);
}

tdict_status tdict_plan_mixed(void *user, const tdict_epoch_info *info, tdict_epoch *epoch, tdict_error *err) {
  tdict_mixed_options o = tdict_mixed_options_default();
  tdict_status status = tdict_options_read(&o, sizeof o, user, "mixed options", err);
  if (status != TDICT_OK) return status;
  if (!o.num_parts || !o.lengths || !o.weights || o.num_samples < 0)
    return tdict_fail(err, TDICT_EINVAL, "mixed: %s",
                      o.num_samples < 0 ? "num_samples is negative" : "lengths or weights are missing");
  const int64_t num_samples = o.num_samples ? o.num_samples : info->num_indices;
  pool *parts = calloc(o.num_parts, sizeof *parts);
  int64_t *items = calloc((size_t)info->num_indices + 1, sizeof *items);
  status = parts && items ? fill_parts(&o, info->num_indices, parts, err)
                          : tdict_fail_memory(err, "mixed", NULL, "%lld samples", (long long)info->num_indices);
  for (int64_t i = 0; status == TDICT_OK && i < info->num_indices; i++) items[i] = i;
  if (status == TDICT_OK && !draw_samples(parts, o.num_parts, items, num_samples, info, epoch))
    status = tdict_fail(err, TDICT_EINVAL, "mixed: all weights are 0");
  free(parts);
  free(items);
  return status;
}

/* ---- bucketed ---- */

typedef struct item {
  int64_t bucket, index;
  uint64_t place; /* a random number that orders the items of a bucket */
} item;

static int compare_items(const void *left, const void *right) {
  const item *a = left, *b = right;
  if (a->bucket != b->bucket) return a->bucket < b->bucket ? -1 : 1;
  if (a->place != b->place) return a->place < b->place ? -1 : 1;
  return a->index < b->index ? -1 : a->index > b->index;
}

static tdict_status check_bucketed(const tdict_bucketed_options *o, const tdict_epoch_info *info, tdict_error *err) {
  if (o->num_lengths != (size_t)info->num_indices || (!o->lengths && o->num_lengths))
    return tdict_fail(err, TDICT_EINVAL, "bucketed: %zu lengths%s, wanted %lld, one for each sample", o->num_lengths,
                      o->lengths ? "" : " at NULL", (long long)info->num_indices);
  if (o->max_tokens < 1 || o->bucket_width < 1)
    return tdict_fail(err, TDICT_EINVAL, "bucketed: %s is %lld, wanted 1 or more",
                      o->max_tokens < 1 ? "max_tokens" : "bucket_width",
                      (long long)(o->max_tokens < 1 ? o->max_tokens : o->bucket_width));
  for (size_t i = 0; i < o->num_lengths; i++)
    if (o->lengths[i] < 0 || o->lengths[i] > o->max_tokens)
      return tdict_fail(err, TDICT_EINVAL,
                        "bucketed: sample %zu has %lld tokens, wanted 0 to max_tokens, which is %lld", i,
                        (long long)o->lengths[i], (long long)o->max_tokens);
  return TDICT_OK;
}

/* Adds the batches of a division to the epoch in random order. */
static void add_batches(tdict_division *d, const item *items, tdict_random *random, tdict_epoch *epoch) {
  for (int64_t left = d->num_batches; left > 0; left--) {
    tdict_batch_range *chosen = &d->ranges[tdict_random_below(random, left)];
    for (int64_t i = 0; i < chosen->count; i++) tdict_epoch_add(epoch, items[chosen->first + i].index);
    tdict_epoch_end_batch(epoch);
    *chosen = d->ranges[left - 1];
  }
}

tdict_status tdict_plan_bucketed(void *user, const tdict_epoch_info *info, tdict_epoch *epoch, tdict_error *err) {
  tdict_bucketed_options o = tdict_bucketed_options_default();
  tdict_status status = tdict_options_read(&o, sizeof o, user, "bucketed options", err);
  if (status == TDICT_OK) status = check_bucketed(&o, info, err);
  if (status != TDICT_OK) return status;
  tdict_division d = {.batch_size = info->batch_size, .max_tokens = o.max_tokens, .counts_padding = o.counts_padding};
  tdict_random random = tdict_random_from(info->seed);
  item *items = calloc(o.num_lengths + 1, sizeof *items);
  bool has_memory = items != NULL;
  for (size_t i = 0; has_memory && i < o.num_lengths; i++)
    items[i] = (item){o.lengths[i] / o.bucket_width, (int64_t)i, tdict_random_bits(&random)};
  if (has_memory) qsort(items, o.num_lengths, sizeof *items, compare_items);
  for (size_t i = 0; has_memory && i < o.num_lengths; i++)
    has_memory = tdict_division_add(&d, o.lengths[items[i].index]);
  if (has_memory)
    add_batches(&d, items, &random, epoch);
  else
    status = tdict_fail_memory(err, "bucketed", NULL, "%lld samples", (long long)info->num_indices);
  free(d.ranges);
  free(items);
  return status;
}
