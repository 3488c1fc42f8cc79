/* Declares the loop in which tdict-bench answers requests of a Python program: one line of JSON for each request and
 * for each answer. Owns no data. Thread rule: main thread only. */
#ifndef TDICT_BENCH_SERVE_H
#define TDICT_BENCH_SERVE_H

#include "rows.h"

/* A request with this "op", and the function that answers it. The caller of `answer` owns the answer. */
typedef struct serve_op {
  const char *name;
  json_t *(*answer)(void *job, const json_t *request);
} serve_op;
/* What answers requests: the functions, and the argument `job` of them. */
typedef struct serve_desk {
  const serve_op *ops; /* end with an entry without a name */
  void *job;
  bench_place *place;
  const char *scenario; /* the name in the record */
  int argc;             /* the command line, for the record */
  char **argv;
} serve_desk;
/* Reads requests from standard input until the end, or until a request has the op "quit". Writes the answers to
 * standard output. All desks answer "hello" with the head of a record, and "line" with the seconds of line copies. */
void serve_requests(const serve_desk *desk);

/* Return an answer: that the request succeeded; why it failed. */
json_t *serve_success(void);
json_t *serve_failure(const char *why);

#endif
