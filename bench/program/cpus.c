/* tdict-bench cpus: copies by processes that may use only one or two processors. bench/peers/compare starts such
 * processes for each library. `tdict-bench cpus` alone uses the processors of its own process; restrict them with
 * taskset.
 * Constant tables. Thread rule: one thread. */
#include "rows.h"

#define TREE .kind = &kind_h2d, .groups = {{250, 4000000}}, .threads = -1, .worth = 1
static const bench_row rows[] = {
    {.name = "250 x 4 MB on 1 processor", TREE, .cpus = 1},
    {.name = "250 x 4 MB on 2 processors", TREE, .cpus = 2},
};

const bench_scenario bench_cpus = {"cpus", "copies in processes that may use one or two processors", NULL, rows,
                                   sizeof rows / sizeof rows[0]};
