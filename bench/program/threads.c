/* tdict-bench threads: measures num_threads of the pinning mode for several counts and sizes of leaves. Constant
 * tables. Thread rule: one thread. */
#include "rows.h"

#define WITH(text, count, bytes, n, much)                                                                           \
  {                                                                                                                 \
    .name = text ", " #n, .kind = &kind_h2d, .groups = {{count, bytes}}, .calls = "pin_" #n, .peers = "tensordict", \
    .mode = TDICT_MODE_NON_BLOCKING_PIN, .threads = n, .no_driver = true, .worth = much                             \
  }
#define SWEEP(text, count, bytes, much)                                                                    \
  WITH(text, count, bytes, 0, much), WITH(text, count, bytes, 1, much), WITH(text, count, bytes, 2, much), \
      WITH(text, count, bytes, 4, much), WITH(text, count, bytes, 8, much)
/* The last rows have a higher priority. They are then measured while other rows with the same sources are measured. */
static const bench_row rows[] = {
    SWEEP("1000 x 4000 B", 1000, 4000, 3),
    SWEEP("100 x 1 MB", 100, 1000000, 3),
    SWEEP("10 x 40 MB", 10, 40000000, 3),
    SWEEP("1000 x 4 MB", 1000, 4000000, 2),
};

const bench_scenario bench_threads = {"threads", "measures num_threads for counts and sizes of leaves", NULL, rows,
                                      sizeof rows / sizeof rows[0]};
