/* tdict-bench load: measures how fast files are loaded to the device and how fast a tree is saved, and compares with
 * plain reads and writes. load_files.c makes the files, and load_save.c measures saves. The job owns the place; each
 * workload owns its file and its samples. Thread rule: one thread. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "load.h"
#include "tdict/io.h"

enum { FIRST, STEADY, OPEN, LINE, FILE_ROWS }; /* the rows for a file in the page cache */
enum { LIBRARY, DIRECT, BUFFERED, COLD_ROWS }; /* the rows for cold reads */
static const char *const work_names[LOAD_WORKS] = {"even", "mixed", "many", "cold", "save"};
static const load_shape *const shapes[LOAD_COLD] = {&load_even, &load_mixed, &load_many};
static const int64_t small_bytes = 4000000;

bool load_open_context(load_job *job) {
  job->place = (bench_place){.bare = true};
  return place_open(&job->place, job->options.common.device);
}

bool load_open_rows(load_row *rows, int count, int capacity, const char *const *names, const char *work) {
  memset(rows, 0, (size_t)count * sizeof *rows);
  for (int i = 0; i < count; i++) {
    snprintf(rows[i].name, sizeof rows[i].name, "%s, %s", work, names[i]);
    if (!bench_samples_reserve(&rows[i].samples, 1, capacity)) return false;
  }
  return true;
}

void load_close_rows(load_row *rows, int count) {
  for (int i = 0; i < count; i++) bench_samples_free(&rows[i].samples, 1);
}

static double rate_of(const load_row *row, uint64_t bytes) {
  const double seconds = bench_samples_median(&row->samples);
  return seconds > 0 ? (double)bytes / seconds : 0;
}

void load_put_row(load_job *job, const load_row *row, uint64_t bytes, const bench_samples *line, json_t *more) {
  static const bench_samples none = {.seconds = NULL};
  const table_row t = {row->name, &row->samples, &none, line ? line : &none, bytes, job->place.line_bytes, bytes > 0};
  if (row->samples.count > 0) {
    json_t *one = json_pack("{s:s}", "row", row->name);
    table_put_row(&job->table, &t);
    table_record_row(one, &t);
    if (more) json_object_update(one, more);
    json_array_append_new(job->rows, one);
  }
  json_decref(more);
}

/* --- loads of a file in the page cache --- */

/* Loads the file once to the device and measures the time. */
static bool load_once(load_job *job, const load_file *f, double *seconds, tdict_transfer_stats *stats,
                      tdict_tree **out) {
  tdict_load_options o = tdict_load_options_default();
  tdict_transfer_options transfer = tdict_transfer_options_default();
  *stats = tdict_transfer_stats_default();
  transfer.stats = stats;
  o.transfer = &transfer;
  const double begin = bench_now();
  if (!bench_ok("load", tdict_load(job->place.context, f->path, job->place.device, &o, out, err))) return false;
  *seconds = bench_now() - begin;
  return true;
}

static int verify_leaf(load_job *job, const load_file *f, int64_t leaf, tdict_tree *result) {
  char name[64];
  tdict_tensor *t = NULL;
  f->shape->leaf_name(leaf, name, sizeof name);
  if (!bench_ok("a tensor did not arrive", tdict_get(result, name, &t, err))) return BENCH_DIFFERS;
  const size_t wanted = (size_t)(f->offsets[leaf + 1] - f->offsets[leaf]);
  if (!tdict_device_equal(tdict_tensor_device(t), job->place.device) || tdict_tensor_dtype(t) != f->shape->type ||
      tdict_tensor_bytes(t) != wanted || !tdict_tensor_is_contiguous(t)) {
    bench_print_error("\"%s\" arrived on another device, or with another dtype or size", name);
    return BENCH_DIFFERS;
  }
  const unsigned char *data = tdict_tensor_const_data(t);
  const size_t most = job->place.check.bounce_bytes ? job->place.check.bounce_bytes : wanted;
  for (size_t at = 0; at < wanted;) {
    const size_t bytes = wanted - at < most ? wanted - at : most;
    const void *found = check_read(&job->place.check, data + at, bytes);
    if (!found) return BENCH_FAILED;
    const size_t equal = load_file_equal(found, f->offsets[leaf] + at, bytes);
    if (equal < bytes) {
      bench_print_error("\"%s\" differs from the file at byte %zu", name, at + equal);
      return BENCH_DIFFERS;
    }
    at += bytes;
  }
  return BENCH_OK;
}

static int verify_result(load_job *job, const load_file *f, tdict_tree *result) {
  if (tdict_num_leaves(result) != (size_t)f->shape->num_leaves) {
    bench_print_error("%zu tensors arrived, wanted %" PRId64, tdict_num_leaves(result), f->shape->num_leaves);
    return BENCH_DIFFERS;
  }
  const bench_bar bar = bench_bar_start((double)f->shape->num_leaves);
  for (int64_t i = 0; i < f->shape->num_leaves; i++) {
    if (i % 8 == 0)
      bench_bar_show(&bar, (double)i, "reading back tensor %" PRId64 " of %" PRId64, i, f->shape->num_leaves);
    int answer = verify_leaf(job, f, i, result);
    if (answer != BENCH_OK) return answer;
  }
  bench_progress_end();
  job->verified_bytes += load_file_bytes(f) - f->data_begin;
  job->verified_files++;
  return BENCH_OK;
}

/* Returns by how many bytes the process's host memory grew at most during a load, or -1 if unknown. Includes the
 * staging ring if the load created it. The kernel does not count a ring that the driver allocated, so its size is
 * added. */
static int64_t host_bytes(const load_memory *m, const tdict_transfer_stats *stats, bool creates_ring) {
  const bool is_hidden = creates_ring && stats->pin_path == TDICT_PIN_DRIVER;
  if (m->growth < 0) return -1;
  return m->growth + (is_hidden ? (int64_t)tdict_context_options_default().staging_bytes : 0);
}

/* Prints how much host memory a load used, and returns this and the number of threads as a new JSON object. */
static json_t *put_memory(const char *name, const load_memory *m, const tdict_transfer_stats *stats, bool is_first) {
  const int64_t bytes = host_bytes(m, stats, is_first);
  const size_t ring = tdict_context_options_default().staging_bytes;
  if (bytes < 0)
    printf("  %s: the growth of the host memory is unknown\n", name);
  else
    printf("  %s: the host memory grew by at most %.2f MB%s\n", name, (double)bytes / 1e6,
           is_first ? ", with the staging ring" : "");
  return json_pack("{s:{s:I, s:I, s:I, s:i}}", "memory", "host_bytes", (json_int_t)bytes, "ring_bytes",
                   is_first ? (json_int_t)ring : (json_int_t)0, "peak_staging_bytes",
                   (json_int_t)stats->peak_staging_bytes, "num_threads", (int)stats->num_threads);
}

/* Measures the first load in each of several new contexts. Verifies the result in the last context, and leaves this
 * context open. Sets *memory to the host memory that the first load used. */
static int measure_first(load_job *job, const load_file *f, load_row *row, json_t **memory) {
  const bench_bar bar = bench_bar_start((double)job->options.contexts);
  for (int64_t i = 0; i < job->options.contexts; i++) {
    double seconds;
    load_memory m;
    tdict_transfer_stats stats;
    tdict_tree *result = NULL;
    if (i > 0) place_close(&job->place);
    bench_bar_show(&bar, (double)i, "%s: context %" PRId64 " of %" PRId64, f->shape->name, i + 1,
                   job->options.contexts);
    if (!load_open_context(job)) return BENCH_FAILED;
    load_memory_begin(&m);
    if (!load_once(job, f, &seconds, &stats, &result)) return BENCH_FAILED;
    load_memory_end(&m);
    bench_samples_add(&row->samples, seconds);
    bench_progress_end();
    if (i == 0) *memory = put_memory(row->name, &m, &stats, true);
    const bool is_last = i + 1 == job->options.contexts;
    int answer = !is_last ? BENCH_OK : place_furnish(&job->place) ? verify_result(job, f, result) : BENCH_FAILED;
    tdict_release(result);
    if (answer != BENCH_OK) return answer;
  }
  return BENCH_OK;
}

/* Measures tdict_open(), which reads the header and makes the tree. A load begins with the same steps. */
static bool open_once(const load_file *f, bench_samples *samples) {
  tdict_tree *tree = NULL;
  const double begin = bench_now();
  if (!bench_ok("open", tdict_open(f->path, NULL, &tree, err))) return false;
  bench_samples_add(samples, bench_now() - begin);
  tdict_release(tree);
  return true;
}

static bool measure_steady(load_job *job, const load_file *f, load_row rows[FILE_ROWS], json_t **memory) {
  const bench_bar bar = bench_bar_start((double)job->options.common.repeats);
  double seconds;
  for (int64_t i = 0; i < job->options.common.repeats; i++) {
    load_memory m;
    tdict_transfer_stats stats;
    tdict_tree *result = NULL;
    bench_bar_show(&bar, (double)i, "%s: repetition %" PRId64 " of %" PRId64, f->shape->name, i + 1,
                   job->options.common.repeats);
    if (job->place.line_bytes > 0) {
      if (!place_line(&job->place, &seconds)) return false;
      bench_samples_add(&rows[LINE].samples, seconds);
    }
    if (!open_once(f, &rows[OPEN].samples)) return false;
    load_memory_begin(&m);
    if (!load_once(job, f, &seconds, &stats, &result)) return false;
    load_memory_end(&m);
    tdict_release(result);
    bench_samples_add(&rows[STEADY].samples, seconds);
    if (i > 0) continue;
    bench_progress_end();
    *memory = put_memory(rows[STEADY].name, &m, &stats, false);
  }
  bench_progress_end();
  return true;
}

static int measure_warm(load_job *job, const load_file *f) {
  static const char *const names[FILE_ROWS] = {"first call", "steady", "open", "line"};
  load_row rows[FILE_ROWS];
  json_t *first = NULL, *steady = NULL;
  const int capacity = (int)(job->options.common.repeats + job->options.contexts);
  int answer = load_open_rows(rows, FILE_ROWS, capacity, names, f->shape->name) ? BENCH_OK : BENCH_FAILED;
  if (answer == BENCH_OK) answer = measure_first(job, f, &rows[FIRST], &first);
  if (answer == BENCH_OK && !measure_steady(job, f, rows, &steady)) answer = BENCH_FAILED;
  if (answer == BENCH_OK) {
    const uint64_t bytes = load_file_bytes(f) - f->data_begin;
    load_put_row(job, &rows[FIRST], bytes, &rows[LINE].samples, first);
    load_put_row(job, &rows[STEADY], bytes, &rows[LINE].samples, steady);
    load_put_row(job, &rows[OPEN], 0, NULL, NULL);
    load_put_row(job, &rows[LINE], job->place.line_bytes, NULL, NULL);
  } else {
    json_decref(first);
    json_decref(steady);
  }
  load_close_rows(rows, FILE_ROWS);
  return answer;
}

/* --- loads of a file that is not in the page cache --- */

static bool read_cold(load_job *job, const load_file *f, load_row *row, int way) {
  double seconds;
  tdict_transfer_stats stats;
  scoped_tree result = NULL;
  const double left = load_evict(f->path);
  if (left > job->left || left < 0) job->left = left;
  if (way != LIBRARY) {
    if (load_read_plain(f->path, way == DIRECT, &seconds)) bench_samples_add(&row->samples, seconds);
    return true; /* not a failure: the file system may not support O_DIRECT */
  }
  if (!load_once(job, f, &seconds, &stats, &result)) return false;
  bench_samples_add(&row->samples, seconds);
  return true;
}

static void print_cold(const load_job *job, const load_row rows[COLD_ROWS], uint64_t bytes) {
  const double direct = rate_of(&rows[DIRECT], bytes), buffered = rate_of(&rows[BUFFERED], bytes);
  const double best = direct > buffered ? direct : buffered;
  if (best > 0) printf("  cold: %.2f of the best plain rate; of the file, ", rate_of(&rows[LIBRARY], bytes) / best);
  if (job->left < 0)
    printf("an unknown part was in the page cache\n");
  else
    printf("at most %.1f %% was in the page cache before a read\n", 100 * job->left);
}

static int measure_cold(load_job *job, const load_file *f) {
  static const char *const names[COLD_ROWS] = {"tdict", "direct reads", "buffered reads"};
  load_row rows[COLD_ROWS];
  const int rounds = (int)(job->options.common.repeats + 1) / 2;
  if (load_is_tmpfs(job->options.folder)) {
    printf("  cold: not measured, because %s is in memory\n", job->options.folder);
    return BENCH_OK;
  }
  if (!job->place.context && !load_open_context(job)) return BENCH_FAILED;
  bool good = load_open_rows(rows, COLD_ROWS, rounds, names, "cold");
  const bench_bar bar = bench_bar_start(rounds * COLD_ROWS);
  for (int i = 0; i < rounds * COLD_ROWS && good; i++) {
    const int way = (i / COLD_ROWS + i) % COLD_ROWS; /* each round starts with a different way */
    bench_bar_show(&bar, i, "cold: round %d of %d, %s", i / COLD_ROWS + 1, rounds, names[way]);
    good = read_cold(job, f, &rows[way], way);
  }
  bench_progress_end();
  const uint64_t bytes = load_file_bytes(f) - f->data_begin;
  for (int i = 0; i < COLD_ROWS && good; i++)
    load_put_row(job, &rows[i], bytes, NULL, i == LIBRARY ? json_pack("{s:f}", "cached_part", job->left) : NULL);
  if (good) print_cold(job, rows, bytes);
  load_close_rows(rows, COLD_ROWS);
  return good ? BENCH_OK : BENCH_FAILED;
}

static int run_file(load_job *job, int work) {
  load_file f;
  const bool is_cold = work == 0 && job->options.works[LOAD_COLD];
  if (!load_file_plan(&f, shapes[work], job->options.folder, job->options.divide)) return BENCH_FAILED;
  int answer = load_file_provide(&f) ? BENCH_OK : BENCH_FAILED;
  bench_progress_end();
  if (answer == BENCH_OK && job->options.makes)
    printf("%s: %" PRIu64 " bytes, %" PRId64 " tensors\n", f.path, load_file_bytes(&f), f.shape->num_leaves);
  if (answer == BENCH_OK && !job->options.makes && job->options.works[work]) answer = measure_warm(job, &f);
  if (answer == BENCH_OK && !job->options.makes && is_cold) answer = measure_cold(job, &f);
  if (job->place.context) place_close(&job->place);
  load_file_close(&f, job->options.makes && answer == BENCH_OK);
  return answer;
}

/* --- the scenario --- */

static int print_head(load_job *job, json_t *record) {
  char what[64];
  if (!load_open_context(job)) return BENCH_FAILED;
  const load_options *o = &job->options;
  if (o->divide == 0 && !o->common.small && (o->common.full || place_is_gpu(&job->place))) job->options.divide = 1;
  snprintf(what, sizeof what, "files in %.40s", load_is_tmpfs(o->folder) ? "a tmpfs" : "a disk's file system");
  table_print_head(&job->place, "load", what);
  table_begin(&job->table, &job->sink, "row|" TABLE_TIMES);
  json_object_update_new(record,
                         json_pack("{s:b, s:o, s:b}", "simulated", job->place.device.type == TDICT_DEVICE_SIM, "device",
                                   place_describe(&job->place), "is_tmpfs", load_is_tmpfs(o->folder)));
  place_close(&job->place);
  return BENCH_OK;
}

/* Returns o->divide, or if it is 0, a divisor that makes the file about 4 MB large. */
static int64_t divide_for(const load_options *o, int64_t total_bytes) {
  return o->divide > 0 ? o->divide : total_bytes / small_bytes;
}

static int run_works(load_job *job) {
  int answer = BENCH_OK;
  const load_options asked = job->options;
  for (int w = 0; w < LOAD_COLD && answer == BENCH_OK; w++) {
    if (!asked.works[w] && !(w == 0 && asked.works[LOAD_COLD])) continue;
    job->options.divide = divide_for(&asked, shapes[w]->total_bytes);
    answer = run_file(job, w);
  }
  job->options.divide = divide_for(&asked, load_save_bytes);
  if (answer == BENCH_OK && asked.works[LOAD_SAVE] && !asked.makes) answer = load_run_save(job);
  job->options = asked;
  return answer;
}

static void parse_works(struct argp_state *state, const char *text, void *to) {
  bool *works = to;
  for (const char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
    const size_t length = strcspn(at, ",");
    int w = 0;
    while (w < LOAD_WORKS && (strlen(work_names[w]) != length || strncmp(at, work_names[w], length) != 0)) w++;
    if (w == LOAD_WORKS) argp_error(state, "--work: '%.*s' is not even, mixed, many, cold or save", (int)length, at);
    if (w < LOAD_WORKS) works[w] = true;
  }
}

/* Selects all workloads if --work is not given. */
static void complete_works(struct argp_state *state, void *input) {
  load_options *o = input;
  (void)state;
  for (int w = 0; w < LOAD_WORKS; w++)
    if (o->works[w]) return;
  memset(o->works, 1, sizeof o->works);
}

static int run_load(int argc, char **argv) {
  static const char doc[] =
      "Loads files to the device and saves a tree. Compares this with plain reads and writes. The first call is "
      "measured in new contexts. A cold row is measured after the file has been evicted from the page cache."
      "\v" EXIT_TEXT;
  static load_job job;
  const char *folder = getenv("TMPDIR");
  job.options = (load_options){.common = {.device = "auto", .repeats = 5},
                               .folder = folder && *folder ? folder : "/tmp",
                               .divide = 0,
                               .contexts = 3};
  load_options *o = &job.options;
  const bench_option options[] = {
      DEVICE_OPTION(&o->common.device),
      SIZE_OPTIONS(&o->common),
      RECORD_OPTIONS(&o->common),
      TEXT_OPTION("folder", 0, "DIR", &o->folder, "where the files are made and removed (default: TMPDIR, or /tmp)"),
      PARSED_OPTION("work", 0, "LIST", o->works, parse_works,
                    "even: 256 tensors, 8.6 GB; mixed: 290 tensors, 6.5 GB; many: 18000 tensors, 20 GB; cold: even, "
                    "not in the page cache; save: 4.3 GB (default: all)"),
      NUMBER_OPTION("divide", 0, "N", &o->divide, 1, 1000000, "divide the size of each tensor by N"),
      NUMBER_OPTION("contexts", 0, "N", &o->contexts, 1, 1000, "contexts whose first load is measured (default 3)"),
      FLAG_OPTION("make", &o->makes,
                  "only make the files and leave them; later runs use such files and leave them, too"),
      {0}};
  if (options_parse(argc, argv, doc, options, complete_works, o) != BENCH_OK) return BENCH_USAGE;
  if (!bench_sink_open(&job.sink, &job.options.common.outputs)) return BENCH_FAILED;
  char text[32];
  json_t *record = bench_record("load", argc, argv);
  job.rows = json_array();
  json_object_set_new(record, "rows", job.rows);
  int answer = print_head(&job, record);
  if (answer == BENCH_OK) answer = run_works(&job);
  if (answer == BENCH_OK && !job.options.makes) {
    printf("\nverified: %s in %d files, read back without the library\n",
           bench_format_bytes((double)job.verified_bytes, text, sizeof text), job.verified_files);
    json_object_set_new(record, "verified_bytes", json_integer((json_int_t)job.verified_bytes));
  }
  answer = bench_sink_end(&job.sink, answer, json_incref(record));
  place_close(&job.place);
  json_decref(record);
  return answer;
}

const bench_scenario bench_load = {"load", "loads files to a device, and saves a tree", run_load, NULL, 0};
