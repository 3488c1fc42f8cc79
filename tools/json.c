/* Makes JSON texts, with an indentation of 2. See json.h. Owns the memory of the texts. */
#include "json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "leaves.h"

static void put(json *j, const char *text, size_t length) {
  if (j->to) fwrite(text, 1, length, j->to);
}

static void put_string(json *j, const char *text) { put(j, text, strlen(text)); }

static void put_line(json *j) {
  put_string(j, "\n");
  for (int i = 0; i < j->depth; i++) put_string(j, "  ");
}

static void put_quoted(json *j, const char *text, size_t length) {
  put_string(j, "\"");
  for (size_t i = 0; i < length; i++) {
    const unsigned char c = (unsigned char)text[i];
    char escape[8];
    if (c < 0x20)
      snprintf(escape, sizeof escape, "\\u%04x", c);
    else
      snprintf(escape, sizeof escape, c == '"' || c == '\\' ? "\\%c" : "%c", c);
    put_string(j, escape);
  }
  put_string(j, "\"");
}

/* Begins a member or a value. */
static void begin_value(json *j, const char *key) {
  if (j->depth) {
    bool *has_members = &j->has_members[j->depth - 1];
    if (*has_members) put_string(j, ",");
    *has_members = true;
    put_line(j);
  }
  if (!key) return;
  put_quoted(j, key, strlen(key));
  put_string(j, ": ");
}

static void begin(json *j, const char *key, const char *bracket, char end) {
  begin_value(j, key);
  put_string(j, bracket);
  j->has_members[j->depth] = false;
  j->ends[j->depth++] = end;
}

void json_begin(json *j) {
  *j = (json){0};
  j->to = open_memstream(&j->text, &j->bytes);
  json_begin_object(j, NULL);
}

void json_begin_object(json *j, const char *key) { begin(j, key, "{", '}'); }
void json_begin_array(json *j, const char *key) { begin(j, key, "[", ']'); }

void json_end(json *j) {
  j->depth--;
  if (j->has_members[j->depth]) put_line(j);
  put(j, &j->ends[j->depth], 1);
}

int json_print(json *j) {
  json_end(j);
  const bool has_failed = !j->to || ferror(j->to);
  if ((j->to && fclose(j->to) != 0) || has_failed) {
    free(j->text);
    return tool_fail_memory();
  }
  puts(j->text);
  free(j->text);
  return TOOL_OK;
}

void json_discard(json *j) {
  if (j->to) fclose(j->to);
  free(j->text);
}

static void add_word(json *j, const char *key, const char *word) {
  begin_value(j, key);
  put_string(j, word);
}

void json_add_bool(json *j, const char *key, bool value) { add_word(j, key, value ? "true" : "false"); }

void json_add_integer(json *j, const char *key, int64_t number) {
  char text[32];
  snprintf(text, sizeof text, "%" PRId64, number);
  add_word(j, key, text);
}

void json_add_unsigned(json *j, const char *key, uint64_t number) {
  char text[32];
  snprintf(text, sizeof text, "%" PRIu64, number);
  add_word(j, key, text);
}

void json_add_real(json *j, const char *key, double number) {
  char text[40];
  if (!isfinite(number)) {
    json_add_string(j, key, isnan(number) ? "nan" : number > 0 ? "inf" : "-inf");
    return;
  }
  const int length = snprintf(text, sizeof text, "%.17g", number);
  if (!strpbrk(text, ".e")) snprintf(text + length, sizeof text - (size_t)length, ".0");
  add_word(j, key, text);
}

void json_add_text(json *j, const char *key, const char *text, size_t length) {
  char *printable = is_utf8(text, length) ? NULL : printable_text(text, length);
  begin_value(j, key);
  if (printable)
    put_quoted(j, printable, strlen(printable));
  else
    put_quoted(j, text, length);
  free(printable);
}

void json_add_string(json *j, const char *key, const char *text) { json_add_text(j, key, text, strlen(text)); }

void json_add_shape(json *j, const char *key, int ndim, const int64_t *shape) {
  json_begin_array(j, key);
  for (int i = 0; i < ndim; i++) json_add_integer(j, NULL, shape[i]);
  json_end(j);
}

void json_add_value(json *j, const char *key, const tdict_value *value) {
  switch (value->kind) {
  case TDICT_VALUE_BOOL:
    json_add_bool(j, key, value->integer != 0);
    break;
  case TDICT_VALUE_INTEGER:
    json_add_integer(j, key, value->integer);
    break;
  case TDICT_VALUE_REAL:
    json_add_real(j, key, value->real);
    break;
  case TDICT_VALUE_TEXT:
    json_add_text(j, key, value->text, value->length);
    break;
  case TDICT_VALUE_JSON:
    begin_value(j, key);
    put(j, value->text, value->length);
    break;
  default:
    add_word(j, key, "null");
  }
}
