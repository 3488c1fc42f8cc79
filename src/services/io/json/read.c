/* Reads JSON parts of files. See read.h for ownership and threads. */
#include "services/io/json/read.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "services/io/json/document.h"

enum { MOST_SHOWN = 80 }; /* bytes of a wrong part of a text that a message shows */

tdict_status tdict_json_read(const tdict_json_source *source, const char *text, size_t length, tdict_json_document *out,
                             tdict_error *err) {
  const char *what = source->what;
  tdict_json_fault fault;
  tdict_status status = tdict_json_open(text, length, out, &fault);
  if (status == TDICT_ENOMEM) return tdict_fail_memory(err, what, source->file, "%s", source->part);
  if (status == TDICT_ENOTSUP) {
    const char *at = text + fault.at;
    const size_t bytes = *at == '"' ? tdict_json_string_bytes(at) : strcspn(at, " \t\n\r,]}");
    return tdict_fail_at(err, TDICT_EFORMAT, source->file, "%s: %s at byte %" PRIu64 ": %s: %.*s", what, source->part,
                         source->offset + fault.at, fault.why, (int)(bytes < MOST_SHOWN ? bytes : MOST_SHOWN), at);
  }
  if (status != TDICT_OK)
    return tdict_fail_at(err, TDICT_EFORMAT, source->file, "%s: %s is not JSON at byte %" PRIu64 ": %s", what,
                         source->part, source->offset + fault.at, fault.why);
  if (tdict_json_is(tdict_json_root(out), TDICT_JSON_OBJECT)) return TDICT_OK;
  tdict_json_close(out);
  return tdict_fail_at(err, TDICT_EFORMAT, source->file, "%s: %s at byte %" PRIu64 " is not a JSON object", what,
                       source->part, source->offset);
}

tdict_status tdict_json_load(const tdict_contents *contents, tdict_span span, const char *part,
                             tdict_json_document *out, tdict_error *err) {
  const tdict_json_source source = {contents->what, contents->files[span.file].path, part, span.offset};
  char *text = calloc(1, (size_t)span.bytes + 1);
  if (!text) return tdict_fail_memory(err, source.what, source.file, "%" PRIu64 " bytes of JSON", span.bytes);
  tdict_status status = tdict_contents_read(contents, span, text, err);
  if (status == TDICT_OK) status = tdict_json_read(&source, text, (size_t)span.bytes, out, err);
  if (status == TDICT_OK)
    out->owned = text;
  else
    free(text);
  return status;
}

tdict_status tdict_json_copy(tdict_contents *contents, tdict_json string, const char **out, size_t *length,
                             tdict_error *err) {
  const size_t most = tdict_json_bytes(string) - 1; /* without one of the quotes, with the 0 byte */
  void *copy = NULL;
  tdict_status status = tdict_contents_alloc(contents, most, &copy, err);
  if (status != TDICT_OK) return status;
  const size_t bytes = tdict_json_string_decode(tdict_json_start(string), copy, most - 1);
  ((char *)copy)[bytes] = 0;
  if (length) *length = bytes;
  *out = copy;
  return TDICT_OK;
}

tdict_status tdict_json_text(tdict_contents *contents, tdict_json value, const char **out, tdict_error *err) {
  *out = NULL;
  if (!tdict_json_is(value, TDICT_JSON_STRING) || tdict_json_string_has_zero(tdict_json_start(value))) return TDICT_OK;
  return tdict_json_copy(contents, value, out, NULL, err);
}

const char *tdict_json_place_key(const tdict_json_place *place) {
  return place->key ? place->key : place->path->bytes ? place->path->bytes : "";
}

static void fail(const tdict_json_place *place, tdict_status status, tdict_error *err, const char *format,
                 va_list arguments) {
  char detail[sizeof err->message];
  vsnprintf(detail, sizeof detail, format, arguments);
  tdict_fail_at(err, status, place->file, "%s: %s '%.80s': %s", place->contents->what, place->kind,
                tdict_json_place_key(place), detail);
}

tdict_status tdict_json_fail(const tdict_json_place *place, tdict_error *err, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fail(place, TDICT_EFORMAT, err, format, arguments);
  va_end(arguments);
  return TDICT_EFORMAT;
}

tdict_status tdict_json_refuse(const tdict_json_place *place, tdict_error *err, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fail(place, TDICT_ENOTSUP, err, format, arguments);
  va_end(arguments);
  return TDICT_ENOTSUP;
}

tdict_status tdict_json_sizes(const tdict_json_place *place, const char *name, tdict_json value, int most,
                              tdict_sizes *out, tdict_error *err) {
  if (!tdict_json_is(value, TDICT_JSON_ARRAY)) return tdict_json_fail(place, err, "no array '%s'", name);
  const size_t count = tdict_json_count(value);
  if (count > (size_t)most)
    return tdict_json_fail(place, err, "'%s' has %zu numbers, wanted at most %d", name, count, most);
  tdict_json_cursor cursor = tdict_json_enter(value);
  tdict_json size;
  out->count = 0;
  for (int64_t *to; tdict_json_next(&cursor, NULL, &size); out->count++) {
    to = &out->at[out->count];
    if (!tdict_json_integer(size, to)) return tdict_json_fail(place, err, "%s[%d] is not an integer", name, out->count);
    if (*to < 0) return tdict_json_fail(place, err, "%s[%d] is %" PRId64 ", wanted 0 or more", name, out->count, *to);
  }
  return TDICT_OK;
}
