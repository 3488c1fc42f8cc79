/* Grows texts and escapes JSON strings. See text.h for ownership and threads. */
#include "services/io/text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"

enum { FIRST_BYTES = 256 };

char *tdict_io_text_reserve(tdict_io_text *text, size_t bytes) {
  size_t needed, cap = text->cap ? text->cap : FIRST_BYTES;
  if (text->has_failed) return NULL;
  bool fits = tdict_add_size(text->length, bytes, &needed) && tdict_add_size(needed, 1, &needed);
  while (fits && cap < needed) fits = tdict_mul_size(cap, 2, &cap);
  char *grown = !fits ? NULL : cap == text->cap ? text->bytes : realloc(text->bytes, cap);
  if (!grown) {
    text->has_failed = true;
    return NULL;
  }
  text->bytes = grown;
  text->cap = cap;
  return text->bytes + text->length;
}

void tdict_io_text_add(tdict_io_text *text, const char *bytes, size_t length) {
  char *to = tdict_io_text_reserve(text, length);
  if (!to) return;
  if (length) memcpy(to, bytes, length);
  to[length] = 0;
  text->length += length;
}

void tdict_io_text_add_string(tdict_io_text *text, const char *string) {
  tdict_io_text_add(text, string, strlen(string));
}

void tdict_io_text_format(tdict_io_text *text, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  char *to = length < 0 ? NULL : tdict_io_text_reserve(text, (size_t)length);
  if (!to) {
    text->has_failed = true;
    return;
  }
  va_start(arguments, format);
  vsnprintf(to, (size_t)length + 1, format, arguments);
  va_end(arguments);
  text->length += (size_t)length;
}

void tdict_io_text_add_json(tdict_io_text *text, const char *bytes, size_t length) {
  static const char escaped[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
  size_t plain = 0; /* start of the bytes that are not yet added */
  tdict_io_text_add(text, "\"", 1);
  for (size_t i = 0; i < length; i++) {
    const unsigned char c = (unsigned char)bytes[i];
    const char *found = c ? strchr(escaped, c) : NULL;
    if (!found && c >= 0x20) continue;
    tdict_io_text_add(text, bytes + plain, i - plain);
    plain = i + 1;
    if (found)
      tdict_io_text_format(text, "\\%c", letters[found - escaped]);
    else
      tdict_io_text_format(text, "\\u%04x", c);
  }
  tdict_io_text_add(text, bytes + plain, length - plain);
  tdict_io_text_add(text, "\"", 1);
}

void tdict_io_text_add_sizes(tdict_io_text *text, const char *separator, int count, const int64_t *sizes) {
  tdict_io_text_add(text, "[", 1);
  for (int i = 0; i < count; i++) tdict_io_text_format(text, "%s%" PRId64, i ? separator : "", sizes[i]);
  tdict_io_text_add(text, "]", 1);
}

void tdict_io_text_cut(tdict_io_text *text, size_t length) {
  if (!text->bytes) return;
  text->length = length;
  text->bytes[length] = 0;
}

void tdict_io_text_reset(tdict_io_text *text) {
  free(text->bytes);
  *text = (tdict_io_text){0};
}
