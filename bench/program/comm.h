/* Declares the parts of tdict-bench comm, which compares three ways to send the same bytes: a tree by a communicator,
 * one buffer, and the leaves one by one. tdict-bench (with NCCL), tdict-bench-openmpi and tdict-bench-mpich share these
 * parts. comm_trees.c makes trees whose element values every rank can compute, so that a rank can verify its result
 * alone. comm_works.c defines the operations. Each is one call of a communicator (tdict/comm.h), or several calls of
 * its tdict_comm_table that move the same bytes. comm_run.c verifies and measures them.
 * Ownership: free the trees of comm_trees_make() with comm_trees_free(); comm_run() borrows all arguments. Thread
 * rule: each rank has its own thread or process. Functions that return false or an exit code print the error. */
#ifndef TDICT_BENCH_COMM_H
#define TDICT_BENCH_COMM_H

#include "tdict/comm.h"

#include "options.h"

/* The trees of a rank. Their keys are "0", "1", ... Leaves have one dimension, which is the batch dimension. */
typedef struct comm_trees {
  tdict_context *context; /* borrowed */
  int rank, world;
  int64_t leaves, elements; /* `elements`: number in each leaf of `whole`; a multiple of `world` */
  tdict_tree *whole, *part; /* on the device of the communicator; a leaf of `part` has elements / world elements */
  float **whole_data, **part_data; /* the addresses of the leaves */
} comm_trees;

/* How many leaves a tree has, how large they are, and how they are allocated. */
typedef struct comm_size {
  int64_t leaves, elements;
  bool is_separate; /* each leaf has its own allocation; false: all leaves are in one storage */
} comm_size;
bool comm_trees_make(comm_trees *t, tdict_context *context, tdict_device device, int rank, int world,
                     const comm_size *size);
void comm_trees_free(comm_trees *t);
size_t comm_trees_bytes(const comm_trees *t); /* returns the bytes of `whole` */

/* Describes the values that fill a tree: random multiples of 1/256 between -128 and 128, or sums of them. Sums of up to
 * 256 such values are exact in any order. */
typedef struct comm_numbers {
  uint64_t salt;   /* different salts produce different values */
  int first_rank;  /* the first rank whose values are added */
  int count_ranks; /* the number of ranks whose values are added; 0: all values are 0 */
  bool is_corrupt; /* one value is wrong, which verification must find */
} comm_numbers;
/* Fills `tree`, which is t->whole or t->part. t->part gets the values of this rank's range in t->whole. */
bool comm_trees_write(const comm_trees *t, tdict_tree *tree, const comm_numbers *numbers);

typedef struct comm_result {
  const tdict_tree *tree;
  bool is_part;    /* the result corresponds to `part`; false: to `whole` */
  bool is_stacked; /* each leaf has a row for each rank, which is that rank's range in the leaf of `whole` */
  int skipped;     /* the rank whose range is not verified; -1: none */
  const char *name;
} comm_result;
/* Compares every bit of a result. Returns BENCH_OK, BENCH_DIFFERS, or BENCH_FAILED if the result cannot be read. */
int comm_trees_check(const comm_trees *t, const comm_result *result, const comm_numbers *numbers);

/* Borrowed handles for the operations of a rank. */
typedef struct comm_handles {
  tdict_comm *comm;
  const tdict_comm_table *table;
  tdict_stream stream; /* on the table's device; the handle is NULL if the device is the cpu */
} comm_handles;

/* An operation to measure. The root is rank 0, and the receiver of `send` is rank 1. */
typedef struct comm_work {
  const char *name;
  /* Sends `whole` or `part` with the communicator. Sets *out if the result is a new tree. */
  tdict_status (*tree)(const comm_handles *h, const comm_trees *t, tdict_tree **out, tdict_error *err);
  /* Sends leaf `i` with calls of the table. The result is in leaf `i` of `whole` or `part`. */
  tdict_status (*leaf)(const comm_handles *h, const comm_trees *t, int64_t i, tdict_error *err);
  bool from_part, to_part, is_stacked;
  bool is_sum;       /* every rank contributes values, and the result is their sum */
  bool has_messages; /* `leaf` only sends messages to other ranks, so it does not copy the root's own range */
  int num_results;   /* only the first num_results ranks have a result; 0: all */
} comm_work;
enum { COMM_WORKS = 8 };
extern const comm_work comm_works[COMM_WORKS];

enum { COMM_TIMEOUT_SECONDS = 60 };
#define COMM_TIMEOUT_NS ((int64_t)COMM_TIMEOUT_SECONDS * 1000000000)

/* The options of the command line. The strings are borrowed. */
typedef struct comm_settings {
  common_options common;
  int64_t leaves, megabytes; /* megabytes 0: the two default trees */
  bool is_separate, is_corrupt;
} comm_settings;
void comm_settings_default(comm_settings *s);
/* The options that all three programs have. */
#define COMM_OPTIONS(s)                                                                                            \
  RECORD_OPTIONS(&(s)->common),                                                                                    \
      NUMBER_OPTION("megabytes", 'm', "N", &(s)->megabytes, 1, 1000000,                                            \
                    "size of the tree in 10^6 bytes (default: two trees, with leaves of 4000 B and 1 MB)"),        \
      NUMBER_OPTION("leaves", 0, "N", &(s)->leaves, 1, 1000000, "number of leaves (default 1000)"),                \
      FLAG_OPTION("separate", &(s)->is_separate, "allocate each leaf alone (default: all leaves in one storage)"), \
      FLAG_OPTION("corrupt", &(s)->is_corrupt, "self-test: send a wrong number, which the verification must find")

typedef struct comm_rank {
  tdict_context *context;
  tdict_comm *comm;
  tdict_comm_table table; /* the table of `comm` */
  const comm_settings *settings;
  bench_sink *sink;    /* borrowed; NULL on other ranks than rank 0 */
  bench_table columns; /* what rank 0 prints */
  json_t *rows;        /* on rank 0: an array that collects the rows of the record; NULL on other ranks */
  bool is_broken;      /* set by comm_run() if the communicator failed and was aborted */
} comm_rank;
/* Makes rank->comm from rank->table. `status` and `err` are the outcome of the call that made the table. */
bool comm_connect(comm_rank *rank, tdict_status status, tdict_error *err);
/* Verifies and measures all operations. All ranks must call this function together. Rank 0 prints the results. Returns
 * the worst exit code of all ranks, which is the same on all of them. */
int comm_run(comm_rank *rank);
/* On rank 0, writes the outputs if `answer`, the result of comm_run(), is BENCH_OK. Ends rank->sink and takes over
 * rank->rows. Returns the exit code. */
int comm_end(const comm_rank *rank, int answer, int argc, char **argv);

#endif
