/* Reads and writes values as JSON. See json_value.h for ownership and threads. */
#include "io/json_value.h"

#include <inttypes.h>
#include <math.h>

#include "base/error.h"

static tdict_status fail_memory(const tdict_contents *c, tdict_error *err) {
  return tdict_fail_file(err, TDICT_ENOMEM, c->path, "%s: no host memory for JSON values", c->what);
}

/* Writes a JSON array or object as text that lives as long as the contents. */
static tdict_status dump(tdict_contents *c, const json_t *json, tdict_value *out, tdict_error *err) {
  const size_t length = json_dumpb(json, NULL, 0, JSON_COMPACT);
  void *text = NULL;
  if (length == 0) return fail_memory(c, err);
  tdict_status status = tdict_contents_alloc(c, length + 1, &text, err);
  if (status != TDICT_OK) return status;
  if (json_dumpb(json, text, length, JSON_COMPACT) != length) return fail_memory(c, err);
  ((char *)text)[length] = 0;
  *out = (tdict_value){.kind = TDICT_VALUE_JSON, .text = text, .length = length};
  return TDICT_OK;
}

tdict_status tdict_value_from_json(tdict_contents *contents, const json_t *json, tdict_value *out, tdict_error *err) {
  *out = (tdict_value){.kind = TDICT_VALUE_NULL};
  switch (json_typeof(json)) {
  case JSON_TRUE:
  case JSON_FALSE:
    out->kind = TDICT_VALUE_BOOL;
    out->integer = json_is_true(json);
    return TDICT_OK;
  case JSON_INTEGER:
    out->kind = TDICT_VALUE_INTEGER;
    out->integer = json_integer_value(json);
    return TDICT_OK;
  case JSON_REAL:
    out->kind = TDICT_VALUE_REAL;
    out->real = json_real_value(json);
    return TDICT_OK;
  case JSON_STRING:
    out->kind = TDICT_VALUE_TEXT;
    out->length = json_string_length(json);
    return tdict_contents_copy_text(contents, json_string_value(json), out->length, &out->text, err);
  case JSON_NULL:
    return TDICT_OK;
  default:
    return dump(contents, json, out, err);
  }
}

/* Writes the JSON of a real. jansson writes a decimal point in every locale. */
static tdict_status add_real(tdict_io_text *to, double real, const char **why) {
  char text[64];
  *why = "a real that is not finite has no JSON";
  if (!isfinite(real)) return TDICT_ENOTSUP;
  json_t *json = json_real(real);
  if (!json) return TDICT_ENOMEM;
  const size_t length = json_dumpb(json, text, sizeof text, JSON_ENCODE_ANY);
  json_decref(json);
  if (length == 0 || length > sizeof text) return TDICT_ENOMEM;
  tdict_io_text_add(to, text, length);
  return TDICT_OK;
}

/* Adds a JSON text. Returns TDICT_ENOTSUP if tdict_open() could not read the text again. */
static tdict_status add_json(tdict_io_text *to, const tdict_value *value, const char **why) {
  json_error_t fault;
  json_t *json =
      json_loadb(value->text, value->length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &fault);
  *why = "a JSON text with duplicate keys or a number beyond 64 bits cannot be read again";
  if (!json) return tdict_json_lacks_memory(&fault) ? TDICT_ENOMEM : TDICT_ENOTSUP;
  json_decref(json);
  tdict_io_text_add(to, value->text, value->length);
  return TDICT_OK;
}

tdict_status tdict_value_to_json(tdict_io_text *text, const tdict_value *value, const char **why) {
  switch (value->kind) {
  case TDICT_VALUE_BOOL:
    tdict_io_text_add_string(text, value->integer ? "true" : "false");
    return TDICT_OK;
  case TDICT_VALUE_INTEGER:
    tdict_io_text_format(text, "%" PRId64, value->integer);
    return TDICT_OK;
  case TDICT_VALUE_REAL:
    return add_real(text, value->real, why);
  case TDICT_VALUE_TEXT:
    tdict_io_text_add_json(text, value->text, value->length);
    return TDICT_OK;
  case TDICT_VALUE_JSON:
    return add_json(text, value, why);
  default:
    tdict_io_text_add_string(text, "null");
    return TDICT_OK;
  }
}

int64_t tdict_nontensor_count(const tdict_nontensor *values) {
  const int64_t *shape;
  const int ndim = tdict_nontensor_shape(values, &shape);
  int64_t count = 1;
  for (int d = 0; d < ndim; d++)
    if (shape[d] == 0) return 0; /* the product of the other sizes may overflow */
  for (int d = 0; d < ndim; d++) count *= shape[d];
  return count;
}
