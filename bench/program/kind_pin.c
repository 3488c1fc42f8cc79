/* The kinds pin (a tree is copied into pinned memory) and pin_h2d (and then to the device). See rows.h for ownership
 * and threads. */
#include <string.h>

#include "rows.h"

static bool pin_tree(bench_job *job, int tree, tdict_tree **out) {
  tdict_error err;
  tdict_pin_options o = tdict_pin_options_default();
  o.num_threads = job->row.threads;
  if (tdict_pin_memory(job->place->context, job->place->sources[tree].tree, &o, out, &err) == TDICT_OK) return true;
  bench_print_status("pin_memory", &err);
  return false;
}

static int pin_verify(bench_job *job) {
  check_place host = job->place->check;
  check_poison none = {0, 0};
  tdict_tree *pinned = NULL;
  host.device = tdict_cpu();
  if (!pin_tree(job, 0, &pinned)) return BENCH_FAILED;
  int answer = BENCH_OK;
  if (!tdict_is_pinned(pinned)) {
    bench_print_error("%s/%s: the result is not pinned", job->scenario, job->row.name);
    answer = BENCH_FAILED;
  } else {
    answer = check_result(&host, &job->place->sources[0], pinned, &none, &job->poisoned_bytes);
  }
  tdict_release(pinned);
  return answer;
}

static bool pin_sample(bench_job *job, int tree, double *seconds) {
  tdict_tree *pinned = NULL;
  double begin = bench_now();
  if (!pin_tree(job, tree, &pinned)) return false;
  tdict_release(pinned);
  *seconds = bench_now() - begin;
  return true;
}

const bench_kind kind_pin = {"pin", false, false, NULL, pin_verify, pin_sample, NULL, NULL, NULL};

static bool pin_and_move(bench_job *job, int tree, tdict_tree **out) {
  tdict_tree *pinned = NULL;
  if (!pin_tree(job, tree, &pinned)) return false;
  bool good = move_tree(job, pinned, job->place->device, out);
  tdict_release(pinned);
  return good;
}

static bool pin_h2d_prepare(bench_job *job) {
  raw_driver *raw = job->place->check.raw;
  if (!raw || raw_alloc(raw, job->total_bytes + 256, &job->raw_device)) return true;
  bench_print_error("the driver: %s", raw_why(raw));
  return false;
}

static int pin_h2d_verify(bench_job *job) {
  check_place *p = &job->place->check;
  const check_source *s = &job->place->sources[0];
  check_poison poison;
  tdict_tree *result = NULL;
  if (!check_poison_result(p, s, &poison) || !pin_and_move(job, 0, &result)) return BENCH_FAILED;
  int answer = check_result(p, s, result, &poison, &job->poisoned_bytes);
  tdict_release(result);
  return answer;
}

static bool pin_h2d_sample(bench_job *job, int tree, double *seconds) {
  tdict_tree *result = NULL;
  double begin = bench_now();
  if (!pin_and_move(job, tree, &result)) return false;
  tdict_release(result);
  *seconds = bench_now() - begin;
  return true;
}

/* Copies each leaf into existing pinned memory, and from there to the device. */
static bool pin_h2d_driver(bench_job *job, int tree, double *seconds) {
  const check_place *c = &job->place->check;
  const check_source *s = &job->place->sources[tree];
  bool waits = strcmp(job->row.calls, "blocking") == 0, good = true;
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
  if (!good) bench_print_error("pin and copy by the driver: %s", raw_why(c->raw));
  return good;
}

const bench_kind kind_pin_h2d = {"pin_h2d",      false, false, pin_h2d_prepare, pin_h2d_verify, pin_h2d_sample,
                                 pin_h2d_driver, NULL,  NULL};
