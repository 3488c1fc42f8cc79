/* tdict-bench demo: shows a small tree, its transfer and the result; then measures a larger tree, as a table and a
 * chart. The job owns the place and the trees. Thread rule: one thread. */
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tdict/clone.h"

#include "options.h"
#include "rows.h"

enum { LEAVES = 1000, FULL_LEAF_BYTES = 4000000, SMALL_LEAF_BYTES = 100000, REPEATS = 5, WARM_UPS = 1, SAMPLES = 128 };

typedef struct demo_way {
  const char *name;
  int32_t mode;
} demo_way;
enum { WAYS = 4 };
static const demo_way ways[WAYS] = {{"one tensor after the other", TDICT_MODE_BLOCKING},
                                    {"all queued, then one wait", TDICT_MODE_NON_BLOCKING},
                                    {"through pinned memory", TDICT_MODE_NON_BLOCKING_PIN},
                                    {"the library chooses", TDICT_MODE_AUTO}};

typedef struct demo_job {
  common_options common;
  bench_place place;
  check_source source;
  bench_samples rows[WAYS + 1]; /* the samples of each way, then of the link */
} demo_job;

static tdict_status make_batch(tdict_tree **out, tdict_error *err) {
  const tdict_field fields[] = {TDICT_FIELD("obs.pixels", TDICT_U8, 3, 64, 64), TDICT_FIELD("obs.state", TDICT_F32, 17),
                                TDICT_FIELD("action", TDICT_F32, 6), TDICT_FIELD("reward", TDICT_F32)};
  const int64_t batch[] = {SAMPLES};
  tdict_status status = tdict_create_from(fields, sizeof fields / sizeof *fields, 1, batch, NULL, out, err);
  for (size_t i = 0; i < sizeof fields / sizeof *fields && status == TDICT_OK; i++) {
    int64_t bytes = SAMPLES * (int64_t)tdict_dtype_bytes(fields[i].dtype);
    for (int d = 0; d < fields[i].ndim; d++) bytes *= fields[i].shape[d];
    unsigned char *data = tdict_data(*out, fields[i].path);
    for (int64_t b = 0; b < bytes; b++) data[b] = (unsigned char)(b * 31 % 61); /* small numbers when read as floats */
  }
  return status;
}

/* Prints a batch and its copy on the device, and checks that a copy back to the host equals the batch. */
static tdict_status show_batch(demo_job *job, tdict_tree *trees[3], tdict_error *err) {
  char device[32];
  tdict_context *context = job->place.context;
  tdict_device_format(job->place.device, device, sizeof device);
  printf("\n1. A tree of tensors in ordinary memory\n\n");
  tdict_status status = make_batch(&trees[0], err);
  if (status == TDICT_OK) status = tdict_print(trees[0], stdout, err);
  if (status != TDICT_OK) return status;
  double begin = bench_now();
  status = tdict_to_device(context, trees[0], job->place.device, NULL, &trees[1], err);
  if (status != TDICT_OK) return status;
  printf("\n2. tdict_to_device() copied the tree to %s in %.3f ms, the first copy of this process\n\n", device,
         (bench_now() - begin) * 1e3);
  status = tdict_print(trees[1], stdout, err);
  if (status == TDICT_OK) status = tdict_to_device(context, trees[1], tdict_cpu(), NULL, &trees[2], err);
  if (status != TDICT_OK) return status;
  bool equal = tdict_equal(trees[0], trees[2]);
  printf("\n3. Copied back to the host, all elements are %s\n", equal ? "equal" : "NOT equal");
  return equal ? TDICT_OK : TDICT_EINVAL;
}

static bool measure(demo_job *job) {
  const bench_bar bar = bench_bar_start((WARM_UPS + REPEATS) * WAYS);
  for (int i = 0; i < WARM_UPS + REPEATS; i++) {
    double seconds = 0;
    if (!place_line(&job->place, &seconds)) return false;
    if (i >= WARM_UPS) bench_samples_add(&job->rows[WAYS], seconds);
    for (int w = 0; w < WAYS; w++) {
      tdict_transfer_options o = td_with(tdict_transfer_options, mode = ways[w].mode);
      bench_bar_show(&bar, i * WAYS + w, "%s", ways[w].name);
      if (!place_move_timed(&job->place, job->source.tree, &o, ways[w].name, &seconds)) return false;
      if (i >= WARM_UPS) bench_samples_add(&job->rows[w], seconds);
    }
  }
  bench_progress_end();
  return true;
}

static double rate(const demo_job *job, int w) {
  return (double)job->source.total_bytes / bench_samples_median(&job->rows[w]);
}

/* Prints a bar of `cells` columns, in steps of 1/8. Without Unicode block characters, prints whole columns as #. */
static void print_bar(double cells, bool has_blocks) {
  static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int parts = (int)(cells * 8 + 0.5);
  for (int i = 0; i < parts / 8; i++) fputs(has_blocks ? "█" : "#", stdout);
  if (has_blocks) fputs(eighths[parts % 8], stdout);
}

static void print_results(const demo_job *job) {
  double line = (double)job->place.line_bytes / bench_samples_median(&job->rows[WAYS]), most = line;
  const bool has_blocks = isatty(STDOUT_FILENO) && strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
  const int columns = bench_columns() - 40;
  bench_sink sink = {.fd = -1};
  bench_table table;
  for (int w = 0; w < WAYS; w++) most = rate(job, w) > most ? rate(job, w) : most;
  table_begin(&table, &sink, "way|median ms|GB/s|% of line");
  for (int w = 0; w < WAYS; w++) {
    table_text(&table, ways[w].name);
    table_ms(&table, bench_samples_median(&job->rows[w]));
    table_number(&table, "%.2f", rate(job, w) / 1e9);
    table_number(&table, "%.1f", 100 * rate(job, w) / line);
    table_end_row(&table);
  }
  printf("\nGB/s\n");
  for (int w = 0; w <= WAYS; w++) {
    const double here = w < WAYS ? rate(job, w) : line;
    printf("%-28s %7.2f  ", w < WAYS ? ways[w].name : "the line", here / 1e9);
    print_bar(here / most * (columns > 8 ? columns : 8), has_blocks);
    printf("\n");
  }
}

static int run_demo(demo_job *job) {
  tdict_error err = {0};
  tdict_tree *trees[3] = {NULL, NULL, NULL};
  char bytes[32];
  if (!place_open_device(&job->place, job->common.device, "demo"))
    return job->place.context ? BENCH_USAGE : BENCH_FAILED;
  const bool full = job->common.full || (place_is_gpu(&job->place) && !job->common.small);
  const check_group group = {LEAVES, full ? FULL_LEAF_BYTES : SMALL_LEAF_BYTES};
  table_print_head(&job->place, "demo", "a tree, its transfer, and times");
  tdict_status status = show_batch(job, trees, &err);
  for (int i = 0; i < 3; i++) tdict_release(trees[i]);
  if (status != TDICT_OK) {
    if (err.status != TDICT_OK) bench_print_status("the batch", &err);
    return err.status != TDICT_OK ? BENCH_FAILED : BENCH_DIFFERS;
  }
  bench_format_bytes((double)group.leaf_bytes * (double)group.leaves, bytes, sizeof bytes);
  printf("\n4. A larger tree: %d tensors, %s in ordinary memory\n", LEAVES, bytes);
  fflush(stdout);
  if (!check_source_make(&job->source, &group, 1, NULL)) return BENCH_FAILED;
  check_source_seed(&job->source, 1);
  if (!measure(job)) return BENCH_FAILED;
  const int answer = place_verify(&job->place, &job->source, NULL, "verification"); /* the result of the last way */
  if (answer != BENCH_OK) return answer;
  print_results(job);
  printf("\n");
  bench_print_text(
      "The line is one driver copy from one pinned buffer%s. All bytes of the larger tree were read back and "
      "compared. tdict-bench to-device measures more ways.",
      place_is_gpu(&job->place) ? "" : ", here SIMULATED by a copy in host memory");
  return BENCH_OK;
}

int demo_main(int argc, char **argv) {
  static const char doc[] =
      "Shows a tree, its transfer to a device and the result; then measures a tree of 1000 tensors."
      "\v" EXIT_TEXT;
  demo_job job;
  memset(&job, 0, sizeof job);
  job.common = (common_options){.device = "auto", .repeats = REPEATS};
  const bench_option options[] = {DEVICE_OPTION(&job.common.device), SIZE_OPTIONS(&job.common), {0}};
  if (options_parse(argc, argv, doc, options, NULL, NULL) != BENCH_OK) return BENCH_USAGE;
  setlocale(LC_CTYPE, "");
  const bool good = bench_samples_reserve(job.rows, WAYS + 1, REPEATS);
  const int answer = good ? run_demo(&job) : BENCH_FAILED;
  check_source_free(&job.source);
  place_close(&job.place);
  bench_samples_free(job.rows, WAYS + 1);
  return answer;
}
