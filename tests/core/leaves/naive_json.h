/* A slow, recursive JSON validator for tests. Follows the grammar of RFC 8259 rule by rule. */
#ifndef TDICT_TESTS_CORE_LEAVES_NAIVE_JSON_H
#define TDICT_TESTS_CORE_LEAVES_NAIVE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct naive {
  const unsigned char *at, *end;
  int depth;
  bool too_deep;
} naive;

static inline void naive_space(naive *n) {
  while (n->at < n->end && (*n->at == 0x20 || *n->at == 0x09 || *n->at == 0x0a || *n->at == 0x0d)) n->at++;
}
static inline bool naive_is(naive *n, const char *text) {
  const size_t length = strlen(text);
  if ((size_t)(n->end - n->at) < length || memcmp(n->at, text, length) != 0) return false;
  n->at += length;
  return true;
}
/* Decodes the next character. Returns its code point, or -1 if the bytes are not valid UTF-8. */
static inline int32_t naive_char(naive *n) {
  static const int32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  if (n->at == n->end) return -1;
  const unsigned first = *n->at++;
  const int more = first < 0x80 ? 0 : (first >> 5) == 6 ? 1 : (first >> 4) == 14 ? 2 : (first >> 3) == 30 ? 3 : -1;
  if (more < 0) return -1;
  int32_t code = more ? (int32_t)(first & (0x3fu >> more)) : (int32_t)first;
  for (int i = 0; i < more; i++) {
    if (n->at == n->end || (*n->at >> 6) != 2) return -1;
    code = code << 6 | (*n->at++ & 0x3f);
  }
  const bool is_good = code >= least[more + 1] && code <= 0x10ffff && !(code >= 0xd800 && code <= 0xdfff);
  return is_good ? code : -1;
}
static inline int32_t naive_hex(naive *n) {
  int32_t value = 0;
  for (int i = 0; i < 4; i++) {
    static const char digits[] = "0123456789abcdefABCDEF";
    const char *digit = n->at < n->end && *n->at ? strchr(digits, *n->at) : NULL;
    if (!digit) return -1;
    const int32_t d = (int32_t)(digit - digits);
    value = value << 4 | (d > 15 ? d - 6 : d);
    n->at++;
  }
  return value;
}
static inline bool naive_string(naive *n) {
  if (!naive_is(n, "\"")) return false;
  for (;;) {
    const int32_t c = naive_char(n);
    if (c < 0x20) return false;
    if (c == '"') return true;
    if (c != '\\') continue;
    if (n->at == n->end) return false;
    if (*n->at && strchr("\"\\/bfnrt", *n->at)) {
      n->at++;
      continue;
    }
    if (!naive_is(n, "u")) return false;
    const int32_t high = naive_hex(n);
    if (high < 0 || (high >= 0xdc00 && high <= 0xdfff)) return false;
    if (high < 0xd800 || high > 0xdbff) continue;
    if (!naive_is(n, "\\u")) return false;
    const int32_t low = naive_hex(n);
    if (low < 0xdc00 || low > 0xdfff) return false;
  }
}
static inline int naive_digits(naive *n) {
  int count = 0;
  for (; n->at < n->end && *n->at >= '0' && *n->at <= '9'; n->at++) count++;
  return count;
}
static inline bool naive_number(naive *n) {
  (void)naive_is(n, "-");
  const bool zero = n->at < n->end && *n->at == '0';
  const int count = naive_digits(n);
  if (count == 0 || (zero && count > 1)) return false;
  if (naive_is(n, ".") && naive_digits(n) == 0) return false;
  if (naive_is(n, "e") || naive_is(n, "E")) {
    if (!naive_is(n, "+")) (void)naive_is(n, "-");
    return naive_digits(n) > 0;
  }
  return true;
}
static inline bool naive_value(naive *n, int most_depth);                 /* NOLINT(misc-no-recursion) */
static inline bool naive_list(naive *n, bool is_object, int most_depth) { /* NOLINT(misc-no-recursion) */
  const char *end = is_object ? "}" : "]";
  if (++n->depth > most_depth) return n->too_deep = true, false;
  naive_space(n);
  bool more = !naive_is(n, end);
  while (more) {
    naive_space(n);
    if (is_object) {
      if (!naive_string(n)) return false;
      naive_space(n);
      if (!naive_is(n, ":")) return false;
    }
    if (!naive_value(n, most_depth)) return false;
    if (naive_is(n, end)) break;
    if (!naive_is(n, ",")) return false;
  }
  n->depth--;
  return true;
}
static inline bool naive_value(naive *n, int most_depth) { /* NOLINT(misc-no-recursion) */
  bool is_good;
  naive_space(n);
  if (naive_is(n, "{"))
    is_good = naive_list(n, true, most_depth);
  else if (naive_is(n, "["))
    is_good = naive_list(n, false, most_depth);
  else if (n->at < n->end && *n->at == '"')
    is_good = naive_string(n);
  else
    is_good = naive_is(n, "true") || naive_is(n, "false") || naive_is(n, "null") || naive_number(n);
  naive_space(n);
  return is_good;
}
static inline bool naive_json(const void *bytes, size_t length, int most_depth) {
  naive n = {bytes, (const unsigned char *)bytes + length, 0, false};
  return naive_value(&n, most_depth) && n.at == n.end;
}

#endif
