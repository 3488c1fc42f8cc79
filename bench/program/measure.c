/* Implements clocks, samples, messages and number formats for all scenarios, see bench.h. Owns no data. Thread rule:
 * as in bench.h. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "../../tools/bar.h"
#include "bench.h"

double bench_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double bench_cpu_seconds(void) {
  struct rusage u;
  if (getrusage(RUSAGE_SELF, &u) != 0) return 0;
  return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

uint64_t bench_random(uint64_t *state) {
  uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

bool bench_samples_reserve(bench_samples *s, int count, int capacity) {
  bool good = true;
  for (int i = 0; i < count; i++) {
    s[i] = (bench_samples){.seconds = calloc((size_t)capacity + 1, sizeof *s->seconds)};
    if (s[i].seconds) s[i].capacity = capacity;
    good = good && s[i].seconds;
  }
  if (!good) bench_print_error("cannot allocate the samples");
  return good;
}

void bench_samples_free(bench_samples *s, int count) {
  for (int i = 0; i < count; i++) free(s[i].seconds);
  memset(s, 0, (size_t)count * sizeof *s);
}

bool bench_measure_in_turn(bench_samples *samples, int count, int warmups, int repeats, bench_once *once, void *user) {
  for (int i = -warmups; i < repeats; i++)
    for (int work = 0; work < count; work++) {
      double seconds;
      if (!once(user, work, &seconds)) return false;
      if (i >= 0 && seconds >= 0) bench_samples_add(&samples[work], seconds);
    }
  return true;
}

bool bench_medians(double *medians, int count, int warmups, int repeats, bench_once *once, void *user) {
  bench_samples samples[BENCH_MOST_MEDIANS];
  const bool good = bench_samples_reserve(samples, count, repeats) &&
                    bench_measure_in_turn(samples, count, warmups, repeats, once, user);
  for (int i = 0; i < count; i++) medians[i] = bench_samples_median(&samples[i]);
  bench_samples_free(samples, count);
  return good;
}

void bench_samples_add(bench_samples *s, double seconds) {
  if (s->count < s->capacity) s->seconds[s->count++] = seconds;
}

/* Sleeps until threads of the library sleep, too. The kernel then knows their processor time. */
static void rest(void) {
  const struct timespec time = {0, 2000000};
  nanosleep(&time, NULL);
}

bool bench_count_processors(double *processors, bench_once *once, void *user, int work) {
  static const double least_seconds = 0.02;
  double seconds;
  rest();
  const double cpu = bench_cpu_seconds(), begin = bench_now();
  do
    if (!once(user, work, &seconds)) return false;
  while (bench_now() - begin < least_seconds);
  const double elapsed = bench_now() - begin;
  rest();
  *processors = (bench_cpu_seconds() - cpu) / elapsed;
  return true;
}

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Returns a sorted copy of the times, or NULL if there are none. The samples stay in the order of measurement for the
 * record. */
static double *sort_samples(const bench_samples *s) {
  double *sorted = s->count ? malloc((size_t)s->count * sizeof *sorted) : NULL;
  if (!sorted) return NULL;
  memcpy(sorted, s->seconds, (size_t)s->count * sizeof *sorted);
  qsort(sorted, (size_t)s->count, sizeof *sorted, compare_doubles);
  return sorted;
}

double bench_samples_median(const bench_samples *s) {
  double *sorted = sort_samples(s);
  const int middle = s->count / 2;
  const double median = !sorted ? 0 : s->count % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  free(sorted);
  return median;
}

double bench_samples_percentile(const bench_samples *s, int percent) {
  double *sorted = sort_samples(s);
  const double found = sorted ? sorted[(s->count * percent + 99) / 100 - 1] : 0;
  free(sorted);
  return found;
}

double bench_samples_spread(const bench_samples *s) {
  double *sorted = sort_samples(s);
  const double spread = sorted ? sorted[s->count - 1] - sorted[0] : 0;
  free(sorted);
  return spread;
}

json_t *bench_samples_json(const bench_samples *s) {
  json_t *array = json_array();
  for (int i = 0; i < s->count; i++) json_array_append_new(array, json_real(s->seconds[i]));
  return array;
}

typedef struct thread_part {
  void (*work)(void *user, int part, int parts);
  void *user;
  int part, parts;
} thread_part;

static void *run_part(void *argument) {
  const thread_part *p = argument;
  p->work(p->user, p->part, p->parts);
  return NULL;
}

void bench_on_threads(int parts, void (*work)(void *user, int part, int parts), void *user) {
  thread_part all[BENCH_MOST_THREADS];
  pthread_t threads[BENCH_MOST_THREADS];
  bool started[BENCH_MOST_THREADS] = {false};
  for (int i = parts - 1; i >= 0; i--) { /* part 0, the last one, runs on this thread */
    all[i] = (thread_part){work, user, i, parts};
    started[i] = i > 0 && pthread_create(&threads[i], NULL, run_part, &all[i]) == 0;
    if (!started[i]) run_part(&all[i]);
  }
  for (int i = 0; i < parts; i++)
    if (started[i]) pthread_join(threads[i], NULL);
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

bench_bar bench_bar_start(double total) { return (bench_bar){bench_now(), total}; }

void bench_bar_show(const bench_bar *bar, double done, const char *format, ...) {
  char text[BAR_TEXT_BYTES], what[64];
  va_list list;
  if (!isatty(STDERR_FILENO)) return;
  va_start(list, format);
  vsnprintf(what, sizeof what, format, list);
  va_end(list);
  bar_format(text, done, bar->total, bench_now() - bar->begin);
  bench_progress("%s%s%s", text, text[0] ? ": " : "", what);
}

int bench_columns(void) {
  struct winsize size;
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_col > 100) return 100;
  return size.ws_col;
}

static void print_broken(const char *text, int hang) {
  int room = bench_columns();
  while ((int)strlen(text) > room) {
    int end = room; /* the last space within the width, or else the first space after it */
    while (end > 0 && text[end] != ' ') end--;
    if (end == 0) end = (int)strcspn(text, " ");
    if (!text[end]) break;
    printf("%.*s\n%*s", end, text, hang, "");
    text += (size_t)end + strspn(text + end, " ");
    room = bench_columns() - hang;
  }
  puts(text);
}

void bench_print_text(const char *format, ...) {
  char text[2048];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  print_broken(text, 0);
}

void bench_print_item(int hang, const char *label, const char *text) {
  char line[2048];
  snprintf(line, sizeof line, "%-*s%s", hang, label, text);
  print_broken(line, hang);
}

void bench_progress_end(void) {
  if (isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
}

/* Prints the whole line with one call, because several ranks may print errors at the same time. */
void bench_print_error(const char *format, ...) {
  char text[2048];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  bench_progress_end();
  fprintf(stderr, "tdict-bench: %s\n", text);
}

void bench_print_status(const char *what, const tdict_error *err) {
  bench_print_error("%s: %s%s%s (%s)", what, err->path, err->path[0] ? ": " : "", err->message,
                    tdict_status_name((tdict_status)err->status));
}

bool bench_has_worked(const char *what, tdict_status status, const tdict_error *err) {
  if (status != TDICT_OK) bench_print_status(what, err);
  return status == TDICT_OK;
}

tdict_status bench_make_tree(const bench_form *form, tdict_memory *memory, tdict_tree **out, tdict_error *err) {
  const int ndim = form->ndim;
  if (!form->is_separate) return tdict_create_from(form->fields, form->num_fields, ndim, form->batch, memory, out, err);
  tdict_status status = tdict_create(ndim, form->batch, out, err);
  for (size_t i = 0; i < form->num_fields && status == TDICT_OK; i++) {
    const tdict_field *f = &form->fields[i];
    scoped_tensor leaf = NULL;
    int64_t shape[TDICT_MAX_NDIM];
    for (int d = 0; d < ndim; d++) shape[d] = form->batch[d];
    for (int d = 0; d < f->ndim; d++) shape[ndim + d] = f->shape[d];
    status = tdict_tensor_empty(f->dtype, ndim + f->ndim, shape, memory, &leaf, err);
    if (status == TDICT_OK) status = tdict_set(*out, f->path, leaf, err);
  }
  return status;
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
