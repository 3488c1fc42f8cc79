/* tdict-bench advise: recommends a mode and num_threads for a tree with the given leaves, with reasons. Measures
 * transfers of such a tree, or of a part of it, in every mode, and extrapolates to the whole tree. Prints the results
 * and stores them in a JSON record. An advise_job owns its place and its record. Thread rule: one thread. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/plan/choose.h"
#include "engine/plan/tuning_file.h"
#include "options.h"
#include "rows.h"
#include "tdict/memory.h"

enum { REPEATS = 5, MAX_WAYS = 16 };
static const size_t sample_bytes_gpu = (size_t)1 << 30, sample_bytes_sim = (size_t)64 << 20;
static const int64_t sample_leaves = 100000;

typedef struct advise_options {
  const char *device, *tuning;
  bench_outputs outputs;
  int64_t leaves, leaf_bytes;
  bool pinned;
  check_values values;
} advise_options;
typedef struct advise_way {
  const char *name;
  int32_t mode, threads;
  double ms; /* predicted milliseconds for the whole tree */
  double cpu_ms;
  int worked;
  bool narrow;
  double processors; /* as bench_count_processors() counts them */
} advise_way;
typedef struct advise_job {
  advise_options o;
  bench_place place;
  int64_t moved; /* number of leaves in the measured part */
  advise_way ways[MAX_WAYS];
  int num_ways, best;
  double pin_ms, pinned_ms; /* milliseconds to pin the tree, and to send the pinned tree */
  json_t *record;
  bench_sink sink;
} advise_job;

static double scale_to_tree(const advise_job *job) { return (double)job->o.leaves / (double)job->moved; }

/* The argument of move_sample(), which makes one transfer and measures it. */
typedef struct advise_sample {
  const advise_job *job;
  const tdict_tree *src;
  advise_way *way;
} advise_sample;

static bool move_sample(void *user, int unused, double *seconds) {
  const advise_sample *s = user;
  advise_way *way = s->way;
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  tdict_transfer_options o = tdict_transfer_options_default();
  (void)unused;
  o.mode = way->mode;
  o.num_threads = way->threads;
  o.narrow = way->narrow;
  o.stats = &stats;
  if (!place_move_timed(&s->job->place, s->src, &o, way->name, seconds)) return false;
  way->cpu_ms = stats.cpu_seconds * 1e3 * scale_to_tree(s->job);
  way->worked = stats.num_threads;
  return true;
}

static bool measure_way(const advise_job *job, const tdict_tree *src, advise_way *way) {
  advise_sample s = {job, src, way};
  double seconds;
  const bool good = bench_medians(&seconds, 1, 1, REPEATS, move_sample, &s) &&
                    bench_count_processors(&way->processors, move_sample, &s, 0);
  way->ms = good ? seconds * 1e3 * scale_to_tree(job) : 0;
  return good;
}

/* Measures how long it takes to pin the tree first and then to send the pinned tree, for comparison. */
static bool measure_pinning(advise_job *job, const tdict_tree *src) {
  tdict_tree *pinned;
  advise_way way = {"non_blocking", TDICT_MODE_NON_BLOCKING, -1, 0, 0, 0, false, 0};
  tdict_context_trim(job->place.context, tdict_cpu(), 0);
  double begin = bench_now();
  if (!bench_ok("pin_memory", tdict_pin_memory(job->place.context, src, NULL, &pinned, err))) return false;
  job->pin_ms = (bench_now() - begin) * 1e3 * scale_to_tree(job);
  bool good = measure_way(job, pinned, &way);
  job->pinned_ms = way.ms;
  tdict_release(pinned);
  return good;
}

static bool measure_ways(advise_job *job) {
  static const advise_way ways[] = {{"auto", TDICT_MODE_AUTO, -1, 0, 0, 0, false, 0},
                                    {"blocking", TDICT_MODE_BLOCKING, -1, 0, 0, 0, false, 0},
                                    {"non_blocking", TDICT_MODE_NON_BLOCKING, -1, 0, 0, 0, false, 0},
                                    {"non_blocking_pin", TDICT_MODE_NON_BLOCKING_PIN, 0, 0, 0, 0, false, 0},
                                    {"non_blocking_pin", TDICT_MODE_NON_BLOCKING_PIN, 1, 0, 0, 0, false, 0},
                                    {"non_blocking_pin", TDICT_MODE_NON_BLOCKING_PIN, 2, 0, 0, 0, false, 0},
                                    {"non_blocking_pin", TDICT_MODE_NON_BLOCKING_PIN, 4, 0, 0, 0, false, 0},
                                    {"non_blocking_pin", TDICT_MODE_NON_BLOCKING_PIN, 8, 0, 0, 0, false, 0},
                                    {"auto", TDICT_MODE_AUTO, -1, 0, 0, 0, true, 0},
                                    {"non_blocking_pin", TDICT_MODE_NON_BLOCKING_PIN, 8, 0, 0, 0, true, 0},
                                    {"non_blocking_pin", TDICT_MODE_NON_BLOCKING_PIN, 16, 0, 0, 0, true, 0}};
  check_source source;
  int64_t fitting =
      (int64_t)((place_is_gpu(&job->place) ? sample_bytes_gpu : sample_bytes_sim) / (size_t)job->o.leaf_bytes);
  job->moved = job->o.leaves < sample_leaves ? job->o.leaves : sample_leaves;
  if (job->moved > fitting) job->moved = fitting > 0 ? fitting : 1;
  const check_group group = {job->moved, (size_t)job->o.leaf_bytes};
  if (!check_source_make_of(&source, &job->o.values, &group,
                            job->o.pinned ? tdict_pinned_memory(job->place.context) : NULL))
    return false;
  check_source_seed(&source, 1);
  bool good = true;
  const bench_bar bar = bench_bar_start(sizeof ways / sizeof ways[0]);
  for (size_t i = 0; i < sizeof ways / sizeof ways[0] && good; i++) {
    if (ways[i].threads > tdict_context_num_threads(job->place.context)) continue;
    if (ways[i].narrow && !options_can_narrow(&job->o.values)) continue;
    advise_way *way = &job->ways[job->num_ways++];
    *way = ways[i];
    bench_bar_show(&bar, (double)i, "way %zu", i + 1);
    good = measure_way(job, source.tree, way);
    if (good && way->ms < job->ways[job->best].ms) job->best = job->num_ways - 1;
  }
  bench_progress_end();
  if (good && !job->o.pinned) good = measure_pinning(job, source.tree);
  check_source_free(&source);
  /* prefer ways[0], the automatic choice, unless another way is over 5 % faster */
  if (good && job->ways[0].ms <= 1.05 * job->ways[job->best].ms) job->best = 0;
  /* likewise, if the best way uses narrow, prefer narrow with the automatic number of threads */
  for (int i = 1; i < job->num_ways && good && job->best > 0; i++)
    if (job->ways[i].narrow && job->ways[i].threads < 0 && job->ways[job->best].narrow &&
        job->ways[i].ms <= 1.05 * job->ways[job->best].ms)
      job->best = i;
  return good;
}

__attribute__((format(printf, 3, 4))) static void add_factor(const advise_job *job, const char *factor,
                                                             const char *format, ...) {
  va_list list;
  va_start(list, format);
  json_array_append_new(json_object_get(job->record, "factors"),
                        json_pack("{s:s, s:o}", "factor", factor, "answer", json_vsprintf(format, list)));
  va_end(list);
}

static double first_number(const char *path, const char *key) {
  char text[256];
  return bench_read_field(path, key, text, sizeof text) ? strtod(text, NULL) : -1;
}

static const advise_way *find_way(const advise_job *job, int32_t mode, int32_t threads) {
  for (int i = 0; i < job->num_ways; i++)
    if (!job->ways[i].narrow && job->ways[i].mode == mode && job->ways[i].threads == threads) return &job->ways[i];
  return &job->ways[0];
}

/* Returns the fastest way with this value of `narrow`, or NULL if no such way was measured. */
static const advise_way *fastest_way(const advise_job *job, bool narrow) {
  const advise_way *found = NULL;
  for (int i = 0; i < job->num_ways; i++)
    if (job->ways[i].narrow == narrow && (!found || job->ways[i].ms < found->ms)) found = &job->ways[i];
  return found;
}

static void add_narrow_factor(const advise_job *job) {
  const double total = (double)job->o.leaves * (double)job->o.leaf_bytes;
  const advise_way *with = fastest_way(job, true), *without = fastest_way(job, false);
  if (with)
    add_factor(job, "narrow", "%.2f GB/s with narrow, %.2f without: %s%s", total / with->ms / 1e6,
               total / without->ms / 1e6, job->ways[job->best].narrow ? "use it" : "do not use it",
               job->o.pinned ? "; pinned leaves are never narrowed" : "");
  else
    add_factor(job, "narrow", "has no effect on floats; for integers and bools, give --dtype and --max-value");
}

/* Adds the factors of the TensorDict tutorial on pinned memory, in the tutorial's order, each with a measurement. */
static void add_factors(const advise_job *job, const tdict_tuning *table) {
  const advise_options *o = &job->o;
  const bench_place *p = &job->place;
  double total = (double)o->leaves * (double)o->leaf_bytes, free_kb = first_number("/proc/meminfo", "MemAvailable:");
  const advise_way *one = find_way(job, TDICT_MODE_NON_BLOCKING_PIN, 0), *loop = find_way(job, TDICT_MODE_BLOCKING, -1);
  const advise_way *four = find_way(job, TDICT_MODE_NON_BLOCKING_PIN, 4), *best = &job->ways[job->best];
  const tdict_tuning_row *row = tdict_choose_row(table, TDICT_TUNING_IN, (size_t)total);
  raw_device_info info;
  add_factor(job, "cores", "%d may be used; 4 threads take %.3f ms, and the caller alone %.3f ms", bench_cpu_count(),
             four->ms, one->ms);
  add_factor(job, "core use",
             "on average, %.2f processes were running or waiting in the last minute; processor time: %.3f ms the "
             "advised way, %.3f ms in blocking mode",
             first_number("/proc/loadavg", ""), best->cpu_ms, loop->cpu_ms);
  if (o->pinned)
    add_factor(job, "memory use", "the leaves are already pinned: %.0f MB", total / 1e6);
  else
    add_factor(job, "memory use",
               "pinning first would pin %.0f MB of %.0f MB free (%.3f ms, and %.3f ms to send); the staging ring pins "
               "67 MB once",
               total / 1e6, free_kb / 1e3, job->pin_ms, job->pinned_ms);
  if (place_is_gpu(p) && raw_device_describe(p->check.raw, p->device.index, &info))
    add_factor(job, "device", "%s, compute %d.%d, %d copy engines", info.name, info.compute_major, info.compute_minor,
               info.copy_engines);
  else
    add_factor(job, "device", "SIMULATED: these figures say nothing about a GPU");
  add_factor(job, "number of leaves", "%" PRId64 ": leaf by leaf %.3f ms (%.2f us each), together %.3f ms", o->leaves,
             loop->ms, loop->ms * 1e3 / (double)o->leaves, best->ms);
  add_factor(job, "size of leaves",
             "%" PRId64 " bytes; for %.1f MB in all, the table has chunks of %zu bytes by %d thread%s, %s stores",
             o->leaf_bytes, total / 1e6, row->chunk_bytes, (int)row->workers, row->workers == 1 ? "" : "s",
             row->streaming ? "streaming" : "plain");
  add_factor(job, "architecture", "the advised way reaches %.2f GB/s%s", total / best->ms / 1e6,
             place_is_gpu(p) ? "" : ", SIMULATED: copies within this host's memory");
}

/* The value of max_queued_bytes to try first if the program's own copies wait too long for a transfer. On an H200,
 * transfers reach 94 % of the rate of one driver copy with 8 MiB, and 72 % with 4 MiB. */
enum { START_QUEUED_BYTES = 8 << 20 };

static void fill_record(advise_job *job, const tdict_tuning *table) {
  json_t *ways = json_array();
  for (int i = 0; i < job->num_ways; i++) {
    const advise_way *w = &job->ways[i];
    json_array_append_new(ways,
                          json_pack("{s:s, s:b, s:i, s:i, s:f, s:f, s:f}", "mode", w->name, "narrow", (int)w->narrow,
                                    "num_threads", (int)w->threads, "threads_worked", w->worked, "predicted_ms", w->ms,
                                    "cpu_ms", w->cpu_ms, "processors_used", w->processors));
  }
  const advise_way *best = &job->ways[job->best];
  json_object_update_new(job->record,
                         json_pack("{s:b, s:o, s:I, s:I, s:b, s:I, s:s, s:I, s:b, s:s, s:i, s:o, s:[]}", "simulated",
                                   !place_is_gpu(&job->place), "device", place_describe(&job->place), "leaves",
                                   (json_int_t)job->o.leaves, "leaf_bytes", (json_int_t)job->o.leaf_bytes, "pinned",
                                   job->o.pinned, "leaves_moved", (json_int_t)job->moved, "dtype",
                                   tdict_dtype_name(job->o.values.dtype), "max_value", (json_int_t)job->o.values.most,
                                   "narrow", best->narrow, "mode", best->name, "num_threads", (int)best->threads,
                                   "ways", ways, "factors"));
  add_factors(job, table);
  add_narrow_factor(job);
  add_factor(job, "copies beside",
             "if other copies of the program wait too long for this transfer, set max_queued_bytes, for example to %d; "
             "not measured here",
             (int)START_QUEUED_BYTES);
}

static void print_ways(advise_job *job) {
  bench_table table;
  table_begin(&table, &job->sink, "mode|num_threads|worked|processors|predicted ms|CPU ms|narrow");
  for (int w = 0; w < job->num_ways; w++) {
    const advise_way *way = &job->ways[w];
    table_text(&table, way->name);
    table_threads(&table, way->threads);
    table_number(&table, "%.0f", way->worked);
    table_number(&table, "%.2f", way->processors);
    table_ms(&table, way->ms / 1e3);
    table_ms(&table, way->cpu_ms / 1e3);
    table_text(&table, way->narrow ? "yes" : "no");
    table_end_row(&table);
  }
  if (!job->o.pinned)
    printf("pin first, then send: %.3f ms (pin_memory %.3f, send %.3f)\n", job->pin_ms + job->pinned_ms, job->pin_ms,
           job->pinned_ms);
}

static void print_record(advise_job *job) {
  const advise_way *best = &job->ways[job->best], *loop = find_way(job, TDICT_MODE_BLOCKING, -1);
  char total[32];
  json_t *factor;
  size_t i;
  bench_print_text("advise: %" PRId64 " leaves of %" PRId64 " bytes, %s of %s in %s memory, to %s", job->o.leaves,
                   job->o.leaf_bytes,
                   bench_format_bytes((double)job->o.leaves * (double)job->o.leaf_bytes, total, sizeof total),
                   tdict_dtype_name(job->o.values.dtype), job->o.pinned ? "pinned" : "ordinary",
                   place_is_gpu(&job->place) ? raw_device_name(job->place.check.raw)
                                             : "a SIMULATED device: no figure here is a GPU's");
  printf("use mode %s with num_threads %d%s: predicted %.3f ms, %.2f of blocking\n", best->name, (int)best->threads,
         best->narrow ? " and narrow" : "", best->ms, best->ms / loop->ms);
  print_ways(job);
  if (job->moved < job->o.leaves)
    printf("Measured with %" PRId64 " leaves and extrapolated; median of %d.\n", job->moved, (int)REPEATS);
  else
    printf("Median of %d.\n", (int)REPEATS);
  bench_print_text(
      "Worked: the number of threads that copied, including the calling thread if num_threads is 0. Processors: "
      "processor time of the whole process, divided by the elapsed time.");
  printf("\nwhy:\n");
  json_array_foreach(json_object_get(job->record, "factors"), i, factor) {
    char label[32];
    snprintf(label, sizeof label, "  %.20s ", json_string_value(json_object_get(factor, "factor")));
    bench_print_item(20, label, json_string_value(json_object_get(factor, "answer")));
  }
}

static int run_advise(advise_job *job) {
  tdict_tuning table = tdict_tuning_default();
  if (!bench_sink_open(&job->sink, &job->o.outputs)) return BENCH_FAILED;
  if (job->o.tuning && !bench_ok("--tuning", tdict_tuning_read(job->o.tuning, &table, NULL, err))) return BENCH_FAILED;
  job->place.tuning_file = job->o.tuning;
  if (!place_open_device(&job->place, job->o.device, "advise")) return BENCH_FAILED;
  if (!measure_ways(job)) return BENCH_FAILED;
  fill_record(job, &table);
  print_record(job);
  return BENCH_OK;
}

static void check_options(struct argp_state *state, void *input) {
  const advise_options *o = input;
  if (!o->leaves || !o->leaf_bytes) argp_error(state, "--leaves and --leaf-bytes are required");
  options_check_values(state, &o->values, o->leaf_bytes);
}

int advise_main(int argc, char **argv) {
  static const char doc[] = "Recommends a mode and num_threads for a tree, with reasons measured on this machine."
                            "\vExample:\n  tdict-bench advise --leaves 1000 --leaf-bytes 4000\n\n" SHORT_EXIT_TEXT;
  static advise_job job;
  job.o = (advise_options){.device = "auto", .values = {TDICT_F32, 0}};
  advise_options *o = &job.o;
  const bench_option options[] = {
      DEVICE_OPTION(&o->device),
      NUMBER_OPTION("leaves", 'n', "N", &o->leaves, 1, 100000000, "number of leaves"),
      NUMBER_OPTION("leaf-bytes", 'b', "BYTES", &o->leaf_bytes, 1, INT64_C(1) << 36,
                    "size of each leaf, a multiple of the element size"),
      VALUES_OPTIONS(&o->values),
      FLAG_OPTION("pinned", &o->pinned, "the leaves are in pinned memory"),
      TEXT_OPTION("tuning", 0, "FILE", &o->tuning, "use a tuning file instead of the built-in table"),
      OUTPUT_OPTIONS(&o->outputs, "the result"),
      {0}};
  if (options_parse(argc, argv, doc, options, check_options, o) != BENCH_OK) return BENCH_USAGE;
  job.record = bench_record("advise", argc, argv);
  const int answer = bench_sink_end(&job.sink, run_advise(&job), job.record);
  place_close(&job.place);
  return answer;
}
