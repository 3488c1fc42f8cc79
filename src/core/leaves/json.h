/* Checks whether a text is valid UTF-8, or JSON as RFC 8259 defines it. Pure functions of their arguments;
 * thread-safe. */
#ifndef TDICT_CORE_LEAVES_JSON_H
#define TDICT_CORE_LEAVES_JSON_H

#include <stdbool.h>
#include <stddef.h>

enum { TDICT_JSON_MOST_DEPTH = 512 }; /* maximum number of nested arrays and objects */

/* Returns the number of bytes at the start of `text` that are valid UTF-8: `length` if all bytes are valid. Characters
 * above U+10FFFF, surrogates and overlong forms are invalid. */
size_t tdict_utf8_length(const char *text, size_t length);

/* The reason why a text is not JSON. */
typedef struct tdict_json_fault {
  size_t at;       /* the offset at which the check stopped; the length of the text if the text ends too early */
  const char *why; /* a static string */
} tdict_json_fault;
/* Returns true if the bytes are one JSON value with at most TDICT_JSON_MOST_DEPTH nested levels. White space may
 * precede and follow the value. A surrogate in a \u escape must be part of a pair. Numbers may have any size, and an
 * object may have duplicate keys. Writes *fault only if the text is invalid. */
bool tdict_json_is_valid(const char *text, size_t length, tdict_json_fault *fault);

#endif
