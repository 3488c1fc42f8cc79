/* Reads JSON with jansson. See json_read.h for ownership and threads. */
#include "io/json_read.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "base/error.h"
#include "types/json.h"

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

bool tdict_json_lacks_memory(const json_error_t *why) {
  switch (json_error_code(why)) {
  case json_error_duplicate_key:
  case json_error_numeric_overflow:
  case json_error_null_byte_in_key:
    return false;
  default:
    return true;
  }
}

tdict_status tdict_json_check(const tdict_json_source *source, tdict_json_slice text, tdict_error *err) {
  const char *what = source->contents->what;
  tdict_json_fault fault;
  if (!tdict_json_is_valid(text.text, text.length, &fault))
    return tdict_fail_file(err, TDICT_EFORMAT, source->file, "%s: %s is not JSON at byte %" PRIu64 ": %s", what,
                           source->part, source->offset + fault.at, fault.why);
  const char *at = text.text;
  while (is_space(*at)) at++;
  if (*at == '{') return TDICT_OK;
  return tdict_fail_file(err, TDICT_EFORMAT, source->file, "%s: %s at byte %" PRIu64 " is no JSON object", what,
                         source->part, source->offset);
}

/* Returns the address after a string, which begins at `at`. */
static const char *skip_string(const char *at) {
  for (at++; *at != '"'; at++)
    if (*at == '\\') at++;
  return at + 1;
}

/* Returns the address after a value. Counts brackets, so nested values need no recursion. */
static const char *skip_value(const char *at) {
  size_t depth = 0;
  do {
    if (*at == '"') {
      at = skip_string(at);
      continue;
    }
    if (*at == '{' || *at == '[') depth++;
    if (*at == '}' || *at == ']') depth--;
    at++;
  } while (depth);
  return at;
}

/* Returns the address after a number, true, false or null. */
static const char *skip_word(const char *at) {
  while (!is_space(*at) && *at != ',' && *at != '}' && *at != ']') at++;
  return at;
}

bool tdict_json_next_member(const char **at, tdict_json_slice *key, tdict_json_slice *value) {
  const char *from = *at;
  while (is_space(*from) || *from == ',') from++;
  if (*from == '}') return false;
  const char *end = skip_string(from);
  *key = (tdict_json_slice){from, (size_t)(end - from)};
  from = end;
  while (is_space(*from) || *from == ':') from++;
  end = *from == '"' || *from == '{' || *from == '[' ? skip_value(from) : skip_word(from);
  *value = (tdict_json_slice){from, (size_t)(end - from)};
  *at = end;
  return true;
}

tdict_status tdict_json_parse(const tdict_json_source *source, tdict_json_slice part, json_t **out, tdict_error *err) {
  const char *what = source->contents->what;
  json_error_t why;
  *out = json_loadb(part.text, part.length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &why);
  if (*out) return TDICT_OK;
  if (tdict_json_lacks_memory(&why))
    return tdict_fail_file(err, TDICT_ENOMEM, source->file, "%s: no host memory for %s", what, source->part);
  return tdict_fail_file(err, TDICT_EFORMAT, source->file, "%s: %s at byte %" PRIu64 ": %.120s", what, source->part,
                         source->offset + (uint64_t)(why.position > 0 ? why.position : 0), why.text);
}

tdict_status tdict_json_read(const tdict_json_source *source, const char *text, size_t length, json_t **out,
                             tdict_error *err) {
  /* Call tdict_json_check() before jansson, because this check limits the levels without recursion and gives exact
   * positions. */
  tdict_status status = tdict_json_check(source, (tdict_json_slice){text, length}, err);
  return status == TDICT_OK ? tdict_json_parse(source, (tdict_json_slice){text, length}, out, err) : status;
}

const char *tdict_json_text(const json_t *value) {
  const char *text = value ? json_string_value(value) : NULL;
  return text && strlen(text) == json_string_length(value) ? text : NULL;
}

tdict_status tdict_json_fail(const tdict_json_place *place, tdict_error *err, const char *format, ...) {
  char detail[sizeof err->message];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(detail, sizeof detail, format, arguments);
  va_end(arguments);
  return tdict_fail_file(err, TDICT_EFORMAT, place->file, "%s: %s '%.80s': %s", place->contents->what, place->kind,
                         place->key, detail);
}

tdict_status tdict_json_sizes(const tdict_json_place *place, const char *name, const json_t *value, int most,
                              tdict_sizes *out, tdict_error *err) {
  if (!json_is_array(value)) return tdict_json_fail(place, err, "no array '%s'", name);
  const size_t count = json_array_size(value);
  if (count > (size_t)most)
    return tdict_json_fail(place, err, "'%s' has %zu numbers, wanted at most %d", name, count, most);
  for (size_t i = 0; i < count; i++) {
    const json_t *size = json_array_get(value, i);
    if (!json_is_integer(size)) return tdict_json_fail(place, err, "%s[%zu] is no integer", name, i);
    out->at[i] = json_integer_value(size);
    if (out->at[i] < 0)
      return tdict_json_fail(place, err, "%s[%zu] is %" PRId64 ", wanted 0 or more", name, i, out->at[i]);
  }
  out->count = (int32_t)count;
  return TDICT_OK;
}
