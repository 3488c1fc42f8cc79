/* The works of tdict-bench comm: each is a call of tdict/comm.h, and the calls of a table that move the same bytes.
 * Thread rule: each rank has its own thread or process. */
#ifndef TDICT_BENCH_COMM_WORKS_H
#define TDICT_BENCH_COMM_WORKS_H

#include "tdict/comm.h"

#include "comm_trees.h"

/* Borrowed handles of a rank. */
typedef struct comm_handles {
  tdict_comm *comm;
  const tdict_comm_table *table;
  tdict_stream stream; /* of the table's device; no stream if the device is the cpu */
} comm_handles;

/* A work. The root is rank 0, and the receiver of `send` is rank 1. */
typedef struct comm_work {
  const char *name;
  /* Calls the communicator with `whole` or `part`. *out is a new tree, or stays NULL. */
  tdict_status (*tree)(const comm_handles *h, const comm_trees *t, tdict_tree **out, tdict_error *err);
  /* Queues calls of the table for one leaf. The result is in `whole` or `part`. */
  tdict_status (*leaf)(const comm_handles *h, const comm_trees *t, int64_t i, tdict_error *err);
  bool from_part, to_part, is_stacked;
  bool is_sum;       /* all ranks have numbers, and the result is their sum */
  bool has_messages; /* `leaf` sends and receives messages, and does not move the root's own range */
  int num_results;   /* the first ranks that have a result; 0: all */
} comm_work;
enum { COMM_WORKS = 8 };
extern const comm_work comm_works[COMM_WORKS];

enum { COMM_TIMEOUT_SECONDS = 60 };
#define COMM_TIMEOUT_NS ((int64_t)COMM_TIMEOUT_SECONDS * 1000000000)

#endif
