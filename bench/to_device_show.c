/* The table and the JSON record of tdict-bench to-device. Reads a finished job, owns nothing. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "to_device.h"

char *to_device_threads_text(const to_device_way *way, char *buffer, size_t size) {
  if (!way->takes_threads)
    snprintf(buffer, size, "-");
  else if (way->threads < 0)
    snprintf(buffer, size, "auto");
  else
    snprintf(buffer, size, "%d", (int)way->threads);
  return buffer;
}

static const char *pin_path_name(int32_t path) {
  switch (path) {
  case TDICT_PIN_NONE:
    return "none";
  case TDICT_PIN_REGISTER:
    return "register";
  case TDICT_PIN_DRIVER:
    return "driver";
  case TDICT_PIN_PAGEABLE:
    return "pageable";
  case TDICT_PIN_SMALL_PIECES:
    return "small pieces";
  default:
    return "?";
  }
}

static const char *kind_name(const to_device_job *job) {
  switch (job->device.type) {
  case TDICT_DEVICE_CUDA:
    return "cuda";
  case TDICT_DEVICE_SIM:
    return "sim";
  default:
    return "cpu";
  }
}

static const char *device_name(const to_device_job *job) {
  if (to_device_is_gpu(job)) return raw_device_name(job->place.raw);
  return job->device.type == TDICT_DEVICE_SIM ? "SIMULATED device" : "host memory";
}

void to_device_show_head(const to_device_job *job) {
  char device[32], total[32], cpu[128];
  printf("to-device: %" PRId64 " leaves of %" PRId64 " bytes, %s of ordinary memory, to %s (%s)\n", job->options.leaves,
         job->options.leaf_bytes, bench_format_bytes((double)job->total_bytes, total, sizeof total),
         tdict_device_format(job->device, device, sizeof device), device_name(job));
  printf("host: %s, %d processors\n", bench_cpu_model(cpu, sizeof cpu), bench_cpu_count());
  if (to_device_is_gpu(job)) {
    int v = raw_driver_version(job->place.raw);
    printf("driver: CUDA %d.%d\n", v / 1000, v % 1000 / 10);
  } else {
    printf("no GPU is used: %s\n", job->why.message[0] ? job->why.message : "another device was asked for");
  }
  if (job->device.type == TDICT_DEVICE_SIM)
    printf("SIMULATED device: these times are copies within this host's memory and say nothing about a GPU\n");
}

/* A ratio or "n/a" where there is nothing to divide by. */
static const char *ratio_text(double a, double b, const char *format, char *buffer, size_t size) {
  if (b <= 0) return "n/a";
  (void)size;
  if (format[0] == '%')
    snprintf(buffer, size, "%.1f %%", 100 * a / b);
  else
    snprintf(buffer, size, "%.2f", a / b);
  return buffer;
}

typedef struct line_of_table {
  const char *way, *threads, *pinned, *path;
  int worked;
  double median, spread, rate, cpu; /* cpu: seconds; below 0 when not measured */
} line_of_table;

static void print_line(const to_device_job *job, const line_of_table *l) {
  char a[16], b[16], c[16], cpu[16] = "-";
  if (l->cpu >= 0 && job->total_bytes) snprintf(cpu, sizeof cpu, "%.1f", l->cpu * 1e12 / (double)job->total_bytes);
  double blocking = bench_samples_median(&job->rows[0].samples), loop = bench_samples_median(&job->loop);
  double line = bench_samples_median(&job->line);
  double whole = l->rate > 0 ? (double)job->total_bytes / l->rate : 0; /* a raw line may move fewer bytes */
  printf("%-17s %7s %6d %10.3f %9.3f %7.2f %9s %11s %11s %8s %17s  %s\n", l->way, l->threads, l->worked,
         l->median * 1e3, l->spread * 1e3, l->rate / 1e9, cpu, ratio_text(whole, blocking, "x", a, sizeof a),
         ratio_text(whole, loop, "x", b, sizeof b),
         ratio_text(l->rate, line > 0 ? (double)job->line_bytes / line : 0, "%", c, sizeof c), l->pinned, l->path);
}

static void print_way(const to_device_job *job, int w) {
  const to_device_row *row = &job->rows[w];
  char threads[16], pinned[48];
  double median = bench_samples_median(&row->samples);
  snprintf(pinned, sizeof pinned, "%.1f + %.1f", (double)row->peak_staging_bytes / 1048576,
           (double)row->stats.peak_pinned_bytes / 1048576);
  line_of_table l = {to_device_ways[w].name,
                     to_device_threads_text(&to_device_ways[w], threads, sizeof threads),
                     pinned,
                     pin_path_name(row->stats.pin_path),
                     row->most_threads,
                     median,
                     bench_samples_spread(&row->samples),
                     median > 0 ? (double)job->total_bytes / median : 0,
                     bench_samples_median(&row->cpu)};
  print_line(job, &l);
}

static void print_raw(const to_device_job *job, const char *name, const bench_samples *s, size_t bytes) {
  char pinned[48];
  double median = bench_samples_median(s);
  bool line = s == &job->line;
  snprintf(pinned, sizeof pinned, "%.1f", line ? (double)job->line_bytes / 1048576 : 0.0);
  line_of_table l = {
      name, "-", pinned, "-", 1, median, bench_samples_spread(s), median > 0 ? (double)bytes / median : 0, -1};
  print_line(job, &l);
}

static void print_cpu_rows(const to_device_job *job) {
  printf("\n%-17s %7s %10s  %s\n", "way", "threads", "median ms", "what was done");
  for (int w = 0; w < TO_DEVICE_WAYS; w++) {
    char threads[16];
    printf("%-17s %7s %10.4f  %s\n", to_device_ways[w].name,
           to_device_threads_text(&to_device_ways[w], threads, sizeof threads),
           bench_samples_median(&job->rows[w].samples) * 1e3, "same place: a tree on the cpu stays there");
  }
  printf("Nothing is copied, so there are no rates.\n");
}

static void print_notes(const to_device_job *job) {
  char line[32];
  printf("Median of %" PRId64 " after %" PRId64 " warm-ups, rows taking turns; spread: slowest minus fastest; ratios "
         "are of times, below 1 is faster.\nGB: 10^9 bytes, MiB: 2^20. Pinned: most of the staging ring held + most "
         "in the pinned pool.\nWorked: most threads in one transfer. Making and releasing the result is in the time.\n"
         "CPU ms/GB: processor time of all threads of the process, the driver's%s, too.\n",
         job->options.common.repeats, job->options.warmups, to_device_is_gpu(job) ? "" : " and the simulator's");
  if (to_device_is_gpu(job))
    printf("Pinned line: one driver copy of %s%s from one page-locked buffer, median of %d taken between the rows.\n",
           bench_format_bytes((double)job->line_bytes, line, sizeof line),
           job->line_bytes == job->total_bytes ? " (the whole size)" : "", job->line.count);
  else
    printf("SIMULATED: there is no driver to compare with, so only the ratio to blocking is given.\n");
}

void to_device_show_table(const to_device_job *job) {
  if (job->device.type == TDICT_DEVICE_CPU) {
    print_cpu_rows(job);
    return;
  }
  printf("\n%-17s %7s %6s %10s %9s %7s %9s %11s %11s %8s %17s  %s\n", "way", "threads", "worked", "median ms",
         "spread ms", "GB/s", "CPU ms/GB", "to blocking", "to raw loop", "of line", "pinned MiB", "pin path");
  for (int w = 0; w < TO_DEVICE_WAYS; w++) print_way(job, w);
  if (to_device_is_gpu(job)) {
    print_raw(job, "raw driver loop", &job->loop, job->total_bytes);
    print_raw(job, "pinned line", &job->line, job->line_bytes);
  }
  print_notes(job);
}

static json_t *stats_record(const tdict_transfer_stats *s) {
  return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:i, s:s, s:f, s:f, s:f, s:f, s:f}",
                   "num_leaves", (json_int_t)s->num_leaves, "num_shared_leaves", (json_int_t)s->num_shared_leaves,
                   "total_bytes", (json_int_t)s->total_bytes, "direct_bytes", (json_int_t)s->direct_bytes,
                   "staged_bytes", (json_int_t)s->staged_bytes, "pageable_bytes", (json_int_t)s->pageable_bytes,
                   "host_bytes", (json_int_t)s->host_bytes, "num_chunks", (json_int_t)s->num_chunks,
                   "peak_staging_bytes", (json_int_t)s->peak_staging_bytes, "peak_pinned_bytes",
                   (json_int_t)s->peak_pinned_bytes, "num_threads", (int)s->num_threads, "mode", (int)s->mode,
                   "pin_path", pin_path_name(s->pin_path), "plan_seconds", s->plan_seconds, "copy_seconds",
                   s->copy_seconds, "wait_seconds", s->wait_seconds, "cpu_seconds", s->cpu_seconds, "total_seconds",
                   s->total_seconds);
}

/* What every measured row has. The rate is left out where nothing was copied. */
static json_t *samples_record(const to_device_job *job, const bench_samples *s, size_t bytes) {
  double median = bench_samples_median(s);
  json_t *row = json_pack("{s:f, s:f, s:o}", "median_seconds", median, "spread_seconds", bench_samples_spread(s),
                          "seconds", bench_samples_json(s));
  if (row && median > 0 && job->device.type != TDICT_DEVICE_CPU) {
    json_object_set_new(row, "bytes", json_integer((json_int_t)bytes));
    json_object_set_new(row, "bytes_per_second", json_real((double)bytes / median));
  }
  return row;
}

static json_t *row_record(const to_device_job *job, int w) {
  const to_device_way *way = &to_device_ways[w];
  const to_device_row *row = &job->rows[w];
  json_t *record = samples_record(job, &row->samples, job->total_bytes);
  if (!record) return NULL;
  json_object_set_new(record, "way", json_string(way->name));
  json_object_set_new(record, "process_cpu_seconds", bench_samples_json(&row->cpu));
  json_object_set_new(record, "threads_asked", way->takes_threads ? json_integer(way->threads) : json_null());
  json_object_set_new(record, "threads_worked", json_integer(row->most_threads));
  json_object_set_new(record, "peak_staging_bytes", json_integer((json_int_t)row->peak_staging_bytes));
  json_object_set_new(record, "stats", stats_record(&row->stats));
  return record;
}

static json_t *device_record(const to_device_job *job) {
  char text[32];
  json_t *device = json_object();
  json_object_set_new(device, "kind", json_string(kind_name(job)));
  json_object_set_new(device, "text", json_string(tdict_device_format(job->device, text, sizeof text)));
  json_object_set_new(device, "name", json_string(device_name(job)));
  if (to_device_is_gpu(job))
    json_object_set_new(device, "driver_version", json_integer(raw_driver_version(job->place.raw)));
  else
    json_object_set_new(device, "why_no_gpu", json_string(job->why.message));
  return device;
}

bool to_device_write_record(const to_device_job *job, int argc, char **argv) {
  const to_device_options *o = &job->options;
  json_t *record = bench_record("to-device", argc, argv), *rows = json_array();
  json_object_set_new(record, "simulated", json_boolean(job->device.type == TDICT_DEVICE_SIM));
  json_object_set_new(record, "device", device_record(job));
  json_object_set_new(record, "work",
                      json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:i}", "leaves", (json_int_t)o->leaves, "leaf_bytes",
                                (json_int_t)o->leaf_bytes, "total_bytes", (json_int_t)job->total_bytes, "repeats",
                                (json_int_t)o->common.repeats, "warmups", (json_int_t)o->warmups, "seed",
                                (json_int_t)o->seed, "pool_threads", tdict_context_num_threads(job->context)));
  json_object_set_new(record, "verified",
                      json_pack("{s:I, s:i, s:I}", "bytes", (json_int_t)job->total_bytes, "ways", job->verified_ways,
                                "poisoned_bytes", (json_int_t)job->poisoned_bytes));
  for (int w = 0; w < TO_DEVICE_WAYS; w++) json_array_append_new(rows, row_record(job, w));
  json_object_set_new(record, "rows", rows);
  if (to_device_is_gpu(job)) {
    json_object_set_new(record, "raw_loop", samples_record(job, &job->loop, job->total_bytes));
    json_object_set_new(record, "raw_line", samples_record(job, &job->line, job->line_bytes));
  }
  bool good = bench_sink_write(&job->sink, record);
  json_decref(record);
  return good;
}
