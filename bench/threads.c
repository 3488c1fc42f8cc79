/* tdict-bench threads: num_threads of the pinning mode, over counts and sizes of leaves. */
#include "rows.h"

#define WITH(text, count, bytes, n)                                                                                 \
  {                                                                                                                 \
    .name = text ", " #n, .kind = &kind_h2d, .groups = {{count, bytes}}, .calls = "pin_" #n, .peers = "tensordict", \
    .mode = TDICT_MODE_NON_BLOCKING_PIN, .threads = n, .worth = 3                                                   \
  }
#define SWEEP(text, count, bytes)                                                                                     \
  WITH(text, count, bytes, 0), WITH(text, count, bytes, 1), WITH(text, count, bytes, 2), WITH(text, count, bytes, 4), \
      WITH(text, count, bytes, 8)
static const bench_row rows[] = {
    SWEEP("1000 x 4000 B", 1000, 4000),
    SWEEP("100 x 1 MB", 100, 1000000),
    SWEEP("10 x 40 MB", 10, 40000000),
    SWEEP("1000 x 4 MB", 1000, 4000000),
};

const bench_scenario bench_threads = {"threads", "num_threads over counts and sizes of leaves", NULL, rows,
                                      sizeof rows / sizeof rows[0]};
