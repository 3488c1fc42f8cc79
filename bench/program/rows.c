/* Runs `tdict-bench SCENARIO` for a table of rows: measures the rows one after another, and prints a table. Repetitions
 * of the line, the driver and the library alternate. Owns the place and the job. Thread rule: one thread. */
#include "rows.h"

#include "options.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct rows_options {
  common_options common;
  const bench_scenario *scenario;
  const char *match, *timeline;
} rows_options;

enum { WARMUPS = 2 };
static const size_t back_to_back_bytes = (size_t)64 << 20;
static void check_options(struct argp_state *state, void *input) {
  const rows_options *o = input;
  if (o->timeline && o->scenario != &bench_overlap) argp_error(state, "only overlap has a timeline");
}

/* The samples of one row, also as an array indexed by LINE, DRIVER and LIBRARY. */
typedef union row_result {
  struct {
    bench_samples line, driver, library;
  };
  bench_samples all[3];
} row_result;
enum { LINE, DRIVER, LIBRARY };

/* Brings the caches into the state that the row wants and runs a repetition. If the row is small and warm, runs an
 * uncounted repetition immediately before, as bench/peers/compare does. */
static bool repetition(bench_job *job, int number, bool driver, double *seconds) {
  if (job_is_warm(job) && job->total_bytes <= back_to_back_bytes && !job_sample(job, number + 1, driver, seconds))
    return false;
  return job_settle(job, number) && job_sample(job, number, driver, seconds);
}

static bool has_rate(const bench_kind *kind) { return kind == &kind_h2d || kind == &kind_d2h || kind == &kind_pin_h2d; }

static table_row make_table_row(const bench_job *job, const row_result *r) {
  return (table_row){
      job->name, &r->library, &r->driver, &r->line, job->total_bytes, job->place->line_bytes, has_rate(job->row.kind)};
}

static json_t *result_json(const bench_job *job, const row_result *r, const bench_row *row,
                           const bench_scenario *scenario, json_t *more) {
  json_t *record = rows_describe(job->place, scenario, row);
  table_row line = make_table_row(job, r);
  json_object_set_new(record, "name", json_string(job->name)); /* has the measured sizes, unlike "row" */
  json_object_set_new(record, "verified_bytes", json_integer((json_int_t)job->verified_bytes));
  table_record_row(record, &line);
  if (more) json_object_set(record, "more", more);
  return record;
}

typedef struct rows_run {
  const rows_options *options;
  const bench_scenario *scenario;
  bench_place place;
  bench_sink sink;
  json_t *records, *trace;
  int moved;                    /* rows that move trees */
  int first;                    /* rows among `moved` whose repetitions each have a context of their own */
  int fewest_trees, most_trees; /* fewest and most source trees of the other rows among `moved` */
  bool driver, line;            /* whether any row has times of the driver; a rate compared with the line */
  bench_bar bar;                /* its unit is that of row_weight() */
  double done, weight;          /* weight of the finished rows, and of the current row */
  bench_job *job;               /* the current row */
  bench_table table;
  int turn; /* number of library repetitions of this row so far, with warm-ups */
} rows_run;

/* Runs a repetition of LINE, DRIVER or LIBRARY. If the row has no such times, sets *seconds to a negative time. */
static bool sample_once(void *user, int work, double *seconds) {
  rows_run *run = user;
  bench_job *job = run->job;
  const int64_t turns = run->options->common.repeats + WARMUPS;
  *seconds = -1;
  if (work == DRIVER) return !job_has_driver(job) || repetition(job, run->turn, true, seconds);
  if (work == LIBRARY) return repetition(job, run->turn++, false, seconds);
  bench_bar_show(&run->bar, run->done + run->weight * (double)run->turn / (double)turns, "%s", job->name);
  return job->row.kind->on_host || place_line(job->place, seconds);
}

/* Runs a repetition of the library, whatever the state of the caches. */
static bool sample_alone(void *user, int work, double *seconds) {
  rows_run *run = user;
  (void)work;
  return job_sample(run->job, run->turn++, false, seconds);
}

static int job_sample_verified(bench_job *job, row_result *out) {
  double seconds;
  if (!job_sample(job, 0, false, &seconds)) return BENCH_FAILED;
  bench_samples_add(&out->library, seconds);
  return job_verify(job);
}

/* Measures a row in which each repetition must be the first in its context: closes and opens the place between
 * repetitions. */
static int measure_first(rows_run *run, bench_job *job, const bench_row *row, row_result *out) {
  int answer = job_sample_verified(job, out);
  for (int64_t i = 1; i < run->options->common.repeats && answer == BENCH_OK; i++) {
    bool full = run->place.full;
    bench_bar_show(&run->bar, run->done + run->weight * (double)i / (double)run->options->common.repeats, "%s",
                   row->name);
    job_close(job);
    place_close(&run->place);
    if (!place_open(&run->place, run->options->common.device)) return BENCH_FAILED;
    run->place.full = full;
    answer = job_open(job, &run->place, run->scenario, row) ? job_sample_verified(job, out) : BENCH_FAILED;
  }
  return answer;
}

static int measure_row(rows_run *run, bench_job *job, const bench_row *row, row_result *out) {
  if (!bench_samples_reserve(out->all, 3, (int)run->options->common.repeats)) return BENCH_FAILED;
  if (row->processes > 0) return measure_first(run, job, row, out);
  const int answer = job_verify(job);
  if (answer != BENCH_OK) return answer;
  run->job = job;
  run->turn = 0;
  const int repeats = (int)run->options->common.repeats;
  const bool good = bench_measure_in_turn(out->all, 3, WARMUPS, repeats, sample_once, run) &&
                    bench_count_processors(&out->library.processors, sample_alone, run, LIBRARY);
  return good ? BENCH_OK : BENCH_FAILED;
}

/* Updates the counts for the notes below the table. */
static void count_row(rows_run *run, const bench_job *job, const row_result *r) {
  const bench_kind *kind = job->row.kind;
  int trees = job->row.trees;
  if (r->driver.count) run->driver = true;
  if (r->line.count && has_rate(kind)) run->line = true;
  if (kind->on_host || kind->no_sources) return;
  run->moved++;
  if (job->row.processes > 0) {
    run->first++;
    return;
  }
  if (!run->most_trees || trees < run->fewest_trees) run->fewest_trees = trees;
  if (trees > run->most_trees) run->most_trees = trees;
}

static int run_row(rows_run *run, const bench_row *row) {
  bench_job job;
  row_result result = {.all = {{0}}};
  int answer = BENCH_FAILED;
  json_t *more = NULL;
  bench_bar_show(&run->bar, run->done, "%s", row->name);
  if (job_open(&job, &run->place, run->scenario, row)) {
    answer = measure_row(run, &job, row, &result);
    bench_progress_end();
    if (answer == BENCH_OK) {
      if (row->kind->more) more = row->kind->more(&job);
      table_row line = make_table_row(&job, &result);
      table_put_row(&run->table, &line);
      count_row(run, &job, &result);
      json_array_append_new(run->records, result_json(&job, &result, row, run->scenario, more));
      json_t *events = more ? json_object_get(more, "trace") : NULL, *one;
      size_t i;
      json_array_foreach(events, i, one) {
        json_object_set_new(one, "pid", json_string(row->name));
        json_array_append(run->trace, one);
      }
    }
  }
  json_decref(more);
  bench_samples_free(result.all, 3);
  job_close(&job);
  return answer;
}

static int write_outputs(rows_run *run, int answer, int argc, char **argv) {
  json_t *record = place_record(&run->place, run->scenario->name, argc, argv);
  const char *timeline = run->options->timeline;
  json_object_set(record, "rows", run->records);
  answer = bench_sink_end(&run->sink, answer, record);
  return answer == BENCH_OK && timeline && !bench_record_write(run->trace, timeline) ? BENCH_FAILED : answer;
}

static void print_row_notes(const rows_run *run) {
  char calls[64], trees[64] = "";
  snprintf(calls, sizeof calls,
           run->moved && run->first == run->moved ? ", each the first call in a context of its own"
                                                  : " after %d warm-ups",
           WARMUPS);
  if (run->most_trees > 1)
    snprintf(trees, sizeof trees, ", on %s%d trees in turn", run->fewest_trees < run->most_trees ? "up to " : "",
             run->most_trees);
  printf("\n");
  bench_print_text("Median, p10 and p90 of %" PRId64 "%s%s; %s.", run->options->common.repeats, calls, trees,
                   run->moved ? "the result of every row was verified"
                              : "nothing is moved; the work of every row was verified");
  bench_print_text("Processors: processor time of the process divided by the elapsed time, counted without turns.");
  if (run->driver)
    bench_print_text("To driver: the median divided by the time of the same work with plain driver calls.");
  if (run->line)
    bench_print_text("Line: one driver copy from one pinned buffer, taken between the repetitions%s.",
                     run->place.device.type == TDICT_DEVICE_SIM ? "; SIMULATED: the library's copy of one pinned leaf"
                                                                : "");
}

static bool is_matched(const rows_run *run, const bench_row *row) {
  return !run->options->match || strstr(row->name, run->options->match);
}

/* Reduced rows that differ only in their size can get the same size, and so the same name. Only the first of them is
 * measured. */
static bool is_wanted(const rows_run *run, const bench_row *row) {
  char name[BENCH_NAME_BYTES], earlier[BENCH_NAME_BYTES];
  if (!is_matched(run, row)) return false;
  row_measured_name(&run->place, row, name);
  for (const bench_row *other = run->scenario->rows; other < row; other++) {
    row_measured_name(&run->place, other, earlier);
    if (is_matched(run, other) && strcmp(name, earlier) == 0) return false;
  }
  return true;
}

static int run_rows(rows_run *run) {
  int answer = BENCH_OK;
  double wanted = 0;
  for (int i = 0; i < run->scenario->num_rows; i++)
    if (is_wanted(run, &run->scenario->rows[i])) wanted += row_weight(&run->place, &run->scenario->rows[i]);
  run->bar = bench_bar_start(wanted);
  for (int i = 0; i < run->scenario->num_rows && answer == BENCH_OK; i++) {
    const bench_row *row = &run->scenario->rows[i];
    if (!is_wanted(run, row)) continue;
    run->weight = row_weight(&run->place, row);
    answer = run_row(run, row);
    run->done += run->weight;
  }
  if (!(wanted > 0)) {
    bench_print_error("no row of %s has a name that contains '%s'", run->scenario->name, run->options->match);
    return BENCH_USAGE;
  }
  if (answer == BENCH_OK) print_row_notes(run);
  return answer;
}

int rows_main(const bench_scenario *scenario, int argc, char **argv) {
  static const char doc[] = "Measures and verifies the rows of a scenario, and the same work with plain driver calls."
                            "\v" EXIT_TEXT;
  rows_options o = {.common = {.device = "auto", .repeats = 11}, .scenario = scenario};
  const bench_option options[] = {
      DEVICE_OPTION(&o.common.device),
      SIZE_OPTIONS(&o.common),
      RECORD_OPTIONS(&o.common),
      TEXT_OPTION("match", 'm', "TEXT", &o.match, "measure only rows whose name contains TEXT"),
      TEXT_OPTION("timeline", 0, "FILE", &o.timeline, "overlap only: write a trace for chrome://tracing to FILE"),
      {0}};
  if (options_parse(argc, argv, doc, options, check_options, &o) != BENCH_OK) return BENCH_USAGE;
  rows_run run;
  memset(&run, 0, sizeof run);
  run.options = &o;
  run.scenario = scenario;
  run.records = json_array();
  run.trace = json_array();
  int answer = BENCH_FAILED;
  if (bench_sink_open(&run.sink, &o.common.outputs) && (!o.timeline || bench_can_write(o.timeline)) &&
      place_open(&run.place, o.common.device)) {
    run.place.full = o.common.full || (place_is_gpu(&run.place) && !o.common.small);
    table_print_head(&run.place, scenario->name, scenario->summary);
    if (run.place.device.type == TDICT_DEVICE_SIM && !run.place.full)
      printf("Rows are reduced to at most 4 MB (--full: full size).\n");
    table_begin(&run.table, &run.sink, "row|" TABLE_TIMES);
    answer = write_outputs(&run, run_rows(&run), argc, argv);
  }
  place_close(&run.place);
  json_decref(run.records);
  json_decref(run.trace);
  return answer;
}
