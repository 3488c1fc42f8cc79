/* tdict bench-load: measures tdict_load(). Thread rule: the main thread; threads of the library call the function that
 * shows the progress, one at a time. */
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "progress.h"

enum { MOST_CALLS = 10000 };

typedef struct options {
  tool_input input;
  tdict_device device;
  int32_t num_threads; /* -1: the library chooses */
  int num_calls;       /* after the first call */
  bool json;
} options;

typedef struct result {
  double seconds[MOST_CALLS + 1]; /* the first call, then the others */
  int count;
  uint64_t bytes, tensors;
  tdict_device device;
} result;

static bool show(void *user, uint64_t done, uint64_t total) {
  progress *p = user;
  p->total = total;
  progress_show(p, done);
  return true;
}

static tdict_status measure(const options *o, tdict_context *context, result *r, tdict_error *err) {
  tdict_load_options load = tdict_load_options_default();
  tdict_transfer_options transfer = tdict_transfer_options_default();
  progress p = progress_start("load", 0);
  tdict_status status = TDICT_OK;
  transfer.num_threads = o->num_threads;
  load.open = &o->input.open;
  load.transfer = &transfer;
  load.progress = p.is_shown ? show : NULL;
  load.user = &p;
  for (; status == TDICT_OK && r->count <= o->num_calls; r->count++) {
    tdict_tree *tree = NULL;
    const int64_t start = tool_now_ns();
    status = tdict_load(context, o->input.arguments[0], r->device, &load, &tree, err);
    r->seconds[r->count] = (double)(tool_now_ns() - start) / 1e9;
    if (status != TDICT_OK) break;
    r->bytes = tdict_bytes(tree);
    r->tensors = tdict_num_leaves(tree);
    tdict_release(tree);
  }
  progress_end(&p);
  return status;
}

static int compare_seconds(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Returns the median of the calls after the first call. */
static double find_median(const result *r) {
  const int count = r->count - 1;
  double sorted[MOST_CALLS];
  memcpy(sorted, r->seconds + 1, (size_t)count * sizeof *sorted);
  qsort(sorted, (size_t)count, sizeof *sorted, compare_seconds);
  return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

static double gb_per_second(const result *r, double seconds) {
  return seconds > 0 ? (double)r->bytes / 1e9 / seconds : 0;
}

static int print_result(const options *o, const result *r) {
  char device[32];
  const char *path = o->input.arguments[0];
  const double median = find_median(r);
  tdict_device_format(r->device, device, sizeof device);
  if (!o->json) {
    printf("%s to %s: %llu tensors, %llu bytes\n", path, device, (unsigned long long)r->tensors,
           (unsigned long long)r->bytes);
    printf("first call       %12.3f ms  %8.3f GB/s\n", r->seconds[0] * 1e3, gb_per_second(r, r->seconds[0]));
    printf("median of %-5d  %12.3f ms  %8.3f GB/s\n", r->count - 1, median * 1e3, gb_per_second(r, median));
    return TOOL_OK;
  }
  json j;
  json_begin(&j);
  json_add_string(&j, "file", path);
  json_add_string(&j, "device", device);
  json_add_unsigned(&j, "tensors", r->tensors);
  json_add_unsigned(&j, "bytes", r->bytes);
  json_add_real(&j, "first_seconds", r->seconds[0]);
  json_add_real(&j, "first_gb_per_second", gb_per_second(r, r->seconds[0]));
  json_add_real(&j, "median_seconds", median);
  json_add_real(&j, "median_gb_per_second", gb_per_second(r, median));
  json_begin_array(&j, "seconds");
  for (int i = 1; i < r->count; i++) json_add_real(&j, NULL, r->seconds[i]);
  json_end(&j);
  return json_print(&j);
}

static error_t parse(int key, char *arg, struct argp_state *state) {
  options *o = state->input;
  tdict_error err;
  switch (key) {
  case 'd':
    if (tdict_device_parse(arg, &o->device, &err) != TDICT_OK) argp_error(state, "--device: %s", err.message);
    return 0;
  case 'r':
    o->num_calls = (int)tool_parse_number(state, "--repeat", arg, 1, MOST_CALLS);
    return 0;
  case 't':
    o->num_threads = (int32_t)tool_parse_number(state, "--threads", arg, 0, 1024);
    return 0;
  case 'j':
    o->json = true;
    return 0;
  default:
    return tool_parse_nothing(key, arg, state);
  }
}

static int bench(const options *o, result *r) {
  tdict_context_options settings = tdict_context_options_default();
  tdict_context *context = NULL;
  tdict_error err;
  settings.device = o->device;
  if (o->num_threads > 0) settings.num_threads = o->num_threads;
  if (tdict_context_create(&settings, &context, &err) != TDICT_OK) return tool_fail(NULL, &err);
  r->device = tdict_context_device(context, NULL);
  const tdict_status status = measure(o, context, r, &err);
  tdict_context_destroy(context);
  return status == TDICT_OK ? print_result(o, r) : tool_fail(o->input.arguments[0], &err);
}

static int run(int argc, char **argv) {
  static const struct argp_option table[] = {
      {"device", 'd', "DEVICE", 0, "cuda:N, cpu or sim (default: auto, which is cuda:0 if present, else cpu)", 0},
      {"repeat", 'r', "N", 0, "measure N calls after the first call (default: 5)", 0},
      {"threads", 't', "N", 0,
       "maximum number of threads that read; 0: the calling thread (default: chosen by the library)", 0},
      {"json", 'j', NULL, 0, "print JSON", 0},
      {0}};
  static const struct argp argp = {
      table,
      parse,
      "PATH",
      "Measures loading the file or folder PATH to a device. Prints the time of the first "
      "call, the median time of later calls, and both rates in GB/s (1 GB is 1,000,000,000 "
      "bytes). The times do not include the creation of the context.\v"
      "Exit status: 0 success, 1 PATH cannot be loaded, or there is no such device, 2 wrong "
      "usage.",
      tool_input_child,
      NULL,
      NULL};
  options o = {.input = {.open = tdict_open_options_default(), .names = {"PATH"}}, .num_threads = -1, .num_calls = 5};
  static result r; /* too large for the stack */
  argp_parse(&argp, argc, argv, 0, NULL, &o);
  return bench(&o, &r);
}

const tool_command tool_bench_load = {"bench-load", "measures loading a file to a device", run, TOOL_FAILED};
