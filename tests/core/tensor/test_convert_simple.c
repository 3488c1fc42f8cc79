/* Conversion of elements between all pairs of dtypes, compared with the slow one of naive_convert.h. */
#include "naive_convert.h"

#include "core/tensor/convert_simple.h"

enum { COUNT = 700 };

/* The elements [0, count) of `dst` are the converted elements of `src`. */
static void check_elements(const naive_dtype *to, const void *dst, const naive_dtype *from, const void *src,
                           size_t count) {
  for (size_t i = 0; i < count; i++) {
    const uint64_t bits = naive_load(from, src, i), made = naive_load(to, dst, i);
    uint64_t wanted = 0;
    assert_true(naive_convert(to, from, bits, &wanted));
    if (!naive_equal(to, made, wanted))
      fail_msg("%s 0x%llx to %s: 0x%llx, wanted 0x%llx", tdict_dtype_name(from->dtype), (unsigned long long)bits,
               tdict_dtype_name(to->dtype), (unsigned long long)made, (unsigned long long)wanted);
  }
}

static bool fits(const naive_dtype *to, const naive_dtype *from, const void *src, size_t i) {
  uint64_t unused;
  return naive_convert(to, from, naive_load(from, src, i), &unused);
}

/* One pair: all elements fit; then one does not. The arrays are not aligned. */
static int check_pair(naive_random *r, const naive_dtype *to, const naive_dtype *from) {
  char src[COUNT * 8 + 1], dst[COUNT * 8 + 1];
  uint64_t refused = 0;
  bool has_refused = false;
  for (size_t i = 0; i < COUNT; i++) {
    naive_store(from, src + 1, i, naive_bits(r, from));
    if (fits(to, from, src + 1, i)) continue;
    refused = naive_load(from, src + 1, i);
    has_refused = true;
    naive_store(from, src + 1, i, 0);
  }
  assert_int_equal(tdict_convert_simple(to->dtype, dst + 1, from->dtype, src + 1, COUNT), COUNT);
  check_elements(to, dst + 1, from, src + 1, COUNT);
  if (!has_refused) return 0;
  const size_t at = (size_t)naive_below(r, COUNT);
  naive_store(from, src + 1, at, refused);
  naive_store(from, src + 1, COUNT - 1, refused);
  assert_int_equal(tdict_convert_simple(to->dtype, dst + 1, from->dtype, src + 1, COUNT), at);
  return 1;
}

CASE(convert_all_pairs) {
  naive_random r = {0xd7e};
  int refused = 0;
  for (int i = 0; i < NAIVE_DTYPES; i++)
    for (int j = 0; j < NAIVE_DTYPES; j++)
      if (i != j) refused += check_pair(&r, &naive_dtypes[i], &naive_dtypes[j]);
  assert_true(refused > 80);
}

/* Every small float, the middle to the next one, and the doubles beside it. */
CASE(convert_every_small_float) {
  static const tdict_dtype dtypes[] = {TDICT_F8E4M3, TDICT_F8E5M2, TDICT_F16, TDICT_BF16};
  for (int i = 0; i < 4; i++) {
    const naive_dtype *d = naive_find(dtypes[i]), *wide = naive_find(TDICT_F64);
    for (uint64_t bits = 0; bits < (uint64_t)1 << d->bits; bits++) {
      double value;
      uint64_t back = 0, top = naive_top(d), magnitude = bits & (((uint64_t)1 << (d->bits - 1)) - 1);
      assert_int_equal(tdict_convert_simple(TDICT_F64, &value, d->dtype, &bits, 1), 1);
      check_elements(wide, &value, d, &bits, 1);
      assert_int_equal(tdict_convert_simple(d->dtype, &back, TDICT_F64, &value, 1), 1);
      assert_true(naive_equal(d, back, bits));
      if (magnitude >= top) continue;
      const long double middle = (naive_magnitude(d, magnitude) + naive_magnitude(d, magnitude + 1)) / 2;
      for (int64_t step = -1; step <= 1; step++) {
        const uint64_t beside = naive_float(wide, magnitude == bits ? middle : -middle) + (uint64_t)step;
        assert_int_equal(tdict_convert_simple(d->dtype, &back, TDICT_F64, &beside, 1), 1);
        check_elements(d, &back, wide, &beside, 1);
      }
    }
  }
}

/* The ends of each range, and the first numbers outside. */
CASE(convert_ranges_end_exactly) {
  const struct {
    tdict_dtype to;
    double first, last, below, above;
  } ranges[] = {
      {TDICT_I8, -128.75, 127.75, -129, 128},
      {TDICT_U8, -0.75, 255.75, -1, 256},
      {TDICT_I16, -32768.5, 32767.5, -32769, 32768},
      {TDICT_U32, -0.5, 4294967295.5, -1, 4294967296},
      {TDICT_I64, -0x1p63, 0x1.fffffffffffffp62, -0x1.0000000000001p63, 0x1p63},
      {TDICT_U64, -0.5, 0x1.fffffffffffffp63, -1, 0x1p64},
  };
  const double never[] = {(double)NAN, -(double)NAN, (double)INFINITY, -(double)INFINITY};
  uint64_t out;
  for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
    assert_int_equal(tdict_convert_simple(ranges[i].to, &out, TDICT_F64, &ranges[i].first, 1), 1);
    assert_int_equal(tdict_convert_simple(ranges[i].to, &out, TDICT_F64, &ranges[i].last, 1), 1);
    assert_int_equal(tdict_convert_simple(ranges[i].to, &out, TDICT_F64, &ranges[i].below, 1), 0);
    assert_int_equal(tdict_convert_simple(ranges[i].to, &out, TDICT_F64, &ranges[i].above, 1), 0);
    for (int k = 0; k < 4; k++) assert_int_equal(tdict_convert_simple(ranges[i].to, &out, TDICT_F64, &never[k], 1), 0);
  }
}

/* A tie of the destination that float32 or double would round first. */
CASE(convert_rounds_once) {
  const int64_t integers[] = {(INT64_C(1) << 40) + (INT64_C(1) << 32) + 1, (INT64_C(1) << 62) + (INT64_C(1) << 38) + 1,
                              -(INT64_C(1) << 62) - (INT64_C(1) << 38) - 1};
  const double wide = 0x1.01p0 + 0x1p-40;
  uint16_t half;
  float single;
  assert_int_equal(tdict_convert_simple(TDICT_BF16, &half, TDICT_I64, &integers[0], 1), 1);
  assert_int_equal(half, 0x5381);
  assert_int_equal(tdict_convert_simple(TDICT_F32, &single, TDICT_I64, &integers[1], 1), 1);
  assert_true(single == 0x1.000002p62f);
  assert_int_equal(tdict_convert_simple(TDICT_F32, &single, TDICT_I64, &integers[2], 1), 1);
  assert_true(single == -0x1.000002p62f);
  assert_int_equal(tdict_convert_simple(TDICT_BF16, &half, TDICT_F64, &wide, 1), 1);
  assert_int_equal(half, 0x3f81);
}

CASE(convert_complex) {
  enum { MANY = 600 };
  static double wide[2 * MANY], back[2 * MANY];
  static float narrow[2 * MANY];
  static int32_t reals[MANY];
  for (int i = 0; i < 2 * MANY; i++) wide[i] = 1.0 / (i + 1) - 0.25;
  for (int i = 0; i < MANY; i++) reals[i] = 3 * i - 100;
  assert_int_equal(tdict_convert_simple(TDICT_C64, narrow, TDICT_C128, wide, MANY), MANY);
  for (int i = 0; i < 2 * MANY; i++) assert_true(narrow[i] == (float)wide[i]);
  assert_int_equal(tdict_convert_simple(TDICT_C128, back, TDICT_C64, narrow, MANY), MANY);
  for (int i = 0; i < 2 * MANY; i++) assert_true(back[i] == (double)narrow[i]);
  assert_int_equal(tdict_convert_simple(TDICT_C64, narrow, TDICT_I32, reals, MANY), MANY);
  assert_int_equal(tdict_convert_simple(TDICT_C128, back, TDICT_I32, reals, MANY), MANY);
  for (int i = 0; i < 2 * MANY; i++) {
    assert_true(narrow[i] == (i % 2 ? 0 : (float)reals[i / 2]));
    assert_true(back[i] == (i % 2 ? 0 : reals[i / 2]));
  }
  assert_false(tdict_convert_supports(TDICT_F32, TDICT_C64));
  assert_false(tdict_convert_supports(TDICT_BOOL, TDICT_C128));
  assert_true(tdict_convert_supports(TDICT_C64, TDICT_BOOL));
  assert_false(tdict_convert_supports(TDICT_DTYPE(2, 32, 2), TDICT_F32));
  assert_false(tdict_convert_supports(TDICT_F32, TDICT_DTYPE(2, 32, 2)));
}
