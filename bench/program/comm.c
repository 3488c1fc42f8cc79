/* tdict-bench comm: measures how fast a communicator sends trees between GPUs. The ranks are threads of this process,
 * and each has its own context and its own GPU. Thread rule: each rank uses only its own thread_rank. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "comm.h"
#include "rows.h"
#include "tdict/comm_nccl.h"
#include "tdict/sim.h"

enum { MOST_DEVICES = 16, MOST_SIMULATED = 8 };

typedef struct comm_job comm_job;
typedef struct thread_rank {
  comm_job *job;
  comm_rank rank;
  tdict_device device;
  pthread_t thread;
  int answer;
} thread_rank;

struct comm_job {
  comm_settings settings;
  const char *library;
  int64_t num_devices;
  bool is_simulated;
  tdict_nccl_id id;
  bench_sink sink;
  int count;
  thread_rank ranks[MOST_DEVICES];
};

/* Creates a context for each rank. Each context has one device: the rank's GPU, or a simulated device of its own. */
static bool open_ranks(comm_job *job) {
  tdict_error err;
  const int most = job->num_devices ? (int)job->num_devices : job->is_simulated ? 2 : MOST_DEVICES;
  for (; job->count < most; job->count++) {
    thread_rank *r = &job->ranks[job->count];
    tdict_sim_options sim = tdict_sim_options_default();
    tdict_context_options o = tdict_context_options_default();
    *r = (thread_rank){.job = job, .device = job->is_simulated ? tdict_sim(0) : tdict_cuda(job->count)};
    r->rank.settings = &job->settings;
    o.device = r->device;
    if (job->is_simulated) o.sim = &sim;
    const tdict_status status = tdict_context_create(&o, &r->rank.context, &err);
    if (status == TDICT_ENODEVICE && !job->num_devices) break;
    if (!bench_has_worked("no context", status, &err)) return false;
  }
  if (job->count >= 2) return true;
  if (job->count == 0)
    bench_print_status("this machine has no GPU; the ranks need 2 GPUs or more", &err);
  else
    bench_print_error("this machine has 1 GPU; the ranks need 2 GPUs or more");
  return false;
}

/* The thread function of a rank: connects to the other ranks, and measures together with them. */
static void *run_rank(void *user) {
  thread_rank *r = user;
  tdict_error err;
  tdict_nccl_options o = tdict_nccl_options_default();
  r->answer = BENCH_FAILED;
  o.library = r->job->library;
  o.rank = (int32_t)(r - r->job->ranks);
  o.world_size = r->job->count;
  o.device = r->device;
  o.id = r->job->id;
  r->rank.table.struct_size = sizeof r->rank.table;
  if (!comm_connect(&r->rank, tdict_nccl_create_table(r->rank.context, &o, &r->rank.table, &err), &err)) return NULL;
  r->answer = comm_run(&r->rank);
  tdict_comm_destroy(r->rank.comm);
  return NULL;
}

/* Runs each rank on its own thread. Returns the worst exit code: failure, difference, success. */
static int run_ranks(comm_job *job) {
  int started = 0, answer = BENCH_OK;
  while (started < job->count && pthread_create(&job->ranks[started].thread, NULL, run_rank, &job->ranks[started]) == 0)
    started++;
  if (started < job->count) bench_print_error("cannot start the threads of %d ranks", job->count);
  for (int i = 0; i < started; i++) pthread_join(job->ranks[i].thread, NULL);
  for (int i = 0; i < job->count; i++)
    if (i >= started || job->ranks[i].answer == BENCH_FAILED || answer == BENCH_OK)
      answer = i < started ? job->ranks[i].answer : BENCH_FAILED;
  return answer;
}

static int measure(comm_job *job, int argc, char **argv) {
  if (!bench_ok("no NCCL", tdict_nccl_create_id(job->library, &job->id, err))) return BENCH_FAILED;
  if (job->is_simulated) printf("SIMULATED devices: no figure here is a GPU's\n");
  job->ranks[0].rank.rows = json_array();
  job->ranks[0].rank.sink = &job->sink;
  const int answer = run_ranks(job);
  return comm_end(&job->ranks[0].rank, answer, argc, argv);
}

static void parse_backend(struct argp_state *state, const char *text, void *to) {
  (void)to;
  if (strcmp(text, "nccl") != 0)
    argp_error(state, "--backend: found '%s', wanted nccl; tdict-bench-openmpi and tdict-bench-mpich use MPI", text);
}

static void check_options(struct argp_state *state, void *input) {
  const comm_job *job = input;
  if (job->is_simulated && job->num_devices > MOST_SIMULATED)
    argp_error(state, "--devices: at most %d ranks are simulated", MOST_SIMULATED);
}

int comm_main(int argc, char **argv) {
  static const char doc[] = "Measures trees that a communicator sends between GPUs. Compares this with plain calls "
                            "for one buffer and for each leaf. Verifies every bit of each result."
                            "\vExample:\n  tdict-bench comm --devices 2 --library PATH/libnccl.so.2\n\n" EXIT_TEXT;
  comm_job job;
  memset(&job, 0, sizeof job);
  comm_settings_default(&job.settings);
  const bench_option options[] = {
      COMM_OPTIONS(&job.settings),
      PARSED_OPTION("backend", 0, "NAME", NULL, parse_backend, "what sends the messages: nccl (default)"),
      TEXT_OPTION("library", 0, "PATH", &job.library,
                  "path of NCCL (default: libnccl.so.2, which the system searches)"),
      NUMBER_OPTION("devices", 'n', "N", &job.num_devices, 2, MOST_DEVICES,
                    "number of ranks, each on its own GPU (default: all GPUs)"),
      {.name = "simulated", /* simulated devices, for tests with a simulated NCCL */
       .kind = OPTION_FLAG,
       .to = &job.is_simulated,
       .flags = OPTION_HIDDEN},
      {0}};
  if (options_parse(argc, argv, doc, options, check_options, &job) != BENCH_OK) return BENCH_USAGE;
  int answer = BENCH_FAILED;
  if (bench_sink_open(&job.sink, &job.settings.common.outputs) && open_ranks(&job)) answer = measure(&job, argc, argv);
  for (int i = 0; i < job.count; i++) tdict_context_destroy(job.ranks[i].rank.context);
  return answer;
}
