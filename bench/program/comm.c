/* tdict-bench comm: measures trees that a communicator sends between GPUs. The ranks are threads of this process, and
 * each has its own context and its own GPU. Thread rule: each rank uses its own thread_rank only. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "comm_run.h"
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
  const char *backend, *library;
  int64_t num_devices;
  bool is_simulated;
  tdict_nccl_id id;
  bench_sink sink;
  int count;
  thread_rank ranks[MOST_DEVICES];
};

/* Opens the context of a rank. Each context has one device: a GPU, or its own simulated device. */
static tdict_status open_rank(comm_job *job, int number, tdict_error *err) {
  thread_rank *r = &job->ranks[number];
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options o = tdict_context_options_default();
  r->job = job;
  r->device = job->is_simulated ? tdict_sim(0) : tdict_cuda(number);
  r->rank.settings = &job->settings;
  o.device = r->device;
  if (job->is_simulated) o.sim = &sim;
  return tdict_context_create(&o, &r->rank.context, err);
}

/* Opens the contexts of all ranks. */
static bool open_ranks(comm_job *job) {
  tdict_error err;
  const int most = job->num_devices ? (int)job->num_devices : job->is_simulated ? 2 : MOST_DEVICES;
  while (job->count < most) {
    const tdict_status status = open_rank(job, job->count, &err);
    if (status == TDICT_ENODEVICE && !job->num_devices) break;
    if (status != TDICT_OK) {
      bench_print_status("no context", &err);
      return false;
    }
    job->count++;
  }
  if (job->count >= 2) return true;
  if (job->count == 0)
    bench_print_status("this machine has no GPU; the ranks need 2 GPUs or more", &err);
  else
    bench_print_error("this machine has 1 GPU; the ranks need 2 GPUs or more");
  return false;
}

/* Connects a rank, and measures. All ranks do this at the same time. */
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
  if (tdict_nccl_create_table(r->rank.context, &o, &r->rank.table, &err) != TDICT_OK) {
    bench_print_status("cannot connect the ranks", &err);
    return NULL;
  }
  if (tdict_comm_create(r->rank.context, &r->rank.table, NULL, &r->rank.comm, &err) != TDICT_OK) {
    bench_print_status("no communicator", &err);
    r->rank.table.abort(r->rank.table.self);
    r->rank.table.destroy(r->rank.table.self);
    return NULL;
  }
  r->answer = comm_run(&r->rank);
  tdict_comm_destroy(r->rank.comm);
  return NULL;
}

/* Runs all ranks. Returns the worst exit code. */
static int run_ranks(comm_job *job) {
  int started = 0, answer = BENCH_OK;
  while (started < job->count && pthread_create(&job->ranks[started].thread, NULL, run_rank, &job->ranks[started]) == 0)
    started++;
  if (started < job->count) bench_print_error("cannot start a thread for each of %d ranks", job->count);
  for (int i = 0; i < started; i++) pthread_join(job->ranks[i].thread, NULL);
  for (int i = 0; i < job->count; i++)
    if (i >= started || job->ranks[i].answer == BENCH_FAILED || answer == BENCH_OK)
      answer = i < started ? job->ranks[i].answer : BENCH_FAILED;
  return answer;
}

static int measure(comm_job *job, int argc, char **argv) {
  tdict_error err;
  if (tdict_nccl_create_id(job->library, &job->id, &err) != TDICT_OK) {
    bench_print_status("no NCCL", &err);
    return BENCH_FAILED;
  }
  if (job->is_simulated) printf("SIMULATED devices: no figure here is a GPU's\n");
  job->ranks[0].rank.rows = json_array();
  const int answer = run_ranks(job);
  if (answer == BENCH_OK && !comm_write_record(&job->sink, &job->ranks[0].rank, argc, argv)) return BENCH_FAILED;
  if (answer != BENCH_OK) json_decref(job->ranks[0].rank.rows);
  return answer;
}

enum { KEY_BACKEND = 1280, KEY_LIBRARY, KEY_SIMULATED };
static error_t parse_option(int key, char *arg, struct argp_state *state) {
  comm_job *job = state->input;
  switch (key) {
  case ARGP_KEY_INIT:
    state->child_inputs[0] = &job->settings;
    return 0;
  case KEY_BACKEND:
    job->backend = arg;
    if (strcmp(arg, "nccl") != 0)
      argp_error(state, "--backend: found '%s', wanted nccl; tdict-bench-openmpi and tdict-bench-mpich use MPI", arg);
    return 0;
  case KEY_LIBRARY:
    job->library = arg;
    return 0;
  case KEY_SIMULATED:
    job->is_simulated = true;
    return 0;
  case 'n':
    options_number(state, "--devices", arg, 2, MOST_DEVICES, &job->num_devices);
    return 0;
  case ARGP_KEY_END:
    if (job->is_simulated && job->num_devices > MOST_SIMULATED)
      argp_error(state, "--devices: at most %d ranks are simulated", MOST_SIMULATED);
    return 0;
  default:
    return ARGP_ERR_UNKNOWN;
  }
}

int comm_main(int argc, char **argv) {
  static const struct argp_option table[] = {
      {"backend", KEY_BACKEND, "NAME", 0, "what sends the messages: nccl (default)", 0},
      {"library", KEY_LIBRARY, "PATH", 0, "path of NCCL (default: libnccl.so.2, which the system searches)", 0},
      {"devices", 'n', "N", 0, "number of ranks, each on its own GPU (default: all GPUs)", 0},
      {"simulated", KEY_SIMULATED, NULL, OPTION_HIDDEN, "simulated devices, for tests with a simulated NCCL", 0},
      {0}};
  static const struct argp_child children[] = {{&comm_argp, 0, NULL, 0}, {0}};
  static const char doc[] = "Measures trees that a communicator sends between GPUs, beside plain calls for one buffer "
                            "and for each leaf. Verifies every bit of each result."
                            "\vExample:\n  tdict-bench comm --devices 2 --library PATH/libnccl.so.2\n\n" COMM_EXIT_TEXT;
  static const struct argp argp = {table, parse_option, NULL, doc, children, NULL, NULL};
  comm_job job;
  memset(&job, 0, sizeof job);
  comm_settings_default(&job.settings);
  if (options_parse(argc, argv, OPTIONS_RECORD | OPTIONS_NO_DEVICE, &job.settings.common, &argp, &job) != BENCH_OK)
    return BENCH_USAGE;
  int answer = BENCH_FAILED;
  if (bench_sink_open(&job.sink, job.settings.common.json) && open_ranks(&job)) answer = measure(&job, argc, argv);
  for (int i = 0; i < job.count; i++) tdict_context_destroy(job.ranks[i].rank.context);
  return answer;
}
