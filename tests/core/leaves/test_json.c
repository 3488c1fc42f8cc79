/* Tests the UTF-8 and JSON readers with tables of strings, and compares them with naive_json.h on random input. Each
 * JSON string has a buffer of its exact length, so that a sanitizer reports reads past the end. */
#include "core/leaves/json.h"
#include "naive_json.h"
#include "support/test.h"

/* Validates a copy of `bytes` in a buffer of its exact length. */
static bool is_json(const void *bytes, size_t length, tdict_json_fault *fault) {
  scoped_chars copy = td_alloc(length ? length : 1);
  if (length) memcpy(copy, bytes, length);
  *fault = (tdict_json_fault){9999, NULL};
  const bool is_valid = tdict_json_is_valid(copy, length, fault);
  return is_valid;
}

CASE(json_accepts) {
  static const char *const texts[] = {"null",
                                      "true",
                                      "false",
                                      "0",
                                      "-0",
                                      "-0.0",
                                      "10",
                                      "123456789012345678901234567890",
                                      "1e400",
                                      "1E+2",
                                      "1e-2",
                                      "0e1",
                                      "0.5e00",
                                      "\"\"",
                                      "\"a\"",
                                      "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
                                      "\"\\u0000\"",
                                      "\"\\uD834\\uDD1E\"",
                                      "\"\\udbff\\udfff\"",
                                      "\"\\uFFFF\\uabcd\"",
                                      "\"\x7f\"",
                                      "\"\xc3\xa9\xe2\x82\xac\xf0\x9d\x84\x9e\"",
                                      "\"\xf4\x8f\xbf\xbf\"",
                                      "[]",
                                      "[ ]",
                                      "{}",
                                      "{\t}",
                                      "[1]",
                                      "[1,2 , 3]",
                                      "[[],{},[{}]]",
                                      "{\"a\":1}",
                                      "{\"a\":1,\"a\":2}",
                                      "{ \"a\" : [ 1 , { \"\" : null } ] , \"b\" : \"]\" }",
                                      " \t\r\n1 \t\r\n",
                                      "[\"{\",\"}\"]"};
  tdict_json_fault fault;
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    if (!is_json(texts[i], strlen(texts[i]), &fault)) fail_msg("%s: %zu: %s", texts[i], fault.at, fault.why);
    assert_true(naive_json(texts[i], strlen(texts[i]), 512));
  }
}

typedef struct bad {
  const char *text;
  size_t at;
  const char *why;
} bad;
static const bad refused[] = {{"", 0, "wanted a value"},
                              {" ", 1, "wanted a value"},
                              {"nul", 3, "wanted a value"},
                              {"nulls", 4, "more text after the value"},
                              {"True", 0, "wanted a value"},
                              {"NaN", 0, "wanted a value"},
                              {"Infinity", 0, "wanted a value"},
                              {"-Infinity", 1, "wanted a digit"},
                              {"+1", 0, "wanted a value"},
                              {"-", 1, "wanted a digit"},
                              {"01", 1, "more text after the value"},
                              {"-01", 2, "more text after the value"},
                              {"1.", 2, "wanted a digit"},
                              {".5", 0, "wanted a value"},
                              {"1.e1", 2, "wanted a digit"},
                              {"1e", 2, "wanted a digit"},
                              {"1e+", 3, "wanted a digit"},
                              {"1e+-1", 3, "wanted a digit"},
                              {"0x1", 1, "more text after the value"},
                              {"1 2", 2, "more text after the value"},
                              {"'a'", 0, "wanted a value"},
                              {"a", 0, "wanted a value"},
                              {"\"", 1, "the string has no end"},
                              {"\"a", 2, "the string has no end"},
                              {"\"\t\"", 1, "a control character in a string"},
                              {"\"\x1f\"", 1, "a control character in a string"},
                              {"\"\\x\"", 2, "an unknown escape"},
                              {"\"\\", 2, "an unknown escape"},
                              {"\"\\u12\"", 5, "wanted four hexadecimal digits"},
                              {"\"\\u12g4\"", 5, "wanted four hexadecimal digits"},
                              {"\"\\ud800\"", 7, "a surrogate without its pair"},
                              {"\"\\udc00\"", 7, "a surrogate without its pair"},
                              {"\"\\ud800\\n\"", 8, "a surrogate without its pair"},
                              {"\"\\ud800\\u0041\"", 13, "a surrogate without its pair"},
                              {"\"\\ud800\\u00\"", 11, "wanted four hexadecimal digits"},
                              {"\"\xff\"", 1, "not UTF-8"},
                              {"\"\xc3\"", 1, "not UTF-8"},
                              {"\"\xed\xa0\x80\"", 1, "not UTF-8"},
                              {"\xef\xbb\xbf"
                               "1",
                               0, "wanted a value"},
                              {"[", 1, "wanted a value"},
                              {"]", 0, "wanted a value"},
                              {"[1", 2, "wanted a comma or the end of the array or object"},
                              {"[1,]", 3, "wanted a value"},
                              {"[,1]", 1, "wanted a value"},
                              {"[1 2]", 3, "wanted a comma or the end of the array or object"},
                              {"[1}", 2, "wanted a comma or the end of the array or object"},
                              {"[1]]", 3, "more text after the value"},
                              {"{", 1, "wanted a string"},
                              {"{1:2}", 1, "wanted a string"},
                              {"{\"a\"}", 4, "wanted a colon"},
                              {"{\"a\":}", 5, "wanted a value"},
                              {"{\"a\":1,}", 7, "wanted a string"},
                              {"{\"a\":1]", 6, "wanted a comma or the end of the array or object"},
                              {"{a:1}", 1, "wanted a string"},
                              {"[{]}", 2, "wanted a string"},
                              {"[1/**/]", 2, "wanted a comma or the end of the array or object"},
                              {"1\v", 1, "more text after the value"}};

CASE(json_refuses) {
  tdict_json_fault fault;
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    const bad *b = &refused[i];
    if (is_json(b->text, strlen(b->text), &fault)) fail_msg("accepted %s", b->text);
    if (fault.at != b->at || strcmp(fault.why, b->why) != 0) fail_msg("%s: %zu: %s", b->text, fault.at, fault.why);
    assert_false(naive_json(b->text, strlen(b->text), 512));
  }
  assert_false(is_json("1\0", 2, &fault)); /* NUL is not white space */
  assert_int_equal(fault.at, 1);
}

/* Arrays or objects may be nested 512 levels deep, but not 513. */
CASE(json_has_a_depth) {
  enum { MOST = TDICT_JSON_MOST_DEPTH };
  char text[8 * (MOST + 1)];
  tdict_json_fault fault;
  for (int depth = MOST - 1; depth <= MOST + 1; depth++) {
    for (int objects = 0; objects < 3; objects++) {
      size_t length = 0;
      for (int i = 0; i < depth; i++)
        length += (size_t)sprintf(text + length, "%s",
                                  objects == 2 ? (i % 2 ? "[" : "{\"\":")
                                  : objects    ? "{\"\":"
                                               : "[");
      length += (size_t)sprintf(text + length, "1");
      for (int i = depth - 1; i >= 0; i--) text[length++] = objects == 2 ? (i % 2 ? ']' : '}') : objects ? '}' : ']';
      assert_int_equal(is_json(text, length, &fault), depth <= MOST);
      if (depth > MOST) assert_string_equal(fault.why, "too many levels");
    }
  }
}

/* Compares both readers on random sequences of JSON tokens. */
CASE(json_agrees_with_a_second_reader) {
  static const char *const pieces[] = {"{",   "}",       "[",       "]",       ",",      ":",    "\"a\"",    "\"\"",
                                       "1",   "-0.5e+1", "true",    " ",       "\n",     "null", "\"\\n\"",  "\"",
                                       "\\u", "d83d",    "\\ud83d", "\\ude00", "0",      "\x7f", "\xc3\xa9", "\xff",
                                       "e",   ".",       "\t",      "false",   "\"k\":", "12"};
  uint64_t state = 7;
  int accepted = 0;
  for (int n = 0; n < 200000; n++) {
    char text[128];
    size_t length = 0;
    tdict_json_fault fault;
    state = state * 6364136223846793005u + 1442695040888963407u;
    int count = 1 + (int)(state >> 60);
    for (int i = 0; i < count; i++) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      length += (size_t)sprintf(text + length, "%s", pieces[(state >> 33) % (sizeof pieces / sizeof *pieces)]);
    }
    const bool is_valid = is_json(text, length, &fault);
    if (is_valid != naive_json(text, length, 512))
      fail_msg("%.*s: %s", (int)length, text, is_valid ? "yes" : fault.why);
    accepted += is_valid;
  }
  assert_true(accepted > 2000);
}

CASE(utf8_is_checked) {
  /* Check every code point, encoded by hand. */
  for (uint32_t c = 0; c <= 0x10ffff; c++) {
    char text[4];
    int n = 0;
    if (c < 0x80)
      text[n++] = (char)c;
    else if (c < 0x800)
      text[n++] = (char)(0xc0 | c >> 6);
    else if (c < 0x10000)
      text[n++] = (char)(0xe0 | c >> 12);
    else
      text[n++] = (char)(0xf0 | c >> 18);
    if (c >= 0x10000) text[n++] = (char)(0x80 | (c >> 12 & 0x3f));
    if (c >= 0x800) text[n++] = (char)(0x80 | (c >> 6 & 0x3f));
    if (c >= 0x80) text[n++] = (char)(0x80 | (c & 0x3f));
    const bool is_surrogate = c >= 0xd800 && c <= 0xdfff;
    if (tdict_utf8_length(text, (size_t)n) != (is_surrogate ? 0 : (size_t)n)) fail_msg("U+%04x", (unsigned)c);
    if (n > 1) assert_int_equal(tdict_utf8_length(text, (size_t)n - 1), 0); /* truncated */
  }
  /* Decode random bytes with both readers. */
  unsigned char bytes[64];
  for (uint64_t seed = 1; seed < 20000; seed++) {
    td_fill_random(bytes, sizeof bytes, seed);
    for (size_t i = 0; i < sizeof bytes; i++)
      if (i % 3) bytes[i] = (unsigned char)(0x80 | (bytes[i] & 0x3f)); /* mostly continuation bytes */
    naive n = {bytes, bytes + sizeof bytes, 0, false};
    const unsigned char *good = bytes;
    while (n.at < n.end && naive_char(&n) >= 0) good = n.at;
    assert_int_equal(tdict_utf8_length((const char *)bytes, sizeof bytes), good - bytes);
  }
}
