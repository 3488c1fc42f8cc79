/* Checks whether a text is valid UTF-8, or JSON as RFC 8259 defines it. Pure functions; thread-safe. */
#ifndef TDICT_CORE_LEAVES_JSON_H
#define TDICT_CORE_LEAVES_JSON_H

#include <stdbool.h>
#include <stddef.h>

enum { TDICT_JSON_MOST_DEPTH = 512 }; /* maximum number of nested arrays and objects */

/* Returns the number of bytes at the start of `text` that are valid UTF-8, `length` if all are. Surrogates, overlong
 * forms and characters above U+10FFFF are invalid. */
size_t tdict_utf8_length(const char *text, size_t length);

typedef struct tdict_json_fault {
  size_t at;       /* the offset at which the check stopped; the length of the text if the text ends too early */
  const char *why; /* a static string */
} tdict_json_fault;
/* Returns true for one JSON value, with white space around it, of at most TDICT_JSON_MOST_DEPTH levels. Surrogates in
 * \u escapes must be pairs. Any numbers and duplicate keys are allowed. Writes *fault only if the text is invalid. */
bool tdict_json_is_valid(const char *text, size_t length, tdict_json_fault *fault);

#endif
