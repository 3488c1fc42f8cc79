/* Reads JSON texts from json_texts.py, and prints the values that the library finds in them. Standard input has, for
 * each text, its length as 4 little-endian bytes, then its bytes. The output has a line for each text: "-" if the
 * library refuses the text, or else its tokens (brackets, strings as hexadecimal digits, integers, reals as the
 * hexadecimal digits of their bits, t, f and n), a tab, and the text of tdict_json_write(). Thread rule: one thread. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/io/json/document.h"
#include "services/io/json/read.h"

static void print_string(tdict_json string) {
  const size_t most = tdict_json_bytes(string);
  char *text = malloc(most);
  if (!text) abort();
  const size_t length = tdict_json_string_decode(tdict_json_start(string), text, most);
  putchar('"');
  for (size_t i = 0; i < length; i++) printf("%02x", (unsigned char)text[i]);
  free(text);
}

static void print_scalar(tdict_json value) {
  int64_t integer = 0;
  double real = 0;
  uint64_t bits;
  switch (tdict_json_kind_of(value)) {
  case TDICT_JSON_STRING:
    print_string(value);
    break;
  case TDICT_JSON_INTEGER:
    if (!tdict_json_integer(value, &integer)) abort();
    printf("i%" PRId64, integer);
    break;
  case TDICT_JSON_REAL:
    if (!tdict_json_real(value, &real)) abort();
    memcpy(&bits, &real, sizeof bits);
    printf("r%016" PRIx64, bits);
    break;
  default:
    putchar(*tdict_json_start(value));
  }
}

/* Prints a value with all its members. TDICT_JSON_MOST_DEPTH limits the recursion. */
static void print_value(tdict_json value) {
  tdict_json_cursor cursor = tdict_json_enter(value);
  tdict_json key, member;
  const bool is_object = tdict_json_is(value, TDICT_JSON_OBJECT);
  if (!is_object && !tdict_json_is(value, TDICT_JSON_ARRAY)) {
    print_scalar(value);
    return;
  }
  putchar(is_object ? '{' : '[');
  while (tdict_json_next(&cursor, &key, &member)) {
    putchar(' ');
    if (is_object) {
      print_string(key);
      putchar(':');
    }
    print_value(member);
  }
  putchar(is_object ? '}' : ']');
}

static void print_text(const char *text, size_t length) {
  tdict_json_document document;
  tdict_json_fault fault;
  tdict_io_text written = {0};
  const tdict_status status = tdict_json_open(text, length, &document, &fault);
  if (status == TDICT_ENOMEM || (status != TDICT_OK && fault.at > length)) abort();
  if (status != TDICT_OK) {
    puts("-");
    return;
  }
  print_value(tdict_json_root(&document));
  tdict_json_write(&written, tdict_json_root(&document));
  putchar('\t');
  puts(written.bytes);
  tdict_io_text_reset(&written);
  tdict_json_close(&document);
}

int main(void) {
  unsigned char frame[4];
  while (fread(frame, 1, sizeof frame, stdin) == sizeof frame) {
    const size_t length = frame[0] | (size_t)frame[1] << 8 | (size_t)frame[2] << 16 | (size_t)frame[3] << 24;
    char *text = calloc(1, length + 1); /* no spare bytes, so that a sanitizer detects reads beyond the final zero */
    if (!text || fread(text, 1, length, stdin) != length) abort();
    print_text(text, length);
    free(text);
  }
  return 0;
}
