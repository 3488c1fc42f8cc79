/* Tests formatting shapes. */
#include "core/tree/text.h"

#include "support/test.h"

CASE(text_shape_is_written_and_cut) {
  const int64_t shape[] = {4, 3, INT64_MAX};
  char buffer[64];
  assert_string_equal(tdict_text_shape(0, NULL, buffer, sizeof buffer), "[]");
  assert_string_equal(tdict_text_shape(2, shape, buffer, sizeof buffer), "[4, 3]");
  assert_string_equal(tdict_text_shape(3, shape, buffer, sizeof buffer), "[4, 3, 9223372036854775807]");
  assert_string_equal(tdict_text_shape(3, shape, buffer, 16), "[4, 3...]");
  for (size_t bytes = 8; bytes < sizeof buffer; bytes++) {
    memset(buffer, 0xA5, sizeof buffer);
    size_t length = strlen(tdict_text_shape(3, shape, buffer, bytes));
    assert_true(length < bytes && buffer[length - 1] == ']');
    assert_int_equal((unsigned char)buffer[bytes], 0xA5);
  }
}
