/* Tests conversions with a scale and an offset. Compares them with float arithmetic on one number at a time. */
#include "naive_convert.h"

#include "core/tensor/cast.h"

static const tdict_stream_kind kinds[] = {TDICT_STREAM_PLAIN, TDICT_STREAM_AVX2, TDICT_STREAM_AVX512};
enum { MOST = 3000, GUARD = 64 };

/* Computes x * scale + offset in float32, rounding after each operation. Returns the result as bits of `to`. */
static uint64_t scaled(const naive_dtype *to, const naive_dtype *from, uint64_t bits, const tdict_cast *c) {
  const naive_dtype *single = naive_find(TDICT_F32);
  uint64_t wide;
  assert_true(naive_convert(single, from, bits, &wide));
  const uint32_t narrow = (uint32_t)wide;
  float x;
  memcpy(&x, &narrow, sizeof x);
  volatile float product = x * c->scale;
  volatile float sum = product + c->offset;
  return naive_float(to, (long double)sum);
}

static void check_pair(naive_random *r, const naive_dtype *to, const naive_dtype *from) {
  scoped_chars src = malloc(MOST * 8 + GUARD), dst = malloc(MOST * 8 + 2 * GUARD);
  assert_true(src && dst);
  for (int round = 0; round < 12; round++) {
    const size_t count = (size_t)naive_below(r, round % 4 ? 100 : MOST);
    const tdict_cast c = {to->dtype, from->dtype, true, (float)naive_below(r, 1000) / 255 - 1,
                          (float)naive_below(r, 1000) / 100 - 5};
    const tdict_stream_kind kind = kinds[round % 3];
    char *odd_src = src + naive_below(r, GUARD), *odd_dst = dst + naive_below(r, GUARD);
    for (size_t i = 0; i < count; i++) naive_store(from, odd_src, i, naive_bits(r, from));
    memset(dst, 0xA5, MOST * 8 + 2 * GUARD);
    if (!tdict_stream_has(kind)) continue;
    assert_int_equal(tdict_cast_elements(kind, &c, odd_dst, odd_src, count), count);
    for (size_t i = 0; i < count; i++)
      assert_true(naive_equal(to, naive_load(to, odd_dst, i), scaled(to, from, naive_load(from, odd_src, i), &c)));
    for (size_t i = 0; i < GUARD; i++) assert_int_equal((unsigned char)odd_dst[count * (size_t)to->bits / 8 + i], 0xA5);
  }
}

CASE(cast_scales_with_two_roundings) {
  naive_random r = {0xca57};
  int pairs = 0;
  for (int t = 0; t < NAIVE_DTYPES; t++)
    for (int f = 0; f < NAIVE_DTYPES; f++) {
      const naive_dtype *to = &naive_dtypes[t], *from = &naive_dtypes[f];
      const bool wanted = to->kind == 'f' && to->bits >= 16 && from->kind != 'f';
      assert_int_equal(tdict_cast_scales(to->dtype, from->dtype), wanted);
      if (wanted) check_pair(&r, to, from);
      pairs += wanted;
    }
  assert_int_equal(pairs, 4 * 9);
  assert_false(tdict_cast_scales(TDICT_C64, TDICT_U8) || tdict_cast_scales(TDICT_DTYPE(2, 32, 2), TDICT_U8));
}

CASE(cast_without_scale_converts_or_copies) {
  const int64_t src[3] = {7, 70000, -1};
  uint16_t narrow[3] = {0};
  int64_t same[3] = {0};
  const tdict_cast to_u16 = {.to = TDICT_U16, .from = TDICT_I64}, copy = {.to = TDICT_I64, .from = TDICT_I64};
  assert_int_equal(tdict_cast_elements(TDICT_STREAM_PLAIN, &to_u16, narrow, src, 3), 1);
  assert_int_equal(narrow[0], 7);
  assert_int_equal(tdict_cast_elements(tdict_stream_best(), &copy, same, src, 3), 3);
  assert_memory_equal(same, src, sizeof src);
}
