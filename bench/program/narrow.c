/* tdict-bench narrow: measures transfers with and without the option narrow, for several ranges of values and numbers
 * of threads. Prints a table of rates. The job owns the place, the source and the samples. Thread rule: one thread. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "options.h"
#include "rows.h"

typedef struct narrow_options {
  common_options common;
  check_values values;
  int64_t megabytes;
} narrow_options;

/* A row of the table: its name, and the largest value of the elements (0: random bits). */
typedef struct narrow_range {
  const char *name;
  int64_t most;
} narrow_range;
static const narrow_range ranges[] = {
    {"0 to 1", 1}, {"0 to 255", 255}, {"0 to 50,000", 50000}, {"0 to 2^31 - 1", INT32_MAX}, {"random bits", 0}};
enum { RANGES = sizeof ranges / sizeof *ranges, COLUMNS = 7 };
static const int32_t threads[COLUMNS] = {1, 2, 4, 8, 12, 16, -1}; /* -1: the library chooses */

typedef struct narrow_job {
  narrow_options o;
  bench_sink sink;
  bench_place place;
  check_source source;
  int32_t num_threads; /* num_threads of the current cell */
  bench_bar bar;       /* counts table cells */
} narrow_job;

static bool is_possible(const narrow_job *job, int32_t count) {
  return count <= tdict_context_num_threads(job->place.context);
}

static tdict_transfer_options way_options(int32_t num_threads, bool narrow) {
  tdict_transfer_options o = td_with(tdict_transfer_options, num_threads = num_threads, narrow = narrow);
  return o;
}

/* Moves the source with or without narrow, and verifies all bytes. Writes how many bytes were sent to the device. */
static int verify_way(narrow_job *job, bool narrow, size_t *wire_bytes) {
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  tdict_transfer_options o = way_options(-1, narrow);
  o.stats = &stats;
  const int answer = place_verify(&job->place, &job->source, &o, "narrow");
  *wire_bytes = stats.wire_bytes;
  return answer;
}

static bool move_once(void *user, int way, double *seconds) {
  const narrow_job *job = user;
  const tdict_transfer_options o = way_options(job->num_threads, way == 1);
  return place_move_timed(&job->place, job->source.tree, &o, "narrow", seconds);
}

/* Measures transfers without and with narrow in turn. Writes the median rate of each in GB/s. */
static bool measure_cell(narrow_job *job, int32_t num_threads, double rates[2]) {
  job->num_threads = num_threads;
  const bool good = bench_medians(rates, 2, 1, (int)job->o.common.repeats, move_once, job);
  for (int way = 0; way < 2; way++) rates[way] = good ? (double)job->source.total_bytes / rates[way] / 1e9 : 0;
  return good;
}

/* Measures and prints a row: the rates with narrow, each with its ratio to the rate without narrow in parentheses. */
static int measure_range(narrow_job *job, const narrow_range *range, json_t *rows) {
  size_t wire_bytes[2];
  const check_values values = {job->o.values.dtype, range->most};
  const check_group group = {1, (size_t)job->o.megabytes * 1000000 / 8 * 8};
  if (!check_source_make_of(&job->source, &values, &group, NULL)) return BENCH_FAILED;
  check_source_seed(&job->source, 1);
  int answer = BENCH_OK;
  for (int way = 0; way < 2 && answer == BENCH_OK; way++) answer = verify_way(job, way == 1, &wire_bytes[way]);
  if (answer != BENCH_OK) return answer;
  const double part = (double)wire_bytes[1] / (double)wire_bytes[0];
  json_t *cells = json_array();
  printf("| %s | %.3f |", range->name, part);
  for (int t = 0; t < COLUMNS && answer == BENCH_OK; t++) {
    double rates[2];
    if (!is_possible(job, threads[t])) continue;
    bench_bar_show(&job->bar, (double)(range - ranges) * COLUMNS + t, "%s, %d threads", range->name, (int)threads[t]);
    if (!measure_cell(job, threads[t], rates)) answer = BENCH_FAILED;
    bench_progress_end();
    printf(" %.1f (%.2f) |", rates[1], rates[1] / rates[0]);
    fflush(stdout);
    json_array_append_new(cells, json_pack("{s:i, s:f, s:f}", "num_threads", (int)threads[t], "plain_gb_per_s",
                                           rates[0], "narrow_gb_per_s", rates[1]));
  }
  printf("\n");
  json_array_append_new(
      rows, json_pack("{s:I, s:f, s:o}", "max_value", (json_int_t)range->most, "wire_part", part, "cells", cells));
  return answer;
}

static int measure_table(narrow_job *job, json_t *rows) {
  const size_t item = tdict_dtype_bytes(job->o.values.dtype);
  const bool is_bool = job->o.values.dtype == TDICT_BOOL;
  printf("%" PRId64 " MB of %s from ordinary memory, median of %" PRId64 "; GB/s with narrow (and times the rate "
         "without)\n\n| values | bytes on the link |",
         job->o.megabytes, tdict_dtype_name(job->o.values.dtype), job->o.common.repeats);
  for (int t = 0; t < COLUMNS; t++)
    if (is_possible(job, threads[t]))
      printf(threads[t] < 0 ? " auto |" : threads[t] == 1 ? " 1 thread |" : " %d threads |", (int)threads[t]);
  printf("\n|---|---|");
  for (int t = 0; t < COLUMNS; t++)
    if (is_possible(job, threads[t])) printf("---|");
  printf("\n");
  int answer = BENCH_OK;
  job->bar = bench_bar_start(RANGES * COLUMNS);
  for (int r = 0; r < RANGES && answer == BENCH_OK; r++) {
    if (ranges[r].most >> (8 * item - 1) != 0 || (is_bool && r > 0)) continue;
    answer = measure_range(job, &ranges[r], rows);
    check_source_free(&job->source);
  }
  return answer;
}

static void check_options(struct argp_state *state, void *input) {
  const narrow_options *o = input;
  if (!options_can_narrow(&o->values)) argp_error(state, "--dtype: narrow has no effect on float32");
  if (o->values.most) argp_error(state, "--max-value: the table has rows for several ranges");
}

int narrow_main(int argc, char **argv) {
  static const char doc[] = "Measures transfers to a device with and without the option narrow, for several ranges of "
                            "values and numbers of threads. Verifies every byte."
                            "\vExample:\n  tdict-bench narrow --dtype int64\n\n" EXIT_TEXT;
  narrow_job job;
  memset(&job, 0, sizeof job);
  job.o = (narrow_options){{"auto", false, false, NULL, 7}, {TDICT_I64, 0}, 0};
  const bench_option options[] = {DEVICE_OPTION(&job.o.common.device),
                                  RECORD_OPTIONS(&job.o.common),
                                  VALUES_OPTIONS(&job.o.values),
                                  NUMBER_OPTION("megabytes", 'm', "N", &job.o.megabytes, 1, 1000000,
                                                "size of the leaf in 10^6 bytes (default 4000 on a GPU, 8 elsewhere)"),
                                  {0}};
  if (options_parse(argc, argv, doc, options, check_options, &job.o) != BENCH_OK) return BENCH_USAGE;
  int answer = BENCH_FAILED;
  if (bench_sink_open(&job.sink, job.o.common.json) && place_open(&job.place, job.o.common.device)) {
    if (!job.o.megabytes) job.o.megabytes = place_is_gpu(&job.place) ? 4000 : 8;
    if (!place_is_gpu(&job.place)) printf("SIMULATED device: no figure here is a GPU's\n");
    json_t *record = bench_record("narrow", argc, argv), *rows = json_array();
    answer = measure_table(&job, rows);
    json_object_update_new(record, json_pack("{s:o, s:s, s:o}", "device", place_describe(&job.place), "dtype",
                                             tdict_dtype_name(job.o.values.dtype), "rows", rows));
    answer = bench_sink_end(&job.sink, answer, record);
  }
  place_close(&job.place);
  return answer;
}
