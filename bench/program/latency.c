/* tdict-bench latency: measures how long an asynchronous call takes to return, and how long the program's own small
 * copies take during a transfer or while memory is being pinned. See rows.h for ownership and threads. */
#include <stdlib.h>
#include <string.h>

#include "own_copy.h"
#include "tdict/memory.h"
#include "tdict/sim.h"

/* The program makes one copy at a time, with a pause before each. With these pauses, 200 copies are spread over about
 * one transfer of 4 GB. */
enum { OWN_COPIES = 200, MOST_TRANSFERS = 50, PAUSE_NS = 250000 };

static bool move_asynchronously(bench_job *job, int tree, tdict_tree **out) {
  tdict_future *future = NULL;
  return move_start(job, tree, NULL, &future) && move_end(job, future, out);
}

/* Measures only how long the call takes to return, and then waits for the transfer. */
static bool call_sample(bench_job *job, int tree, double *seconds) {
  tdict_future *future = NULL;
  double begin = bench_now();
  if (!move_start(job, tree, NULL, &future)) return false;
  *seconds = bench_now() - begin;
  return move_end(job, future, NULL);
}

static const bench_kind kind_idle;
typedef struct copies_state {
  bench_samples times;
  own_copy own;
  tdict_context *pieces; /* a context that pins in pieces; NULL: the row measures no pinning */
} copies_state;

static bool copies_prepare(bench_job *job) {
  copies_state *state = calloc(1, sizeof *state);
  job->state = state;
  return state && bench_samples_reserve(&state->times, 1, OWN_COPIES) && own_copy_open(&state->own, job->place);
}

static void copies_finish(bench_job *job) {
  copies_state *state = job->state;
  if (!state) return;
  bench_samples_free(&state->times, 1);
  own_copy_close(&state->own);
  tdict_context_destroy(state->pieces);
  free(state);
}

static bool copies_sample(bench_job *job, int tree, double *seconds) {
  copies_state *state = job->state;
  state->times.count = 0;
  for (int n = 0; n < MOST_TRANSFERS && state->times.count < OWN_COPIES; n++) {
    tdict_future *future = NULL;
    if (job->row.kind != &kind_idle && !move_start(job, (tree + n) % BENCH_TREES, NULL, &future)) return false;
    const bool good = own_copy_meanwhile(&state->own, future, PAUSE_NS, &state->times);
    if ((future && !move_end(job, future, NULL)) || !good) return false;
  }
  *seconds = bench_samples_percentile(&state->times, strcmp(job->row.statistic, "p99") == 0 ? 99 : 50);
  return true;
}

/* Opens a context that pins in pieces, because registering a large block at once would delay the program's copies. */
static bool pinning_prepare(bench_job *job) {
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options o = tdict_context_options_default();
  if (!copies_prepare(job)) return false;
  copies_state *state = job->state;
  o.device = job->place->device;
  if (o.device.type == TDICT_DEVICE_SIM) o.sim = &sim;
  o.pin_piece_bytes = (size_t)32 << 20;
  return bench_ok("cannot create a context that pins in pieces", tdict_context_create(&o, &state->pieces, err));
}

typedef struct pinning {
  const bench_job *job;
  int tree;
} pinning;

/* Pins a source tree and releases the result. The caller empties the cache of pinned memory between calls. */
static bool pin_sources(void *user) {
  const pinning *p = user;
  scoped_tree pinned = NULL;
  const copies_state *state = p->job->state;
  const tdict_tree *source = p->job->place->sources[p->tree].tree;
  const bool good = bench_ok("pin_memory", tdict_pin_memory(state->pieces, source, NULL, &pinned, err));
  return good;
}

static bool pinning_sample(bench_job *job, int tree, double *seconds) {
  const copies_state *state = job->state;
  pinning p = {job, tree};
  double pin_seconds;
  const bool good = own_copy_beside(&state->own, pin_sources, &p, &pin_seconds, seconds);
  tdict_context_trim(state->pieces, tdict_cpu(), 0);
  return good;
}

static const bench_kind kind_call = {.name = "call", .make = move_asynchronously, .sample = call_sample};
#define COPIES .make = move_asynchronously, .finish = copies_finish
static const bench_kind kind_copies = {.name = "copies", .prepare = copies_prepare, .sample = copies_sample, COPIES};
static const bench_kind kind_idle = {.name = "copies_idle", .prepare = copies_prepare, .sample = copies_sample, COPIES};
static const bench_kind kind_pinning = {
    .name = "copies_pinning", .prepare = pinning_prepare, .sample = pinning_sample, COPIES};

#define TREE .groups = {{1000, 4000000}}, .threads = -1
#define PINNING .kind = &kind_pinning, TREE, .peers = "torch"
#define SEVEN .kind = &kind_call, .groups = {{2, 5419008}, {2, 24576}, {3, 1024}}, .threads = -1
#define IDLE .kind = &kind_idle, .groups = {{1, 4096}}, .threads = -1, .peers = "torch"
static const bench_row rows[] = {
    {.name = "call returns, 1000 x 4 MB", .kind = &kind_call, TREE, .worth = 1},
    {.name = "own copies meanwhile, p50", .kind = &kind_copies, TREE, .statistic = "p50", .worth = 1},
    {.name = "own copies meanwhile, p99", .kind = &kind_copies, TREE, .statistic = "p99", .worth = 1},
    {.name = "own copies while 4 GB are pinned, longest", PINNING, .statistic = "longest", .worth = 1},
    {.name = "call returns, 10.9 MB", SEVEN, .worth = 2},
    {.name = "own copies alone, p50", IDLE, .statistic = "p50", .worth = 2},
    {.name = "own copies alone, p99", IDLE, .statistic = "p99", .worth = 2},
};

BENCH_SCENARIO(latency, "latency", rows, "measures asynchronous calls, and own copies during a transfer")
