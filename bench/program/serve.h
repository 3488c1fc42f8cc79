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
/* Reads requests from standard input until the end, or until a request has the op "quit". Writes the answers to
 * standard output. `ops` ends with an entry without a name. */
void serve_requests(const serve_op *ops, void *job);

/* Return an answer: that the request succeeded; why it failed; the head of a record as the answer to "hello"; and the
 * seconds of the wanted number of line copies. */
json_t *serve_success(void);
json_t *serve_failure(const char *why);
json_t *serve_hello(const bench_place *place, const char *scenario, int argc, char **argv);
json_t *serve_line(bench_place *place, const json_t *request);

#endif
