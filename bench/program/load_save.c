/* The workload `save` of the scenario load: compares tdict_save() with a plain write, and measures how long the program
 * must wait after tdict_save_async(). load_run_save() owns the trees and the files. Thread rule: one thread. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "load.h"
#include "tdict/io.h"

enum { SAVED, WRITTEN, SAVE_ROWS }; /* rows: tdict_save() and plain writes, in turn */
/* The rows of tdict_save_async(), with the snapshot on the device or in host memory. The first call with each snapshot
 * has a row of its own, because it also allocates memory. */
enum { DEVICE_FIRST, DEVICE_LATER, HOST_FIRST, HOST_LATER, ASYNC_ROWS };
const int64_t load_save_bytes = INT64_C(4294967296);

typedef struct save_state {
  check_source source;
  tdict_tree *tree; /* on the device */
  char path[512], plain[512];
} save_state;

static bool open_save(load_job *job, save_state *s) {
  const int64_t leaf = ((int64_t)32 << 20) / job->options.divide & ~INT64_C(7);
  const check_group group = {load_save_bytes >> 25, (size_t)(leaf < 8 ? 8 : leaf)};
  snprintf(s->path, sizeof s->path, "%.480s/tdict-load-saved.safetensors", job->options.folder);
  snprintf(s->plain, sizeof s->plain, "%.480s/tdict-load-plain", job->options.folder);
  if (!load_open_context(job) || !place_furnish(&job->place) || !check_source_make(&s->source, &group, 1, NULL))
    return false;
  check_source_seed(&s->source, 5);
  return place_move(&job->place, s->source.tree, NULL, "the tree to save", &s->tree);
}

static bool save_once(load_job *job, save_state *s, bench_samples *samples) {
  (void)unlink(s->path); /* otherwise, the time would include freeing the old file */
  const double begin = bench_now();
  if (!bench_ok("save", tdict_save(job->place.context, s->path, s->tree, NULL, err))) return false;
  bench_samples_add(samples, bench_now() - begin);
  return true;
}

static bool write_once(save_state *s, bench_samples *samples) {
  double seconds;
  (void)unlink(s->plain);
  if (!load_write_plain(s->plain, s->source.data, s->source.leaves, s->source.bytes[0], &seconds)) return false;
  bench_samples_add(samples, seconds);
  (void)unlink(s->plain);
  return true;
}

/* Loads the saved file with the library, whose loads other workloads verify, and compares all bytes with the source. */
static int verify_save(load_job *job, save_state *s) {
  scoped_tree back = NULL;
  if (!bench_ok("the saved file", tdict_load(job->place.context, s->path, job->place.device, NULL, &back, err)))
    return BENCH_DIFFERS;
  const int answer = check_result(&job->place.check, &s->source, back, NULL, NULL);
  if (answer != BENCH_OK) return answer;
  job->verified_bytes += s->source.total_bytes;
  job->verified_files++;
  return answer;
}

/* Measures the time from the call until the program may write to the tensors again. Then waits until the file is
 * complete. */
static bool save_async_once(load_job *job, save_state *s, int32_t snapshot, bench_samples *samples) {
  tdict_error err;
  scoped_future saving = NULL;
  tdict_save_options o = td_with(tdict_save_options, snapshot = snapshot);
  (void)unlink(s->path);
  const double begin = bench_now();
  tdict_status status = tdict_save_async(job->place.context, s->path, s->tree, &o, &saving, &err);
  if (status == TDICT_OK) status = tdict_future_wait_source(saving, &err);
  const double end = bench_now();
  if (status == TDICT_OK) status = tdict_future_wait(saving, NULL, &err);
  if (status == TDICT_OK) bench_samples_add(samples, end - begin);
  return bench_has_worked("save_async", status, &err);
}

static int run_async(load_job *job, save_state *s) {
  static const char *const names[ASYNC_ROWS] = {"device, first", "device", "host, first", "host"};
  load_row rows[ASYNC_ROWS];
  const int64_t repeats = job->options.common.repeats;
  const bool has_device = job->place.device.type != TDICT_DEVICE_CPU;
  bool good = load_open_rows(rows, ASYNC_ROWS, (int)repeats, names, "save_async");
  int answer = BENCH_OK;
  for (int first = has_device ? DEVICE_FIRST : HOST_FIRST; first < ASYNC_ROWS && answer == BENCH_OK; first += 2) {
    const int32_t snapshot = first == DEVICE_FIRST ? TDICT_SNAPSHOT_DEVICE : TDICT_SNAPSHOT_HOST;
    const bench_bar bar = bench_bar_start((double)repeats + 1);
    for (int64_t i = 0; i <= repeats && good; i++) {
      bench_bar_show(&bar, (double)i, "save_async: repetition %" PRId64 " of %" PRId64, i + 1, repeats + 1);
      good = save_async_once(job, s, snapshot, &rows[i ? first + 1 : first].samples);
    }
    answer = good ? verify_save(job, s) : BENCH_FAILED;
  }
  bench_progress_end();
  for (int i = 0; i < ASYNC_ROWS && answer == BENCH_OK; i++) load_put_row(job, &rows[i], 0, NULL, NULL);
  load_close_rows(rows, ASYNC_ROWS);
  return answer;
}

int load_run_save(load_job *job) {
  static const char *const names[SAVE_ROWS] = {"tdict", "plain write"};
  static save_state s;
  load_row rows[SAVE_ROWS];
  const int64_t repeats = job->options.common.repeats;
  memset(&s, 0, sizeof s);
  bool good = load_open_rows(rows, SAVE_ROWS, (int)repeats, names, "save") && open_save(job, &s);
  const bench_bar bar = bench_bar_start((double)repeats);
  for (int64_t i = 0; i < repeats && good; i++) {
    bench_bar_show(&bar, (double)i, "save: repetition %" PRId64 " of %" PRId64, i + 1, repeats);
    if (i % 2) good = save_once(job, &s, &rows[SAVED].samples) && write_once(&s, &rows[WRITTEN].samples);
    if (i % 2 == 0) good = write_once(&s, &rows[WRITTEN].samples) && save_once(job, &s, &rows[SAVED].samples);
  }
  int answer = good ? verify_save(job, &s) : BENCH_FAILED;
  bench_progress_end();
  for (int i = 0; i < SAVE_ROWS && answer == BENCH_OK; i++)
    load_put_row(job, &rows[i], s.source.total_bytes, NULL, NULL);
  if (answer == BENCH_OK)
    printf("  save: %.2f of the rate of the plain write\n",
           bench_samples_median(&rows[WRITTEN].samples) / bench_samples_median(&rows[SAVED].samples));
  if (answer == BENCH_OK) answer = run_async(job, &s);
  (void)unlink(s.path);
  (void)unlink(s.plain);
  tdict_release(s.tree);
  check_source_free(&s.source);
  load_close_rows(rows, SAVE_ROWS);
  place_close(&job->place);
  return answer;
}
