/* Reads JSON with jansson. See json_read.h for ownership and threads. */
#include "io/json_read.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "base/error.h"
#include "types/json.h"

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

tdict_status tdict_json_read(const tdict_json_source *source, const char *text, size_t length, json_t **out,
                             tdict_error *err) {
  const char *what = source->contents->what;
  tdict_json_fault fault;
  json_error_t why;
  /* The library's own check comes first: it limits the levels without recursion, and gives exact positions. */
  if (!tdict_json_is_valid(text, length, &fault))
    return tdict_fail_file(err, TDICT_EFORMAT, source->file, "%s: %s is not JSON at byte %" PRIu64 ": %s", what,
                           source->part, source->offset + fault.at, fault.why);
  json_t *value = json_loadb(text, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &why);
  if (!value && tdict_json_lacks_memory(&why))
    return tdict_fail_file(err, TDICT_ENOMEM, source->file, "%s: no host memory for %s", what, source->part);
  if (!value)
    return tdict_fail_file(err, TDICT_EFORMAT, source->file, "%s: %s at byte %" PRIu64 ": %.120s", what, source->part,
                           source->offset + (uint64_t)(why.position > 0 ? why.position : 0), why.text);
  if (json_is_object(value)) {
    *out = value;
    return TDICT_OK;
  }
  json_decref(value);
  return tdict_fail_file(err, TDICT_EFORMAT, source->file, "%s: %s at byte %" PRIu64 " is no JSON object", what,
                         source->part, source->offset);
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
