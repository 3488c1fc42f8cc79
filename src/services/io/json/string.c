/* Decodes and compares strings of JSON texts. See document.h for threads. */
#include "services/io/json/document.h"

#include <stdint.h>
#include <string.h>

enum { END = -1 };

size_t tdict_json_string_bytes(const char *string) {
  const char *at = string + 1;
  for (;;) {
    at += strcspn(at, "\"\\");
    if (*at == '"') return (size_t)(at - string) + 1;
    at += 2;
  }
}

int32_t tdict_json_next_character(const unsigned char **at) {
  const unsigned char *c = *at;
  const int more = c[0] < 0x80 ? 0 : c[0] < 0xe0 ? 1 : c[0] < 0xf0 ? 2 : 3;
  int32_t code = more == 0 ? c[0] : c[0] & (0x3f >> more);
  for (int i = 1; i <= more; i++) code = code << 6 | (c[i] & 0x3f);
  *at += more + 1;
  return code;
}

static int32_t read_hex(const unsigned char **at) {
  int32_t value = 0;
  for (int i = 0; i < 4; i++) {
    const unsigned char c = *(*at)++;
    value = value << 4 | (c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
  }
  return value;
}

/* Returns the character at `*at`, and moves `*at` to the next character. Returns END at the closing quote. */
static int32_t next_of_string(const unsigned char **at) {
  static const char letters[] = "bfnrt", controls[] = "\b\f\n\r\t";
  if (**at == '"') return END;
  if (**at != '\\') return tdict_json_next_character(at);
  const unsigned char c = (*at)[1];
  *at += 2;
  const char *control = strchr(letters, c);
  if (control) return controls[control - letters];
  if (c != 'u') return c;
  const int32_t first = read_hex(at);
  if (first < 0xd800 || first > 0xdfff) return first;
  *at += 2; /* the \u of the other surrogate */
  return 0x10000 + ((first - 0xd800) << 10) + (read_hex(at) - 0xdc00);
}

/* Returns the character at `*at`, or END at the 0 byte. */
static int32_t next_of_text(const unsigned char **at) { return **at ? tdict_json_next_character(at) : END; }

/* Writes a character as UTF-8. Returns the number of bytes. */
static size_t encode(int32_t code, char to[4]) {
  if (code < 0x80) {
    to[0] = (char)code;
    return 1;
  }
  const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  to[0] = (char)((0xff00 >> (more + 1) & 0xff) | code >> 6 * more);
  for (int i = 1; i <= more; i++) to[i] = (char)(0x80 | (code >> 6 * (more - i) & 0x3f));
  return (size_t)more + 1;
}

size_t tdict_json_string_decode(const char *string, char *to, size_t cap) {
  const unsigned char *at = (const unsigned char *)string + 1;
  size_t length = strcspn(string + 1, "\"\\"); /* up to the first escape, if this fits */
  if (length > cap) length = 0;
  memcpy(to, at, length);
  at += length;
  for (int32_t code; (code = next_of_string(&at)) != END;) {
    char bytes[4];
    const size_t count = encode(code, bytes);
    if (count > cap - length) break;
    memcpy(to + length, bytes, count);
    length += count;
  }
  return length;
}

bool tdict_json_string_has_zero(const char *string) {
  const unsigned char *at = (const unsigned char *)string + 1;
  for (;;) {
    at += strcspn((const char *)at, "\"\\");
    if (*at == '"') return false;
    if (next_of_string(&at) == 0) return true;
  }
}

/* Moves over equal bytes of a string and another text. Stops at the end of the string and at its first escape. */
static void skip_equal(const unsigned char **string, const unsigned char **other) {
  while (**string == **other && **string != '"' && **string != '\\') {
    (*string)++;
    (*other)++;
  }
}

int tdict_json_string_compare(const char *a, const char *b) {
  const unsigned char *x = (const unsigned char *)a + 1, *y = (const unsigned char *)b + 1;
  skip_equal(&x, &y);
  /* Without an escape, the order of the bytes is the order of the characters, also in the middle of a character. */
  if (*x != '\\' && *y != '\\' && *x != '"' && *y != '"') return *x < *y ? -1 : 1;
  for (;;) {
    const int32_t p = next_of_string(&x), q = next_of_string(&y);
    if (p != q) return p < q ? -1 : 1;
    if (p == END) return 0;
  }
}

int tdict_json_string_compare_text(const char *string, const char *text) {
  const unsigned char *x = (const unsigned char *)string + 1, *y = (const unsigned char *)text;
  skip_equal(&x, &y);
  if (*x != '\\' && *x != '"') return *x < *y ? -1 : 1;
  for (;;) {
    const int32_t p = next_of_string(&x), q = next_of_text(&y);
    if (p != q) return p < q ? -1 : 1;
    if (p == END) return 0;
  }
}
