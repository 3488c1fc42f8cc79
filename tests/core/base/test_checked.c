/* Tests overflow-checked arithmetic at the limits of the integer types. */
#include "support/test.h"

#include "core/base/checked.h"

CASE(checked_sizes) {
  size_t out = 7;
  assert_true(tdict_mul_size(SIZE_MAX / 2, 2, &out));
  assert_true(out == SIZE_MAX - 1);
  assert_true(tdict_mul_size(SIZE_MAX, 0, &out));
  assert_int_equal(out, 0);
  assert_false(tdict_mul_size(SIZE_MAX / 2 + 1, 2, &out));
  assert_false(tdict_mul_size((size_t)1 << 32, (size_t)1 << 32, &out));
  assert_true(tdict_add_size(SIZE_MAX - 1, 1, &out));
  assert_true(out == SIZE_MAX);
  assert_false(tdict_add_size(SIZE_MAX, 1, &out));
}

CASE(checked_signed) {
  int64_t out;
  assert_true(tdict_mul_i64(INT64_MAX, -1, &out));
  assert_true(out == -INT64_MAX);
  assert_false(tdict_mul_i64(INT64_MIN, -1, &out));
  assert_false(tdict_mul_i64((int64_t)1 << 62, 2, &out));
  assert_true(tdict_mul_i64((int64_t)1 << 62, -2, &out));
  assert_true(out == INT64_MIN);
  assert_true(tdict_add_i64(INT64_MAX, INT64_MIN, &out));
  assert_true(out == -1);
  assert_false(tdict_add_i64(INT64_MAX, 1, &out));
  assert_false(tdict_add_i64(INT64_MIN, -1, &out));
}

CASE(checked_round_up) {
  size_t out = 7;
  for (size_t step = 1; step <= 4096; step *= 2)
    for (size_t value = 0; value < 9000; value += 13) {
      assert_true(tdict_round_up(value, step, &out));
      assert_true(out >= value && out - value < step && out % step == 0);
      assert_true(tdict_align(value, step) == out);
    }
  assert_true(tdict_round_up(SIZE_MAX - 255, 256, &out));
  assert_true(out == SIZE_MAX - 255);
  out = 7;
  assert_false(tdict_round_up(SIZE_MAX - 254, 256, &out));
  assert_int_equal(out, 7);
}
