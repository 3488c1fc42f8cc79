/* Makes JSON texts. Thread rule: one thread per text. */
#ifndef TDICT_TOOLS_JSON_H
#define TDICT_TOOLS_JSON_H

#include <stdio.h>

#include "tdict/nontensor.h"

#include "tool.h"

enum { JSON_MOST_DEPTH = 8 };

/* A JSON text that grows. Functions with a parameter `key` add a member to the innermost object, or a value to the
 * innermost array; there `key` is NULL. Exhausted memory is reported by json_print(). */
typedef struct json {
  FILE *to; /* NULL if memory is exhausted */
  char *text;
  size_t bytes;
  int depth;                         /* number of open arrays and objects */
  char ends[JSON_MOST_DEPTH];        /* their closing brackets */
  bool has_members[JSON_MOST_DEPTH]; /* true: the next member needs a comma */
} json;

void json_begin(json *j); /* begins a text, which is an object */
/* Ends the object of the text, and prints the text to the standard output. Returns an exit status. */
int json_print(json *j);
void json_discard(json *j);

void json_begin_object(json *j, const char *key);
void json_begin_array(json *j, const char *key);
void json_end(json *j); /* ends the innermost array or object */
void json_add_bool(json *j, const char *key, bool value);
void json_add_integer(json *j, const char *key, int64_t number);
void json_add_unsigned(json *j, const char *key, uint64_t number);
/* Infinities and NaN become strings, because JSON does not have these numbers. */
void json_add_real(json *j, const char *key, double number);
/* Bytes that are not printable, or not UTF-8, become \xNN, see printable_text(). */
void json_add_text(json *j, const char *key, const char *text, size_t length);
void json_add_string(json *j, const char *key, const char *text);
void json_add_shape(json *j, const char *key, int ndim, const int64_t *shape);
void json_add_value(json *j, const char *key, const tdict_value *value);

#endif
