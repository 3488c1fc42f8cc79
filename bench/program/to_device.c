/* tdict-bench to-device: copies a tree of pageable tensors, for example a batch of the user, to a device in every mode,
 * and compares with plain driver calls. The ways take turns, so that a drift of the machine affects all of them
 * equally. The job owns the place and the source tree. Thread rule: one thread. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tdict/trace.h"

#include "batch.h"
#include "options.h"
#include "rows.h"

enum { MOST_LIST = 16 };
/* The values of a list on the command line. */
typedef struct int_list {
  int32_t values[MOST_LIST];
  int count;
} int_list;

typedef struct to_device_options {
  common_options common;
  const char *batch;
  int_list modes, threads;
  int64_t leaves, leaf_bytes, staging_bytes; /* -1: the option was not given */
  int64_t warmups, seed;
  bool corrupt, narrow;
  check_values values;
  const char *trace;
} to_device_options;

/* A way to transfer the tree: mode and num_threads. */
typedef struct to_device_way {
  int32_t mode, threads; /* threads: -1 lets the library choose */
  int32_t used;          /* threads that copied during the verification */
  size_t wire_bytes;     /* bytes that it sent on the link */
  char name[40];
} to_device_way;
/* The works, which are measured in turn. */
enum { LINE, DRIVER, FIRST_WAY, MOST_WAYS = MOST_LIST * MOST_LIST, MOST_WORKS = FIRST_WAY + MOST_WAYS };

typedef struct to_device_job {
  to_device_options options;
  bench_sink sink;
  bench_place place;
  check_source source;
  raw_address raw_destination; /* cuda: destination of the driver copies */
  size_t total_bytes;
  to_device_way ways[MOST_WAYS];
  int num_ways;
  bench_samples works[MOST_WORKS]; /* LINE has no samples on the cpu; DRIVER only has samples on cuda */
  bench_bar bar;
  int64_t turn; /* number of the current turn, counted from 1 and including warm-ups */
  int verified_ways;
  size_t poisoned_bytes; /* sum over verified_ways: bytes of results in memory that had been filled with 0xA5 */
} to_device_job;

enum { FULL_LEAVES = 1000, FULL_LEAF_BYTES = 4000000, SMALL_LEAF_BYTES = 100000 };
/* After other work, threads of the library sleep and caches have other bytes. The first transfers of a tree of at most
 * this size would take noticeably longer: with an H200, 1.4 MB took 0.19 ms after the line, and then 0.1 ms. */
static const size_t small_tree_bytes = (size_t)64 << 20;
enum { SMALL_TREE_TRANSFERS = 5 }; /* the number of transfers of such a tree, of which the last is measured */

/* Calls `read` for each part of a list that commas separate, and adds the result to the list. */
static void parse_list(struct argp_state *state, const char *text, int_list *list, const char *option,
                       bool (*read)(const char *part, int32_t *out)) {
  char part[32];
  for (const char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
    snprintf(part, sizeof part, "%.*s", (int)strcspn(at, ","), at);
    if (list->count == MOST_LIST || !read(part, &list->values[list->count]))
      argp_error(state, "%s: '%s' is not one of the values in --help, or one too many", option, part);
    else
      list->count++;
  }
}

static bool read_mode(const char *part, int32_t *out) {
  for (*out = 0; options_mode_name(*out); ++*out)
    if (strcmp(part, options_mode_name(*out)) == 0) return true;
  return false;
}

static bool read_threads(const char *part, int32_t *out) {
  int64_t number = -1;
  const bool good = strcmp(part, "auto") == 0 || bench_parse_number(part, -1, 4096, &number);
  *out = (int32_t)number;
  return good;
}

static void parse_modes(struct argp_state *state, const char *text, void *to) {
  parse_list(state, text, to, "--mode", read_mode);
}

static void parse_threads(struct argp_state *state, const char *text, void *to) {
  parse_list(state, text, to, "--threads", read_threads);
}

static void add_way(to_device_job *job, int32_t mode, int32_t threads) {
  to_device_way *way = &job->ways[job->num_ways++];
  *way = (to_device_way){.mode = mode, .threads = threads};
  if (threads < 0)
    snprintf(way->name, sizeof way->name, "%s", options_mode_name(mode));
  else
    snprintf(way->name, sizeof way->name, "%s, %d thread%s", options_mode_name(mode), (int)threads,
             threads == 1 ? "" : "s");
}

/* Lists the ways: those of --mode and --threads, or by default every mode, and the last one with several threads. */
static void list_ways(to_device_job *job) {
  static const int32_t counts[] = {0, 1, 2, 4, 8};
  int_list *some = &job->options.modes, *threads = &job->options.threads;
  if (!some->count && !threads->count) {
    for (int32_t mode = 0; options_mode_name(mode); mode++) add_way(job, mode, -1);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) add_way(job, TDICT_MODE_NON_BLOCKING_PIN, counts[i]);
    return;
  }
  if (!some->count) some->values[some->count++] = TDICT_MODE_AUTO;
  if (!threads->count) threads->values[threads->count++] = -1;
  for (int m = 0; m < some->count; m++)
    for (int t = 0; t < threads->count; t++) add_way(job, some->values[m], threads->values[t]);
}

static void check_options(struct argp_state *state, void *input) {
  to_device_options *o = input;
  const bool is_tree = o->leaves >= 0 || o->leaf_bytes >= 0 || o->common.full || o->values.dtype != TDICT_F32;
  if (o->batch && is_tree)
    argp_error(state, "--leaves, --leaf-bytes, --dtype and --full describe another tree than --batch");
  if (o->batch) return;
  if (o->leaves < 0) o->leaves = FULL_LEAVES;
  options_check_values(state, &o->values, o->leaf_bytes < 0 ? SMALL_LEAF_BYTES : o->leaf_bytes);
}

static bool is_small(const to_device_job *job) { return job->total_bytes <= small_tree_bytes; }
static bool on_cpu(const to_device_job *job) { return job->place.device.type == TDICT_DEVICE_CPU; }

static bool make_source(to_device_job *job) {
  to_device_options *o = &job->options;
  size_t total;
  if (o->batch) return batch_make(&job->source, o->batch, o->values.most);
  if (o->leaf_bytes < 0)
    o->leaf_bytes = o->common.full || place_is_gpu(&job->place) ? FULL_LEAF_BYTES : SMALL_LEAF_BYTES;
  if (__builtin_mul_overflow((size_t)o->leaves, (size_t)o->leaf_bytes, &total)) {
    bench_print_error("%" PRId64 " leaves of %" PRId64 " bytes are too many bytes", o->leaves, o->leaf_bytes);
    return false;
  }
  const check_group group = {o->leaves, (size_t)o->leaf_bytes};
  return check_source_make_of(&job->source, &o->values, &group, NULL);
}

static bool open_job(to_device_job *job) {
  to_device_options *o = &job->options;
  bench_place *p = &job->place;
  if (o->staging_bytes > 0) p->staging_bytes = (size_t)o->staging_bytes;
  list_ways(job);
  if (!bench_samples_reserve(job->works, FIRST_WAY + job->num_ways, (int)o->common.repeats) ||
      !place_open(p, o->common.device) || !make_source(job))
    return false;
  job->total_bytes = job->source.total_bytes;
  return !place_is_gpu(p) ||
         check_driver(p->check.raw, "the driver", raw_alloc(p->check.raw, job->total_bytes, &job->raw_destination));
}

static void close_job(to_device_job *job) {
  check_source_free(&job->source);
  if (job->raw_destination) (void)raw_free(job->place.check.raw, job->raw_destination);
  place_close(&job->place);
  bench_samples_free(job->works, MOST_WORKS);
}

static tdict_transfer_options way_options(const to_device_job *job, const to_device_way *way) {
  tdict_transfer_options o =
      td_with(tdict_transfer_options, mode = way->mode, num_threads = way->threads, narrow = job->options.narrow);
  return o;
}

/* Fills the source with new bytes, makes one transfer and verifies it. With old bytes, a result in reused memory could
 * be right although nothing was copied. */
static int verify_way(to_device_job *job, int w) {
  to_device_way *way = &job->ways[w];
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  check_source *s = &job->source;
  check_poison poison;
  scoped_tree result = NULL;
  tdict_transfer_options o = way_options(job, way);
  o.stats = &stats;
  check_source_seed(s, (uint64_t)job->options.seed * MOST_WAYS + (uint64_t)w);
  if (!check_poison_result(&job->place.check, s, &poison)) return BENCH_FAILED;
  bench_progress("verifying way %d of %d", w + 1, job->num_ways);
  if (!place_move(&job->place, s->tree, &o, way->name, &result)) return BENCH_FAILED;
  way->used = stats.num_threads;
  way->wire_bytes = stats.wire_bytes;
  if (job->options.corrupt) s->data[s->leaves / 2][s->bytes[s->leaves / 2] * 2 / 3] ^= 0x10;
  int answer = check_result(&job->place.check, s, result, &poison, &job->poisoned_bytes);
  if (answer == BENCH_OK && on_cpu(job) && result != s->tree) {
    bench_print_error("a transfer from the cpu to the cpu did not return the same tree");
    answer = BENCH_FAILED;
  }
  if (answer == BENCH_OK) job->verified_ways++;
  if (answer == BENCH_DIFFERS) bench_print_error("verification failed for %s", way->name);
  return answer;
}

static int verify_ways(to_device_job *job) {
  int answer = BENCH_OK;
  for (int w = 0; w < job->num_ways && answer == BENCH_OK; w++) answer = verify_way(job, w);
  bench_progress_end();
  if (answer == BENCH_OK && job->options.corrupt) {
    /* On the cpu, the result is the source itself, so the change cannot be found. */
    bench_print_error("--corrupt: the changed byte was not found%s",
                      on_cpu(job) ? "; on the cpu nothing is copied" : "");
    return BENCH_FAILED;
  }
  return answer;
}

/* Runs operation `work` once and measures its time. The time of a way includes the allocation and the release of the
 * result. DRIVER copies leaf by leaf from pageable memory with driver calls, as a program without a library would. */
static bool measure_once(void *user, int work, double *seconds) {
  to_device_job *job = user;
  const to_device_options *o = &job->options;
  const bench_place *p = &job->place;
  const int w = work - FIRST_WAY;
  *seconds = -1;
  if (work == LINE) {
    job->turn++;
    return on_cpu(job) || place_line(&job->place, seconds);
  }
  if (work == DRIVER)
    return !place_is_gpu(p) || check_driver(p->check.raw, "the driver's copies",
                                            place_copy_leaves(p, &job->source, job->raw_destination, true, seconds));
  const bool keep = job->turn > o->warmups;
  bench_bar_show(&job->bar, (double)(job->turn - 1) + (double)w / job->num_ways,
                 "%s %" PRId64 " of %" PRId64 ", way %d of %d", keep ? "repetition" : "warm-up",
                 keep ? job->turn - o->warmups : job->turn, keep ? o->common.repeats : o->warmups, w + 1,
                 job->num_ways);
  const to_device_way *way = &job->ways[w];
  const tdict_transfer_options options = way_options(job, way);
  const tdict_tree *tree = job->source.tree;
  /* The time of the last transfer counts. */
  bool good = true;
  for (int left = is_small(job) ? SMALL_TREE_TRANSFERS : 1; left > 0 && good; left--)
    good = place_move_timed(p, tree, &options, way->name, seconds);
  return good;
}

static bool measure_ways(to_device_job *job) {
  const int warmups = (int)job->options.warmups, repeats = (int)job->options.common.repeats;
  job->bar = bench_bar_start(warmups + repeats);
  bool good = bench_measure_in_turn(job->works, FIRST_WAY + job->num_ways, warmups, repeats, measure_once, job);
  for (int w = FIRST_WAY; w < FIRST_WAY + job->num_ways && good; w++)
    good = bench_count_processors(&job->works[w].processors, measure_once, job, w);
  bench_progress_end();
  return good;
}

static bool write_trace(to_device_job *job) {
  static const to_device_way way = {.mode = TDICT_MODE_AUTO, .threads = -1, .name = "auto"};
  tdict_error err;
  tdict_tree *result = NULL;
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  tdict_transfer_options o = way_options(job, &way);
  o.stats = &stats;
  tdict_status status = tdict_trace_start(job->place.context, NULL, &err);
  if (status == TDICT_OK && !place_move(&job->place, job->source.tree, &o, way.name, &result)) return false;
  tdict_release(result);
  if (status == TDICT_OK) status = tdict_trace_write(job->place.context, job->options.trace, &err);
  tdict_trace_stop(job->place.context);
  if (!bench_has_worked("the timeline", status, &err)) return false;
  printf("timeline of one more transfer (%.3f ms): %s\n", stats.total_seconds * 1e3, job->options.trace);
  return true;
}

static table_row make_way_row(const to_device_job *job, int w) {
  const bench_samples *works = job->works;
  return (table_row){job->ways[w].name, &works[FIRST_WAY + w], &works[DRIVER], &works[LINE],
                     job->total_bytes,  job->place.line_bytes, !on_cpu(job)};
}

static void print_head(const to_device_job *job) {
  char what[160], total[32];
  bench_format_bytes((double)job->total_bytes, total, sizeof total);
  if (job->options.batch)
    snprintf(what, sizeof what, "%" PRId64 " leaves, %s in ordinary memory, of %.80s%s", job->source.leaves, total,
             job->options.batch, job->options.narrow ? ", narrow" : "");
  else
    snprintf(what, sizeof what, "%" PRId64 " leaves of %" PRId64 " bytes, %s of %s in ordinary memory%s",
             job->options.leaves, job->options.leaf_bytes, total, tdict_dtype_name(job->options.values.dtype),
             job->options.narrow ? ", narrow" : "");
  table_print_head(&job->place, "to-device", what);
  fflush(stdout);
}

static void print_table(to_device_job *job) {
  bench_table table;
  table_begin(&table, &job->sink, "mode|threads|used|" TABLE_TIMES);
  for (int w = 0; w < job->num_ways; w++) {
    const table_row row = make_way_row(job, w);
    table_text(&table, options_mode_name(job->ways[w].mode));
    table_threads(&table, job->ways[w].threads);
    table_number(&table, "%.0f", job->ways[w].used);
    table_put_times(&table, &row);
  }
}

static void print_way_notes(const to_device_job *job) {
  char text[32];
  double total = (double)job->total_bytes;
  printf("\n");
  bench_print_text(
      "Median, p10 and p90 of %" PRId64 " after %" PRId64
      " warm-ups, rows in turn%s. The result is made and released within the time. Threads: num_threads; used: the "
      "threads that copied. Processors: processor time of the process divided by the elapsed time, counted without "
      "turns.",
      job->options.common.repeats, job->options.warmups,
      is_small(job) ? ", each transfer after four others in the same way" : "");
  if (job->works[DRIVER].count)
    bench_print_text("To driver: the median divided by the time of a loop of plain driver copies, leaf by leaf.");
  if (job->works[LINE].count)
    bench_print_text("Line: one driver copy from one pinned buffer%s.",
                     place_is_gpu(&job->place) ? "" : "; SIMULATED: the library's copy of one pinned leaf");
  bench_format_bytes(total, text, sizeof text);
  printf("\n");
  if (on_cpu(job))
    bench_print_text("verified: %s in %d ways (same place: a tree on the cpu stays there, and nothing is copied)", text,
                     job->verified_ways);
  else
    bench_print_text("verified: %s in %d ways, read back without the library; %.0f %% of the results' memory was "
                     "filled with 0xA5 before",
                     text, job->verified_ways, 100 * (double)job->poisoned_bytes / (total * job->verified_ways));
}

static int write_record(to_device_job *job, int argc, char **argv) {
  const to_device_options *o = &job->options;
  json_t *record = place_record(&job->place, "to-device", argc, argv), *rows = json_array();
  json_object_set_new(record, "work",
                      json_pack("{s:I, s:s, s:I, s:b, s:I, s:I, s:I}", "leaves", (json_int_t)job->source.leaves,
                                "dtype", tdict_dtype_name(o->values.dtype), "max_value", (json_int_t)o->values.most,
                                "narrow", (int)o->narrow, "leaf_bytes", (json_int_t)o->leaf_bytes, "warmups",
                                (json_int_t)o->warmups, "seed", (json_int_t)o->seed));
  if (o->batch) json_object_set_new(json_object_get(record, "work"), "batch", json_string(o->batch));
  for (int w = 0; w < job->num_ways; w++) {
    table_row row = make_way_row(job, w);
    json_t *one =
        json_pack("{s:s, s:s, s:i, s:i, s:I, s:I}", "row", row.name, "mode", options_mode_name(job->ways[w].mode),
                  "num_threads", (int)job->ways[w].threads, "threads_used", (int)job->ways[w].used, "wire_bytes",
                  (json_int_t)job->ways[w].wire_bytes, "verified_bytes", (json_int_t)job->total_bytes);
    table_record_row(one, &row);
    json_array_append_new(rows, one);
  }
  json_object_set_new(record, "rows", rows);
  return bench_sink_end(&job->sink, BENCH_OK, record);
}

static int run_to_device(int argc, char **argv) {
  static const char doc[] =
      "Copies a tree of pageable tensors to a device in every mode, verifies every byte, and compares the times with "
      "those of plain driver calls."
      "\vExamples:\n  tdict-bench to-device --json run.json\n"
      "  tdict-bench to-device --batch \"obs:u8[64,3,84,84] reward:f32[64]\" --csv\n\n" EXIT_TEXT;
  to_device_job job;
  memset(&job, 0, sizeof job);
  job.options = (to_device_options){.common = {.device = "auto", .repeats = 7},
                                    .leaves = -1,
                                    .leaf_bytes = -1,
                                    .staging_bytes = -1,
                                    .warmups = 2,
                                    .seed = 1,
                                    .values = {TDICT_F32, 0}};
  to_device_options *o = &job.options;
  const bench_option options[] = {
      DEVICE_OPTION(&o->common.device),
      RECORD_OPTIONS(&o->common),
      VALUES_OPTIONS(&o->values),
      TEXT_OPTION("batch", 0, "TEXT|FILE", &o->batch, BATCH_HELP),
      PARSED_OPTION("mode", 'm', "LIST", &o->modes, parse_modes,
                    "auto, blocking, non_blocking and non_blocking_pin, separated by commas (default: all)"),
      PARSED_OPTION("threads", 't', "LIST", &o->threads, parse_threads,
                    "values of num_threads, separated by commas, such as auto,0,4 (default: auto)"),
      NUMBER_OPTION("leaves", 'n', "N", &o->leaves, 1, 10000000, "number of leaves (default 1000)"),
      NUMBER_OPTION("leaf-bytes", 'b', "BYTES", &o->leaf_bytes, 1, INT64_C(1) << 40,
                    "size of a leaf, a multiple of the element size (default 4000000 on a GPU, 100000 elsewhere)"),
      FLAG_OPTION("narrow", &o->narrow, "transfer with the option narrow: integers and bools travel in fewer bytes"),
      FLAG_OPTION("full", &o->common.full, "leaves of 4000000 bytes on every device"),
      NUMBER_OPTION("warmup", 0, "N", &o->warmups, 0, 10000, "warm-up transfers in each mode (default 2)"),
      NUMBER_OPTION("staging-bytes", 0, "BYTES", &o->staging_bytes, 1, INT64_C(1) << 40,
                    "size of the staging ring (default: the library's)"),
      NUMBER_OPTION("seed", 0, "N", &o->seed, 1, INT64_MAX, "seed of the leaves' contents (default 1)"),
      TEXT_OPTION("trace", 0, "FILE", &o->trace,
                  "then move the tree once more in mode auto and write the timeline to FILE, for ui.perfetto.dev"),
      FLAG_OPTION("corrupt", &o->corrupt,
                  "self-test of the verification: change one byte of the source after each verified transfer; the run "
                  "must then fail with exit status 3"),
      {0}};
  if (options_parse(argc, argv, doc, options, check_options, o) != BENCH_OK) return BENCH_USAGE;
  int answer = BENCH_FAILED;
  if (bench_sink_open(&job.sink, &job.options.common.outputs) &&
      (!job.options.trace || bench_can_write(job.options.trace)) && open_job(&job)) {
    print_head(&job);
    answer = verify_ways(&job);
    if (answer == BENCH_OK && !measure_ways(&job)) answer = BENCH_FAILED;
    if (answer == BENCH_OK) {
      print_table(&job);
      print_way_notes(&job);
      if (job.options.trace && !write_trace(&job)) answer = BENCH_FAILED;
      if (write_record(&job, argc, argv) != BENCH_OK) answer = BENCH_FAILED;
    }
  }
  close_job(&job);
  return answer;
}

const bench_scenario bench_to_device = {"to-device", "copies a tree of 1000 tensors to a device in every mode",
                                        run_to_device, NULL, 0};
