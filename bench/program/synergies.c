/* tdict-bench synergies: copies 1000 tensors of a million floats from pageable memory, from pinned memory, or pinned
 * first. Each is blocking or non-blocking. Constant tables. Thread rule: one thread. */
#include "rows.h"

#define TREE .groups = {{1000, 4000000}}, .peers = "torch"
#define BLOCKING .calls = "blocking", .mode = TDICT_MODE_BLOCKING, .threads = -1
#define NON_BLOCKING .calls = "non_blocking", .mode = TDICT_MODE_NON_BLOCKING, .threads = -1
static const bench_row rows[] = {
    {.name = "pageable, blocking", .kind = &kind_h2d, TREE, BLOCKING, .worth = 1},
    {.name = "pageable, non-blocking", .kind = &kind_h2d, TREE, NON_BLOCKING, .worth = 1},
    {.name = "pin and copy, blocking", .kind = &kind_pin_h2d, TREE, BLOCKING, .worth = 1},
    {.name = "pin and copy, non-blocking", .kind = &kind_pin_h2d, TREE, NON_BLOCKING, .worth = 1},
    {.name = "pinned, blocking", .kind = &kind_h2d, TREE, BLOCKING, .source = "pinned", .worth = 1},
    {.name = "pinned, non-blocking", .kind = &kind_h2d, TREE, NON_BLOCKING, .source = "pinned", .worth = 1},
};

const bench_scenario bench_synergies = {"synergies",
                                        "copies pageable, pinned, or pinned first; blocking and non-blocking", NULL,
                                        rows, sizeof rows / sizeof rows[0]};
