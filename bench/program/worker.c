/* tdict-bench worker: measures single rows on request, so that bench/peers/compare can alternate between libraries.
 * Reads a JSON request from each line of standard input, and replies with a line of JSON:
 *
 *   {"op": "hello"}               returns name, version, device, machine, line_bytes, simulated
 *   {"op": "rows"}                returns every row of every scenario, in the order of measurement
 *   {"op": "prepare", "scenario": S, "row": R}
 *                                 makes the sources, runs the row once and verifies the result. If each repetition of
 *                                 the row needs a new process, only makes the sources
 *   {"op": "run", "who": "tdict" | "driver", "warm": K, "count": N}
 *                                 returns the seconds of N repetitions after K uncounted repetitions, and the processor
 *                                 seconds of all threads during these N
 *   {"op": "verify"}              verifies the result, if each repetition of the row needs a new process
 *   {"op": "line", "count": N}    returns the seconds of N line copies
 *   {"op": "finish"}              returns further results and ends the row; its sources are kept for the next row
 *   {"op": "drop"}                releases the kept sources
 *   {"op": "quit"}                ends the program
 *
 * A reply has "ok": true, or "ok": false and a message in "error". Errors are also printed to standard error.
 * The worker owns the place and the job. Thread rule: one thread. */
#include <limits.h>
#include <string.h>

#include "options.h"
#include "rows.h"
#include "serve.h"

typedef struct worker_options {
  common_options common;
  bool bare;
  int64_t delay, sim_rate;
} worker_options;

typedef struct worker {
  bench_place place;
  bench_job job;
  const bench_row *row; /* NULL: no row is prepared */
  unsigned next_tree;
} worker;

static json_t *answer_rows(void *user, const json_t *request) {
  const worker *w = user;
  (void)request;
  json_t *rows = json_array();
  for (int s = 0; s < BENCH_SCENARIOS; s++)
    for (int r = 0; r < bench_scenarios[s]->num_rows; r++)
      json_array_append_new(rows, rows_describe(&w->place, bench_scenarios[s], &bench_scenarios[s]->rows[r]));
  return json_pack("{s:b, s:o}", "ok", 1, "rows", rows);
}

static void finish_row(worker *w) {
  if (w->row) job_close(&w->job);
  w->row = NULL;
}

static json_t *prepared(worker *w) {
  return json_pack("{s:b, s:I, s:I, s:b}", "ok", 1, "total_bytes", (json_int_t)w->job.total_bytes, "verified_bytes",
                   (json_int_t)w->job.verified_bytes, "driver", job_has_driver(&w->job));
}

static json_t *answer_verify(void *user, const json_t *request) {
  worker *w = user;
  (void)request;
  if (!w->row) return serve_failure("no row is prepared");
  int answer = place_furnish(&w->place) ? job_verify(&w->job) : BENCH_FAILED;
  if (answer == BENCH_OK) return prepared(w);
  finish_row(w);
  return serve_failure(answer == BENCH_DIFFERS ? "verification found a difference" : "the work failed");
}

static json_t *answer_prepare(void *user, const json_t *request) {
  worker *w = user;
  const char *scenario_name = json_string_value(json_object_get(request, "scenario"));
  const char *row_name = json_string_value(json_object_get(request, "row"));
  const bench_scenario *scenario = NULL;
  finish_row(w);
  for (int s = 0; s < BENCH_SCENARIOS && scenario_name; s++)
    if (strcmp(bench_scenarios[s]->name, scenario_name) == 0) scenario = bench_scenarios[s];
  for (int r = 0; scenario && row_name && r < scenario->num_rows; r++)
    if (strcmp(scenario->rows[r].name, row_name) == 0) w->row = &scenario->rows[r];
  if (!w->row) return serve_failure("there is no such row");
  if (!job_open(&w->job, &w->place, scenario, w->row)) {
    finish_row(w);
    return serve_failure("the row could not be prepared");
  }
  return w->row->processes > 0 ? prepared(w) : answer_verify(w, request);
}

/* Runs `count` repetitions. Unless `seconds` is NULL, appends the time of each. Writes the CPU seconds of the process,
 * except those of job_settle(). */
static bool run_repetitions(worker *w, json_int_t count, bool driver, json_t *seconds, double *cpu) {
  bool settles = !job_is_warm(&w->job);
  double begin = bench_cpu_seconds(), outside = 0;
  for (json_int_t i = 0; i < count; i++) {
    double one, before = settles ? bench_cpu_seconds() : 0;
    int number = (int)(w->next_tree++ & INT_MAX);
    if (!job_settle(&w->job, number)) return false;
    if (settles) outside += bench_cpu_seconds() - before;
    if (!job_sample(&w->job, number, driver, &one)) return false;
    if (seconds) json_array_append_new(seconds, json_real(one));
  }
  *cpu = bench_cpu_seconds() - begin - outside;
  return true;
}

static json_t *answer_run(void *user, const json_t *request) {
  worker *w = user;
  const char *who = json_string_value(json_object_get(request, "who"));
  json_int_t warm = json_integer_value(json_object_get(request, "warm"));
  json_int_t count = json_integer_value(json_object_get(request, "count"));
  bool driver = who && strcmp(who, "driver") == 0;
  double cpu;
  if (!w->row) return serve_failure("no row is prepared");
  if (driver && !job_has_driver(&w->job)) return serve_failure("the driver cannot do this row");
  json_t *seconds = json_array();
  if (run_repetitions(w, warm, driver, NULL, &cpu) && run_repetitions(w, count, driver, seconds, &cpu))
    return json_pack("{s:b, s:o, s:f}", "ok", 1, "seconds", seconds, "cpu_seconds", cpu);
  json_decref(seconds);
  return serve_failure("a repetition failed");
}

static json_t *answer_finish(void *user, const json_t *request) {
  worker *w = user;
  (void)request;
  json_t *more = w->row && w->row->kind->more ? w->row->kind->more(&w->job) : NULL;
  finish_row(w);
  json_t *answer = serve_success();
  if (more) json_object_set_new(answer, "more", more);
  return answer;
}

static json_t *answer_drop(void *user, const json_t *request) {
  worker *w = user;
  (void)request;
  finish_row(w);
  place_drop_sources(&w->place);
  return serve_success();
}

static const serve_op worker_ops[] = {
    {"rows", answer_rows},     {"prepare", answer_prepare}, {"run", answer_run},     {"verify", answer_verify},
    {"finish", answer_finish}, {"drop", answer_drop},       {"quit", answer_finish}, {0}};

int worker_main(int argc, char **argv) {
  static const char doc[] =
      "Measures rows on request: reads JSON lines from standard input and writes JSON lines to standard output. "
      "bench/peers/compare starts it.";
  worker_options o = {{.device = "auto", .repeats = 1}, false, 0, 0};
  const bench_option options[] = {
      DEVICE_OPTION(&o.common.device),
      SIZE_OPTIONS(&o.common),
      NUMBER_OPTION("delay-percent", 0, "N", &o.delay, 0, 1000,
                    "self-test: make each repetition of the library N percent longer"),
      NUMBER_OPTION("sim-rate", 0, "BYTES", &o.sim_rate, 1, INT64_C(1) << 50,
                    "bytes per second of simulated copies (default: as fast as the host copies)"),
      FLAG_OPTION("bare", &o.bare, "allocate no driver memory before the first verification; there is no line"),
      {0}};
  worker w;
  memset(&w, 0, sizeof w);
  if (options_parse(argc, argv, doc, options, NULL, NULL) != BENCH_OK) return BENCH_USAGE;
  w.place.bare = o.bare;
  w.place.delay = (int)o.delay;
  w.place.sim_rate = (double)o.sim_rate;
  bool good = place_open(&w.place, o.common.device);
  w.place.full = o.common.full || (place_is_gpu(&w.place) && !o.common.small);
  if (good) serve_requests(&(serve_desk){worker_ops, &w, &w.place, "worker", argc, argv});
  finish_row(&w);
  place_close(&w.place);
  return good ? BENCH_OK : BENCH_FAILED;
}
