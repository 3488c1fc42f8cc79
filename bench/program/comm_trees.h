/* The trees of one rank for the measurements of communicators. Every number is known to all ranks, so that a rank can
 * verify its result without a second message.
 * Ownership: a caller of comm_trees_make() calls comm_trees_free(). Thread rule: one thread for each comm_trees.
 * Functions that return false or an exit code have printed an error. */
#ifndef TDICT_BENCH_COMM_TREES_H
#define TDICT_BENCH_COMM_TREES_H

#include "bench.h"

/* The trees have the same keys "0", "1", ... and leaves of one dimension, which is also the batch dimension. */
typedef struct comm_trees {
  tdict_context *context; /* borrowed */
  int rank, world;
  int64_t leaves, elements; /* `elements` is the size of each leaf of `whole`, a multiple of `world` */
  tdict_tree *whole, *part; /* on the device of the communicator; a leaf of `part` has elements / world elements */
  float **whole_data, **part_data; /* the addresses of the leaves */
} comm_trees;

/* Where trees are, and how large they are. */
typedef struct comm_size {
  int64_t leaves, elements;
  bool is_separate; /* each leaf has an allocation of its own; false: all leaves are in one storage */
} comm_size;
bool comm_trees_make(comm_trees *t, tdict_context *context, tdict_device device, int rank, int world,
                     const comm_size *size);
void comm_trees_free(comm_trees *t);
size_t comm_trees_bytes(const comm_trees *t); /* returns the bytes of `whole` */

/* The numbers of a tree. They are random multiples of 1/256 between -128 and 128, so that the sum of up to 256 numbers
 * is exact in any order. */
typedef struct comm_numbers {
  uint64_t salt;   /* two salts give different numbers */
  int first_rank;  /* ranks have different numbers */
  int count_ranks; /* the numbers of so many ranks are added; 0: all numbers are 0 */
  bool is_corrupt; /* one number is wrong, to show that verification finds it */
} comm_numbers;
/* Writes numbers to `whole` or `part`. The part of a rank has the numbers that this rank's range of `whole` has. */
bool comm_trees_write(const comm_trees *t, tdict_tree *tree, const comm_numbers *numbers);

/* A result. */
typedef struct comm_result {
  const tdict_tree *tree;
  bool is_part;    /* the result has the elements of `part`; false: the elements of `whole` */
  bool is_stacked; /* a leaf has a first dimension of one row for each rank; the rows are ranges of `whole` */
  int skipped;     /* this rank's range is not verified; -1: all are */
  const char *name;
} comm_result;
/* Compares every bit of a result. Returns BENCH_OK, BENCH_DIFFERS, or BENCH_FAILED if the result cannot be read. */
int comm_trees_check(const comm_trees *t, const comm_result *result, const comm_numbers *numbers);

#endif
