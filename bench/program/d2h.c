/* tdict-bench d2h: copies from the device into existing, new and pinned host memory. Constant tables. Thread rule:
 * one thread. */
#include "rows.h"

#define SEVEN .kind = &kind_d2h, .groups = {{2, 5419008}, {2, 24576}, {3, 1024}}, .threads = -1
#define HUNDRED .kind = &kind_d2h, .groups = {{100, 4000000}}, .threads = -1
#define THOUSAND .kind = &kind_d2h, .groups = {{1000, 4000000}}, .threads = -1
static const bench_row rows[] = {
    {.name = "400 MB, warm pages", HUNDRED, .result = "warm", .worth = 1},
    {.name = "400 MB, fresh memory", HUNDRED, .result = "fresh", .worth = 1},
    {.name = "400 MB, pinned result", HUNDRED, .result = "pinned", .worth = 1},
    {.name = "4 GB, warm pages", THOUSAND, .result = "warm", .worth = 2},
    {.name = "4 GB, fresh memory", THOUSAND, .result = "fresh", .no_driver = true, .worth = 2},
    {.name = "4 GB, pinned result", THOUSAND, .result = "pinned", .worth = 1},
    {.name = "10.9 MB of 7 leaves, fresh memory", SEVEN, .result = "fresh", .worth = 2},
    {.name = "10.9 MB of 7 leaves, pinned result", SEVEN, .result = "pinned", .worth = 2},
};

const bench_scenario bench_d2h = {"d2h", "copies to the host: into used, new or pinned memory", NULL, rows,
                                  sizeof rows / sizeof rows[0]};
