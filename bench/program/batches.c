/* tdict-bench batches: copies batches of typical training loops: repeatedly, after a pause, and from cold caches.
 * Constant tables. Thread rule: one thread. */
#include "rows.h"

#define SMALL .kind = &kind_h2d, .groups = {{3, 368640}}, .threads = -1
#define SEVEN .kind = &kind_h2d, .groups = {{2, 5419008}, {2, 24576}, {3, 1024}}, .threads = -1
#define IMAGE .kind = &kind_h2d, .groups = {{1, 38535168}}, .threads = -1
#define MANY .kind = &kind_h2d, .groups = {{1000, 4000}}, .threads = -1
#define HUNDRED .kind = &kind_h2d, .groups = {{100, 1000000}}, .threads = -1
static const bench_row rows[] = {
    {.name = "1.1 MB of 3 leaves", SMALL, .worth = 1},
    {.name = "1.1 MB of 3 leaves, paused", SMALL, .cache = "paused", .worth = 2},
    {.name = "1.1 MB of 3 leaves, cold", SMALL, .cache = "cold", .worth = 2},
    {.name = "10.9 MB of 7 leaves", SEVEN, .worth = 1},
    {.name = "10.9 MB of 7 leaves, paused", SEVEN, .cache = "paused", .worth = 2},
    {.name = "10.9 MB of 7 leaves, cold", SEVEN, .cache = "cold", .worth = 2},
    {.name = "10.9 MB of 7 leaves, pinned", SEVEN, .source = "pinned", .worth = 2},
    {.name = "38.5 MB of 1 leaf", IMAGE, .worth = 1},
    {.name = "38.5 MB of 1 leaf, paused", IMAGE, .cache = "paused", .worth = 2},
    {.name = "38.5 MB of 1 leaf, cold", IMAGE, .cache = "cold", .worth = 2},
    {.name = "100 x 1 MB", HUNDRED, .worth = 1},
    {.name = "100 x 1 MB, cold", HUNDRED, .cache = "cold", .worth = 2},
    {.name = "1000 x 4 MB, pinned",
     .kind = &kind_h2d,
     .groups = {{1000, 4000000}},
     .threads = -1,
     .source = "pinned",
     .worth = 1},
    {.name = "1000 x 4000 B, paused", MANY, .cache = "paused", .worth = 2},
    {.name = "1000 x 4000 B, pinned", MANY, .source = "pinned", .worth = 1},
    {.name = "10,000 x 4000 B", .kind = &kind_h2d, .groups = {{10000, 4000}}, .threads = -1, .worth = 1},
    {.name = "100,000 x 4000 B",
     .kind = &kind_h2d,
     .groups = {{100000, 4000}},
     .threads = -1,
     .peers = "torch,tensordict",
     .worth = 2},
};

const bench_scenario bench_batches = {"batches", "copies batches of training loops, with warm and cold caches", NULL,
                                      rows, sizeof rows / sizeof rows[0]};
