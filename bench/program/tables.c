/* The scenarios that consist only of copies of trees, as constant tables of rows, see rows.h. Thread rule: one
 * thread. */
#include "rows.h"

#define SCENARIO(id, name, summary) BENCH_SCENARIO(id, name, id##_rows, summary)
#define LEAVES(count, bytes) .groups = {{count, bytes}}
#define H2D .kind = &kind_h2d
#define D2H .kind = &kind_d2h
/* The mode and num_threads of the library's calls. `calls` selects the corresponding calls of other libraries. */
#define BEST .threads = -1
#define BLOCKING .calls = "blocking", .mode = TDICT_MODE_BLOCKING, .threads = -1
#define NON_BLOCKING .calls = "non_blocking", .mode = TDICT_MODE_NON_BLOCKING, .threads = -1
#define PIN_ON(n) .calls = "pin_" #n, .mode = TDICT_MODE_NON_BLOCKING_PIN, .threads = n, .no_driver = true
#define BY_HAND .calls = "by hand", .threads = -1, .peers = "none"
#define TENSORDICT .peers = "tensordict"
#define PINNED .source = "pinned"
#define COLD .cache = "cold"
#define PAUSED .cache = "paused"

/* The four ways of the TensorDict tutorial, and mode auto. */
#define TREE H2D, LEAVES(1000, 4000000), .worth = 1
static const bench_row tensordict_rows[] = {
    {.name = "auto", TREE, BEST},
    {.name = "pin on 4 threads", TREE, PIN_ON(4), TENSORDICT},
    {.name = "pin on the caller", TREE, PIN_ON(0), TENSORDICT},
    {.name = "non-blocking", TREE, NON_BLOCKING, TENSORDICT},
    {.name = "blocking", TREE, BLOCKING, TENSORDICT},
};
SCENARIO(tensordict, "tensordict", "copies 1000 million-float leaves in the four modes of TensorDict")
#undef TREE

#define TREE LEAVES(1000, 4000000), .peers = "torch", .worth = 1
static const bench_row synergies_rows[] = {
    {.name = "pageable, blocking", H2D, TREE, BLOCKING},
    {.name = "pageable, non-blocking", H2D, TREE, NON_BLOCKING},
    {.name = "pin and copy, blocking", .kind = &kind_pin_h2d, TREE, BLOCKING},
    {.name = "pin and copy, non-blocking", .kind = &kind_pin_h2d, TREE, NON_BLOCKING},
    {.name = "pinned, blocking", H2D, TREE, BLOCKING, PINNED},
    {.name = "pinned, non-blocking", H2D, TREE, NON_BLOCKING, PINNED},
};
SCENARIO(synergies, "synergies", "copies pageable, pinned, or pinned first; blocking and non-blocking")
#undef TREE

/* Batches of typical training loops. */
#define SEVEN_LEAVES .groups = {{2, 5419008}, {2, 24576}, {3, 1024}}, BEST
#define SMALL H2D, LEAVES(3, 368640), BEST
#define SEVEN H2D, SEVEN_LEAVES
#define IMAGE H2D, LEAVES(1, 38535168), BEST
#define HUNDRED H2D, LEAVES(100, 1000000), BEST
#define MANY(n) H2D, LEAVES(n, 4000), BEST
static const bench_row batches_rows[] = {
    {.name = "1.1 MB of 3 leaves", SMALL, .worth = 1},
    {.name = "1.1 MB of 3 leaves, paused", SMALL, PAUSED, .worth = 2},
    {.name = "1.1 MB of 3 leaves, cold", SMALL, COLD, .worth = 2},
    {.name = "10.9 MB of 7 leaves", SEVEN, .worth = 1},
    {.name = "10.9 MB of 7 leaves, paused", SEVEN, PAUSED, .worth = 2},
    {.name = "10.9 MB of 7 leaves, cold", SEVEN, COLD, .worth = 2},
    {.name = "10.9 MB of 7 leaves, pinned", SEVEN, PINNED, .worth = 2},
    {.name = "38.5 MB of 1 leaf", IMAGE, .worth = 1},
    {.name = "38.5 MB of 1 leaf, paused", IMAGE, PAUSED, .worth = 2},
    {.name = "38.5 MB of 1 leaf, cold", IMAGE, COLD, .worth = 2},
    {.name = "100 x 1 MB", HUNDRED, .worth = 1},
    {.name = "100 x 1 MB, cold", HUNDRED, COLD, .worth = 2},
    {.name = "1000 x 4 MB, pinned", H2D, LEAVES(1000, 4000000), BEST, PINNED, .worth = 1},
    {.name = "1000 x 4000 B, paused", MANY(1000), PAUSED, .worth = 2},
    {.name = "1000 x 4000 B, pinned", MANY(1000), PINNED, .worth = 1},
    {.name = "10,000 x 4000 B", MANY(10000), .worth = 1},
    {.name = "10,000 x 4000 B, by hand", H2D, LEAVES(10000, 4000), BY_HAND, .worth = 1},
    {.name = "1000 x 4 MB, by hand", H2D, LEAVES(1000, 4000000), BY_HAND, .worth = 1},
    {.name = "100,000 x 4000 B", MANY(100000), .peers = "torch,tensordict", .worth = 2},
};
SCENARIO(batches, "batches", "copies batches of training loops, with warm and cold caches")

#define MEGABYTES(count) D2H, LEAVES(count, 4000000), BEST
static const bench_row d2h_rows[] = {
    {.name = "400 MB, warm pages", MEGABYTES(100), .result = "warm", .worth = 1},
    {.name = "400 MB, fresh memory", MEGABYTES(100), .result = "fresh", .worth = 1},
    {.name = "400 MB, pinned result", MEGABYTES(100), .result = "pinned", .worth = 1},
    {.name = "4 GB, warm pages", MEGABYTES(1000), .result = "warm", .worth = 2},
    {.name = "4 GB, fresh memory", MEGABYTES(1000), .result = "fresh", .no_driver = true, .worth = 2},
    {.name = "4 GB, pinned result", MEGABYTES(1000), .result = "pinned", .worth = 1},
    {.name = "10.9 MB of 7 leaves, fresh memory", D2H, SEVEN_LEAVES, .result = "fresh", .worth = 2},
    {.name = "10.9 MB of 7 leaves, pinned result", D2H, SEVEN_LEAVES, .result = "pinned", .worth = 2},
};
SCENARIO(d2h, "d2h", "copies to the host: into used, new or pinned memory")

static const bench_row non_blocking_rows[] = {
    {.name = "blocking", H2D, LEAVES(1000, 4000), BLOCKING, .worth = 1},
    {.name = "non-blocking", H2D, LEAVES(1000, 4000), NON_BLOCKING, .worth = 1},
    {.name = "best", MANY(1000), .worth = 1},
};
SCENARIO(non_blocking, "non-blocking", "copies 1000 tensors of 1000 floats, waiting for each or once")

#define ONE LEAVES(1, 4000000)
#define ONE_BLOCKING ONE, BLOCKING, .peers = "torch", .worth = 1
static const bench_row pin_rows[] = {
    {.name = "pageable", H2D, ONE_BLOCKING},
    {.name = "pin", .kind = &kind_pin, ONE_BLOCKING},
    {.name = "pin and copy", .kind = &kind_pin_h2d, ONE_BLOCKING},
    {.name = "pinned", H2D, ONE_BLOCKING, PINNED},
    {.name = "pageable, best", H2D, ONE, BEST, .worth = 2},
};
SCENARIO(pin, "pin", "copies a million floats: pageable, pinned, or pinned first")

/* bench/peers/compare limits the processors of the processes that it starts. Limit `tdict-bench cpus` with taskset. */
#define TREE H2D, LEAVES(250, 4000000), BEST, .worth = 1
static const bench_row cpus_rows[] = {
    {.name = "250 x 4 MB on 1 processor", TREE, .cpus = 1},
    {.name = "250 x 4 MB on 2 processors", TREE, .cpus = 2},
};
SCENARIO(cpus, "cpus", "copies in processes that may use one or two processors")
#undef TREE

#define SIZES(F)                                                                                             \
  F("4 KiB", 4096), F("64 KiB", 65536), F("1 MiB", 1048576), F("16 MiB", 16777216), F("256 MiB", 268435456), \
      F("1 GiB", 1073741824)
#define SIZE(bytes) LEAVES(1, bytes), BEST, .worth = 2
#define IN_PAGEABLE(text, bytes) \
  { .name = "in, pageable, " text, H2D, SIZE(bytes) }
#define IN_PINNED(text, bytes) \
  { .name = "in, pinned, " text, H2D, SIZE(bytes), PINNED }
#define OUT_PAGEABLE(text, bytes) \
  { .name = "out, pageable, " text, D2H, SIZE(bytes), .result = "warm" }
#define OUT_PINNED(text, bytes) \
  { .name = "out, pinned, " text, D2H, SIZE(bytes), .result = "into_pinned" }
static const bench_row bandwidth_rows[] = {SIZES(IN_PAGEABLE), SIZES(IN_PINNED), SIZES(OUT_PAGEABLE),
                                           SIZES(OUT_PINNED)};
SCENARIO(bandwidth, "bandwidth", "copies one tensor of 4 KiB to 1 GiB in both directions")

#define WITH(text, count, bytes, n, much) \
  { .name = text ", num_threads " #n, H2D, LEAVES(count, bytes), PIN_ON(n), TENSORDICT, .worth = much }
#define SWEEP(text, count, bytes, much)                                                                    \
  WITH(text, count, bytes, 0, much), WITH(text, count, bytes, 1, much), WITH(text, count, bytes, 2, much), \
      WITH(text, count, bytes, 4, much), WITH(text, count, bytes, 8, much)
/* The rows with 1000 x 4 MB have a higher priority, so that they are measured together with other rows that use the
 * same sources. */
static const bench_row threads_rows[] = {
    SWEEP("1000 x 4000 B", 1000, 4000, 3),
    SWEEP("100 x 1 MB", 100, 1000000, 3),
    SWEEP("10 x 40 MB", 10, 40000000, 3),
    SWEEP("1000 x 4 MB", 1000, 4000000, 2),
};
SCENARIO(threads, "threads", "measures num_threads for counts and sizes of leaves")
