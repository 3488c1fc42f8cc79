/* tdict-bench overlap: measures a transfer while a kernel runs for about the same time. The sources are pageable or
 * pinned. The transfer ignores the kernel's stream ("own_stream") or waits for it ("same_stream"). With complete
 * overlap, the total time equals the longer of the transfer and kernel times. See rows.h for ownership and threads. */
#include <stdlib.h>
#include <string.h>

#include "rows.h"
#include "tdict/sim.h"

enum { ALONE = 5, MOMENTS = 6 };
typedef struct overlap_state {
  double alone;       /* median seconds of the transfer without a kernel */
  double at[MOMENTS]; /* when each step finished, in seconds; set by watch_repetition() */
  int64_t kernel_ns;
  int next; /* the index of the next source tree */
} overlap_state;

static bool overlap_prepare(bench_job *job) {
  overlap_state *state = calloc(1, sizeof *state);
  job->state = state;
  if (!state) return false;
  state->kernel_ns = job->row.kernel_ns;
  return true;
}

static void overlap_finish(bench_job *job) { free(job->state); }

static bool launch_kernel(bench_job *job) {
  overlap_state *state = job->state;
  return place_spin(job->place, &state->kernel_ns);
}

static void sim_mark(void *user) { __atomic_store_n((bool *)user, true, __ATOMIC_RELEASE); }

static bool finish_kernel(bench_job *job) {
  if (place_is_gpu(job->place)) return raw_finish_own(job->place->check.raw);
  return tdict_stream_synchronize(job->place->context, place_stream(job->place), NULL) == TDICT_OK;
}

static bool begin_transfer(bench_job *job, int tree, tdict_future **out) {
  const tdict_stream stream = place_stream(job->place);
  return move_start(job, tree, strcmp(job->row.calls, "same_stream") == 0 ? &stream : NULL, out);
}

/* Launches the kernel, starts the transfer, and waits for both to finish. */
static bool overlap_make(bench_job *job, int tree, tdict_tree **out) {
  tdict_future *future = NULL;
  return launch_kernel(job) && begin_transfer(job, tree, &future) && move_end(job, future, out) && finish_kernel(job);
}

static bool move_alone(void *user, int unused, double *seconds) {
  bench_job *job = user;
  overlap_state *state = job->state;
  tdict_future *future = NULL;
  tdict_tree *result = NULL;
  (void)unused;
  const double begin = bench_now();
  if (!begin_transfer(job, state->next++ % BENCH_TREES, &future) || !move_end(job, future, &result)) return false;
  tdict_release(result);
  *seconds = bench_now() - begin;
  return true;
}

/* Runs one repetition. Records when the launch (1) and the call of the transfer (2) returned, and polls to find when
 * the transfer (3) and the kernel (4) finished. */
static bool watch_repetition(bench_job *job) {
  overlap_state *state = job->state;
  tdict_future *future = NULL;
  double *at = state->at, begin = bench_now();
  bool kernel = false, transfer = false, marked = false, gpu = place_is_gpu(job->place);
  if (!launch_kernel(job)) return false;
  if (!gpu && tdict_sim_launch(place_stream(job->place), sim_mark, &marked, NULL) != TDICT_OK) return false;
  at[1] = bench_now() - begin;
  bool good = begin_transfer(job, 0, &future);
  at[2] = bench_now() - begin;
  while (!kernel || (good && !transfer)) {
    if (!kernel && (gpu ? raw_own_is_idle(job->place->check.raw) : __atomic_load_n(&marked, __ATOMIC_ACQUIRE))) {
      kernel = true;
      at[4] = bench_now() - begin;
    }
    if (good && !transfer && tdict_future_is_ready(future)) {
      transfer = true;
      at[3] = bench_now() - begin;
    }
  }
  return good && move_end(job, future, NULL);
}

static int overlap_verify(bench_job *job) {
  overlap_state *state = job->state;
  const int answer = job_verify_made(job);
  return answer == BENCH_OK && !bench_medians(&state->alone, 1, 0, ALONE, move_alone, job) ? BENCH_FAILED : answer;
}

/* Returns an event in the trace format of chrome://tracing and Perfetto, in which times are in microseconds. */
static json_t *make_trace_event(const char *name, const char *track, double begin, double end) {
  return json_pack("{s:s, s:s, s:i, s:s, s:f, s:f}", "name", name, "ph", "X", "pid", 1, "tid", track, "ts", begin * 1e6,
                   "dur", (end - begin) * 1e6);
}

static json_t *overlap_more(bench_job *job) {
  overlap_state *state = job->state;
  json_t *trace = json_array();
  if (watch_repetition(job)) {
    const double *at = state->at;
    json_array_append_new(trace, make_trace_event("launch", "program", 0, at[1]));
    json_array_append_new(trace, make_trace_event("tdict_to_device_async", "program", at[1], at[2]));
    json_array_append_new(trace, make_trace_event("kernel", "kernel's stream", at[1], at[4]));
    json_array_append_new(trace, make_trace_event("transfer", "transfer", at[1], at[3]));
  }
  return json_pack("{s:f, s:f, s:o}", "alone_seconds", state->alone, "kernel_seconds", (double)state->kernel_ns * 1e-9,
                   "trace", trace);
}

static const bench_kind kind_overlap = {.name = "overlap",
                                        .prepare = overlap_prepare,
                                        .make = overlap_make,
                                        .verify = overlap_verify,
                                        .finish = overlap_finish,
                                        .more = overlap_more};

/* About five million floats, as in the TensorDict tutorial. On a fast link, their transfer takes about as long as the
 * kernel. */
#define WORK .kind = &kind_overlap, .groups = {{1, 20971520}}, .threads = -1, .peers = "torch", .kernel_ns = 400000
static const bench_row rows[] = {
    {.name = "pageable, own stream", WORK, .calls = "own_stream", .worth = 2},
    {.name = "pageable, same stream", WORK, .calls = "same_stream", .worth = 2},
    {.name = "pinned, own stream", WORK, .calls = "own_stream", .source = "pinned", .worth = 2},
    {.name = "pinned, same stream", WORK, .calls = "same_stream", .source = "pinned", .worth = 2},
};

BENCH_SCENARIO(overlap, "overlap", rows, "copies while a kernel runs")
