/* Makes printable texts. See leaves.h. Pure functions. */
#include <stdlib.h>
#include <string.h>

#include "leaves.h"

/* Returns the number of bytes of the character at `text`, or 0 if the bytes are not UTF-8. Sets *code. */
static size_t character_bytes(const unsigned char *text, size_t length, uint32_t *code) {
  static const uint32_t lowest[5] = {0, 0, 0x80, 0x800, 0x10000};
  *code = text[0];
  if (text[0] < 0x80) return 1;
  const size_t count = text[0] >= 0xf0 ? 4 : text[0] >= 0xe0 ? 3 : 2;
  if (text[0] < 0xc0 || text[0] > 0xf4 || count > length) return 0;
  *code = text[0] & (0xffu >> (count + 1));
  for (size_t i = 1; i < count; i++) {
    if ((text[i] & 0xc0) != 0x80) return 0;
    *code = *code << 6 | (text[i] & 0x3fu);
  }
  return *code < lowest[count] || *code > 0x10ffff || (*code >= 0xd800 && *code < 0xe000) ? 0 : count;
}

bool is_utf8(const char *text, size_t length) {
  uint32_t code;
  size_t count = 1;
  for (size_t i = 0; i < length && count; i += count)
    count = character_bytes((const unsigned char *)text + i, length - i, &code);
  return count != 0;
}

/* The control characters, which include U+0080 to U+009F, are not printable. */
static bool is_printable(uint32_t code) { return code >= 0xa0 || (code >= 0x20 && code < 0x7f); }

char *printable_text(const char *text, size_t length) {
  char *out = malloc(4 * length + 1), *at = out;
  if (!out) return NULL;
  for (size_t i = 0; i < length;) {
    uint32_t code;
    const size_t count = character_bytes((const unsigned char *)text + i, length - i, &code);
    if (count && is_printable(code)) {
      memcpy(at, text + i, count);
      at += count;
      i += count;
    } else {
      at += snprintf(at, 5, "\\x%02x", (unsigned)(unsigned char)text[i++]);
    }
  }
  *at = 0;
  return out;
}
