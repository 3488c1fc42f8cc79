/* tdict-bench non-blocking: copies 1000 tensors of 1000 floats, waiting after each or once at the end. Constant
 * tables. Thread rule: one thread. */
#include "rows.h"

#define TREE .kind = &kind_h2d, .groups = {{1000, 4000}}
static const bench_row rows[] = {
    {.name = "blocking", TREE, .calls = "blocking", .mode = TDICT_MODE_BLOCKING, .threads = -1, .worth = 1},
    {.name = "non-blocking", TREE, .calls = "non_blocking", .mode = TDICT_MODE_NON_BLOCKING, .threads = -1, .worth = 1},
    {.name = "best", TREE, .threads = -1, .worth = 1},
};

const bench_scenario bench_non_blocking = {"non-blocking",
                                           "copies 1000 tensors of 1000 floats, waiting for each or once", NULL, rows,
                                           sizeof rows / sizeof rows[0]};
