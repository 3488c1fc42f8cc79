/* Reads values in place in JSON texts. A document allocates 8 bytes for each array and object, so
 * that a reader can skip them. A value is a position in the text: nothing is copied, and a value needs no release.
 * Values and cursors must not outlive the document. Thread rule: a document may be read by several threads. */
#ifndef TDICT_SERVICES_IO_JSON_DOCUMENT_H
#define TDICT_SERVICES_IO_JSON_DOCUMENT_H

#include <stdint.h>

#include "core/leaves/json.h"
#include "tdict/status.h"

typedef struct tdict_json_end {
  uint32_t at;   /* offset of the byte after the closing bracket */
  uint32_t next; /* number of arrays and objects that begin before `at` */
} tdict_json_end;
typedef struct tdict_json_document {
  const char *text; /* borrowed, or `owned` */
  char *owned;
  size_t length;
  tdict_json_end *ends; /* owned; in the order of the opening brackets */
  size_t num_ends;
} tdict_json_document;
/* Makes the document of a text, which a 0 byte must follow. Returns TDICT_EFORMAT for a text that
 * tdict_json_is_valid() refuses. Returns TDICT_ENOTSUP for duplicate keys, keys with a 0 byte, numbers that overflow
 * int64_t or double, and texts of 4 GiB and more. In both cases *fault is the reason. Returns TDICT_ENOMEM without
 * *fault. On success, the caller closes the document. Fills no tdict_error. */
tdict_status tdict_json_open(const char *text, size_t length, tdict_json_document *out, tdict_json_fault *fault);
void tdict_json_close(tdict_json_document *document); /* also allowed if all members are 0 */

typedef enum tdict_json_kind {
  TDICT_JSON_ABSENT, /* no value: a member that does not exist */
  TDICT_JSON_NULL,
  TDICT_JSON_FALSE,
  TDICT_JSON_TRUE,
  TDICT_JSON_INTEGER, /* a number without fraction and exponent */
  TDICT_JSON_REAL,
  TDICT_JSON_STRING,
  TDICT_JSON_ARRAY,
  TDICT_JSON_OBJECT
} tdict_json_kind;
/* A value. A value with zeros is absent. All functions accept values of all kinds. */
typedef struct tdict_json {
  const tdict_json_document *document;
  uint32_t at;    /* offset of the value in the text */
  uint32_t level; /* number of arrays and objects that begin before `at` */
} tdict_json;
tdict_json tdict_json_root(const tdict_json_document *document); /* absent if all members of *document are 0 */
tdict_json_kind tdict_json_kind_of(tdict_json value);
static inline bool tdict_json_is(tdict_json value, tdict_json_kind kind) { return tdict_json_kind_of(value) == kind; }
static inline bool tdict_json_exists(tdict_json value) { return value.document != NULL; }
/* Returns the text of a value, which does not end with a 0 byte. The value must exist. */
static inline const char *tdict_json_start(tdict_json value) { return value.document->text + value.at; }
size_t tdict_json_bytes(tdict_json value); /* of the text of a value; 0 if the value is absent */

typedef struct tdict_json_cursor {
  tdict_json next;
  bool is_object;
} tdict_json_cursor;
/* Returns a cursor for the members of an object, or the elements of an array. Other values have none. */
tdict_json_cursor tdict_json_enter(tdict_json value);
/* Moves to the next member. Sets *key (may be NULL) to an absent value in arrays. Returns false after the last. */
bool tdict_json_next(tdict_json_cursor *cursor, tdict_json *key, tdict_json *value);
size_t tdict_json_count(tdict_json value); /* number of members or elements; O(members) */
/* Returns a member of an object, or an absent value. O(members): use a table for many keys. */
tdict_json tdict_json_get(tdict_json object, const char *key);
tdict_json tdict_json_at(tdict_json array, size_t i); /* element i, or an absent value; O(i) */

bool tdict_json_integer(tdict_json value, int64_t *out);    /* false if the value is not an integer that fits */
bool tdict_json_real(tdict_json value, double *out);        /* false if the value is not a finite number */
bool tdict_json_equals(tdict_json value, const char *text); /* true if the value is this string */
/* Copies a string and a 0 byte into a buffer. A string that does not fit is cut after a whole character. Returns false
 * if the value is no string or has a 0 byte. */
bool tdict_json_read_text(tdict_json value, char *to, size_t bytes);

/* Finds members of an object by their keys, in logarithmic time. Several threads may read a table. */
typedef struct tdict_json_member {
  tdict_json key, value;
} tdict_json_member;
/* The members of an object, sorted by key. Of an array: its strings, each as key and as value. */
typedef struct tdict_json_table {
  tdict_json_member *members; /* owned */
  size_t count;
} tdict_json_table;
/* Makes the table of an array or object; other values have no members. Returns TDICT_ENOMEM, and fills no tdict_error;
 * otherwise the caller frees the members. */
tdict_status tdict_json_table_make(tdict_json value, tdict_json_table *out);
/* Returns the value of a key, or an absent value. */
tdict_json tdict_json_table_find(const tdict_json_table *table, const char *key);

/* The following functions get the opening quote of a string in a text that tdict_json_is_valid() accepts. */

/* Returns the number of bytes of the string in the text, with both quotes. */
size_t tdict_json_string_bytes(const char *string);
/* Returns the UTF-8 character at `*at`, which may be in any valid text, and moves `*at` to the next character. */
int32_t tdict_json_next_character(const unsigned char **at);
/* Writes the string as UTF-8, without quotes, escapes and a final 0, up to the last character that fits `cap` bytes.
 * Returns the number of bytes, which is never more than in the text. */
size_t tdict_json_string_decode(const char *string, char *to, size_t cap);
/* Returns true if a character of the string is U+0000. */
bool tdict_json_string_has_zero(const char *string);
/* Compares the characters of two strings, as strcmp() does. An escape equals the character that it stands for. */
int tdict_json_string_compare(const char *a, const char *b);
int tdict_json_string_compare_text(const char *string, const char *text);

#endif
