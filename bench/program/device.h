/* The workloads of `tdict-bench device`: their trees of random elements, the ways to run them, and the expected
 * results. Ownership: a job owns its trees, and device.c releases them. Thread rule: one thread. */
#ifndef TDICT_BENCH_DEVICE_H
#define TDICT_BENCH_DEVICE_H

#include "own_copy.h"
#include "tdict/run.h"

enum { DEVICE_KEY = 32, DEVICE_MOST_ITEMS = 64 };

typedef struct device_kind device_kind;

/* The state of the current workload, set up by the request "prepare". Members that it does not need are NULL or 0. */
typedef struct device_job {
  bench_place place;
  tdict_stream stream; /* a stream of the program on the device */
  const device_kind *kind;
  json_t *work;        /* the request */
  tdict_field *fields; /* one for each leaf; the paths point to `keys` */
  char (*keys)[DEVICE_KEY];
  int64_t num_leaves;
  tdict_tree *host;                     /* random elements in host memory; no way changes them */
  tdict_tree *tree;                     /* the same elements in the memory where the workload runs; can be `host` */
  tdict_tree *value, *target;           /* value: rows to write, in host memory; target: a destination for rows */
  tdict_tree *items[DEVICE_MOST_ITEMS]; /* copies of the views */
  tdict_tree *views[DEVICE_MOST_ITEMS]; /* views of `tree` at each index of the first batch dimension */
  int64_t rows, num_items, *positions;  /* positions: the first `picked` are the selected rows */
  int64_t picked;                       /* the number of selected rows */
  tdict_tensor *list, *mask;            /* the selected rows; the list is in the memory where the workload runs */
  own_copy own;                         /* for the workload own_copies */
  int64_t limit;                        /* the option max_queued_bytes; -1: SIZE_MAX */
  const tdict_run *run;                 /* options for the way that is running; NULL: the defaults */
  double seconds;                       /* seconds that the way itself measured; negative: none */
  json_t *more;                         /* further results of a repetition; NULL: none */
} device_job;

/* A way to run a workload. `result`: where the result is (a new tree in *out, job->target, job->tree, or nowhere). */
typedef struct device_way {
  const char *name;
  tdict_status (*run)(device_job *job, tdict_tree **out, tdict_error *err);
  enum { DEVICE_RESULT_NEW, DEVICE_RESULT_TARGET, DEVICE_RESULT_TREE, DEVICE_RESULT_NONE } result;
  bool on_stream; /* true: job->run has the stream of the job, and the time includes the wait for it */
} device_way;

/* Defines two ways with the same function: without a stream, and on the stream of the job. */
#define DEVICE_BOTH(name, run, result) \
  {name, run, result, false}, { name " stream", run, result, true }

struct device_kind {
  const char *name;
  bool (*prepare)(device_job *job); /* called once, after `host` has been filled */
  bool (*renew)(device_job *job);   /* called after `host` has been refilled: updates the copies of its elements */
  /* Returns the size of leaf `i` of a result in bytes. Unless `to` is NULL, writes the expected bytes there. */
  size_t (*expect)(const device_job *job, const device_way *way, int64_t i, unsigned char *to);
  const device_way *host_ways, *ways; /* end with an empty entry; host_ways: used if the place is "host" */
};
extern const device_kind device_gather, device_join, device_clone, device_fill, device_to_dtype; /* device_ops.c */
extern const device_kind device_transfer, device_convert, device_own_copies;                     /* device_moves.c */
extern const device_kind device_images;

/* Makes a tree with the fields of the job. If "separate" in the request is not 0, each leaf has its own storage. These
 * functions print an error before they return false or NULL. */
bool device_make_tree(const device_job *job, int ndim, const int64_t *batch, tdict_memory *memory, tdict_tree **out);
bool device_fill_tree(const device_job *job, tdict_tree *tree, uint64_t seed); /* random elements; in host memory */
tdict_tensor *device_leaf(const device_job *job, const tdict_tree *tree, int64_t i);
tdict_memory *device_place_memory(const device_job *job); /* memory where the workload runs; NULL: host */
bool device_on_host(const device_job *job);
int64_t device_number(const device_job *job, const char *key, int64_t otherwise); /* reads the request */
const char *device_word(const device_job *job, const char *key, const char *otherwise);
uint16_t device_bf16(float x); /* rounds to nearest even; x is not NaN */
/* The function `expect` of workloads whose result has the same elements as `host`. */
size_t device_expect_same(const device_job *job, const device_way *way, int64_t i, unsigned char *to);

#endif
