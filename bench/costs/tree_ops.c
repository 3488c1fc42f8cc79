/* tdict-tree-ops: measures operations on whole trees on the host. For some of them, also measures plain C code that
 * does the same, as a lower bound. Prints one JSON object, which maps names to the shortest time of several rounds in
 * seconds, or to bytes. bench/costs/tree_ops.py runs this program and TensorDict alternately. Tensors and keys are made
 * before the measurement, and main() owns them. Thread rule: one thread; copies of large rows also use pool threads. */
#include <malloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../program/output.h"
#include "support/scoped.h"
#include "tdict/clone.h"
#include "tdict/combine.h"
#include "tdict/index.h"
#include "tdict/keysets.h"
#include "tdict/tdict.h"

enum { ROWS = 8192, PICKED = 512, TABLE_LEAVES = 5 };
enum { LARGE_ROWS = 1000000, LARGE_ROW = 512, LARGE_PICKED = 65536, HELPERS = 2, LARGE_ROUNDS = 9 };
enum { LEAVES = 1000, SAMPLES = 32, SAMPLE_LEAVES = 7, SIDE = 64, MOST_KEYS = 100000, KEY_BYTES = 16, ROUNDS = 40 };

static char (*keys)[KEY_BYTES];
static tdict_tensor **leaves;
static tdict_tree *flat, *deep, *nested, *samples[SAMPLES], *stacked;
static char *rows, *target;
static size_t row_bytes;
static tdict_error error;
static tdict_tree *table_tree, *minibatch; /* ROWS rows as in a replay buffer, and the destination of PICKED rows */
static int64_t picked[PICKED];
static tdict_tensor *picked_mask;
static tdict_dataset *dataset;
static tdict_tree *large_tree, *large_part; /* the same with large rows, for copies by pool threads */
static int64_t *large_picked;
static tdict_context *large_context;
static tdict_run large_options;
static int count; /* the number of keys in `flat`, for operations that are measured at several sizes */

static double now_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void check_status(tdict_status status) {
  if (status == TDICT_OK) return;
  fprintf(stderr, "tdict-tree-ops: %s: %s\n", error.path, error.message);
  exit(1);
}

/* The lower bound for trees: a hash table in plain C with open addressing. It copies the keys and borrows the
 * values. */
typedef struct floor_entry {
  char *key;
  void *value;
} floor_entry;
typedef struct floor_table {
  floor_entry *entries;
  size_t cap;
} floor_table;

static size_t floor_hash(const char *key) {
  size_t h = 1469598103934665603u;
  for (; *key; key++) h = (h ^ (unsigned char)*key) * 1099511628211u;
  return h;
}
static void *floor_find(const floor_table *t, const char *key) {
  size_t i = floor_hash(key) & (t->cap - 1);
  for (; t->entries[i].key; i = (i + 1) & (t->cap - 1))
    if (strcmp(t->entries[i].key, key) == 0) return t->entries[i].value;
  return NULL;
}
static void floor_build(floor_table *t, int n) {
  t->cap = 16;
  while (t->cap < (size_t)n * 2) t->cap *= 2;
  t->entries = calloc(t->cap, sizeof *t->entries);
  for (int k = 0; k < n; k++) {
    size_t bytes = strlen(keys[k]) + 1, i = floor_hash(keys[k]) & (t->cap - 1);
    while (t->entries[i].key && strcmp(t->entries[i].key, keys[k]) != 0) i = (i + 1) & (t->cap - 1);
    t->entries[i].key = memcpy(malloc(bytes), keys[k], bytes);
    t->entries[i].value = leaves[k % LEAVES];
  }
}
static void floor_free(floor_table *t) {
  for (size_t i = 0; i < t->cap; i++) free(t->entries[i].key);
  free(t->entries);
}
static floor_table table;

/* Each of these macros defines a function that runs an operation and returns its seconds. MAKES: the call makes the
 * tree `out`, whose release is not measured. DOES_EACH: the function returns the mean time of `many` repetitions. */
#define DOES(name, work)                \
  static double time_##name(void) {     \
    const double begin = now_seconds(); \
    work;                               \
    return now_seconds() - begin;       \
  }
#define MAKES(name, call)                         \
  static double time_##name(void) {               \
    tdict_tree *out = NULL;                       \
    const double begin = now_seconds();           \
    check_status(call);                           \
    const double seconds = now_seconds() - begin; \
    tdict_release(out);                           \
    return seconds;                               \
  }
#define DOES_EACH(name, many, work)          \
  static double time_##name(void) {          \
    const double begin = now_seconds();      \
    for (int i = 0; i < (many); i++) work;   \
    return (now_seconds() - begin) / (many); \
  }
#define SAMPLES_LIST (const tdict_tree *const *)samples, SAMPLES
#define PICKED_LIST TDICT_INDEX(TDICT_LIST(picked, PICKED))
#define PICKED_MASK TDICT_INDEX(TDICT_MASK(picked_mask))
#define LARGE_LIST TDICT_INDEX(TDICT_LIST(large_picked, LARGE_PICKED))

static tdict_status make_flat_tree(int n, tdict_tree **out) {
  const int64_t batch[1] = {8};
  tdict_status status = tdict_create(1, batch, out, &error);
  for (int i = 0; i < n && status == TDICT_OK; i++) status = tdict_set(*out, keys[i], leaves[i % LEAVES], &error);
  return status;
}

static tdict_tensor *found;
static volatile const void *floor_found;
MAKES(build, make_flat_tree(count, &out))
DOES_EACH(get, count, check_status(tdict_get(flat, keys[i], &found, &error)))
DOES_EACH(floor_get, count, floor_found = floor_find(&table, keys[i]))
DOES_EACH(get_deep, LEAVES, check_status(tdict_get(deep, "next.obs.pixels", &found, &error)))
MAKES(slice, tdict_index_get(NULL, flat, TDICT_INDEX(TDICT_RANGE(2, 5, 1)), NULL, &out, &error))
MAKES(clone, tdict_clone(flat, &out, &error))
MAKES(flatten_keys, tdict_flatten_keys(nested, NULL, &out, &error))
MAKES(stack, tdict_stack(SAMPLES_LIST, NULL, NULL, &out, &error))
DOES(stack_into, check_status(tdict_stack_into(stacked, SAMPLES_LIST, NULL, NULL, &error)))
DOES(memcpy_into, memcpy(target, rows, row_bytes))
MAKES(gather, tdict_index_get(NULL, table_tree, PICKED_LIST, NULL, &out, &error))
MAKES(gather_mask, tdict_index_get(NULL, table_tree, PICKED_MASK, NULL, &out, &error))
DOES(gather_into, check_status(tdict_index_into(NULL, minibatch, table_tree, PICKED_LIST, NULL, &error)))
DOES(scatter, check_status(tdict_index_set(NULL, table_tree, PICKED_LIST, minibatch, NULL, &error)))
DOES(scatter_mask, check_status(tdict_index_set(NULL, table_tree, PICKED_MASK, minibatch, NULL, &error)))
DOES(large_into,
     check_status(tdict_index_into(large_context, large_part, large_tree, LARGE_LIST, &large_options, &error)))
DOES(large_set,
     check_status(tdict_index_set(large_context, large_tree, LARGE_LIST, large_part, &large_options, &error)))

static double time_floor_build(void) {
  floor_table t;
  double begin = now_seconds();
  floor_build(&t, count);
  double seconds = now_seconds() - begin;
  floor_free(&t);
  return seconds;
}
static double time_memcpy_new(void) {
  double begin = now_seconds();
  char *to = malloc(row_bytes);
  memcpy(to, rows, row_bytes);
  double seconds = now_seconds() - begin;
  volatile char kept = to[row_bytes / 2];
  (void)kept;
  free(to);
  return seconds;
}
static double time_fetch(void) {
  const tdict_dataset_table *table_rows = tdict_dataset_get_table(dataset);
  double begin = now_seconds();
  check_status(table_rows->fetch_batch(table_rows->self, NULL, picked, PICKED, minibatch, &error));
  return now_seconds() - begin;
}
/* The lower bound for copies of rows: memcpy() for each row, whose size is not a compile-time constant. */
static double time_gather_floor(void) {
  static const char *const names[TABLE_LEAVES] = {"a", "b", "c", "d", "e"};
  double begin = now_seconds();
  for (int leaf = 0; leaf < TABLE_LEAVES; leaf++) {
    tdict_tensor *from = NULL, *to = NULL;
    check_status(tdict_get(table_tree, names[leaf], &from, &error));
    check_status(tdict_get(minibatch, names[leaf], &to, &error));
    const size_t bytes = tdict_tensor_bytes(to) / PICKED;
    const char *src = tdict_tensor_const_data(from);
    char *dst = tdict_tensor_data(to);
    for (size_t i = 0; i < PICKED; i++) memcpy(dst + i * bytes, src + (size_t)picked[i] * bytes, bytes);
  }
  return now_seconds() - begin;
}

static double time_large_floor(void) {
  char *to = tdict_data(large_part, "x");
  const char *from = tdict_const_data(large_tree, "x");
  double begin = now_seconds();
  for (size_t i = 0; i < LARGE_PICKED; i++)
    memcpy(to + i * LARGE_ROW, from + (size_t)large_picked[i] * LARGE_ROW, LARGE_ROW);
  return now_seconds() - begin;
}

static void print_fastest(const char *name, double (*fn)(void), int rounds) {
  double best = fn();
  for (int i = 1; i < rounds; i++) {
    double seconds = fn();
    if (seconds < best) best = seconds;
  }
  printf("\"%s\": %.4g, ", name, best);
}

static void prepare_trees(void) {
  const int64_t batch[1] = {8}, side[2] = {SIDE, SIDE};
  keys = calloc(MOST_KEYS, sizeof *keys);
  leaves = calloc(LEAVES, sizeof *leaves);
  for (int i = 0; i < MOST_KEYS; i++) snprintf(keys[i], KEY_BYTES, "key%d", i);
  for (int i = 0; i < LEAVES; i++) check_status(tdict_tensor_zeros(TDICT_F32, 1, batch, NULL, &leaves[i], &error));
  check_status(make_flat_tree(LEAVES, &flat));
  check_status(tdict_create(1, batch, &deep, &error));
  check_status(tdict_set(deep, "next.obs.pixels", leaves[0], &error));
  check_status(tdict_create(1, batch, &nested, &error));
  for (int i = 0; i < LEAVES; i++) {
    char path[48];
    snprintf(path, sizeof path, "g%d.k%d", i / 10, i % 10);
    check_status(tdict_set(nested, path, leaves[i], &error));
  }
  for (int s = 0; s < SAMPLES; s++) {
    check_status(tdict_create(0, NULL, &samples[s], &error));
    for (int i = 0; i < SAMPLE_LEAVES; i++) {
      scoped_tensor t = NULL;
      check_status(tdict_tensor_zeros(TDICT_F32, 2, side, NULL, &t, &error));
      check_status(tdict_set(samples[s], keys[i], t, &error));
    }
  }
  check_status(tdict_stack((const tdict_tree *const *)samples, SAMPLES, NULL, NULL, &stacked, &error));
  row_bytes = tdict_bytes(stacked);
  rows = malloc(row_bytes);
  target = malloc(row_bytes);
  memset(rows, 1, row_bytes);
  memset(target, 1, row_bytes);
}

/* Makes ROWS rows of 17 f32, 6 f32, f32, f32 and bool. Selects PICKED scattered rows as a list and as a mask. */
static void prepare_row_tables(void) {
  static const tdict_field fields[TABLE_LEAVES] = {{"a", TDICT_F32, 1, {17}},
                                                   {"b", TDICT_F32, 1, {6}},
                                                   {"c", TDICT_F32, 0, {0}},
                                                   {"d", TDICT_F32, 0, {0}},
                                                   {"e", TDICT_BOOL, 0, {0}}};
  const int64_t rows_of_table[1] = {ROWS}, rows_of_part[1] = {PICKED};
  check_status(tdict_create_from(fields, TABLE_LEAVES, 1, rows_of_table, NULL, &table_tree, &error));
  check_status(tdict_create_from(fields, TABLE_LEAVES, 1, rows_of_part, NULL, &minibatch, &error));
  check_status(tdict_tensor_zeros(TDICT_BOOL, 1, rows_of_table, NULL, &picked_mask, &error));
  check_status(tdict_dataset_from_tree(table_tree, &dataset, &error));
  unsigned char *mask = tdict_tensor_data(picked_mask);
  for (int64_t i = 0; i < PICKED; i++) mask[picked[i] = i * 5003 % ROWS] = 1;
}

typedef struct timed {
  const char *name;
  double (*fn)(void);
} timed;
static const timed host_ways[] = {{"set", time_build},
                                  {"set_floor", time_floor_build},
                                  {"get", time_get},
                                  {"get_floor", time_floor_get},
                                  {"get_deep", time_get_deep},
                                  {"slice", time_slice},
                                  {"clone", time_clone},
                                  {"flatten_keys", time_flatten_keys},
                                  {"stack", time_stack},
                                  {"stack_floor", time_memcpy_new},
                                  {"stack_into", time_stack_into},
                                  {"stack_into_floor", time_memcpy_into}};
static const timed row_ways[] = {{"gather", time_gather},
                                 {"gather_mask", time_gather_mask},
                                 {"gather_into", time_gather_into},
                                 {"scatter", time_scatter},
                                 {"scatter_mask", time_scatter_mask},
                                 {"fetch", time_fetch},
                                 {"gather_floor", time_gather_floor}};

static void report_list(const timed *ways, size_t num_ways, int rounds) {
  for (size_t i = 0; i < num_ways; i++) print_fastest(ways[i].name, ways[i].fn, rounds);
}

/* Measures reads and writes of 65536 of 1,000,000 rows of 512 bytes, with 0 to 2 pool threads. */
static void report_large_rows(void) {
  static const tdict_field fields[] = {{"x", TDICT_U8, 1, {LARGE_ROW}}};
  const int64_t all[1] = {LARGE_ROWS}, part[1] = {LARGE_PICKED};
  tdict_context_options options = tdict_context_options_default();
  scoped_context context = NULL;
  options.device = tdict_cpu();
  options.num_threads = HELPERS;
  check_status(tdict_context_create(&options, &context, &error));
  check_status(tdict_create_from(fields, 1, 1, all, NULL, &large_tree, &error));
  check_status(tdict_create_from(fields, 1, 1, part, NULL, &large_part, &error));
  memset(tdict_data(large_tree, "x"), 1, (size_t)LARGE_ROWS * LARGE_ROW); /* so that no page maps to the zero page */
  large_picked = calloc(LARGE_PICKED, sizeof *large_picked);
  if (!large_picked) exit(1);
  for (int64_t i = 0; i < LARGE_PICKED; i++) large_picked[i] = i * 314159 % LARGE_ROWS; /* distinct rows */
  large_options = tdict_run_default();
  large_context = context;
  for (int threads = 0; threads <= HELPERS; threads++) {
    char name[48];
    large_options.num_threads = threads;
    snprintf(name, sizeof name, "large_into_%d", threads);
    print_fastest(name, time_large_into, LARGE_ROUNDS);
    snprintf(name, sizeof name, "large_set_%d", threads);
    print_fastest(name, time_large_set, LARGE_ROUNDS);
  }
  print_fastest("large_floor", time_large_floor, LARGE_ROUNDS);
  free(large_picked);
  tdict_release(large_tree);
  tdict_release(large_part);
}

static void report_sizes(void) {
  static const int sizes[] = {10, 100, 1000, 10000, 100000};
  for (int i = 0; i < 5; i++) {
    char name[48];
    count = sizes[i];
    tdict_release(flat);
    size_t before = mallinfo2().uordblks;
    check_status(make_flat_tree(count, &flat));
    size_t bytes = mallinfo2().uordblks - before;
    snprintf(name, sizeof name, "set_%d", count);
    print_fastest(name, time_build, count > 10000 ? 5 : ROUNDS);
    snprintf(name, sizeof name, "set_floor_%d", count);
    print_fastest(name, time_floor_build, count > 10000 ? 5 : ROUNDS);
    snprintf(name, sizeof name, "get_%d", count);
    print_fastest(name, time_get, count > 10000 ? 5 : ROUNDS);
    printf("\"bytes_%d\": %zu, ", count, bytes);
  }
}

int main(int argc, char **argv) {
  if (!output_watch("tdict-tree-ops")) return 1;
  if (argc > 1) {
    bool help = argc == 2 && strcmp(argv[1], "--help") == 0;
    fprintf(help ? stdout : stderr,
            "usage: tdict-tree-ops\nMeasures operations on whole trees on the host. Prints one JSON object: seconds "
            "by name.\nExit status: 0 success, 1 failure, 2 wrong usage.\n");
    return help ? 0 : 2;
  }
  prepare_trees();
  prepare_row_tables();
  printf("{");
  count = LEAVES;
  floor_build(&table, LEAVES);
  report_list(host_ways, sizeof host_ways / sizeof *host_ways, ROUNDS);
  report_list(row_ways, sizeof row_ways / sizeof *row_ways, 5 * ROUNDS);
  report_large_rows();
  report_sizes();
  static tdict_tree *empty[LEAVES];
  size_t before = mallinfo2().uordblks;
  for (int i = 0; i < LEAVES; i++) check_status(tdict_create(0, NULL, &empty[i], &error));
  printf("\"bytes_empty\": %zu, \"stack_bytes\": %zu}\n", (mallinfo2().uordblks - before) / LEAVES, row_bytes);
  for (int i = 0; i < LEAVES; i++) tdict_release(empty[i]);
  floor_free(&table);
  tdict_dataset_release(dataset);
  tdict_release(table_tree);
  tdict_release(minibatch);
  tdict_tensor_release(picked_mask);
  return 0;
}
