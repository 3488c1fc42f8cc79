/* tdict-bench fresh: measures the first transfer and the first pinning of a context. Opens a new context for each
 * repetition. The job keeps the first result until the end of the row, because it is verified after the measurement.
 * Thread rule: one thread. */
#include <stdlib.h>

#include "rows.h"

enum { STEADY = 5 };
typedef struct fresh_state {
  check_poison poison;
  double allocation; /* the time of the first allocation of device memory, in seconds */
  tdict_tree *result;
} fresh_state;

static bool fresh_prepare(bench_job *job) {
  job->state = calloc(1, sizeof(fresh_state));
  return job->state != NULL;
}

/* Makes the first allocation of device memory and records its time. Then fills memory of the same size with 0xA5, and
 * frees it to the library's cache. */
static bool first_prepare(bench_job *job) {
  if (!fresh_prepare(job)) return false;
  fresh_state *state = job->state;
  tdict_tensor *block = NULL;
  const bench_place *p = job->place;
  tdict_memory *memory = tdict_device_memory(p->context, p->device);
  double begin = bench_now();
  if (!check_block(memory, check_padded_bytes(&p->sources[0]), "the first device memory", &block)) return false;
  state->allocation = bench_now() - begin;
  tdict_tensor_release(block);
  return check_poison_result(&p->check, &p->sources[0], &state->poison);
}

static void fresh_finish(bench_job *job) {
  fresh_state *state = job->state;
  if (!state) return;
  tdict_release(state->result);
  free(state);
}

/* Runs a repetition. The time does not include the release of the result. Keeps the first result. */
static bool fresh_sample(bench_job *job, int tree, double *seconds) {
  fresh_state *state = job->state;
  tdict_tree *result = NULL;
  double begin = bench_now();
  if (!job->row.kind->make(job, tree, &result)) return false;
  *seconds = bench_now() - begin;
  if (state->result)
    tdict_release(result);
  else
    state->result = result;
  return true;
}

static int fresh_verify(bench_job *job) {
  const fresh_state *state = job->state;
  if (state->result) return job_check(job, state->result, &state->poison);
  bench_print_error("there is nothing to verify yet");
  return BENCH_FAILED;
}

static bool sample_again(void *user, int tree, double *seconds) { return fresh_sample(user, tree, seconds); }

/* Measures later transfers of the same tree. Returns their median time, and the time of the first allocation. */
static json_t *first_more(bench_job *job) {
  const fresh_state *state = job->state;
  double steady;
  (void)bench_medians(&steady, 1, 1, STEADY, sample_again, job);
  return json_pack("{s:f, s:f}", "allocation_seconds", state->allocation, "steady_seconds", steady);
}

#define KEPT .verify = fresh_verify, .sample = fresh_sample, .finish = fresh_finish
static const bench_kind kind_first = {
    .name = "first", .prepare = first_prepare, .make = h2d_make, .more = first_more, KEPT};
static const bench_kind kind_pin_first = {
    .name = "pin_first", .to_host = true, .prepare = fresh_prepare, .make = pin_make, KEPT};

#define TREE .groups = {{1000, 4000000}}, .threads = -1, .trees = 1, .worth = 1
static const bench_row rows[] = {
    {.name = "first transfer, 1000 x 4 MB", .kind = &kind_first, TREE, .processes = 5},
    {.name = "pin_memory, 1000 x 4 MB",
     .kind = &kind_pin_first,
     TREE,
     .result = "pinned",
     .peers = "torch,tensordict",
     .processes = 5},
};

BENCH_SCENARIO(fresh, "fresh", rows, "measures the first transfer and the first pinning of a process")
