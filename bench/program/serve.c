/* Implements the loop of serve.h. */
#include "serve.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

json_t *serve_failure(const char *why) { return json_pack("{s:b, s:s}", "ok", 0, "error", why); }

void serve_requests(serve_answer answer, void *job, int argc, char **argv) {
  char *line = NULL;
  size_t size = 0;
  bool more = true;
  while (more && getline(&line, &size, stdin) > 0) {
    json_t *request = json_loads(line, 0, NULL);
    const char *op = json_string_value(json_object_get(request, "op"));
    more = !op || strcmp(op, "quit") != 0;
    json_t *given = answer(job, request, argc, argv);
    json_dumpf(given, stdout, JSON_COMPACT);
    putchar('\n');
    if (fflush(stdout) != 0) more = false; /* the reader has closed the pipe */
    json_decref(given);
    json_decref(request);
  }
  free(line);
}
