/* Implements the loop of serve.h. */
#include "serve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

json_t *serve_success(void) { return json_pack("{s:b}", "ok", 1); }

json_t *serve_failure(const char *why) { return json_pack("{s:b, s:s}", "ok", 0, "error", why); }

json_t *serve_hello(const bench_place *place, const char *scenario, int argc, char **argv) {
  json_t *record = place_record(place, scenario, argc, argv);
  json_object_set_new(record, "ok", json_true());
  json_object_set_new(record, "name", json_string("tdict"));
  json_object_set_new(record, "line_bytes", json_integer((json_int_t)place->line_bytes));
  return record;
}

json_t *serve_line(bench_place *place, const json_t *request) {
  json_t *seconds = json_array();
  for (json_int_t i = json_integer_value(json_object_get(request, "count")); i > 0; i--) {
    double one;
    if (place->line_bytes == 0 || !place_line(place, &one)) {
      json_decref(seconds);
      return serve_failure("there is no line");
    }
    json_array_append_new(seconds, json_real(one));
  }
  return json_pack("{s:b, s:o}", "ok", 1, "seconds", seconds);
}

static json_t *answer_request(const serve_op *ops, void *job, const json_t *request, const char *op) {
  if (!op) return serve_failure("a request has no \"op\"");
  for (; ops->name; ops++)
    if (strcmp(ops->name, op) == 0) return ops->answer(job, request);
  return serve_failure("unknown op");
}

void serve_requests(const serve_op *ops, void *job) {
  char *line = NULL;
  size_t size = 0;
  bool more = true;
  while (more && getline(&line, &size, stdin) > 0) {
    json_t *request = json_loads(line, 0, NULL);
    const char *op = json_string_value(json_object_get(request, "op"));
    more = !op || strcmp(op, "quit") != 0;
    json_t *given = answer_request(ops, job, request, op);
    json_dumpf(given, stdout, JSON_COMPACT);
    putchar('\n');
    if (fflush(stdout) != 0) more = false; /* the reader has closed the pipe */
    json_decref(given);
    json_decref(request);
  }
  free(line);
}
