/* A text that grows, for JSON parts of files. Its initializer owns the bytes. Without memory, `has_failed` becomes true
 * and additions do nothing, so a caller checks once, at the end. Thread rule: one thread at a time. */
#ifndef TDICT_SERVICES_IO_TEXT_H
#define TDICT_SERVICES_IO_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "tdict/status.h"

typedef struct tdict_io_text {
  char *bytes; /* a 0 byte follows the text; NULL: no text yet */
  size_t length, cap;
  bool has_failed;
} tdict_io_text; /* initialize with zeros */

void tdict_io_text_add(tdict_io_text *text, const char *bytes, size_t length);
/* Adds a text that ends with a 0 byte. */
void tdict_io_text_add_string(tdict_io_text *text, const char *string);
void tdict_io_text_format(tdict_io_text *text, const char *format, ...) TDICT_PRINTF(2, 3);
/* Adds a JSON string with its quotes. `bytes` must be UTF-8. Escapes characters as the Rust library serde_json does, so
 * that headers have the same bytes as headers of the package safetensors. */
void tdict_io_text_add_json(tdict_io_text *text, const char *bytes, size_t length);
/* Adds a JSON array of integers, with `separator` between them. */
void tdict_io_text_add_sizes(tdict_io_text *text, const char *separator, int count, const int64_t *sizes);
/* Returns room for `bytes` more bytes and a 0 byte, or NULL. The caller adds what it wrote to `length`. */
char *tdict_io_text_reserve(tdict_io_text *text, size_t bytes);
/* Removes the end of the text. */
void tdict_io_text_cut(tdict_io_text *text, size_t length);
void tdict_io_text_reset(tdict_io_text *text);

#endif
