/* Reads and writes values as JSON. See read.h for ownership and threads. */
#include "services/io/json/read.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/float_env.h"
#include "services/io/json/document.h"

/* Appends a finite real. Replaces the decimal point of the locale by '.'. */
static void add_real(tdict_io_text *to, double real) {
  char text[64];
  const tdict_float_env saved = tdict_float_env_enter(); /* snprintf() rounds the last digit as the environment says */
  snprintf(text, sizeof text, "%.17g", real);
  tdict_float_env_leave(&saved);
  const size_t digits = strspn(text, "-0123456789");
  const char *end = text + digits + strcspn(text + digits, "0123456789e"); /* after the decimal point */
  const char *exponent = strchr(text, 'e');
  tdict_io_text_add(to, text, digits);
  if (text[digits] != 'e') tdict_io_text_add(to, ".", 1);
  if (!text[digits]) tdict_io_text_add(to, "0", 1);
  if (!exponent) {
    tdict_io_text_add_string(to, end);
    return;
  }
  tdict_io_text_add(to, end, (size_t)(exponent - end));
  tdict_io_text_format(to, "e%d", atoi(exponent + 1));
}

static void add_string(tdict_io_text *to, tdict_json string) {
  const char *start = tdict_json_start(string);
  const size_t bytes = tdict_json_bytes(string);
  if (!memchr(start, '\\', bytes)) {
    tdict_io_text_add(to, start, bytes);
    return;
  }
  char *decoded = malloc(bytes);
  if (decoded)
    tdict_io_text_add_json(to, decoded, tdict_json_string_decode(start, decoded, bytes));
  else
    to->has_failed = true;
  free(decoded);
}

/* Appends a value that is neither an array nor an object. */
static void add_scalar(tdict_io_text *to, tdict_json value) {
  int64_t integer = 0;
  double real = 0;
  switch (tdict_json_kind_of(value)) {
  case TDICT_JSON_STRING:
    add_string(to, value);
    break;
  case TDICT_JSON_INTEGER:
    (void)tdict_json_integer(value, &integer);
    tdict_io_text_format(to, "%" PRId64, integer);
    break;
  case TDICT_JSON_REAL:
    (void)tdict_json_real(value, &real);
    add_real(to, real);
    break;
  default:
    tdict_io_text_add(to, tdict_json_start(value), tdict_json_bytes(value));
  }
}

void tdict_json_write(tdict_io_text *text, tdict_json value) {
  const size_t end = value.at + tdict_json_bytes(value);
  while (value.at < end) {
    const char *start = tdict_json_start(value);
    size_t bytes = 1;
    if (strchr("{}[],:", *start)) {
      tdict_io_text_add(text, start, 1);
    } else if (!strchr(" \t\n\r", *start)) {
      add_scalar(text, value);
      bytes = tdict_json_bytes(value);
    }
    value.at += (uint32_t)bytes;
  }
}

/* Writes a JSON array or object as text that lives as long as the contents. */
static tdict_status dump(tdict_contents *c, tdict_json json, tdict_value *out, tdict_error *err) {
  tdict_io_text text = {0};
  tdict_status status = TDICT_OK;
  tdict_json_write(&text, json);
  if (text.has_failed) status = tdict_fail_memory(err, c->what, c->path, "JSON values");
  *out = (tdict_value){.kind = TDICT_VALUE_JSON, .length = text.length};
  if (status == TDICT_OK) status = tdict_contents_copy_text(c, text.bytes, text.length, &out->text, err);
  tdict_io_text_reset(&text);
  return status;
}

tdict_status tdict_value_from_json(tdict_contents *contents, tdict_json json, tdict_value *out, tdict_error *err) {
  *out = (tdict_value){.kind = TDICT_VALUE_NULL};
  switch (tdict_json_kind_of(json)) {
  case TDICT_JSON_TRUE:
  case TDICT_JSON_FALSE:
    out->kind = TDICT_VALUE_BOOL;
    out->integer = tdict_json_is(json, TDICT_JSON_TRUE);
    return TDICT_OK;
  case TDICT_JSON_INTEGER:
    out->kind = TDICT_VALUE_INTEGER;
    (void)tdict_json_integer(json, &out->integer);
    return TDICT_OK;
  case TDICT_JSON_REAL:
    out->kind = TDICT_VALUE_REAL;
    (void)tdict_json_real(json, &out->real);
    return TDICT_OK;
  case TDICT_JSON_STRING:
    out->kind = TDICT_VALUE_TEXT;
    return tdict_json_copy(contents, json, &out->text, &out->length, err);
  case TDICT_JSON_ARRAY:
  case TDICT_JSON_OBJECT:
    return dump(contents, json, out, err);
  default:
    return TDICT_OK;
  }
}

/* Adds a JSON text. Returns TDICT_ENOTSUP if tdict_open() could not read the text again. */
static tdict_status add_json(tdict_io_text *to, const tdict_value *value, const char **why) {
  tdict_json_document document;
  tdict_json_fault fault;
  *why = "a JSON text with duplicate keys or a number beyond 64 bits cannot be read again";
  tdict_status status = tdict_json_open(value->text, value->length, &document, &fault);
  if (status != TDICT_OK) return status == TDICT_ENOMEM ? TDICT_ENOMEM : TDICT_ENOTSUP;
  tdict_json_close(&document);
  tdict_io_text_add(to, value->text, value->length);
  return TDICT_OK;
}

static tdict_status add_finite(tdict_io_text *to, double real, const char **why) {
  *why = "a real that is not finite has no JSON";
  if (!isfinite(real)) return TDICT_ENOTSUP;
  add_real(to, real);
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
    return add_finite(text, value->real, why);
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
