/* Measures trees that a communicator sends, beside one buffer of the same bytes and beside the leaves one by one. The
 * programs tdict-bench, tdict-bench-openmpi and tdict-bench-mpich differ only in how they make ranks.
 * Ownership: comm_run() borrows all arguments. Thread rule: each rank has its own thread or process. */
#ifndef TDICT_BENCH_COMM_RUN_H
#define TDICT_BENCH_COMM_RUN_H

#include "tdict/comm.h"

#include "comm_trees.h"
#include "options.h"

/* The options of the command line. The strings are borrowed. */
typedef struct comm_settings {
  common_options common;
  int64_t leaves, megabytes; /* megabytes 0: the two usual trees */
  bool is_separate, is_corrupt;
} comm_settings;
/* Writes the defaults. */
void comm_settings_default(comm_settings *s);
/* The options of the command line, for the table of a program. */
#define COMM_OPTIONS(s)                                                                                            \
  RECORD_OPTIONS(&(s)->common),                                                                                    \
      NUMBER_OPTION("megabytes", 'm', "N", &(s)->megabytes, 1, 1000000,                                            \
                    "size of the tree in 10^6 bytes (default: two trees, of leaves of 4000 B and 1 MB)"),          \
      NUMBER_OPTION("leaves", 0, "N", &(s)->leaves, 1, 1000000, "number of leaves (default 1000)"),                \
      FLAG_OPTION("separate", &(s)->is_separate, "allocate each leaf alone (default: all leaves in one storage)"), \
      FLAG_OPTION("corrupt", &(s)->is_corrupt, "send a wrong number, which the verification must find")

/* A rank. */
typedef struct comm_rank {
  tdict_context *context;
  tdict_comm *comm;
  tdict_comm_table table; /* the table of `comm` */
  const comm_settings *settings;
  json_t *rows;   /* on rank 0: an array to which the rows are added; NULL on other ranks */
  bool is_broken; /* written by comm_run(): the communicator failed, and was aborted */
} comm_rank;
/* Verifies and measures all works. Every rank must call the function at the same time. Rank 0 prints the table. Returns
 * the worst exit code of all ranks. Errors were printed. */
int comm_run(comm_rank *rank);
/* Writes the record of --json on rank 0. Takes over `rows`. Prints an error and returns false on failure. */
bool comm_write_record(const bench_sink *sink, const comm_rank *rank, int argc, char **argv);

#endif
