/* The readers of JSON and UTF-8 on arbitrary bytes, beside a second reader (tests/types/naive_json.h) and, in
 * scripts/fuzz, beside jansson. Bytes that they judge differently end the program. Thread rule: one thread. */
#include <stdio.h>
#include <stdlib.h>

#include "types/json.h"
#include "types/naive_json.h"
#ifdef TDICT_WITH_JANSSON
#include <jansson.h>
#endif

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static void complain(const char *who, const uint8_t *bytes, size_t count, bool is_valid) {
  fprintf(stderr, "%s does not agree: %.*s is %s\n", who, (int)count, (const char *)bytes,
          is_valid ? "valid" : "invalid");
  abort();
}

#ifdef TDICT_WITH_JANSSON
/* Jansson also refuses numbers that do not fit its types, and keys with NUL. It skips a NUL byte after a number. */
static void ask_jansson(const uint8_t *bytes, size_t count, bool is_valid) {
  json_error_t error;
  if (count && memchr(bytes, 0, count)) return;
  json_t *made = json_loadb((const char *)bytes, count, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
  const enum json_error_code code = made ? json_error_unknown : json_error_code(&error);
  if (is_valid != (made != NULL) && code != json_error_numeric_overflow && code != json_error_null_byte_in_key)
    complain("jansson", bytes, count, is_valid);
  json_decref(made);
}
#endif

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  tdict_json_fault fault = {0, NULL};
  const bool is_valid = tdict_json_is_valid((const char *)bytes, count, &fault);
  if (!is_valid && (fault.at > count || !fault.why)) complain("the fault", bytes, count, is_valid);
  if (is_valid != naive_json(bytes, count, TDICT_JSON_MOST_DEPTH))
    complain("the second reader", bytes, count, is_valid);
  if (is_valid && tdict_utf8_length((const char *)bytes, count) != count) complain("UTF-8", bytes, count, is_valid);
  /* The bytes before a fault in the text begin a valid text: cut there, the text is too short, not wrong. */
  if (!is_valid && fault.at < count) {
    tdict_json_fault shorter = {0, NULL};
    const bool is_begin = tdict_json_is_valid((const char *)bytes, fault.at, &shorter);
    if (!is_begin && shorter.at > fault.at) complain("a shorter text", bytes, count, is_valid);
  }
#ifdef TDICT_WITH_JANSSON
  if (fault.why == NULL || strcmp(fault.why, "too many levels") != 0) ask_jansson(bytes, count, is_valid);
#endif
  return 0;
}
