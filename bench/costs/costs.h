/* The operations that tdict-costs runs, and their data. main() owns the data. Thread rule: one thread. */
#ifndef TDICT_BENCH_COSTS_H
#define TDICT_BENCH_COSTS_H

#include "support/scoped.h"
#include "tdict/tdict.h"

enum { COST_ROWS = 8192, COST_LEAVES = 256, COST_PICKED = 256, COST_ITEMS = 64, COST_KEY = 16, COST_MOST = 4 };

/* The data of the operations, made before counting begins. --scale multiplies all sizes except COST_ROWS. */
typedef struct cost_job {
  int scale;
  int64_t leaves, picked, items; /* number of leaves in `wide`, of selected rows, and of trees to join */
  char keys[COST_MOST * COST_LEAVES][COST_KEY];
  char names[COST_MOST * COST_LEAVES][COST_KEY]; /* the dotted names of the leaves of `nested` */
  const char *paths[COST_MOST * COST_LEAVES];    /* pointers to `names` */
  tdict_field fields[COST_MOST * COST_LEAVES];   /* a scalar field for each path */
  tdict_tensor *tensors[COST_MOST * COST_LEAVES];
  tdict_tree *wide, *other, *nested, *dotted,
      *deep;                 /* `leaves` tensors of shape 2 x 4 (`deep`: 1); `nested` has 8 in each subtree */
  tdict_tree *table;         /* COST_ROWS rows of 17 f32, 6 f32, f32, f32 and bool */
  tdict_tree *part, *square; /* part: `picked` rows; square: `picked` x 8 rows; both have the fields of `table` */
  tdict_tree *step;          /* the rows to write to a column of `square` */
  tdict_tree *samples[COST_MOST * COST_ITEMS], *pieces[COST_MOST * COST_ITEMS];
  tdict_tree *stacked, *joined;
  tdict_tree *out[COST_MOST * COST_LEAVES];
  int64_t positions[COST_MOST * COST_PICKED], zeros[COST_MOST * COST_PICKED], ones[COST_MOST * COST_ITEMS];
  tdict_tensor *mask, *column; /* column is borrowed from `part` */
  tdict_tensor *strip;         /* 16 x picked elements; the first dimension has stride 1 */
  tdict_dataset *dataset;
  tdict_error err;
} cost_job;

typedef struct cost_op {
  const char *function, *what;
  tdict_status (*run)(cost_job *job);
  const char *unit;
  int64_t count; /* number of units at scale 1 */
} cost_op;
extern const cost_op cost_ops[];
extern const int cost_num_ops;

#endif
