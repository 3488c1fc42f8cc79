/* Implements the loop of serve.h. */
#include "serve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

json_t *serve_success(void) { return json_pack("{s:b}", "ok", 1); }

json_t *serve_failure(const char *why) { return json_pack("{s:b, s:s}", "ok", 0, "error", why); }

static json_t *answer_hello(const serve_desk *desk) {
  json_t *record = place_record(desk->place, desk->scenario, desk->argc, desk->argv);
  json_object_update_new(record, json_pack("{s:b, s:s, s:I}", "ok", 1, "name", "tdict", "line_bytes",
                                           (json_int_t)desk->place->line_bytes));
  return record;
}

static json_t *answer_line(bench_place *place, const json_t *request) {
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

static json_t *answer_request(const serve_desk *desk, const json_t *request, const char *op) {
  if (!op) return serve_failure("a request has no \"op\"");
  if (strcmp(op, "hello") == 0) return answer_hello(desk);
  if (strcmp(op, "line") == 0) return answer_line(desk->place, request);
  for (const serve_op *one = desk->ops; one->name; one++)
    if (strcmp(one->name, op) == 0) return one->answer(desk->job, request);
  return serve_failure("unknown op");
}

void serve_requests(const serve_desk *desk) {
  char *line = NULL;
  size_t size = 0;
  bool more = true;
  while (more && getline(&line, &size, stdin) > 0) {
    json_t *request = json_loads(line, 0, NULL);
    const char *op = json_string_value(json_object_get(request, "op"));
    more = !op || strcmp(op, "quit") != 0;
    json_t *given = answer_request(desk, request, op);
    json_dumpf(given, stdout, JSON_COMPACT);
    putchar('\n');
    if (fflush(stdout) != 0) more = false; /* the reader has closed the pipe */
    json_decref(given);
    json_decref(request);
  }
  free(line);
}
