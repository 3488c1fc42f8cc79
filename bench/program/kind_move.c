/* The kinds h2d (a tree is copied to the device) and d2h (from the device to the host). See rows.h for ownership and
 * threads. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "rows.h"

/* Above this size one existing destination is enough: it is too large for any cache when it is reused. */
static const size_t one_target_bytes = (size_t)512 << 20;

static bool is_equal(const char *a, const char *b) { return strcmp(a, b) == 0; }

tdict_transfer_options move_options(const bench_job *job) {
  tdict_transfer_options o = tdict_transfer_options_default();
  o.mode = job->row.mode;
  o.num_threads = job->row.threads;
  o.pinned_result = is_equal(job->row.result, "pinned");
  return o;
}

bool move_tree(bench_job *job, const tdict_tree *source, tdict_device to, tdict_tree **out) {
  tdict_error err;
  tdict_transfer_options o = move_options(job);
  if (tdict_to_device(job->place->context, source, to, &o, out, &err) == TDICT_OK) return true;
  char what[128];
  snprintf(what, sizeof what, "%s/%s", job->scenario, job->row.name);
  bench_print_status(what, &err);
  return false;
}

static bool driver_failed(const bench_job *job) {
  bench_print_error("%s/%s by the driver: %s", job->scenario, job->row.name, raw_why(job->place->check.raw));
  return false;
}

static bool h2d_prepare(bench_job *job) {
  if (!place_is_gpu(job->place)) return true;
  return raw_alloc(job->place->check.raw, job->total_bytes + 256, &job->raw_device) || driver_failed(job);
}

static int h2d_verify(bench_job *job) {
  check_place *p = &job->place->check;
  const check_source *s = &job->place->sources[0];
  check_poison poison;
  tdict_tree *result = NULL;
  if (!check_poison_result(p, s, &poison) || !move_tree(job, s->tree, p->device, &result)) return BENCH_FAILED;
  int answer = check_result(p, s, result, &poison, &job->poisoned_bytes);
  tdict_release(result);
  return answer;
}

/* The time includes allocating and releasing the result. */
static bool h2d_sample(bench_job *job, int tree, double *seconds) {
  tdict_tree *result = NULL;
  double begin = bench_now();
  if (!move_tree(job, job->place->sources[tree].tree, job->place->device, &result)) return false;
  tdict_release(result);
  *seconds = bench_now() - begin;
  return true;
}

static bool h2d_driver(bench_job *job, int tree, double *seconds) {
  raw_driver *raw = job->place->check.raw;
  const check_source *s = &job->place->sources[tree];
  bool waits = is_equal(job->row.calls, "blocking"), good = true;
  raw_address to = job->raw_device;
  double begin = bench_now();
  for (int64_t i = 0; i < s->leaves && good; to += s->bytes[i], i++)
    good = waits ? raw_copy_in(raw, to, s->data[i], s->bytes[i]) : raw_copy_in_async(raw, to, s->data[i], s->bytes[i]);
  if (!good || !raw_finish(raw)) return driver_failed(job);
  *seconds = bench_now() - begin;
  return true;
}

const bench_kind kind_h2d = {"h2d", false, false, h2d_prepare, h2d_verify, h2d_sample, h2d_driver, NULL, NULL};

/* Copies to the host. "fresh" and "pinned" results are new each time. "warm" and "into_pinned" results are
 * overwritten. */
static bool writes_over(const bench_job *job) {
  return is_equal(job->row.result, "warm") || is_equal(job->row.result, "into_pinned");
}

static bool d2h_targets(bench_job *job) {
  bool pinned = is_equal(job->row.result, "into_pinned");
  int groups = 0;
  while (groups < BENCH_MAX_GROUPS && job->row.groups[groups].leaves > 0) groups++;
  job->num_targets = job->total_bytes > one_target_bytes ? 1 : BENCH_TREES;
  for (int t = 0; t < job->num_targets; t++) {
    check_source *to = &job->targets[t];
    tdict_memory *memory = pinned ? tdict_pinned_memory(job->place->context) : NULL;
    if (!check_source_make(to, job->row.groups, groups, memory)) return false;
    for (int64_t i = 0; i < to->leaves; i++) memset(to->data[i], CHECK_POISON, to->bytes[i]);
  }
  return true;
}

static bool d2h_prepare(bench_job *job) {
  tdict_error err;
  bench_place *p = job->place;
  for (int t = 0; t < BENCH_TREES; t++) {
    if (tdict_to_device(p->context, p->sources[t].tree, p->device, NULL, &job->device_trees[t], &err) == TDICT_OK)
      continue;
    bench_print_status("cannot make the trees on the device", &err);
    return false;
  }
  if (writes_over(job) && !d2h_targets(job)) return false;
  if (!place_is_gpu(p) || !is_equal(job->row.result, "warm")) return true;
  job->raw_host = malloc(job->total_bytes + 1);
  if (job->raw_host) {
    memset(job->raw_host, CHECK_POISON, job->total_bytes + 1);
    return true;
  }
  bench_print_error("no memory for the driver's copies");
  return false;
}

static bool d2h_move(bench_job *job, int tree, tdict_tree **out) {
  if (!writes_over(job)) return move_tree(job, job->device_trees[tree], tdict_cpu(), out);
  tdict_error err;
  tdict_transfer_options o = move_options(job);
  tdict_tree *to = job->targets[tree % job->num_targets].tree;
  if (bench_transfer_into(job->place->context, to, job->device_trees[tree], &o, &err) != TDICT_OK) {
    bench_print_status("copy into", &err);
    return false;
  }
  *out = NULL;
  return true;
}

static int d2h_verify(bench_job *job) {
  check_place host = job->place->check;
  check_poison none = {0, 0};
  tdict_tree *result = NULL;
  host.device = tdict_cpu();
  if (!d2h_move(job, 0, &result)) return BENCH_FAILED;
  const tdict_tree *pinned = result ? result : job->targets[0].tree;
  if ((is_equal(job->row.result, "pinned") || is_equal(job->row.result, "into_pinned")) && !tdict_is_pinned(pinned)) {
    bench_print_error("%s/%s: the result is not pinned", job->scenario, job->row.name);
    tdict_release(result);
    return BENCH_FAILED;
  }
  tdict_tree *found = result ? result : job->targets[0].tree;
  int answer = check_result(&host, &job->place->sources[0], found, &none, &job->poisoned_bytes);
  tdict_release(result);
  return answer;
}

static bool d2h_sample(bench_job *job, int tree, double *seconds) {
  tdict_tree *result = NULL;
  double begin = bench_now();
  if (!d2h_move(job, tree, &result)) return false;
  tdict_release(result);
  *seconds = bench_now() - begin;
  return true;
}

/* Copies leaf by leaf. Pinned destinations are parts of the bounce buffer, which is reused from its start when it is
 * full. */
static bool d2h_driver(bench_job *job, int tree, double *seconds) {
  raw_driver *raw = job->place->check.raw;
  const check_place *c = &job->place->check;
  const check_source *s = &job->place->sources[tree];
  bool pinned = is_equal(job->row.result, "pinned") || is_equal(job->row.result, "into_pinned");
  bool fresh = is_equal(job->row.result, "fresh"), good = true;
  tdict_tensor *leaf;
  double begin = bench_now();
  unsigned char *base = fresh ? malloc(job->total_bytes + 1) : pinned ? c->bounce : job->raw_host;
  size_t at = 0;
  for (int64_t i = 0; i < s->leaves && good && base; at += s->bytes[i], i++) {
    char key[24];
    snprintf(key, sizeof key, "%" PRId64, i);
    if (tdict_get(job->device_trees[tree], key, &leaf, NULL) != TDICT_OK) good = false;
    if (!good) break;
    raw_address from = (raw_address)(uintptr_t)tdict_tensor_const_data(leaf);
    if (pinned && at + s->bytes[i] > c->bounce_bytes) at = 0;
    good = pinned ? raw_copy_out_async(raw, base + at, from, s->bytes[i])
                  : raw_copy_out(raw, base + at, from, s->bytes[i]);
  }
  if (good) good = raw_finish(raw);
  if (fresh) free(base);
  *seconds = bench_now() - begin;
  return (good && base) || driver_failed(job);
}

const bench_kind kind_d2h = {"d2h", false, false, d2h_prepare, d2h_verify, d2h_sample, d2h_driver, NULL, NULL};
