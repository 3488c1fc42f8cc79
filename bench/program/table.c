/* Prints the table of a scenario, and adds samples to JSON records, see rows.h. Owns no data. Thread rule: one
 * thread. */
#include "rows.h"

#include <stdio.h>
#include <string.h>

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

void table_print_columns(void) {
  printf("\n%-36s %10s %10s %10s %9s %9s %10s\n", "row", "median ms", "spread ms", "driver ms", "to driver", "GB/s",
         "of line");
}

void table_print_row(const table_row *row) {
  double library = bench_samples_median(row->library), driver = bench_samples_median(row->driver);
  double line = bench_samples_median(row->line), rate = library > 0 ? (double)row->bytes / library : 0;
  const bool is_long = strlen(row->name) > 36; /* a long name gets a line of its own */
  if (is_long) printf("%s\n", row->name);
  printf("%-36s %10.4f %10.4f", is_long ? "" : row->name, library * 1e3, bench_samples_spread(row->library) * 1e3);
  if (driver > 0)
    printf(" %10.4f %9.2f", driver * 1e3, library / driver);
  else
    printf(" %10s %9s", "-", "-");
  if (row->has_rate && line > 0)
    printf(" %9.2f %8.1f %%\n", rate / 1e9, 100 * rate * line / (double)row->line_bytes);
  else
    printf(" %9s %10s\n", "-", "-");
  fflush(stdout);
}

static json_t *samples_json(const bench_samples *s) {
  return json_pack("{s:f, s:f, s:o}", "median_seconds", bench_samples_median(s), "spread_seconds",
                   bench_samples_spread(s), "seconds", bench_samples_json(s));
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
