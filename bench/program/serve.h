/* Declares the loop in which tdict-bench answers requests of a Python program: one line of JSON for each request and
 * for each answer. Owns no data. Thread rule: main thread only. */
#ifndef TDICT_BENCH_SERVE_H
#define TDICT_BENCH_SERVE_H

#include <jansson.h>

/* Returns an answer that says why a request failed. The caller owns the answer. */
json_t *serve_failure(const char *why);
/* Reads requests from standard input until the end, or until a request has the op "quit". Writes the answers of
 * `answer` to standard output. The loop releases each answer. `request` is NULL if a line is no JSON. */
typedef json_t *(*serve_answer)(void *job, const json_t *request, int argc, char **argv);
void serve_requests(serve_answer answer, void *job, int argc, char **argv);

#endif
