/* Makes printable texts and JSON values. See leaves.h. Pure functions. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "leaves.h"

/* Returns the number of bytes of the character at `text`, or 0 if the bytes are not a printable character in UTF-8. The
 * C1 control characters U+0080 to U+009F and the end of the text are not printable. */
static size_t character_bytes(const unsigned char *text, size_t length) {
  static const uint32_t lowest[5] = {0, 0, 0x80, 0x800, 0x10000};
  if (text[0] < 0x80) return text[0] >= 0x20 && text[0] < 0x7f;
  const size_t count = text[0] >= 0xf0 ? 4 : text[0] >= 0xe0 ? 3 : 2;
  if (text[0] < 0xc0 || text[0] > 0xf4 || count > length) return 0;
  uint32_t code = text[0] & (0xffu >> (count + 1));
  for (size_t i = 1; i < count; i++) {
    if ((text[i] & 0xc0) != 0x80) return 0;
    code = code << 6 | (text[i] & 0x3fu);
  }
  return code < lowest[count] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) || code < 0xa0 ? 0 : count;
}

char *printable_text(const char *text, size_t length) {
  char *out = malloc(4 * length + 1), *at = out;
  if (!out) return NULL;
  for (size_t i = 0; i < length;) {
    const size_t count = character_bytes((const unsigned char *)text + i, length - i);
    if (count) {
      memcpy(at, text + i, count);
      at += count;
      i += count;
    } else {
      at += snprintf(at, 5, "\\x%02x", (unsigned)(unsigned char)text[i++]);
    }
  }
  *at = 0;
  return out;
}

json_t *json_from_text(const char *text, size_t length) {
  json_t *json = json_stringn(text, length);
  if (json) return json;
  char *printable = printable_text(text, length);
  if (printable) json = json_string(printable);
  free(printable);
  return json;
}

json_t *json_from_shape(int ndim, const int64_t *shape) {
  json_t *array = json_array();
  for (int i = 0; i < ndim; i++) json_array_append_new(array, json_integer(shape[i]));
  return array;
}

json_t *json_from_real(double number) {
  if (isnan(number)) return json_string("nan");
  if (isinf(number)) return json_string(number > 0 ? "inf" : "-inf");
  return json_real(number);
}

json_t *json_from_value(const tdict_value *value) {
  switch (value->kind) {
  case TDICT_VALUE_BOOL:
    return json_boolean(value->integer != 0);
  case TDICT_VALUE_INTEGER:
    return json_integer(value->integer);
  case TDICT_VALUE_REAL:
    return json_from_real(value->real);
  case TDICT_VALUE_TEXT:
    return json_from_text(value->text, value->length);
  case TDICT_VALUE_JSON: {
    json_t *json = json_loadb(value->text, value->length, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    return json ? json : json_from_text(value->text, value->length); /* for example a number that jansson cannot hold */
  }
  default:
    return json_null();
  }
}

int json_print(json_t *json) {
  char *text = json ? json_dumps(json, JSON_INDENT(2) | JSON_ENCODE_ANY) : NULL;
  json_decref(json);
  if (!text) return tool_fail_memory();
  puts(text);
  free(text);
  return TOOL_OK;
}
