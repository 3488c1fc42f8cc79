/* Fuzzes the readers of JSON and UTF-8, and compares them with a second reader (tests/core/leaves/naive_json.h). A
 * different result aborts the program. If the input is valid, its values are read too. Thread rule: one thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/leaves/naive_json.h"
#include "services/io/json/document.h"
#include "services/io/json/read.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static void complain(const char *who, const uint8_t *bytes, size_t count, bool is_valid) {
  fprintf(stderr, "%s does not agree: %.*s is %s\n", who, (int)count, (const char *)bytes,
          is_valid ? "valid" : "invalid");
  abort();
}

/* Visits the members of an array or object. Each must end before the array or object does. */
static void read_members(tdict_json value) {
  tdict_json_cursor cursor = tdict_json_enter(value);
  tdict_json key, member;
  size_t members = 0;
  for (; tdict_json_next(&cursor, &key, &member); members++)
    if (member.at + tdict_json_bytes(member) >= value.at + tdict_json_bytes(value)) abort();
  if (tdict_json_count(value) != members) abort();
}

/* Reads each value of an input that tdict_json_open() accepts. Writes the value, reads the output, and writes the value
 * again. Both outputs must be equal. */
static void read_values(const uint8_t *bytes, size_t count, bool is_valid) {
  tdict_json_document document, again;
  tdict_json_fault fault;
  tdict_io_text first = {0}, second = {0};
  char *text = calloc(1, count + 1);
  if (count) memcpy(text, bytes, count);
  const tdict_status status = tdict_json_open(text, count, &document, &fault);
  if ((status == TDICT_EFORMAT) == is_valid) complain("tdict_json_open", bytes, count, is_valid);
  if (status == TDICT_OK) {
    tdict_json at = {.document = &document};
    for (; at.at < count; at.at++) {
      const char c = text[at.at];
      if (c == '{' || c == '[') read_members(at);
      at.level += c == '{' || c == '[';
      if (c == '"') at.at += (uint32_t)tdict_json_string_bytes(text + at.at) - 1;
    }
    tdict_json_write(&first, tdict_json_root(&document));
    if (tdict_json_open(first.bytes, first.length, &again, &fault) != TDICT_OK) abort();
    tdict_json_write(&second, tdict_json_root(&again));
    if (first.length != second.length || memcmp(first.bytes, second.bytes, first.length) != 0) abort();
    tdict_json_close(&again);
    tdict_json_close(&document);
  }
  tdict_io_text_reset(&first);
  tdict_io_text_reset(&second);
  free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  tdict_json_fault fault = {0, NULL};
  const bool is_valid = tdict_json_is_valid((const char *)bytes, count, &fault);
  if (!is_valid && (fault.at > count || !fault.why)) complain("the fault", bytes, count, is_valid);
  if (is_valid != naive_json(bytes, count, TDICT_JSON_MOST_DEPTH))
    complain("the second reader", bytes, count, is_valid);
  if (is_valid && tdict_utf8_length((const char *)bytes, count) != count) complain("UTF-8", bytes, count, is_valid);
  /* The bytes before the fault, validated alone, must not have a fault past their end. */
  if (!is_valid && fault.at < count) {
    tdict_json_fault shorter = {0, NULL};
    const bool is_begin = tdict_json_is_valid((const char *)bytes, fault.at, &shorter);
    if (!is_begin && shorter.at > fault.at) complain("a shorter text", bytes, count, is_valid);
  }
  read_values(bytes, count, is_valid);
  return 0;
}
