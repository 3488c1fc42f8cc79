/* tdict-bench pin: copies a million floats from pageable memory and from pinned memory, pins them, and pins and
 * copies them. Constant tables. Thread rule: one thread. */
#include "rows.h"

#define ONE .groups = {{1, 4000000}}, .peers = "torch", .threads = -1
#define WAITS .calls = "blocking", .mode = TDICT_MODE_BLOCKING
static const bench_row rows[] = {
    {.name = "pageable", .kind = &kind_h2d, ONE, WAITS, .worth = 1},
    {.name = "pin", .kind = &kind_pin, ONE, WAITS, .worth = 1},
    {.name = "pin and copy", .kind = &kind_pin_h2d, ONE, WAITS, .worth = 1},
    {.name = "pinned", .kind = &kind_h2d, ONE, WAITS, .source = "pinned", .worth = 1},
    {.name = "pageable, best", .kind = &kind_h2d, .groups = {{1, 4000000}}, .threads = -1, .worth = 2},
};

const bench_scenario bench_pin = {"pin", "copies a million floats: pageable, pinned, or pinned first", NULL, rows,
                                  sizeof rows / sizeof rows[0]};
