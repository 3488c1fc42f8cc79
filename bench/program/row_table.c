/* The table of scenarios that time copies, and the same numbers as JSON, see rows.h. Owns no data. Thread rule: one
 * thread. */
#include "rows.h"

#include <math.h>
#include <stdio.h>

void table_print_head(const bench_place *place, const char *scenario, const char *what) {
  char device[32], cpu[128];
  bench_print_text("%s: %s, on %s", scenario, what, tdict_device_format(place->device, device, sizeof device));
  bench_print_text("host: %s, %d processors", bench_cpu_model(cpu, sizeof cpu), bench_cpu_count());
  if (place_is_gpu(place)) {
    int v = raw_driver_version(place->check.raw);
    printf("device: %s, CUDA driver %d.%d\n", raw_device_name(place->check.raw), v / 1000, v % 1000 / 10);
  } else {
    bench_print_text("no GPU is used: %s", place->why.message[0] ? place->why.message : "another device was asked for");
  }
  if (place->device.type == TDICT_DEVICE_SIM)
    bench_print_text("SIMULATED device: these times are copies in host memory and say nothing about a GPU");
}

static double get_ratio(double part, double whole) { return part > 0 && whole > 0 ? part / whole : NAN; }

void table_put_times(bench_table *t, const table_row *row) {
  const bench_samples *s = row->library;
  const double median = bench_samples_median(s), driver = bench_samples_median(row->driver);
  const double line = bench_samples_median(row->line), rate = row->has_rate ? (double)row->bytes : 0;
  table_ms(t, median);
  table_ms(t, bench_samples_percentile(s, 10));
  table_ms(t, bench_samples_percentile(s, 90));
  table_number(t, "%.2f", get_ratio(rate / 1e9, median));
  table_number(t, "%.1f", get_ratio(100 * rate * line / (double)row->line_bytes, median));
  table_number(t, "%.2f", s->processors > 0 ? s->processors : NAN);
  table_number(t, "%.2f", get_ratio(median, driver));
  table_end_row(t);
}

void table_put_row(bench_table *t, const table_row *row) {
  table_text(t, row->name);
  table_put_times(t, row);
}

static json_t *samples_json(const bench_samples *s) {
  json_t *all = json_pack("{s:f, s:f, s:f, s:f, s:o}", "median_seconds", bench_samples_median(s), "p10_seconds",
                          bench_samples_percentile(s, 10), "p90_seconds", bench_samples_percentile(s, 90),
                          "spread_seconds", bench_samples_spread(s), "seconds", bench_samples_json(s));
  if (s->processors > 0) json_object_set_new(all, "processors_used", json_real(s->processors));
  return all;
}

void table_record_row(json_t *record, const table_row *row) {
  json_object_set_new(record, "total_bytes", json_integer((json_int_t)row->bytes));
  json_object_set_new(record, "library", samples_json(row->library));
  if (row->driver->count) json_object_set_new(record, "driver", samples_json(row->driver));
  if (row->line->count) {
    json_object_set_new(record, "line", samples_json(row->line));
    json_object_set_new(record, "line_bytes", json_integer((json_int_t)row->line_bytes));
  }
}
