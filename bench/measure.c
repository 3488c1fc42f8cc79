/* Implements clocks, samples, messages and number formats for all scenarios, see bench.h. Owns no data. Thread rule:
 * main thread only. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

double bench_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

bool bench_samples_reserve(bench_samples *s, int capacity) {
  s->seconds = calloc((size_t)capacity + 1, sizeof *s->seconds);
  s->count = 0;
  s->capacity = s->seconds ? capacity : 0;
  return s->seconds != NULL;
}

void bench_samples_free(bench_samples *s) {
  free(s->seconds);
  memset(s, 0, sizeof *s);
}

void bench_samples_add(bench_samples *s, double seconds) {
  if (s->count < s->capacity) s->seconds[s->count++] = seconds;
}

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Sorts a copy, since the record needs the samples in the order of measurement. */
double bench_samples_median(const bench_samples *s) {
  if (s->count == 0) return 0;
  double *sorted = malloc((size_t)s->count * sizeof *sorted);
  if (!sorted) return 0;
  memcpy(sorted, s->seconds, (size_t)s->count * sizeof *sorted);
  qsort(sorted, (size_t)s->count, sizeof *sorted, compare_doubles);
  int middle = s->count / 2;
  double median = s->count % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  free(sorted);
  return median;
}

double bench_samples_spread(const bench_samples *s) {
  if (s->count == 0) return 0;
  double low = s->seconds[0], high = s->seconds[0];
  for (int i = 1; i < s->count; i++) {
    if (s->seconds[i] < low) low = s->seconds[i];
    if (s->seconds[i] > high) high = s->seconds[i];
  }
  return high - low;
}

json_t *bench_samples_json(const bench_samples *s) {
  json_t *array = json_array();
  for (int i = 0; i < s->count; i++) json_array_append_new(array, json_real(s->seconds[i]));
  return array;
}

void bench_progress(const char *format, ...) {
  if (!isatty(STDERR_FILENO)) return;
  va_list list;
  va_start(list, format);
  fputs("\r\033[K", stderr);
  vfprintf(stderr, format, list);
  fflush(stderr);
  va_end(list);
}

void bench_progress_end(void) {
  if (isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
}

void bench_print_error(const char *format, ...) {
  va_list list;
  va_start(list, format);
  bench_progress_end();
  fputs("tdict-bench: ", stderr);
  vfprintf(stderr, format, list);
  fputc('\n', stderr);
  va_end(list);
}

void bench_print_status(const char *what, const tdict_error *err) {
  bench_print_error("%s: %s%s%s (%s)", what, err->path, err->path[0] ? ": " : "", err->message,
                    tdict_status_name((tdict_status)err->status));
}

char *bench_format_bytes(double bytes, char *buffer, size_t size) {
  if (bytes >= 1e9)
    snprintf(buffer, size, "%.2f GB", bytes / 1e9);
  else if (bytes >= 1e6)
    snprintf(buffer, size, "%.2f MB", bytes / 1e6);
  else
    snprintf(buffer, size, "%.0f bytes", bytes);
  return buffer;
}

bool bench_parse_number(const char *text, int64_t low, int64_t high, int64_t *out) {
  char *end;
  errno = 0;
  intmax_t value = strtoimax(text, &end, 10);
  if (errno || end == text || *end || value < low || value > high) return false;
  *out = value;
  return true;
}
