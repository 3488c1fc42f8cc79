/* The kinds h2d (copies a tree to the device), d2h (copies to the host), pin (copies into pinned memory) and pin_h2d
 * (pins, then copies to the device). job_verify_made() and job_sample_made() serve other kinds, too. See rows.h for
 * ownership and threads. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "plain.h"
#include "rows.h"
#include "tdict/devices.h"

/* Above this size, one destination tree is enough, because the CPU caches cannot hold it. */
static const size_t one_target_bytes = (size_t)512 << 20;

static bool is_equal(const char *a, const char *b) { return strcmp(a, b) == 0; }

tdict_transfer_options move_options(const bench_job *job) {
  tdict_transfer_options o = td_with(tdict_transfer_options, mode = job->row.mode, num_threads = job->row.threads,
                                     pinned_result = is_equal(job->row.result, "pinned"));
  return o;
}

/* Returns whether a library call succeeded. If not, prints the error with the names of the scenario and the row. */
static bool has_worked(const bench_job *job, tdict_status status, const tdict_error *err) {
  if (status == TDICT_OK) return true;
  char what[128];
  snprintf(what, sizeof what, "%s/%s", job->scenario, job->row.name);
  return bench_has_worked(what, status, err);
}

bool move_tree(bench_job *job, const tdict_tree *source, tdict_device to, tdict_tree **out) {
  tdict_error err;
  tdict_transfer_options o = move_options(job);
  return has_worked(job, tdict_to_device(job->place->context, source, to, &o, out, &err), &err);
}

bool move_start(bench_job *job, int tree, const tdict_stream *after, tdict_future **out) {
  tdict_error err;
  bench_place *p = job->place;
  tdict_transfer_options o = move_options(job);
  if (after) o.after = *after;
  return has_worked(job, tdict_to_device_async(p->context, p->sources[tree].tree, p->device, &o, out, &err), &err);
}

bool move_end(bench_job *job, tdict_future *future, tdict_tree **out) {
  tdict_error err;
  const tdict_status status = tdict_future_wait(future, out, &err);
  tdict_future_release(future);
  return has_worked(job, status, &err);
}

static bool driver_failed(const bench_job *job) {
  bench_print_error("%s/%s by the driver: %s", job->scenario, job->row.name, raw_why(job->place->check.raw));
  return false;
}

static bool must_be_pinned(const bench_job *job) {
  const char *result = job->row.result;
  return job->row.kind == &kind_pin || is_equal(result, "pinned") || is_equal(result, "into_pinned");
}

int job_check(bench_job *job, tdict_tree *result, const check_poison *poison) {
  check_place place = job->place->check;
  if (job->row.kind->to_host) place.device = tdict_cpu();
  if (job->row.kind->to_host && must_be_pinned(job) && !tdict_is_pinned(result)) {
    bench_print_error("%s/%s: the result is not pinned", job->scenario, job->row.name);
    return BENCH_FAILED;
  }
  return check_result(&place, &job->place->sources[0], result, poison, &job->poisoned_bytes);
}

int job_verify_made(bench_job *job) {
  const bench_kind *kind = job->row.kind;
  check_poison poison = {0, 0};
  scoped_tree made = NULL;
  if (!kind->to_host && !check_poison_result(&job->place->check, &job->place->sources[0], &poison)) return BENCH_FAILED;
  if (!kind->make(job, 0, &made)) return BENCH_FAILED;
  return job_check(job, made ? made : job->targets[0].tree, &poison);
}

bool job_sample_made(bench_job *job, int tree, double *seconds) {
  tdict_tree *made = NULL;
  const double begin = bench_now();
  const bool good = job->row.kind->make(job, tree, &made);
  tdict_release(made);
  *seconds = bench_now() - begin;
  return good;
}

static bool allocate_on_device(bench_job *job) {
  if (!place_is_gpu(job->place)) return true;
  return raw_alloc(job->place->check.raw, job->total_bytes + 256, &job->raw_device) || driver_failed(job);
}

bool h2d_make(bench_job *job, int tree, tdict_tree **out) {
  return move_tree(job, job->place->sources[tree].tree, job->place->device, out);
}

static bool h2d_by_hand(bench_job *job, int tree, double *seconds) {
  const bench_place *p = job->place;
  return plain_leaves(&p->sources[tree], p->device.index, job->raw_device, seconds);
}

/* Also compares every byte that the threads of a row "by hand" have copied. */
static int h2d_verify(bench_job *job) {
  const check_place *c = &job->place->check;
  const check_source *s = &job->place->sources[0];
  const int answer = job_verify_made(job);
  double seconds;
  if (answer != BENCH_OK || !is_equal(job->row.calls, "by hand") || !place_is_gpu(job->place)) return answer;
  if (!raw_fill(c->raw, job->raw_device, CHECK_POISON, s->total_bytes)) return driver_failed(job), BENCH_FAILED;
  if (!h2d_by_hand(job, 0, &seconds)) return BENCH_FAILED;
  raw_address from = job->raw_device;
  for (int64_t i = 0; i < s->leaves; from += s->bytes[i], i++)
    for (size_t at = 0, size; at < s->bytes[i]; at += size) {
      size = s->bytes[i] - at < c->bounce_bytes ? s->bytes[i] - at : c->bounce_bytes;
      if (!raw_copy_out(c->raw, c->bounce, from + at, size)) return driver_failed(job), BENCH_FAILED;
      if (memcmp(c->bounce, s->data[i] + at, size) == 0) continue;
      bench_print_error("%s/%s: leaf %" PRId64 " differs", job->scenario, job->row.name, i);
      return BENCH_DIFFERS;
    }
  return BENCH_OK;
}

static bool h2d_driver(bench_job *job, int tree, double *seconds) {
  const bool waits = is_equal(job->row.calls, "blocking");
  if (is_equal(job->row.calls, "by hand")) return h2d_by_hand(job, tree, seconds);
  return place_copy_leaves(job->place, &job->place->sources[tree], job->raw_device, waits, seconds) ||
         driver_failed(job);
}

const bench_kind kind_h2d = {
    .name = "h2d", .prepare = allocate_on_device, .make = h2d_make, .verify = h2d_verify, .driver = h2d_driver};

/* Returns whether copies to the host write to existing trees, rather than to a new tree each time. */
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
  bench_place *p = job->place;
  for (int t = 0; t < BENCH_TREES; t++)
    if (!place_move(p, p->sources[t].tree, NULL, "cannot make the trees on the device", &job->device_trees[t]))
      return false;
  if (writes_over(job) && !d2h_targets(job)) return false;
  if (!place_is_gpu(p) || !is_equal(job->row.result, "warm")) return true;
  job->raw_host = malloc(job->total_bytes + 1);
  if (job->raw_host)
    memset(job->raw_host, CHECK_POISON, job->total_bytes + 1);
  else
    bench_print_error("cannot allocate the destination of the driver's copies");
  return job->raw_host != NULL;
}

static bool d2h_make(bench_job *job, int tree, tdict_tree **out) {
  if (!writes_over(job)) return move_tree(job, job->device_trees[tree], tdict_cpu(), out);
  tdict_error err;
  tdict_transfer_options o = move_options(job);
  tdict_tree *to = job->targets[tree % job->num_targets].tree;
  return has_worked(job, tdict_transfer_into(job->place->context, to, job->device_trees[tree], &o, &err), &err);
}

/* Copies leaf by leaf to the host with driver calls. For a pinned result, the destination is the bounce buffer. When it
 * is full, it is reused from the start. */
static bool d2h_driver(bench_job *job, int tree, double *seconds) {
  raw_driver *raw = job->place->check.raw;
  const check_place *c = &job->place->check;
  const check_source *s = &job->place->sources[tree];
  bool pinned = must_be_pinned(job);
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

const bench_kind kind_d2h = {
    .name = "d2h", .to_host = true, .prepare = d2h_prepare, .make = d2h_make, .driver = d2h_driver};

bool pin_make(bench_job *job, int tree, tdict_tree **out) {
  tdict_error err;
  tdict_pin_options o = td_with(tdict_pin_options, num_threads = job->row.threads);
  return has_worked(job, tdict_pin_memory(job->place->context, job->place->sources[tree].tree, &o, out, &err), &err);
}

const bench_kind kind_pin = {.name = "pin", .to_host = true, .make = pin_make};

/* "blocking" rows pin the tree and then send it. In other rows, one call does both at the same time. */
static bool pin_h2d_make(bench_job *job, int tree, tdict_tree **out) {
  scoped_tree pinned = NULL, all = NULL;
  tdict_error err;
  tdict_future *future;
  const tdict_device devices[2] = {tdict_cpu(), job->place->device};
  const tdict_spread both = tdict_spread_replicate(devices, 2);
  const tdict_transfer_options o =
      td_with(tdict_transfer_options, num_threads = job->row.threads, pinned_result = true);
  if (is_equal(job->row.calls, "blocking"))
    return pin_make(job, tree, &pinned) && move_tree(job, pinned, job->place->device, out);
  tdict_status status =
      tdict_to_devices_async(job->place->context, job->place->sources[tree].tree, &both, &o, &future, &err);
  if (!has_worked(job, status, &err) || !move_end(job, future, &all)) return false;
  *out = tdict_retain(tdict_get_entry_at(all, 1).tree);
  return true;
}

/* Copies each leaf into the pinned bounce buffer with memcpy(), and from there to the device with a driver call. */
static bool pin_h2d_driver(bench_job *job, int tree, double *seconds) {
  const check_place *c = &job->place->check;
  const check_source *s = &job->place->sources[tree];
  bool waits = is_equal(job->row.calls, "blocking"), good = true;
  raw_address to = job->raw_device;
  size_t at = 0;
  double begin = bench_now();
  for (int64_t i = 0; i < s->leaves && good; to += s->bytes[i], at += s->bytes[i], i++) {
    if (at + s->bytes[i] > c->bounce_bytes) {
      good = raw_finish_own(c->raw);
      at = 0;
    }
    unsigned char *pinned = (unsigned char *)c->bounce + at;
    memcpy(pinned, s->data[i], s->bytes[i]);
    if (good) good = raw_copy_in_async(c->raw, to, pinned, s->bytes[i]);
    if (good && waits) good = raw_finish_own(c->raw);
  }
  if (good) good = raw_finish(c->raw);
  *seconds = bench_now() - begin;
  return good || driver_failed(job);
}

const bench_kind kind_pin_h2d = {
    .name = "pin_h2d", .prepare = allocate_on_device, .make = pin_h2d_make, .driver = pin_h2d_driver};
