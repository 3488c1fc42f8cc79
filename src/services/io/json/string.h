/* Reads strings of JSON texts. A string is given by the address of its opening quote, in a text that
 * tdict_json_is_valid() accepts. Pure functions of their arguments; thread-safe. */
#ifndef TDICT_SERVICES_IO_JSON_STRING_H
#define TDICT_SERVICES_IO_JSON_STRING_H

#include <stdbool.h>
#include <stddef.h>

/* Returns the number of bytes of the string in the text, with both quotes. */
size_t tdict_json_string_bytes(const char *string);
/* Writes the string as UTF-8, without quotes and escapes, and without a 0 byte at the end. Stops before the first
 * character that exceeds `cap` bytes. Returns the number of bytes written. A string never needs more bytes than in the
 * text. */
size_t tdict_json_string_decode(const char *string, char *to, size_t cap);
/* Returns true if a character of the string is U+0000. */
bool tdict_json_string_has_zero(const char *string);
/* Compares the characters of two strings, as strcmp() does. An escape equals the character that it stands for. */
int tdict_json_string_compare(const char *a, const char *b);
/* Compares a string with a UTF-8 text that ends with a 0 byte. */
int tdict_json_string_compare_text(const char *string, const char *text);

#endif
