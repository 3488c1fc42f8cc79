/* tdict-bench devices: replicates and splits a tree over 1 to n devices, and compares with one transfer for each device
 * and with plain copies. Prints a table. The job owns the context and the sources. Thread rule: one thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tdict/devices.h"
#include "tdict/shape.h"
#include "tdict/sim.h"

#include "options.h"
#include "plain.h"
#include "rows.h"
#include "support/take.h"

enum { MOST_DEVICES = 8, LEAVES = 1000, SMALL_LEAF_BYTES = 4000 };

typedef struct devices_row devices_row;
typedef struct devices_job {
  common_options common;
  int64_t num_devices, megabytes;
  bench_sink sink;
  bench_table table;
  tdict_context *context;
  tdict_device devices[MOST_DEVICES];
  check_place places[MOST_DEVICES]; /* for verification */
  check_source source;
  bool is_gpu;
  const devices_row *row; /* the current row */
  int count;              /* number of devices in the current measurement */
} devices_job;

/* A way to replicate or split the source over job->count devices. Writes the tree on each device to `trees`. */
typedef tdict_status way(devices_job *job, tdict_tree **trees, tdict_error *err);

static tdict_status replicate(devices_job *job, tdict_tree **trees, tdict_error *err) {
  const tdict_spread spread = tdict_spread_replicate(job->devices, (size_t)job->count);
  return td_to_devices(job->context, job->source.tree, &spread, NULL, trees, err);
}

/* Moves parts[i] to device i, or the whole source to each device if `parts` is NULL. Uses one transfer per device, and
 * waits for all of them. */
static tdict_status move_each(devices_job *job, tdict_tree *const *parts, int count, tdict_tree **trees,
                              tdict_error *err) {
  tdict_future *futures[MOST_DEVICES] = {NULL};
  tdict_status status = TDICT_OK;
  for (int i = 0; i < count && status == TDICT_OK; i++)
    status = tdict_to_device_async(job->context, parts ? parts[i] : job->source.tree, job->devices[i], NULL,
                                   &futures[i], err);
  for (int i = 0; i < count; i++) {
    if (status == TDICT_OK) status = tdict_future_wait(futures[i], &trees[i], err);
    tdict_future_release(futures[i]);
  }
  return status;
}

static tdict_status move_to_each(devices_job *job, tdict_tree **trees, tdict_error *err) {
  return move_each(job, NULL, job->count, trees, err);
}

static tdict_status split(devices_job *job, tdict_tree **trees, tdict_error *err) {
  const tdict_spread spread = tdict_spread_split(job->devices, (size_t)job->count, 0);
  return td_to_devices(job->context, job->source.tree, &spread, NULL, trees, err);
}

static tdict_status split_and_move_each(devices_job *job, tdict_tree **trees, tdict_error *err) {
  tdict_tree *parts[MOST_DEVICES];
  size_t count = (size_t)job->count;
  const int64_t rows = tdict_batch_size(job->source.tree)[0], part = (rows + job->count - 1) / job->count;
  tdict_status status = tdict_split_every(job->source.tree, 0, part, parts, &count, err);
  if (status != TDICT_OK) return status;
  status = move_each(job, parts, (int)count, trees, err);
  for (size_t i = 0; i < count; i++) tdict_release(parts[i]);
  return status;
}

struct devices_row {
  const char *name;
  bool pinned, is_split, is_small;
  way *run, *plain;
};
static const devices_row rows[] = {
    {"replicate, pinned", true, false, false, replicate, move_to_each},
    {"replicate, ordinary", false, false, false, replicate, move_to_each},
    {"split, pinned", true, true, false, split, split_and_move_each},
    {"split, ordinary", false, true, false, split, split_and_move_each},
    {"replicate, small leaves", false, false, true, replicate, move_to_each},
    {"split, small leaves", false, true, true, split, split_and_move_each},
};
enum { ROWS = sizeof rows / sizeof *rows };

static void release_trees(const devices_job *job, tdict_tree **trees) {
  for (int i = 0; i < job->count; i++) {
    tdict_release(trees[i]);
    trees[i] = NULL;
  }
}

static bool run_way(devices_job *job, way *run, tdict_tree **trees, double *seconds) {
  const double begin = bench_now();
  const bool good = bench_ok("devices", run(job, trees, err));
  *seconds = bench_now() - begin;
  return good;
}

/* Runs a way once and compares every byte of the results. Joins the parts of a split on device 0 first. */
static int verify(devices_job *job, const devices_row *row, way *run) {
  tdict_tree *trees[MOST_DEVICES] = {NULL}, *joined = NULL;
  tdict_gather_devices_options o = tdict_gather_devices_options_default();
  double seconds;
  int answer = run_way(job, run, trees, &seconds) ? BENCH_OK : BENCH_FAILED;
  o.device = job->devices[0];
  if (answer == BENCH_OK && row->is_split &&
      !bench_ok("devices: gather", td_gather_devices(job->context, (const tdict_tree *const *)trees, (size_t)job->count,
                                                     &o, &joined, err)))
    answer = BENCH_FAILED;
  if (joined) answer = check_result(&job->places[0], &job->source, joined, NULL, NULL);
  for (int i = 0; i < job->count && answer == BENCH_OK && !row->is_split; i++)
    answer = check_result(&job->places[i], &job->source, trees[i], NULL, NULL);
  tdict_release(joined);
  release_trees(job, trees);
  return answer;
}

static bool run_once(void *user, int w, double *seconds) {
  devices_job *job = user;
  tdict_tree *trees[MOST_DEVICES] = {NULL};
  const bool good = run_way(job, w ? job->row->plain : job->row->run, trees, seconds);
  release_trees(job, trees);
  return good;
}

/* Measures the ways `run` and `plain` of a row in turn. */
static bool measure(devices_job *job, const devices_row *row, bench_samples samples[2]) {
  const int repeats = (int)job->common.repeats * (row->is_small ? 20 : 1);
  job->row = row;
  return bench_samples_reserve(samples, 2, repeats) && bench_measure_in_turn(samples, 2, 2, repeats, run_once, job);
}

/* Prints a row and adds it to the record. `one_device` is as in measure_row(). */
static void put_row(devices_job *job, const devices_row *row, const bench_samples samples[2], double one_device,
                    json_t *list) {
  const double seconds = bench_samples_median(&samples[0]), plain = bench_samples_median(&samples[1]);
  const double delivered = (double)job->source.total_bytes * (row->is_split ? 1 : job->count);
  table_text(&job->table, row->name);
  table_number(&job->table, "%.0f", job->count);
  table_number(&job->table, "%.0f", (double)job->source.bytes[0]);
  table_ms(&job->table, seconds);
  table_number(&job->table, "%.1f", delivered / seconds / 1e9);
  table_number(&job->table, "%.2f", plain / seconds);
  table_number(&job->table, "%.2f", one_device > 0 ? seconds / one_device : 1);
  table_end_row(&job->table);
  json_array_append_new(list,
                        json_pack("{s:s, s:i, s:f, s:f, s:f, s:o, s:o}", "work", row->name, "devices", job->count,
                                  "seconds", seconds, "plain_seconds", plain, "delivered_bytes", delivered, "samples",
                                  bench_samples_json(&samples[0]), "plain_samples", bench_samples_json(&samples[1])));
}

/* Makes the source of a row. Its leaves have one dimension, the batch dimension, so that the tree can be split. */
static bool make_source(devices_job *job, const devices_row *row) {
  const size_t bytes = row->is_small ? SMALL_LEAF_BYTES : (size_t)job->megabytes * 1000000 / LEAVES / 256 * 256;
  const check_group group = {LEAVES, bytes};
  const int64_t batch[1] = {(int64_t)bytes / 4};
  if (!check_source_make(&job->source, &group, 1, row->pinned ? tdict_pinned_memory(job->context) : NULL)) return false;
  check_source_seed(&job->source, 3);
  return bench_ok("devices", tdict_set_batch_size(job->source.tree, 1, batch, err));
}

/* Verifies and measures a row with job->count devices, and prints it. `one_device`: the time of this row with one
 * device in seconds; 0: not measured yet. */
static int measure_row(devices_job *job, const devices_row *row, double one_device, double *seconds, json_t *list) {
  bench_samples samples[2] = {{0}};
  int answer = verify(job, row, row->run);
  if (answer == BENCH_OK) answer = verify(job, row, row->plain);
  if (answer == BENCH_OK && !measure(job, row, samples)) answer = BENCH_FAILED;
  if (answer == BENCH_OK) put_row(job, row, samples, one_device, list);
  *seconds = bench_samples_median(&samples[0]);
  bench_samples_free(samples, 2);
  return answer;
}

static int measure_table(devices_job *job, json_t *list) {
  int answer = BENCH_OK;
  bench_print_text("Trees of %d leaves. GB/s: bytes of all results per second. Gain: the time of one transfer for each "
                   "device, divided by the time. Growth: the time, divided by the time to one device. Medians of %d.",
                   (int)LEAVES, (int)job->common.repeats);
  table_begin(&job->table, &job->sink, "work|devices|leaf bytes|median ms|GB/s|gain|growth");
  const bench_bar bar = bench_bar_start((double)ROWS * (double)job->num_devices);
  for (int r = 0; r < ROWS && answer == BENCH_OK; r++) {
    double one = 0, seconds = 0;
    if (!make_source(job, &rows[r])) return BENCH_FAILED;
    for (job->count = 1; job->count <= job->num_devices && answer == BENCH_OK; job->count++) {
      bench_bar_show(&bar, (double)r * (double)job->num_devices + job->count - 1, "%s, %d devices", rows[r].name,
                     job->count);
      answer = measure_row(job, &rows[r], one, &seconds, list);
      if (job->count == 1) one = seconds;
    }
    check_source_free(&job->source);
  }
  bench_progress_end();
  return answer;
}

/* Measures the bytes per second of plain copies from pinned memory (`kind` 0) or through a staging loop (1). */
static bool copy_plainly(void *user, int kind, double *rate) {
  const devices_job *job = user;
  bench_progress("plain copies, %d devices", job->count);
  return kind ? plain_staging(job->count, (size_t)job->megabytes * 1000000, rate)
              : plain_lines(job->count, (size_t)512 << 20, rate);
}

/* Prints and records the rates of plain copies for each number of devices: the median of TRIES measurements. */
static bool measure_plain(devices_job *job, json_t *record) {
  enum { TRIES = 5 };
  for (job->count = 1; job->count <= job->num_devices; job->count++) {
    double rates[2];
    char key[32];
    const bool good = bench_medians(rates, 2, 0, TRIES, copy_plainly, job);
    bench_progress_end();
    if (!good) return false;
    printf("plain copies to %d devices: %.1f GB/s from pinned memory, %.1f GB/s through a staging loop\n", job->count,
           rates[0] / 1e9, rates[1] / 1e9);
    snprintf(key, sizeof key, "plain_%d", job->count);
    json_object_set_new(record, key, json_pack("{s:f, s:f}", "lines", rates[0], "staging", rates[1]));
  }
  printf("\n");
  return true;
}

/* Opens the context, and a check_place for each device. Sets num_devices unless it was given. */
static bool open_devices(devices_job *job) {
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options o = tdict_context_options_default();
  sim.num_devices = (int32_t)(job->num_devices ? job->num_devices : 2);
  sim.peers = TDICT_SIM_PEERS_ALL;
  options_place(job->common.device, &sim, &o);
  if (!bench_ok("no context", tdict_context_create(&o, &job->context, err))) return false;
  const tdict_device first = tdict_context_device(job->context, NULL);
  job->is_gpu = first.type == TDICT_DEVICE_CUDA;
  if (first.type == TDICT_DEVICE_CPU) {
    bench_print_error("this machine has no GPU; --device sim simulates several");
    return false;
  }
  for (int i = 0; i < MOST_DEVICES && (!job->num_devices || i < job->num_devices); i++) {
    check_place *p = &job->places[i];
    char why[256];
    job->devices[i] = (tdict_device){first.type, i};
    *p = (check_place){.context = job->context, .device = job->devices[i], .bounce_bytes = (size_t)16 << 20};
    if (job->is_gpu) {
      p->raw = raw_open(i, why, sizeof why);
      if (!p->raw && job->num_devices) bench_print_error("GPU %d: %s", i, why);
      if (!p->raw) return i > 0 && !job->num_devices ? (job->num_devices = i, true) : false;
      if (!raw_host_alloc(p->raw, p->bounce_bytes, &p->bounce)) return false;
    } else if (i >= sim.num_devices) {
      break;
    } else {
      p->bounce = malloc(p->bounce_bytes);
      if (!p->bounce || tdict_stream_create(job->context, p->device, &p->stream, NULL) != TDICT_OK) return false;
    }
  }
  if (!job->num_devices) job->num_devices = job->is_gpu ? MOST_DEVICES : sim.num_devices;
  return true;
}

static void close_devices(devices_job *job) {
  for (int i = MOST_DEVICES - 1; i >= 0; i--) { /* reverse order: raw_close() pops what raw_open() pushed */
    check_place *p = &job->places[i];
    if (p->stream.handle) tdict_stream_destroy(job->context, p->stream);
    if (p->raw && p->bounce) (void)raw_host_free(p->raw, p->bounce);
    if (!p->raw) free(p->bounce);
    if (p->raw) raw_close(p->raw);
  }
  if (job->context) tdict_context_destroy(job->context);
}

int devices_main(int argc, char **argv) {
  static const char doc[] = "Replicates and splits a tree of 1000 leaves over several devices. Compares this with one "
                            "transfer per device and with plain copies. Verifies every byte on every device."
                            "\vExample:\n  tdict-bench devices --devices 2\n\n" EXIT_TEXT;
  devices_job job;
  memset(&job, 0, sizeof job);
  job.common = (common_options){.device = "auto", .repeats = 5};
  const bench_option options[] = {DEVICE_OPTION(&job.common.device),
                                  RECORD_OPTIONS(&job.common),
                                  NUMBER_OPTION("devices", 'n', "N", &job.num_devices, 1, MOST_DEVICES,
                                                "measure 1 to N devices (default: all GPUs; 2 simulated devices)"),
                                  NUMBER_OPTION("megabytes", 'm', "N", &job.megabytes, 1, 100000,
                                                "size of the tree in 10^6 bytes (default 4000 on a GPU, 8 elsewhere)"),
                                  {0}};
  if (options_parse(argc, argv, doc, options, NULL, NULL) != BENCH_OK) return BENCH_USAGE;
  int answer = BENCH_FAILED;
  if (bench_sink_open(&job.sink, &job.common.outputs) && open_devices(&job)) {
    json_t *record = bench_record("devices", argc, argv), *list = json_array();
    if (!job.megabytes) job.megabytes = job.is_gpu ? 4000 : 8;
    if (!job.is_gpu) printf("SIMULATED devices: no figure here is a GPU's\n");
    if (!job.is_gpu || measure_plain(&job, record)) answer = measure_table(&job, list);
    const bench_place first = {.device = job.devices[0], .check = job.places[0]};
    json_object_set_new(record, "simulated", json_boolean(!job.is_gpu));
    json_object_set_new(record, "device", place_describe(&first));
    json_object_set_new(record, "rows", list);
    answer = bench_sink_end(&job.sink, answer, record);
  }
  close_devices(&job);
  return answer;
}
