/* tdict-bench cpus: transfers by processes that may use one processor, or two. bench/compare starts such processes, of
 * everybody that takes part; `tdict-bench cpus` alone measures with the processors that it was given itself, for use
 * under taskset. */
#include "rows.h"

#define TREE .kind = &kind_h2d, .groups = {{250, 4000000}}, .threads = -1, .worth = 1
static const bench_row rows[] = {
    {.name = "250 x 4 MB on 1 processor", TREE, .cpus = 1},
    {.name = "250 x 4 MB on 2 processors", TREE, .cpus = 2},
};

const bench_scenario bench_cpus = {"cpus", "transfers by processes that may use one processor, or two", NULL, rows,
                                   sizeof rows / sizeof rows[0]};
