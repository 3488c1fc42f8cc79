/* tdict-bench share: measures transfers of batches that this process has filled, alternating with batches that a worker
 * process has filled in the slots of a share ring. Each batch is consolidated and has 10.9 MB in 7 leaves. The job owns
 * its ring and its trees. Thread rule: one thread; the worker is this program, started again. */
#include <spawn.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tdict/clone.h"
#include "tdict/share.h"

#include "options.h"
#include "rows.h"

enum { SLOTS = 4, SOCKET = 3 };
static const int64_t limit_ns = INT64_C(60000000000);
static const tdict_field fields[] = {TDICT_FIELD("a", TDICT_F32, 1354752), TDICT_FIELD("b", TDICT_F32, 1354752),
                                     TDICT_FIELD("c", TDICT_F32, 6144),    TDICT_FIELD("d", TDICT_F32, 6144),
                                     TDICT_FIELD("e", TDICT_F32, 256),     TDICT_FIELD("f", TDICT_F32, 256),
                                     TDICT_FIELD("g", TDICT_F32, 256)};
enum { LEAVES = sizeof fields / sizeof fields[0] };

/* A measurement with all batches in pinned memory, or all in pageable memory. */
typedef struct pass {
  const char *name;
  bool is_pinned;
  bench_samples times[2]; /* transfer times, indexed by OWN and RING */
} pass;
enum { OWN, RING };

typedef struct share_job {
  bench_table table;
  bench_place place;
  tdict_share_ring *ring;
  pid_t worker;           /* 0: none */
  tdict_tree *own[SLOTS]; /* the batches that this process fills */
  bool is_worker;
} share_job;

static tdict_tree *make_batch(tdict_memory *memory) {
  scoped_tree made = NULL;
  tdict_tree *batch = NULL;
  if (bench_ok("a batch", tdict_create_from(fields, LEAVES, 0, NULL, NULL, &made, err)))
    (void)bench_ok("a batch", tdict_consolidate(made, memory, &batch, err));
  return batch;
}

static uint64_t word_of(uint64_t number, size_t leaf, size_t i) {
  return (number * 8 + leaf + 1) * UINT64_C(0x9e3779b97f4a7c15) + i * UINT64_C(0xbf58476d1ce4e5b9);
}
static void fill_batch(tdict_tree *batch, uint64_t number) {
  for (size_t leaf = 0; leaf < LEAVES; leaf++) {
    uint64_t *words = tdict_data(batch, fields[leaf].path);
    for (size_t i = 0; i < (size_t)fields[leaf].shape[0] / 2; i++) words[i] = word_of(number, leaf, i);
  }
}
static bool is_filled(const tdict_tree *batch, uint64_t number) {
  for (size_t leaf = 0; leaf < LEAVES; leaf++) {
    const uint64_t *words = tdict_const_data(batch, fields[leaf].path);
    for (size_t i = 0; words && i < (size_t)fields[leaf].shape[0] / 2; i++)
      if (words[i] != word_of(number, leaf, i)) return false;
    if (!words) return false;
  }
  return true;
}

/* The main function of the worker process: fills slots until the ring is destroyed. Returns an exit code. */
static int run_worker(void) {
  tdict_error err;
  scoped_share_ring ring = NULL;
  if (!bench_has_worked("the ring", tdict_share_ring_attach(SOCKET, limit_ns, &ring, &err), &err)) return BENCH_FAILED;
  tdict_status status = TDICT_OK;
  for (uint64_t number = 0; status == TDICT_OK; number++) {
    tdict_tree *batch;
    status = tdict_share_ring_begin(ring, INT64_MAX, &batch, &err);
    if (status == TDICT_OK) fill_batch(batch, number);
    if (status == TDICT_OK) status = tdict_share_ring_publish(ring, batch, &err);
  }
  return status == TDICT_ECANCELLED ? BENCH_OK : BENCH_FAILED;
}

static bool start_worker(share_job *job) {
  extern char **environ;
  char *const argv[] = {(char *)"tdict-bench", (char *)"share", (char *)"--fill", NULL};
  posix_spawn_file_actions_t actions;
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return false;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pair[1], SOCKET);
  const bool is_started = posix_spawn(&job->worker, "/proc/self/exe", &actions, NULL, argv, environ) == 0;
  posix_spawn_file_actions_destroy(&actions);
  if (!is_started) job->worker = 0;
  const bool is_added =
      is_started && bench_ok("the worker", tdict_share_ring_add_worker(job->ring, pair[0], (int32_t)job->worker, err));
  close(pair[0]);
  close(pair[1]);
  return is_added;
}

static bool open_pass(share_job *job, const pass *p) {
  tdict_share_ring_options o = td_with(tdict_share_ring_options, num_slots = SLOTS);
  for (int i = 0; i < SLOTS; i++) {
    job->own[i] = make_batch(p->is_pinned ? tdict_pinned_memory(job->place.context) : NULL);
    if (!job->own[i]) return false;
    fill_batch(job->own[i], (uint64_t)i);
  }
  if (!bench_ok("the ring", tdict_share_ring_create(job->own[0], &o, &job->ring, err)) ||
      (p->is_pinned && !bench_ok("the ring", tdict_share_ring_pin(job->place.context, job->ring, err))))
    return false;
  return start_worker(job);
}

static void close_pass(share_job *job) {
  tdict_share_ring_destroy(job->ring); /* this also makes the worker exit */
  job->ring = NULL;
  if (job->worker) waitpid(job->worker, NULL, 0);
  job->worker = 0;
  for (int i = 0; i < SLOTS; i++) {
    tdict_release(job->own[i]);
    job->own[i] = NULL;
  }
}

/* If `number` is negative, measures a transfer of a batch. Otherwise, transfers batch `number` and verifies the
 * result. */
static int move_batch(share_job *job, const tdict_tree *batch, bench_samples *samples, int64_t number) {
  scoped_tree result = NULL, host = NULL;
  double seconds;
  if (number < 0 && !place_move_timed(&job->place, batch, NULL, "share", &seconds)) return BENCH_FAILED;
  if (number < 0) bench_samples_add(samples, seconds);
  if (number < 0) return BENCH_OK;
  if (!place_move(&job->place, batch, NULL, "share", &result) ||
      !bench_ok("share", tdict_to_device(job->place.context, result, tdict_cpu(), NULL, &host, err)))
    return BENCH_FAILED;
  if (is_filled(host, (uint64_t)number)) return BENCH_OK;
  bench_print_error("verification failed for batch %lld", (long long)number);
  return BENCH_DIFFERS;
}

/* Transfers one batch of each kind, in alternating order. If `verifies` is true, verifies the results instead of
 * measuring. Then fills this process's batch again, while the worker fills the slot. So each batch was filled SLOTS
 * turns before its transfer, with the same effect on the CPU caches for both kinds. */
static int do_turn(share_job *job, pass *p, int number, bool verifies) {
  tdict_tree *own = job->own[number % SLOTS], *slot;
  const int64_t wanted = verifies ? number : -1;
  if (!bench_ok("the ring", tdict_share_ring_take(job->ring, limit_ns, &slot, err))) return BENCH_FAILED;
  int answer = BENCH_OK;
  for (int i = 0; i < 2 && answer == BENCH_OK; i++) {
    const int kind = (number + i) % 2;
    answer = move_batch(job, kind == RING ? slot : own, &p->times[kind], wanted);
  }
  if (!bench_ok("the ring", tdict_share_ring_give_back(job->ring, slot, err))) answer = BENCH_FAILED;
  fill_batch(own, (uint64_t)number + SLOTS);
  return answer;
}

static double get_ratio(const pass *p) {
  return bench_samples_median(&p->times[RING]) / bench_samples_median(&p->times[OWN]);
}

static int run_pass(share_job *job, pass *p, int repeats) {
  if (!bench_samples_reserve(p->times, 2, repeats)) return BENCH_FAILED;
  int answer = open_pass(job, p) ? BENCH_OK : BENCH_FAILED;
  const bench_bar bar = bench_bar_start(repeats + 2);
  for (int i = 0; i < repeats + 2 && answer == BENCH_OK; i++) {
    if (i % 8 == 0) bench_bar_show(&bar, i, "%s: repetition %d of %d", p->name, i, repeats);
    answer = do_turn(job, p, i, i == 0 || i == repeats + 1);
  }
  bench_progress_end();
  close_pass(job);
  for (int kind = OWN; kind <= RING && answer == BENCH_OK; kind++) {
    char name[48];
    const bench_samples *s = &p->times[kind];
    snprintf(name, sizeof name, "%s, filled %s", p->name, kind == RING ? "by another process" : "in this process");
    table_text(&job->table, name);
    table_ms(&job->table, bench_samples_median(s));
    table_ms(&job->table, bench_samples_percentile(s, 10));
    table_ms(&job->table, bench_samples_percentile(s, 90));
    table_number(&job->table, "%.3f", kind == RING ? get_ratio(p) : 1);
    table_end_row(&job->table);
  }
  return answer;
}

static json_t *describe(const share_job *job, const pass *passes, int argc, char **argv) {
  json_t *record = place_record(&job->place, "share", argc, argv);
  for (int i = 0; i < 2; i++) {
    const pass *p = &passes[i];
    json_object_set_new(record, p->name,
                        json_pack("{s:o, s:o, s:f}", "own_seconds", bench_samples_json(&p->times[OWN]), "ring_seconds",
                                  bench_samples_json(&p->times[RING]), "ratio", get_ratio(p)));
  }
  return record;
}

static int run_share(share_job *job, pass passes[2], const common_options *common, int argc, char **argv) {
  bench_sink sink;
  if (!bench_sink_open(&sink, &common->outputs)) return BENCH_FAILED;
  job->place.bare = true;
  if (!place_open_device(&job->place, common->device, "share")) return BENCH_FAILED;
  if (!place_is_gpu(&job->place)) printf("SIMULATED device: these times say nothing about a GPU\n");
  int answer = BENCH_OK;
  table_begin(&job->table, &sink, "batches of 10.9 MB|median ms|p10 ms|p90 ms|ratio");
  for (int i = 0; i < 2 && answer == BENCH_OK; i++) answer = run_pass(job, &passes[i], (int)common->repeats);
  return bench_sink_end(&sink, answer, describe(job, passes, argc, argv));
}

int share_main(int argc, char **argv) {
  static const char doc[] =
      "Transfers batches of 10.9 MB that this process has filled, and batches that another process "
      "has filled in shared memory."
      "\v" EXIT_TEXT;
  static share_job job;
  pass passes[2] = {{.name = "pinned", .is_pinned = true}, {.name = "pageable"}};
  common_options common = {.device = "auto", .repeats = 201};
  const bench_option options[] = {DEVICE_OPTION(&common.device),
                                  RECORD_OPTIONS(&common),
                                  {.name = "fill",
                                   .doc = "fills the slots of a ring: the worker process",
                                   .kind = OPTION_FLAG,
                                   .to = &job.is_worker,
                                   .flags = OPTION_HIDDEN},
                                  {0}};
  int answer = options_parse(argc, argv, doc, options, NULL, NULL);
  if (answer != BENCH_OK) return answer;
  if (job.is_worker) return run_worker();
  answer = run_share(&job, passes, &common, argc, argv);
  place_close(&job.place);
  for (int i = 0; i < 2; i++) bench_samples_free(passes[i].times, 2);
  return answer;
}
