/* tdict-bench latency: measures how long an asynchronous call takes to return. Also measures the program's own small
 * copies during a transfer. See rows.h for ownership and threads. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rows.h"
#include "tdict/memory.h"
#include "tdict/sim.h"

/* The program copies one block at a time with a pause after each. 200 copies then take about as long as a transfer of
 * 4 GB, and are spread over its whole time. */
enum { OWN_COPIES = 200, OWN_BYTES = 51200, MOST_TRANSFERS = 50, PAUSE_NS = 250000 };

static bool start_transfer(bench_job *job, int tree, tdict_future **out) {
  tdict_error err;
  bench_place *p = job->place;
  tdict_transfer_options o = move_options(job);
  if (tdict_to_device_async(p->context, p->sources[tree].tree, p->device, &o, out, &err) == TDICT_OK) return true;
  bench_print_status("cannot start a transfer", &err);
  return false;
}

static bool end_transfer(tdict_future *future, tdict_tree **out) {
  tdict_error err;
  tdict_status status = tdict_future_wait(future, out, &err);
  tdict_future_release(future);
  if (status != TDICT_OK) bench_print_status("a transfer failed", &err);
  return status == TDICT_OK;
}

static int latency_verify(bench_job *job) {
  check_place *c = &job->place->check;
  const check_source *s = &job->place->sources[0];
  check_poison poison;
  tdict_future *future = NULL;
  tdict_tree *result = NULL;
  if (!check_poison_result(c, s, &poison) || !start_transfer(job, 0, &future) || !end_transfer(future, &result))
    return BENCH_FAILED;
  int answer = check_result(c, s, result, &poison, &job->poisoned_bytes);
  tdict_release(result);
  return answer;
}

/* Measures until the call returns. Waits for the transfer after the measured time. */
static bool call_sample(bench_job *job, int tree, double *seconds) {
  tdict_future *future = NULL;
  double begin = bench_now();
  if (!start_transfer(job, tree, &future)) return false;
  *seconds = bench_now() - begin;
  return end_transfer(future, NULL);
}

typedef struct copies_state {
  bench_samples times;
  check_source own; /* simulated device: the source of the program's own copies, pinned */
  tdict_tree *target;
  tdict_context *pieces; /* a context that pins in pieces; NULL: the row does not pin */
} copies_state;

static bool copies_prepare(bench_job *job) {
  bench_place *p = job->place;
  const check_group group = {1, OWN_BYTES};
  copies_state *state = calloc(1, sizeof *state);
  job->state = state;
  if (!state || !bench_samples_reserve(&state->times, OWN_COPIES)) return false;
  if (place_is_gpu(p)) return true;
  tdict_error err;
  if (!check_source_make(&state->own, &group, 1, tdict_pinned_memory(p->context))) return false;
  check_source_seed(&state->own, 7);
  if (tdict_to_device(p->context, state->own.tree, p->device, NULL, &state->target, &err) == TDICT_OK) return true;
  bench_print_status("the program's own leaf", &err);
  return false;
}

static void copies_finish(bench_job *job) {
  copies_state *state = job->state;
  if (!state) return;
  bench_samples_free(&state->times);
  check_source_free(&state->own);
  tdict_release(state->target);
  tdict_context_destroy(state->pieces);
  free(state);
}

/* Copies a small block once. On a GPU this is a driver copy from pinned memory on a stream of the program. On the
 * simulated device it is a call of the library. */
static bool copy_small_block(bench_job *job) {
  bench_place *p = job->place;
  copies_state *state = job->state;
  tdict_error err;
  double begin = bench_now();
  if (place_is_gpu(p)) {
    raw_driver *raw = p->check.raw;
    if (!raw_copy_in_async(raw, p->line_device, p->check.bounce, OWN_BYTES) || !raw_finish_own(raw)) {
      bench_print_error("the program's own copy: %s", raw_why(raw));
      return false;
    }
  } else if (bench_transfer_into(p->context, state->target, state->own.tree, NULL, &err) != TDICT_OK) {
    bench_print_status("the program's own copy", &err);
    return false;
  }
  bench_samples_add(&state->times, bench_now() - begin);
  return true;
}

static int compare_times(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void take_a_pause(void) {
  const struct timespec pause = {0, PAUSE_NS};
  nanosleep(&pause, NULL);
}

/* Returns a percentile of the measured times. */
static double percentile(bench_job *job) {
  copies_state *state = job->state;
  int percent = strcmp(job->row.statistic, "p99") == 0 ? 99 : 50;
  qsort(state->times.seconds, (size_t)state->times.count, sizeof(double), compare_times);
  int at = (state->times.count * percent + 99) / 100 - 1;
  return state->times.count ? state->times.seconds[at < 0 ? 0 : at] : 0;
}

static bool copies_sample(bench_job *job, int tree, double *seconds) {
  copies_state *state = job->state;
  state->times.count = 0;
  for (int n = 0; n < MOST_TRANSFERS && state->times.count < OWN_COPIES; n++) {
    tdict_future *future = NULL;
    if (!start_transfer(job, (tree + n) % BENCH_TREES, &future)) return false;
    bool good = true;
    do {
      take_a_pause();
      good = copy_small_block(job);
    } while (good && state->times.count < OWN_COPIES && !tdict_future_is_ready(future));
    if (!end_transfer(future, NULL) || !good) return false;
  }
  *seconds = percentile(job);
  return true;
}

static bool idle_sample(bench_job *job, int tree, double *seconds) {
  copies_state *state = job->state;
  (void)tree;
  state->times.count = 0;
  while (state->times.count < OWN_COPIES) {
    take_a_pause();
    if (!copy_small_block(job)) return false;
  }
  *seconds = percentile(job);
  return true;
}

/* Opens a context that pins in pieces. Registering a large block at once would delay the program's copies. */
static bool pinning_prepare(bench_job *job) {
  tdict_error err;
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options o = tdict_context_options_default();
  if (!copies_prepare(job)) return false;
  copies_state *state = job->state;
  o.device = job->place->device;
  if (o.device.type == TDICT_DEVICE_SIM) o.sim = &sim;
  o.pin_piece_bytes = (size_t)32 << 20;
  if (tdict_context_create(&o, &state->pieces, &err) == TDICT_OK) return true;
  bench_print_status("no context that pins in pieces", &err);
  return false;
}

/* Pins the sources on another thread, with no pinned memory cached, while the program copies. */
typedef struct pinning {
  bench_job *job;
  int tree;
  bool good;
  _Atomic(bool) done; /* release by the thread, acquire by the program */
} pinning;

static void *pin_sources(void *user) {
  pinning *p = user;
  tdict_error err;
  tdict_tree *pinned = NULL;
  const copies_state *state = p->job->state;
  p->good = tdict_pin_memory(state->pieces, p->job->place->sources[p->tree].tree, NULL, &pinned, &err) == TDICT_OK;
  if (!p->good) bench_print_status("pin_memory", &err);
  tdict_release(pinned);
  atomic_store_explicit(&p->done, true, memory_order_release);
  return NULL;
}

static bool pinning_sample(bench_job *job, int tree, double *seconds) {
  copies_state *state = job->state;
  pinning p = {job, tree, false, false};
  pthread_t thread;
  bool good = true;
  *seconds = 0;
  if (pthread_create(&thread, NULL, pin_sources, &p) != 0) return false;
  do {
    state->times.count = 0;
    good = copy_small_block(job);
    if (good && state->times.seconds[0] > *seconds) *seconds = state->times.seconds[0];
  } while (good && !atomic_load_explicit(&p.done, memory_order_acquire));
  pthread_join(thread, NULL);
  tdict_context_trim(state->pieces, tdict_cpu(), 0);
  return good && p.good;
}

static const bench_kind kind_pinning = {
    "copies_pinning", false, false, pinning_prepare, latency_verify, pinning_sample, NULL, copies_finish, NULL};
static const bench_kind kind_call = {"call", false, false, NULL, latency_verify, call_sample, NULL, NULL, NULL};
static const bench_kind kind_copies = {"copies", false,         false, copies_prepare, latency_verify, copies_sample,
                                       NULL,     copies_finish, NULL};
static const bench_kind kind_idle = {"copies_idle", false,         false, copies_prepare, latency_verify, idle_sample,
                                     NULL,          copies_finish, NULL};

#define TREE .groups = {{1000, 4000000}}, .threads = -1
static const bench_row rows[] = {
    {.name = "call returns, 1000 x 4 MB", .kind = &kind_call, TREE, .worth = 1},
    {.name = "own copies meanwhile, p50", .kind = &kind_copies, TREE, .statistic = "p50", .worth = 1},
    {.name = "own copies meanwhile, p99", .kind = &kind_copies, TREE, .statistic = "p99", .worth = 1},
    {.name = "own copies while 4 GB are pinned, longest",
     .kind = &kind_pinning,
     TREE,
     .statistic = "longest",
     .peers = "torch",
     .worth = 1},
    {.name = "call returns, 10.9 MB",
     .kind = &kind_call,
     .groups = {{2, 5419008}, {2, 24576}, {3, 1024}},
     .threads = -1,
     .worth = 2},
    {.name = "own copies alone, p50",
     .kind = &kind_idle,
     .groups = {{1, 4096}},
     .threads = -1,
     .statistic = "p50",
     .peers = "torch",
     .worth = 2},
    {.name = "own copies alone, p99",
     .kind = &kind_idle,
     .groups = {{1, 4096}},
     .threads = -1,
     .statistic = "p99",
     .peers = "torch",
     .worth = 2},
};

const bench_scenario bench_latency = {"latency", "measures asynchronous calls, and own copies during a transfer", NULL,
                                      rows, sizeof rows / sizeof rows[0]};
