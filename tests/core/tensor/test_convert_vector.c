/* Tests that vector conversions give the same results as the plain conversion, at any address and for any count. */
#include "naive_convert.h"

#include "core/tensor/convert.h"

#ifdef __aarch64__ /* NEON, which has no streaming stores */
static const tdict_stream_kind kinds[] = {TDICT_STREAM_PLAIN};
static const tdict_dtype pairs[][2] = {
    {TDICT_BF16, TDICT_F32}, {TDICT_F32, TDICT_BF16}, {TDICT_F16, TDICT_F32}, {TDICT_F32, TDICT_F16}};
#else
static const tdict_stream_kind kinds[] = {TDICT_STREAM_AVX2, TDICT_STREAM_AVX512};
static const tdict_dtype pairs[][2] = {{TDICT_BF16, TDICT_F32}, {TDICT_F32, TDICT_BF16}, {TDICT_F16, TDICT_F32},
                                       {TDICT_F32, TDICT_F16},  {TDICT_I32, TDICT_I64},  {TDICT_I64, TDICT_I32},
                                       {TDICT_I32, TDICT_F32},  {TDICT_F32, TDICT_I32},  {TDICT_F32, TDICT_U8},
                                       {TDICT_F32, TDICT_F64},  {TDICT_U16, TDICT_I64},  {TDICT_I64, TDICT_U16}};
#endif
enum {
  NUM_KINDS = sizeof kinds / sizeof *kinds,
  NUM_PAIRS = sizeof pairs / sizeof *pairs,
  MOST = 5000,
  LARGE = (4 << 20) + 77,
  GUARD = 64
};

/* Fills an array with random elements that the dtype `to` can hold. */
static void fill(naive_random *r, const naive_dtype *to, const naive_dtype *from, void *src, size_t count) {
  for (size_t i = 0; i < count; i++) {
    uint64_t bits = naive_bits(r, from), unused;
    if (!naive_convert(to, from, bits, &unused)) bits &= 0x7fff;
    naive_store(from, src, i, bits);
  }
}

static void check_same(const naive_dtype *to, const char *dst, const char *wanted, size_t count) {
  const size_t bytes = count * (size_t)(to->bits / 8);
  if (memcmp(dst, wanted, bytes) != 0)
    for (size_t i = 0; i < count; i++) assert_true(naive_equal(to, naive_load(to, dst, i), naive_load(to, wanted, i)));
  for (size_t i = 0; i < GUARD; i++) assert_int_equal((unsigned char)dst[bytes + i], 0xA5);
}

static void check_kind(naive_random *r, tdict_stream_kind kind, const naive_dtype *to, const naive_dtype *from) {
  scoped_chars src = malloc(MOST * 8 + GUARD), dst = malloc(MOST * 8 + 2 * GUARD), wanted = malloc(MOST * 8);
  assert_true(src && dst && wanted);
  for (int round = 0; round < 60; round++) {
    const size_t count = (size_t)naive_below(r, round % 4 ? 200 : MOST);
    char *odd_src = src + naive_below(r, GUARD), *odd_dst = dst + naive_below(r, GUARD);
    fill(r, to, from, odd_src, count);
    memset(dst, 0xA5, MOST * 8 + 2 * GUARD);
    assert_int_equal(tdict_convert_simple(to->dtype, wanted, from->dtype, odd_src, count), count);
    assert_int_equal(tdict_convert_vector(kind, to->dtype, odd_dst, from->dtype, odd_src, count), count);
    check_same(to, odd_dst, wanted, count);
  }
}

static void each_pair(void (*check)(naive_random *r, tdict_stream_kind kind, const naive_dtype *to,
                                    const naive_dtype *from)) {
  naive_random r = {0x5ec7};
  if (!tdict_stream_has(kinds[0])) td_skip("the processor has no AVX2");
  for (int k = 0; k < NUM_KINDS; k++)
    for (int i = 0; i < NUM_PAIRS && tdict_stream_has(kinds[k]); i++) {
      assert_true(tdict_convert_has_vector(kinds[k], pairs[i][0], pairs[i][1]));
      check(&r, kinds[k], naive_find(pairs[i][0]), naive_find(pairs[i][1]));
    }
}

CASE(convert_vectors_agree) { each_pair(check_kind); }

/* Checks results that are large enough for streaming stores, at aligned and unaligned addresses. */
static void check_large(naive_random *r, tdict_stream_kind kind, const naive_dtype *to, const naive_dtype *from) {
  enum { PERIOD = 4099 };
  const size_t from_bytes = (size_t)(from->bits / 8), to_bytes = (size_t)(to->bits / 8);
  const size_t count = LARGE / to_bytes + 1, shift = (size_t)naive_below(r, 40) * to_bytes;
  scoped_chars src = malloc(count * from_bytes), dst = malloc(count * to_bytes + GUARD * 16),
               wanted = malloc(count * to_bytes);
  assert_true(src && dst && wanted);
  fill(r, to, from, src, PERIOD);
  for (size_t i = PERIOD; i < count; i++) naive_store(from, src, i, naive_load(from, src, i - PERIOD));
  memset(dst, 0xA5, count * to_bytes + GUARD * 16);
  assert_int_equal(tdict_convert_simple(to->dtype, wanted, from->dtype, src, count), count);
  assert_int_equal(tdict_convert_vector(kind, to->dtype, dst + shift, from->dtype, src, count), count);
  check_same(to, dst + shift, wanted, count);
  assert_int_equal(tdict_convert_vector(kind, to->dtype, dst + 1, from->dtype, src, count), count);
  assert_memory_equal(dst + 1, wanted, 0);
  for (size_t i = 0; i < count; i += 997)
    assert_true(naive_equal(to, naive_load(to, dst + 1, i), naive_load(to, wanted, i)));
}
CASE(convert_large_results) { each_pair(check_large); }

/* Checks that the first element that does not fit is found at any position within and after the last full vector. */
static void check_refused(naive_random *r, tdict_stream_kind kind, const naive_dtype *to, const naive_dtype *from) {
  static const double floats[] = {2147483648.0, -2147483904.0, (double)NAN, (double)INFINITY, -(double)INFINITY};
  static const int64_t integers[] = {INT64_C(2147483648), INT64_C(-2147483649), INT64_MIN, INT64_MAX};
  static const int64_t words[] = {65536, -1, INT64_MIN, INT64_C(1) << 40};
  static char src[400 * 8], dst[400 * 8];
  if (to->dtype != TDICT_I32 && to->dtype != TDICT_U16) return;
  for (size_t at = 0; at < 300; at++) {
    uint64_t bits = (uint64_t)(to->dtype == TDICT_U16 ? words : integers)[at % 4];
    const float single = (float)floats[at % 5];
    if (from->kind == 'f') memcpy(&bits, &single, sizeof single);
    const size_t count = at + 1 + (size_t)naive_below(r, 100);
    fill(r, to, from, src, count);
    naive_store(from, src, count - 1, bits);
    naive_store(from, src, at, bits);
    assert_int_equal(tdict_convert_vector(kind, to->dtype, dst, from->dtype, src, count), at);
  }
  if (to->dtype == TDICT_U16) return;
  naive_store(from, src, 5, from->kind == 'f' ? 0xcf000000u : (uint64_t)INT32_MIN); /* the lowest int32 */
  assert_int_equal(tdict_convert_vector(kind, to->dtype, dst, from->dtype, src + 5 * (size_t)(from->bits / 8), 1), 1);
  assert_int_equal(naive_load(to, dst, 0), 0x80000000u);
}
CASE(convert_vectors_check_ranges) { each_pair(check_refused); }
