/* tdict-bench tensordict: copies 1000 pageable leaves of a million floats, in the four modes of the TensorDict
 * tutorial and in mode auto. Constant tables. Thread rule: one thread. */
#include "rows.h"

#define TREE .groups = {{1000, 4000000}}
static const bench_row rows[] = {
    {.name = "auto", .kind = &kind_h2d, TREE, .threads = -1, .worth = 1},
    {.name = "pin on 4 threads",
     .kind = &kind_h2d,
     TREE,
     .calls = "pin_4",
     .mode = TDICT_MODE_NON_BLOCKING_PIN,
     .threads = 4,
     .peers = "tensordict",
     .no_driver = true,
     .worth = 1},
    {.name = "pin on the caller",
     .kind = &kind_h2d,
     TREE,
     .calls = "pin_0",
     .mode = TDICT_MODE_NON_BLOCKING_PIN,
     .threads = 0,
     .peers = "tensordict",
     .no_driver = true,
     .worth = 1},
    {.name = "non-blocking",
     .kind = &kind_h2d,
     TREE,
     .calls = "non_blocking",
     .mode = TDICT_MODE_NON_BLOCKING,
     .threads = -1,
     .peers = "tensordict",
     .worth = 1},
    {.name = "blocking",
     .kind = &kind_h2d,
     TREE,
     .calls = "blocking",
     .mode = TDICT_MODE_BLOCKING,
     .threads = -1,
     .peers = "tensordict",
     .worth = 1},
};

const bench_scenario bench_tensordict = {"tensordict",
                                         "copies 1000 million-float leaves in the four modes of TensorDict", NULL, rows,
                                         sizeof rows / sizeof rows[0]};
