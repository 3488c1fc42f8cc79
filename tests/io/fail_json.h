/* Allocations that fail in calls that read JSON with jansson. A test file that includes this header must contain the word
 * __wrap_json_loadb, so that CMake links the test with the wrapper. Thread rule: one thread. */
#ifndef TDICT_TESTS_IO_FAIL_JSON_H
#define TDICT_TESTS_IO_FAIL_JSON_H

#include <jansson.h>
#include <string.h>

#include "support/fail_alloc.h"

/* jansson 2.14 ignores a failed allocation while it reads a string. So its own allocations succeed here, and the calls
 * to jansson fail as a whole. */
static int64_t allocs_left = -1; /* successful allocations until the failure; below 0: none fails */
static bool has_failed;
json_t *__real_json_loadb(const char *text, size_t bytes, size_t flags, json_error_t *error);
json_t *__wrap_json_loadb(const char *text, size_t bytes, size_t flags, json_error_t *error);
json_t *__wrap_json_loadb(const char *text, size_t bytes, size_t flags, json_error_t *error) {
  if (allocs_left < 0) return __real_json_loadb(text, bytes, flags, error);
  const int64_t seen = td_allocs_seen();
  has_failed = td_fail_alloc_stop() || has_failed;
  if (!has_failed && seen == allocs_left) {
    memset(error, 0, sizeof *error);
    error->text[sizeof error->text - 1] = json_error_out_of_memory;
    has_failed = true;
    return NULL;
  }
  json_t *made = __real_json_loadb(text, bytes, flags, error);
  allocs_left -= seen + 1; /* the call counts as one allocation */
  if (!has_failed) td_fail_alloc(allocs_left, false);
  return made;
}
static inline void begin_failing(int64_t n) {
  allocs_left = n;
  has_failed = false;
  td_fail_alloc(n, false);
}
static inline bool end_failing(void) {
  has_failed = td_fail_alloc_stop() || has_failed;
  allocs_left = -1;
  return has_failed;
}

#endif
