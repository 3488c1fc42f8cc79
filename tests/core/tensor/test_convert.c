/* Rounding to the 16-bit and 8-bit floats, truncation to the integers. */
#include "support/test.h"

#include "core/tensor/convert.h"

/* The value of a float with `places` bits below the sign, exactly: `mantissa` stored bits. */
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
  assert_true(tdict_convert_double(dtype, value, &bits));
  return bits;
}

/* The double next to `value`, away from zero or towards it. */
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
  /* rounded once: by way of float32 this tie would be made first and then broken the other way */
  assert_int_equal(encode(TDICT_BF16, beside(1.00390625, true)), 0x3f81);
}

static unsigned encode_8(tdict_dtype dtype, double value) {
  unsigned char bits[2] = {0, 0xA5};
  assert_true(tdict_convert_double(dtype, value, bits));
  assert_int_equal(bits[1], 0xA5); /* one byte only */
  return bits[0];
}

/* `top`: the smallest bits that are no finite number. */
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

/* e4m3 has no infinity: a number that is too large becomes its only NaN. */
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
  assert_true(tdict_convert_double(TDICT_F32, 0.1, &single));
  assert_true(single == 0.1f);
  assert_true(tdict_convert_double(TDICT_F64, 0.1, &wide));
  assert_true(wide == 0.1);
}

CASE(convert_integers_at_their_borders) {
  static const struct {
    tdict_dtype dtype;
    double lowest, highest; /* the last that still fit: what is beyond them by one does not */
  } types[] = {{TDICT_I8, -128, 127},
               {TDICT_U8, 0, 255},
               {TDICT_I16, -32768, 32767},
               {TDICT_U16, 0, 65535},
               {TDICT_I32, -2147483648.0, 2147483647},
               {TDICT_U32, 0, 4294967295}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    tdict_dtype d = types[i].dtype;
    uint64_t kept = 0xA5A5A5A5A5A5A5A5u, out = kept;
    assert_false(tdict_convert_double(d, types[i].highest + 1, &out));
    assert_false(tdict_convert_double(d, types[i].lowest - 1, &out));
    assert_false(tdict_convert_double(d, 1e300, &out));
    assert_false(tdict_convert_double(d, -1e300, &out));
    assert_false(tdict_convert_double(d, 1e300 * 1e300 * 0, &out));
    assert_true(out == kept);
    uint64_t mask = ((uint64_t)1 << 8 * tdict_dtype_bytes(d)) - 1;
    assert_true(tdict_convert_double(d, types[i].highest + 0.9, &out));
    assert_true(out == ((kept & ~mask) | ((uint64_t)(int64_t)types[i].highest & mask)));
    assert_true(tdict_convert_double(d, types[i].lowest - 0.9, &out));
    assert_true(out == ((kept & ~mask) | ((uint64_t)(int64_t)types[i].lowest & mask)));
  }
}

CASE(convert_64_bits_at_their_borders) {
  int64_t value = 0;
  uint64_t without_sign = 1;
  assert_true(tdict_convert_double(TDICT_I64, -9223372036854775808.0, &value));
  assert_true(value == INT64_MIN);
  assert_true(tdict_convert_double(TDICT_I64, 9223372036854774784.0, &value));
  assert_true(value == 9223372036854774784);
  assert_false(tdict_convert_double(TDICT_I64, 9223372036854775808.0, &value));
  assert_false(tdict_convert_double(TDICT_I64, -9223372036854777856.0, &value));
  assert_true(tdict_convert_double(TDICT_I64, -1.9, &value));
  assert_true(value == -1);
  assert_true(tdict_convert_double(TDICT_U64, 18446744073709549568.0, &without_sign));
  assert_true(without_sign == 18446744073709549568u);
  assert_false(tdict_convert_double(TDICT_U64, 18446744073709551616.0, &without_sign));
  assert_false(tdict_convert_double(TDICT_U64, -1, &without_sign));
  assert_true(tdict_convert_double(TDICT_U64, -0.9, &without_sign));
  assert_true(without_sign == 0);
}

CASE(convert_knows_its_types) {
  static const tdict_dtype known[] = {TDICT_I8,  TDICT_I16,  TDICT_I32,    TDICT_I64,   TDICT_U8,
                                      TDICT_U16, TDICT_U32,  TDICT_U64,    TDICT_F16,   TDICT_F32,
                                      TDICT_F64, TDICT_BF16, TDICT_F8E4M3, TDICT_F8E5M2};
  static const tdict_dtype others[] = {
      TDICT_BOOL, TDICT_C64, TDICT_C128, TDICT_DTYPE(10, 8, 2), TDICT_DTYPE(2, 32, 2), 0, TDICT_DTYPE(0, 24, 1)};
  unsigned char out[16], kept[16];
  memset(out, 0xA5, sizeof out);
  memset(kept, 0xA5, sizeof kept);
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) assert_true(tdict_convert_knows(known[i]));
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    assert_false(tdict_convert_knows(others[i]));
    assert_false(tdict_convert_double(others[i], 1, out));
  }
  assert_memory_equal(out, kept, sizeof out);
}
