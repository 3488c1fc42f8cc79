/* Declares the loop in which tdict-bench replies to the requests of a Python program. Each request and each reply is a
 * JSON object on one line. Owns no data. Thread rule: main thread only. */
#ifndef TDICT_BENCH_SERVE_H
#define TDICT_BENCH_SERVE_H

#include "rows.h"

/* The value of "op" in a request, and the function that returns the reply. The caller owns the reply. */
typedef struct serve_op {
  const char *name;
  json_t *(*answer)(void *job, const json_t *request);
} serve_op;
/* The functions that reply to requests, their argument `job`, and data for "hello" and "line". */
typedef struct serve_desk {
  const serve_op *ops; /* end with an empty entry */
  void *job;
  bench_place *place;
  const char *scenario; /* the name in the record */
  int argc;             /* the command line, for the record */
  char **argv;
} serve_desk;
/* Reads requests from standard input until its end or the op "quit", and writes the replies to standard output. Handles
 * the ops "hello" (replies with the common fields of a record) and "line" (with seconds of line copies) itself. */
void serve_requests(const serve_desk *desk);

/* Return a new reply that says that a request succeeded, or why it failed. */
json_t *serve_success(void);
json_t *serve_failure(const char *why);

#endif
