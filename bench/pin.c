/* tdict-bench pin: a million floats from pageable memory, from pinned memory, pinned alone, and pinned and then sent. */
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

const bench_scenario bench_pin = {"pin", "a million floats: pageable, pinned, pin, pin and copy", NULL, rows,
                                  sizeof rows / sizeof rows[0]};
