/* Tests conversions of elements between all pairs of dtypes, including rounding to 16-bit and 8-bit floats and
 * truncation to integers. Compares them with the slow conversion of naive_convert.h. */
#include "naive_convert.h"

#include "core/kernel/work.h"
#include "core/tensor/convert.h"

static bool convert_double(tdict_dtype dtype, double value, void *element) {
  return tdict_convert_simple(dtype, element, TDICT_F64, &value, 1) == 1;
}

/* Returns the value of a float with `places` bits besides the sign. The low `mantissa` bits are the mantissa. */
static double decode_of(unsigned bits, int places, int mantissa) {
  int exponent_bits = places - mantissa, exponent = (int)(bits >> mantissa) & ((1 << exponent_bits) - 1);
  int bias = (1 << (exponent_bits - 1)) - 1;
  double value = (double)(bits & ((1u << mantissa) - 1));
  if (exponent)
    value += (double)(1u << mantissa);
  else
    exponent = 1;
  for (int i = exponent - bias - mantissa; i != 0; i += i < 0 ? 1 : -1) value = i < 0 ? value / 2 : value * 2;
  return bits >> places & 1 ? -value : value;
}

static double decode(unsigned bits, int mantissa) { return decode_of(bits, 15, mantissa); }

static unsigned encode(tdict_dtype dtype, double value) {
  uint16_t bits = 0xA5A5;
  assert_true(convert_double(dtype, value, &bits));
  return bits;
}

/* Returns the double next to `value`, away from zero or towards zero. */
static double beside(double value, bool away) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  bits += away ? 1u : UINT64_MAX;
  memcpy(&value, &bits, sizeof bits);
  return value;
}

static void check_16_bits(tdict_dtype dtype, int mantissa) {
  unsigned infinite = 0x7fffu >> mantissa << mantissa;
  for (unsigned bits = 0; bits < infinite; bits++) {
    double value = decode(bits, mantissa), next = decode(bits + 1, mantissa), middle = (value + next) / 2;
    unsigned even = bits & 1 ? bits + 1 : bits;
    assert_int_equal(encode(dtype, value), bits);
    assert_int_equal(encode(dtype, -value), bits | 0x8000u);
    assert_int_equal(encode(dtype, middle), even);
    assert_int_equal(encode(dtype, -middle), even | 0x8000u);
    assert_int_equal(encode(dtype, beside(middle, true)), bits + 1);
    assert_int_equal(encode(dtype, beside(middle, false)), bits);
  }
  double zero = 0, huge = 1e300;
  assert_int_equal(encode(dtype, huge), infinite);
  assert_int_equal(encode(dtype, -huge), infinite | 0x8000u);
  assert_int_equal(encode(dtype, huge * huge), infinite);
  assert_int_equal(encode(dtype, 1e-320), 0);
  assert_int_equal(encode(dtype, -zero), 0x8000u);
  unsigned nan = encode(dtype, huge * huge * zero);
  assert_true((nan & infinite) == infinite && (nan & ~infinite & 0x7fffu) != 0);
}

CASE(convert_float16_to_nearest_even) {
  check_16_bits(TDICT_F16, 10);
  assert_int_equal(encode(TDICT_F16, 1), 0x3c00);
  assert_int_equal(encode(TDICT_F16, 65504), 0x7bff);
  assert_int_equal(encode(TDICT_F16, 65520), 0x7c00);
  assert_int_equal(encode(TDICT_F16, -2.5), 0xc100);
}

CASE(convert_bfloat16_to_nearest_even) {
  check_16_bits(TDICT_BF16, 7);
  assert_int_equal(encode(TDICT_BF16, 1), 0x3f80);
  assert_int_equal(encode(TDICT_BF16, 3.140625), 0x4049);
  /* rounding to float32 first would result in the tie, which would then be rounded to even */
  assert_int_equal(encode(TDICT_BF16, beside(1.00390625, true)), 0x3f81);
}

static unsigned encode_8(tdict_dtype dtype, double value) {
  unsigned char bits[2] = {0, 0xA5};
  assert_true(convert_double(dtype, value, bits));
  assert_int_equal(bits[1], 0xA5); /* only one byte is written */
  return bits[0];
}

/* Checks rounding to each float of an 8-bit dtype. `top` is the smallest magnitude that is not finite. */
static void check_8_bits(tdict_dtype dtype, int mantissa, unsigned top) {
  for (unsigned bits = 0; bits < top; bits++) {
    double value = decode_of(bits, 7, mantissa), middle = (value + decode_of(bits + 1, 7, mantissa)) / 2;
    unsigned even = bits & 1 ? bits + 1 : bits;
    assert_int_equal(encode_8(dtype, value), bits);
    assert_int_equal(encode_8(dtype, -value), bits | 0x80u);
    assert_int_equal(encode_8(dtype, middle), even);
    assert_int_equal(encode_8(dtype, beside(middle, true)), bits + 1);
    assert_int_equal(encode_8(dtype, beside(-middle, false)), bits | 0x80u);
  }
  assert_int_equal(encode_8(dtype, 1e300), top);
  assert_int_equal(encode_8(dtype, -1e300), top | 0x80u);
  assert_true((encode_8(dtype, 1e300 * 1e300 * 0) & 0x7fu) > 0x7cu);
}

/* e4m3 has no infinity, so a number that is too large becomes its only NaN. */
CASE(convert_8_bit_floats_to_nearest_even) {
  check_8_bits(TDICT_F8E4M3, 3, 0x7f);
  check_8_bits(TDICT_F8E5M2, 2, 0x7c);
  assert_int_equal(encode_8(TDICT_F8E4M3, 3), 0x44);
  assert_int_equal(encode_8(TDICT_F8E5M2, 3), 0x42);
  assert_int_equal(encode_8(TDICT_F8E4M3, 448), 0x7e);
}

CASE(convert_wide_floats) {
  float single = 0;
  double wide = 0;
  assert_true(convert_double(TDICT_F32, 0.1, &single));
  assert_true(single == 0.1f);
  assert_true(convert_double(TDICT_F64, 0.1, &wide));
  assert_true(wide == 0.1);
}

CASE(convert_integers_at_their_borders) {
  static const struct {
    tdict_dtype dtype;
    double lowest, highest; /* the lowest and highest integers that fit */
  } types[] = {{TDICT_I8, -128, 127},
               {TDICT_U8, 0, 255},
               {TDICT_I16, -32768, 32767},
               {TDICT_U16, 0, 65535},
               {TDICT_I32, -2147483648.0, 2147483647},
               {TDICT_U32, 0, 4294967295}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    tdict_dtype d = types[i].dtype;
    uint64_t kept = 0xA5A5A5A5A5A5A5A5u, out = kept;
    assert_false(convert_double(d, types[i].highest + 1, &out));
    assert_false(convert_double(d, types[i].lowest - 1, &out));
    assert_false(convert_double(d, 1e300, &out));
    assert_false(convert_double(d, -1e300, &out));
    assert_false(convert_double(d, 1e300 * 1e300 * 0, &out));
    assert_true(out == kept);
    uint64_t mask = ((uint64_t)1 << 8 * tdict_dtype_bytes(d)) - 1;
    assert_true(convert_double(d, types[i].highest + 0.9, &out));
    assert_true(out == ((kept & ~mask) | ((uint64_t)(int64_t)types[i].highest & mask)));
    assert_true(convert_double(d, types[i].lowest - 0.9, &out));
    assert_true(out == ((kept & ~mask) | ((uint64_t)(int64_t)types[i].lowest & mask)));
  }
}

CASE(convert_64_bits_at_their_borders) {
  int64_t value = 0;
  uint64_t without_sign = 1;
  assert_true(convert_double(TDICT_I64, -9223372036854775808.0, &value));
  assert_true(value == INT64_MIN);
  assert_true(convert_double(TDICT_I64, 9223372036854774784.0, &value));
  assert_true(value == 9223372036854774784);
  assert_false(convert_double(TDICT_I64, 9223372036854775808.0, &value));
  assert_false(convert_double(TDICT_I64, -9223372036854777856.0, &value));
  assert_true(convert_double(TDICT_I64, -1.9, &value));
  assert_true(value == -1);
  assert_true(convert_double(TDICT_U64, 18446744073709549568.0, &without_sign));
  assert_true(without_sign == 18446744073709549568u);
  assert_false(convert_double(TDICT_U64, 18446744073709551616.0, &without_sign));
  assert_false(convert_double(TDICT_U64, -1, &without_sign));
  assert_true(convert_double(TDICT_U64, -0.9, &without_sign));
  assert_true(without_sign == 0);
}

enum { COUNT = 700 };

/* Checks that the first `count` elements of `dst` are the elements of `src` after conversion. */
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

/* Converts an array whose elements all fit. Returns 0 if no random element had to be replaced. Otherwise, converts
 * an array that contains such an element and returns 1. */
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

/* Converts each 16-bit and 8-bit float to a double and back. Also converts doubles around the midpoints of floats. */
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
        const uint64_t next = naive_float(wide, magnitude == bits ? middle : -middle) + (uint64_t)step;
        assert_int_equal(tdict_convert_simple(d->dtype, &back, TDICT_F64, &next, 1), 1);
        check_elements(d, &back, wide, &next, 1);
      }
    }
  }
}

/* For each integer dtype, numbers just inside its range are converted, and numbers just outside are refused. */
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

/* Converts numbers next to a tie of the destination. Rounding to float32 or double first would result in the tie. */
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
  assert_false(tdict_kernel_converts(TDICT_F32, TDICT_C64));
  assert_false(tdict_kernel_converts(TDICT_BOOL, TDICT_C128));
  assert_true(tdict_kernel_converts(TDICT_C64, TDICT_BOOL));
  assert_false(tdict_kernel_converts(TDICT_DTYPE(2, 32, 2), TDICT_F32));
  assert_false(tdict_kernel_converts(TDICT_F32, TDICT_DTYPE(2, 32, 2)));
}
