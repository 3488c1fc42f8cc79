/* tdict-bench tune: measures settings of the tuning table (threads, chunks, stores, whether the caller helps) for
 * several transfer sizes in both directions. Writes the best settings to a tuning file. For each size, starts with the
 * built-in settings, changes one setting at a time, and keeps a change that makes transfers clearly faster. Verifies
 * the best settings. The search for a size ends early when the size's share of the time limit is used up. The job owns
 * the place and the table. Thread rule: one thread. Unlike other tools, uses library internals to set the table. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/plan/choose.h"
#include "engine/plan/tuning_file.h"
#include "options.h"
#include "rows.h"

enum { SIZES = 7, LEAVES = 8 };
static const size_t in_sizes[SIZES] = {128 << 10,        (size_t)1100 << 10, (size_t)4 << 20, (size_t)11 << 20,
                                       (size_t)38 << 20, (size_t)160 << 20,  (size_t)1 << 30};
static const size_t out_sizes[SIZES] = {
    128 << 10, (size_t)2 << 20, (size_t)8 << 20, (size_t)32 << 20, (size_t)128 << 20, (size_t)512 << 20, 0};
static const double clearly = 0.98; /* a setting becomes the best if its time is below this fraction of the best time */

typedef struct tune_options {
  const char *device, *out;
  bench_outputs outputs;
  int64_t max_bytes, repeats, seconds;
} tune_options;
typedef struct tune_job {
  tune_options o;
  bench_place place;
  tdict_tuning table; /* the resulting table */
  bench_table columns;
  int64_t tried;
  double begin, weight, done; /* start time; total weight of all sizes; weight of the sizes up to the current one */
  int num_sizes, num_cut;     /* all sizes; sizes whose search the time limit cut short */
  char at[96];                /* the current size, for the progress line */
  json_t *rows;
} tune_job;

/* The measurement of one size in one direction. */
typedef struct tune_size {
  tune_job *job;
  tdict_tuning_direction direction;
  size_t bytes, slot_bytes;
  check_source source;
  tdict_tree *there; /* for copies to the host: the tree on the device */
  double end;        /* when the search must end, in seconds of bench_now() */
  bool is_cut;       /* the search ended early */
  bench_samples samples;
} tune_size;

static tdict_engine *engine_of(const tune_size *s) { return tdict_context_engine(s->job->place.context); }

/* Makes the engine use `row` for transfers of all sizes in all directions. */
static void use_row(const tune_size *s, tdict_tuning_row row) {
  tdict_tuning table = tdict_tuning_default();
  row.up_to_bytes = SIZE_MAX;
  for (int d = 0; d < TDICT_TUNING_DIRECTIONS; d++) {
    table.rows[d][0] = row;
    table.num_rows[d] = 1;
  }
  engine_of(s)->tuning = table;
}

static bool move_once(const tune_size *s, double *seconds, tdict_tree **out) {
  const bench_place *p = &s->job->place;
  const bool in = s->direction == TDICT_TUNING_IN;
  const tdict_tree *source = in ? s->source.tree : s->there;
  const double begin = bench_now();
  const bool good =
      bench_ok("a transfer failed", tdict_to_device(p->context, source, in ? p->device : tdict_cpu(), NULL, out, err));
  *seconds = bench_now() - begin;
  return good;
}

static bool is_over(const tune_size *s) { return bench_now() >= s->end; }

/* Returns the median time of several transfers after a warm-up, without the release of results. Stops early when the
 * time for this size is used up, but measures at least one transfer. Returns 0 on failure. */
static double measure_setting(tune_size *s, const tdict_tuning_row *row) {
  s->samples.count = 0;
  bench_progress("%s, setting %" PRId64, s->job->at, s->job->tried + 1);
  use_row(s, *row);
  for (int64_t i = -1; i < s->job->o.repeats; i++) {
    tdict_tree *out = NULL;
    double seconds;
    if (!move_once(s, &seconds, &out)) return 0;
    tdict_release(out);
    if (i >= 0) bench_samples_add(&s->samples, seconds);
    if (i >= 0 && is_over(s)) break;
  }
  s->job->tried++;
  return bench_samples_median(&s->samples);
}

/* Limits first_bytes to the size of a chunk, and `slots` to a worker's share of the slots in the ring. Returns false if
 * a chunk does not fit into a slot. */
static bool fit_row(const tune_size *s, tdict_tuning_row *row) {
  if (row->chunk_bytes > s->slot_bytes) return false;
  if (row->first_bytes > row->chunk_bytes) row->first_bytes = row->chunk_bytes;
  int64_t share = (int64_t)engine_of(s)->rings.num_slots / row->workers;
  if (row->slots > share) row->slots = share < 1 ? 1 : (int32_t)share;
  return true;
}

typedef struct tune_best {
  tdict_tuning_row row;
  double seconds;
} tune_best;

static bool try_row(tune_size *s, tdict_tuning_row row, tune_best *best) {
  if (!fit_row(s, &row) || memcmp(&row, &best->row, sizeof row) == 0) return true;
  if (is_over(s)) return s->is_cut = true;
  double seconds = measure_setting(s, &row);
  if (seconds <= 0) return false;
  if (seconds < best->seconds * clearly) *best = (tune_best){row, seconds};
  return true;
}

/* Tries one setting after another. Does this twice, because the best value of a setting depends on the others. */
static bool search_settings(tune_size *s, tune_best *best) {
  static const int32_t workers[] = {1, 2, 3, 4, 6, 8, 10, 12, 16, 24, 32};
  static const size_t chunks[] = {128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20};
  int cpus = bench_cpu_count();
  bool good = true;
  for (int turn = 0; turn < 2 && good; turn++) {
    tdict_tuning_row row;
    for (size_t i = 0; i < sizeof workers / sizeof workers[0] && good; i++)
      if (workers[i] <= cpus) row = best->row, row.workers = workers[i], good = try_row(s, row, best);
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0] && good; i++)
      if (chunks[i] <= 2 * s->bytes)
        row = best->row, row.chunk_bytes = row.first_bytes = chunks[i], good = try_row(s, row, best);
    for (int32_t slots = 1; slots <= 4 && good; slots *= 2)
      row = best->row, row.slots = slots, good = try_row(s, row, best);
    row = best->row, row.first_bytes = best->row.chunk_bytes / 4 / 256 * 256;
    if (good && row.first_bytes) good = try_row(s, row, best);
    row = best->row, row.streaming = !row.streaming;
    if (good && s->direction == TDICT_TUNING_IN) good = try_row(s, row, best);
    row = best->row, row.caller = !row.caller;
    if (good) good = try_row(s, row, best);
  }
  return good;
}

static int verify_best(tune_size *s, const tune_best *best) {
  double seconds;
  scoped_tree out = NULL;
  check_place place = s->job->place.check;
  if (s->direction != TDICT_TUNING_IN) place.device = tdict_cpu();
  use_row(s, best->row);
  return move_once(s, &seconds, &out) ? check_result(&place, &s->source, out, NULL, NULL) : BENCH_FAILED;
}

static void show_row(const tune_size *s, const tune_best *best, double built_in) {
  const tdict_tuning_row *r = &best->row;
  const char *name = s->direction == TDICT_TUNING_IN ? "in" : "out_new";
  bench_progress_end();
  bench_table *t = &s->job->columns;
  const double settings[] = {r->workers, (double)r->chunk_bytes, (double)r->first_bytes,
                             r->slots,   r->streaming,           r->caller};
  table_text(t, name);
  table_number(t, "%.0f", (double)s->bytes);
  table_ms(t, best->seconds);
  table_number(t, "%.2f", (double)s->bytes / best->seconds / 1e9);
  table_ms(t, built_in);
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) table_number(t, "%.0f", settings[i]);
  table_end_row(t);
  json_array_append_new(s->job->rows,
                        json_pack("{s:s, s:I, s:f, s:f, s:i, s:I, s:I, s:i, s:i, s:i}", "direction", name, "bytes",
                                  (json_int_t)s->bytes, "seconds", best->seconds, "built_in_seconds", built_in,
                                  "workers", (int)r->workers, "chunk_bytes", (json_int_t)r->chunk_bytes, "first_bytes",
                                  (json_int_t)r->first_bytes, "slots", (int)r->slots, "streaming", (int)r->streaming,
                                  "caller", (int)r->caller));
}

static bool open_size(tune_size *s) {
  const check_group group = {LEAVES, s->bytes / LEAVES / 4 * 4};
  if (!bench_samples_reserve(&s->samples, 1, (int)s->job->o.repeats)) return false;
  if (!check_source_make(&s->source, &group, 1, NULL)) return false;
  check_source_seed(&s->source, (uint64_t)s->bytes + (uint64_t)s->direction);
  s->slot_bytes = engine_of(s)->rings.slot_bytes;
  if (s->direction == TDICT_TUNING_IN) return true;
  return place_move(&s->job->place, s->source.tree, NULL, "a transfer failed", &s->there);
}

/* Finds, verifies and prints the best row for a size, starting from the built-in row. */
static int tune_one(tune_job *job, tdict_tuning_direction direction, size_t bytes, tdict_tuning_row *out) {
  const double end = job->begin + (double)job->o.seconds * job->done / job->weight;
  tune_size s = {.job = job, .direction = direction, .bytes = bytes, .end = end};
  tdict_tuning built_in = tdict_tuning_default();
  int answer = BENCH_FAILED;
  if (open_size(&s)) {
    tune_best best = {.row = *tdict_choose_row(&built_in, direction, bytes)};
    if (best.row.chunk_bytes > s.slot_bytes) best.row.chunk_bytes = s.slot_bytes;
    (void)fit_row(&s, &best.row);
    double begun = best.seconds = measure_setting(&s, &best.row);
    if (begun > 0 && search_settings(&s, &best)) answer = verify_best(&s, &best);
    job->num_cut += s.is_cut;
    if (answer == BENCH_OK) {
      show_row(&s, &best, begun);
      *out = best.row;
    }
  }
  tdict_release(s.there);
  check_source_free(&s.source);
  bench_samples_free(&s.samples, 1);
  return answer;
}

/* Returns a size's weight in the division of the time limit: its bytes plus a constant, so that small sizes get enough
 * time. */
static double size_weight(size_t bytes) { return (double)bytes + (16 << 20); }

static int count_sizes(const tune_job *job, tdict_tuning_direction direction) {
  const size_t *sizes = direction == TDICT_TUNING_IN ? in_sizes : out_sizes;
  int count = 0;
  while (count < SIZES && sizes[count] && (count == 0 || sizes[count] <= (size_t)job->o.max_bytes)) count++;
  return count;
}

/* Computes job->num_sizes and job->weight. */
static void count_work(tune_job *job) {
  static const tdict_tuning_direction directions[] = {TDICT_TUNING_IN, TDICT_TUNING_OUT_NEW};
  for (int d = 0; d < 2; d++) {
    const size_t *sizes = directions[d] == TDICT_TUNING_IN ? in_sizes : out_sizes;
    const int count = count_sizes(job, directions[d]);
    for (int i = 0; i < count; i++) job->weight += size_weight(sizes[i]);
    job->num_sizes += count;
  }
}

/* Finds the rows of one direction. A row applies to transfers up to the geometric mean of its size and the next size.
 * The last row has no limit. */
static int tune_direction(tune_job *job, tdict_tuning_direction direction) {
  const size_t *sizes = direction == TDICT_TUNING_IN ? in_sizes : out_sizes;
  int count = count_sizes(job, direction), answer = BENCH_OK;
  for (int i = 0; i < count && answer == BENCH_OK; i++) {
    tdict_tuning_row *row = &job->table.rows[direction][i];
    snprintf(job->at, sizeof job->at, "%s, size %d of %d, %.0f of at most %" PRId64 " s",
             direction == TDICT_TUNING_IN ? "in" : "out_new", i + 1, count, bench_now() - job->begin, job->o.seconds);
    job->done += size_weight(sizes[i]);
    answer = tune_one(job, direction, sizes[i], row);
    row->up_to_bytes = i + 1 == count ? SIZE_MAX : (size_t)sqrt((double)sizes[i] * (double)sizes[i + 1]);
    job->table.num_rows[direction] = i + 1;
  }
  bench_progress_end();
  return answer;
}

/* Writes the tuning file, checks that a context can be created with it, and prints its name. */
static bool write_table(const tune_job *job, const char *machine) {
  tdict_context *context = NULL;
  tdict_context_options o = tdict_context_options_default();
  if (!bench_ok("the table", tdict_tuning_write(job->o.out, &job->table, machine, err))) return false;
  o.device = job->place.device;
  o.tuning_file = job->o.out;
  if (!bench_ok("a context with this table", tdict_context_create(&o, &context, err))) return false;
  tdict_context_destroy(context);
  if (job->num_cut)
    bench_print_text("the time limit has ended the search of %d of %d sizes: --seconds sets another limit",
                     job->num_cut, job->num_sizes);
  bench_print_text("written: %s, which tdict_context_options.tuning_file takes (%" PRId64 " settings tried in %.0f s)",
                   job->o.out, job->tried, bench_now() - job->begin);
  return true;
}

static int run_tune(tune_job *job, int argc, char **argv) {
  char cpu[128], machine[TDICT_TUNING_MACHINE];
  bench_sink sink;
  if (!bench_can_write(job->o.out) || !bench_sink_open(&sink, &job->o.outputs)) return BENCH_FAILED;
  if (!place_open_device(&job->place, job->o.device, "tune")) return BENCH_FAILED;
  bool gpu = place_is_gpu(&job->place);
  snprintf(machine, sizeof machine, "%.100s, %d processors, %.80s", bench_cpu_model(cpu, sizeof cpu), bench_cpu_count(),
           gpu ? raw_device_name(job->place.check.raw) : "SIMULATED device");
  bench_print_text("tune: %s", machine);
  if (!gpu) printf("SIMULATED device: these settings suit copies in host memory and say nothing about a GPU\n");
  count_work(job);
  bench_print_text("%d sizes, %" PRId64 " transfers for each setting: takes about %" PRId64 " s at most (--seconds)",
                   job->num_sizes, job->o.repeats + 1, job->o.seconds);
  job->begin = bench_now();
  table_begin(&job->columns, &sink,
              "direction|     bytes|median ms|GB/s|built-in|workers|chunk|first|slots|streaming|caller");
  job->table = tdict_tuning_default(); /* rows that are not measured keep the built-in values */
  int answer = tune_direction(job, TDICT_TUNING_IN);
  if (answer == BENCH_OK) answer = tune_direction(job, TDICT_TUNING_OUT_NEW);
  if (answer == BENCH_OK && !write_table(job, machine)) answer = BENCH_FAILED;
  json_t *record = place_record(&job->place, "tune", argc, argv);
  json_object_set(record, "rows", job->rows);
  return bench_sink_end(&sink, answer, record);
}

int tune_main(int argc, char **argv) {
  static const char doc[] =
      "Finds the fastest threads, chunks and stores for transfers of each size on this machine. Writes "
      "the file for tdict_context_options.tuning_file."
      "\v" EXIT_TEXT;
  static tune_job job;
  job.o = (tune_options){
      .device = "auto", .out = "tdict.tuning", .max_bytes = INT64_C(1) << 30, .repeats = 7, .seconds = 60};
  tune_options *o = &job.o;
  const bench_option options[] = {
      DEVICE_OPTION(&o->device),
      TEXT_OPTION("output", 'o', "FILE", &o->out, "name of the tuning file (default tdict.tuning)"),
      OUTPUT_OPTIONS(&o->outputs, "the measurements"),
      NUMBER_OPTION("repeat", 'r', "N", &o->repeats, 1, 1000, "transfers for each setting (default 7)"),
      NUMBER_OPTION("seconds", 's', "N", &o->seconds, 1, 86400,
                    "time limit in seconds (default 60); the search of each size gets a part of it"),
      NUMBER_OPTION("max-bytes", 'm', "N", &o->max_bytes, 1, INT64_C(1) << 40,
                    "largest size in bytes (default 1073741824)"),
      {0}};
  if (options_parse(argc, argv, doc, options, NULL, NULL) != BENCH_OK) return BENCH_USAGE;
  job.rows = json_array();
  int answer = run_tune(&job, argc, argv);
  json_decref(job.rows);
  place_close(&job.place);
  return answer;
}
