/* Checks UTF-8 and JSON. Uses no recursion and allocates nothing. Thread rule: see json.h. */
#include "core/leaves/json.h"

#include <stdint.h>
#include <string.h>

typedef struct reader {
  const char *text;
  size_t length, at;
  int depth;
  uint64_t is_object[TDICT_JSON_MOST_DEPTH / 64]; /* one bit for each open level: 1 for an object, 0 for an array */
  const char *why;                                /* NULL: no fault yet */
} reader;

/* Returns the number of bytes of the character at `c`, or 0 if the bytes are invalid. */
static size_t utf8_char(const unsigned char *c, size_t length) {
  if (c[0] < 0x80) return 1;
  const size_t wanted = c[0] >= 0xf0 ? 4 : c[0] >= 0xe0 ? 3 : 2;
  if (c[0] < 0xc2 || c[0] > 0xf4 || wanted > length) return 0;
  for (size_t i = 1; i < wanted; i++)
    if ((c[i] & 0xc0) != 0x80) return 0;
  /* Reject overlong forms, surrogates and characters above U+10FFFF. */
  const bool is_bad = (c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xed && c[1] > 0x9f) || (c[0] == 0xf0 && c[1] < 0x90) ||
                      (c[0] == 0xf4 && c[1] > 0x8f);
  return is_bad ? 0 : wanted;
}

size_t tdict_utf8_length(const char *text, size_t length) {
  size_t at = 0;
  while (at < length) {
    const size_t bytes = utf8_char((const unsigned char *)text + at, length - at);
    if (!bytes) break;
    at += bytes;
  }
  return at;
}

/* Returns the next byte, or -1 at the end. */
static int peek(const reader *r) { return r->at < r->length ? (unsigned char)r->text[r->at] : -1; }

static bool take(reader *r, int byte) {
  if (peek(r) != byte) return false;
  r->at++;
  return true;
}

static bool fail(reader *r, const char *why) {
  r->why = why;
  return false;
}

static void skip_space(reader *r) {
  while (take(r, ' ') || take(r, '\t') || take(r, '\n') || take(r, '\r')) continue;
}

/* Reads the four digits after \u. Returns -1 if a digit is not hexadecimal. */
static int read_hex(reader *r) {
  int value = 0;
  for (int i = 0; i < 4; i++) {
    const int c = peek(r);
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
    r->at++;
  }
  return value;
}

/* Reads the characters that follow the backslash of an escape. */
static bool read_escape(reader *r) {
  const int c = peek(r);
  if (c <= 0 || !strchr("\"\\/bfnrtu", c)) return fail(r, "an unknown escape");
  r->at++;
  if (c != 'u') return true;
  int value = read_hex(r);
  if (value < 0) return fail(r, "wanted four hexadecimal digits");
  if (value < 0xd800 || value > 0xdfff) return true;
  if (value > 0xdbff || !take(r, '\\') || !take(r, 'u')) return fail(r, "a surrogate without its pair");
  value = read_hex(r);
  if (value < 0) return fail(r, "wanted four hexadecimal digits");
  return (value >= 0xdc00 && value <= 0xdfff) || fail(r, "a surrogate without its pair");
}

static bool read_string(reader *r) {
  if (!take(r, '"')) return fail(r, "wanted a string");
  for (;;) {
    const int c = peek(r);
    if (c < 0) return fail(r, "the string has no end");
    if (take(r, '"')) return true;
    if (c < 0x20) return fail(r, "a control character in a string");
    const size_t bytes = utf8_char((const unsigned char *)r->text + r->at, r->length - r->at);
    if (!bytes) return fail(r, "not UTF-8");
    r->at += bytes;
    if (c == '\\' && !read_escape(r)) return false;
  }
}

static bool read_digits(reader *r) {
  const size_t begin = r->at;
  while (peek(r) >= '0' && peek(r) <= '9') r->at++;
  return r->at > begin || fail(r, "wanted a digit");
}

static bool read_number(reader *r) {
  (void)take(r, '-');
  if (!take(r, '0') && !read_digits(r)) return false;
  if (take(r, '.') && !read_digits(r)) return false;
  if (!take(r, 'e') && !take(r, 'E')) return true;
  if (!take(r, '+')) (void)take(r, '-');
  return read_digits(r);
}

static bool read_word(reader *r, const char *word) {
  for (; *word; word++)
    if (!take(r, *word)) return fail(r, "wanted a value");
  return true;
}

static bool read_scalar(reader *r) {
  switch (peek(r)) {
  case '"':
    return read_string(r);
  case 't':
    return read_word(r, "true");
  case 'f':
    return read_word(r, "false");
  case 'n':
    return read_word(r, "null");
  case '-':
    return read_number(r);
  default:
    return peek(r) >= '0' && peek(r) <= '9' ? read_number(r) : fail(r, "wanted a value");
  }
}

static bool is_in_object(const reader *r) {
  const int level = r->depth - 1;
  return r->is_object[level / 64] >> (level % 64) & 1;
}

static bool read_key(reader *r) {
  skip_space(r);
  if (!read_string(r)) return false;
  skip_space(r);
  return take(r, ':') || fail(r, "wanted a colon");
}

/* Reads the start of an array or object, up to the first value. Sets *is_empty to true if there is no value. */
static bool open_level(reader *r, bool is_object, bool *is_empty) {
  if (r->depth == TDICT_JSON_MOST_DEPTH) return fail(r, "too many levels");
  const uint64_t bit = (uint64_t)1 << (r->depth % 64);
  uint64_t *bits = &r->is_object[r->depth++ / 64];
  *bits = is_object ? *bits | bit : *bits & ~bit;
  r->at++;
  skip_space(r);
  *is_empty = take(r, is_object ? '}' : ']');
  if (*is_empty) r->depth--;
  return *is_empty || !is_object || read_key(r);
}

/* Reads closing brackets, a comma and, in an object, the next key. Sets *is_done if all levels are closed. */
static bool read_separators(reader *r, bool *is_done) {
  for (;;) {
    *is_done = r->depth == 0;
    if (*is_done) return true;
    skip_space(r);
    if (take(r, ',')) return !is_in_object(r) || read_key(r);
    if (!take(r, is_in_object(r) ? '}' : ']')) return fail(r, "wanted a comma or the end of the array or object");
    r->depth--;
  }
}

static bool read_document(reader *r) {
  bool is_done = false;
  while (!is_done) {
    bool is_complete = true;
    skip_space(r);
    const int c = peek(r);
    if (!(c == '{' || c == '[' ? open_level(r, c == '{', &is_complete) : read_scalar(r))) return false;
    if (is_complete && !read_separators(r, &is_done)) return false;
  }
  skip_space(r);
  return r->at == r->length || fail(r, "more text after the value");
}

bool tdict_json_is_valid(const char *text, size_t length, tdict_json_fault *fault) {
  reader r = {.text = text, .length = length};
  if (read_document(&r)) return true;
  *fault = (tdict_json_fault){r.at, r.why};
  return false;
}
