/* Converts elements on a device, and compares the results bit by bit with conversions on the host. */
#include "core/tensor/convert.h"

#include <math.h>

#include "core/kernel/random_move.h"

enum { MANY = 1000000 };

static const tdict_dtype all_dtypes[] = {TDICT_I8,   TDICT_I16, TDICT_I32,  TDICT_I64,    TDICT_U8,    TDICT_U16,
                                         TDICT_U32,  TDICT_U64, TDICT_F16,  TDICT_F32,    TDICT_F64,   TDICT_BF16,
                                         TDICT_BOOL, TDICT_C64, TDICT_C128, TDICT_F8E4M3, TDICT_F8E5M2};
enum { NUM_DTYPES = sizeof all_dtypes / sizeof *all_dtypes };

static bool is_nan(tdict_dtype dtype, const void *element) {
  uint64_t bits = 0, magnitude, top;
  memcpy(&bits, element, tdict_dtype_bytes(dtype));
  magnitude = bits & (~(uint64_t)0 >> (65 - 8 * tdict_dtype_bytes(dtype)));
  switch (dtype) {
  case TDICT_F16:
    top = 0x7c00;
    break;
  case TDICT_BF16:
    top = 0x7f80;
    break;
  case TDICT_F8E4M3:
    top = 0x7e;
    break;
  case TDICT_F8E5M2:
    top = 0x7c;
    break;
  case TDICT_F32:
    top = 0x7f800000;
    break;
  case TDICT_F64:
    top = (uint64_t)0x7ff << 52;
    break;
  default:
    return false;
  }
  return magnitude > top;
}

/* Compares elements. Two NaNs are equal. Complex elements are compared as two floats. */
static void check_elements(const char *what, tdict_dtype dtype, const void *found, const void *wanted, size_t count) {
  if (dtype == TDICT_C64 || dtype == TDICT_C128) {
    dtype = dtype == TDICT_C64 ? TDICT_F32 : TDICT_F64;
    count *= 2;
  }
  const size_t bytes = tdict_dtype_bytes(dtype);
  for (size_t i = 0; i < count; i++) {
    const char *f = (const char *)found + i * bytes, *w = (const char *)wanted + i * bytes;
    if (memcmp(f, w, bytes) == 0 || (is_nan(dtype, f) && is_nan(dtype, w))) continue;
    uint64_t bits[2] = {0};
    memcpy(&bits[0], f, bytes);
    memcpy(&bits[1], w, bytes);
    fail_msg("%s to %s: element %zu is %llx, wanted %llx", what, tdict_dtype_name(dtype), i,
             (unsigned long long)bits[0], (unsigned long long)bits[1]);
  }
}

/* Converts adjacent elements of `src` on the device. Overwrites the old bytes of `out`. Returns the kernel's result. */
static uint64_t convert_there(const areas *a, const tdict_cast *cast, void *out, const void *src, size_t count) {
  const size_t to = tdict_dtype_bytes(cast->to), from = tdict_dtype_bytes(cast->from);
  tdict_block dst_block = fixture_take(&a->b, count * to), src_block = fixture_take(&a->b, count * from);
  const int64_t shape[] = {(int64_t)count}, dst_strides[] = {(int64_t)to}, src_strides[] = {(int64_t)from};
  const tdict_kernel_move move = {.dst = dst_block.data,
                                  .src = src_block.data,
                                  .ndim = 1,
                                  .shape = shape,
                                  .dst_strides = dst_strides,
                                  .src_strides = src_strides};
  tdict_kernel_work work;
  raw_write(a->raw, src_block.data, src, count * from);
  raw_write(a->raw, dst_block.data, out, count * to);
  tdict_kernel_work_init(&work, TDICT_KERNEL_CONVERT);
  td_ok(tdict_kernel_add_convert(&work, &move, cast, err));
  td_ok(a->b.memory->ops->run(a->b.memory, &work, NULL, err));
  raw_read(a->raw, out, dst_block.data, count * to);
  const uint64_t result = work.results[0];
  tdict_kernel_work_reset(&work);
  fixture_give(&a->b, &dst_block);
  fixture_give(&a->b, &src_block);
  return result;
}

/* Converts on the device and compares each element with the host. An element that does not fit must keep its old bytes,
 * and the index of the first such element must be reported. */
static void check_conversion(const areas *a, tdict_dtype to, tdict_dtype from, const void *src, size_t count) {
  const size_t to_bytes = tdict_dtype_bytes(to), from_bytes = tdict_dtype_bytes(from);
  scoped_bytes found = malloc(count * to_bytes), wanted = malloc(count * to_bytes);
  uint64_t first_bad = TDICT_KERNEL_NO_RESULT;
  td_fill_random(found, count * to_bytes, 77);
  memcpy(wanted, found, count * to_bytes);
  for (size_t i = 0; i < count; i++) {
    unsigned char element[16];
    const char *at = (const char *)src + i * from_bytes;
    if (tdict_convert_simple(to, element, from, at, 1) == 1)
      memcpy(wanted + i * to_bytes, element, to_bytes);
    else if (first_bad == TDICT_KERNEL_NO_RESULT)
      first_bad = i;
  }
  const uint64_t result =
      convert_there(a, &(tdict_cast){.to = to, .from = from, .scale = 3, .offset = 2}, found, src, count);
  check_elements(tdict_dtype_name(from), to, found, wanted, count);
  if (result != first_bad)
    fail_msg("%s to %s: first that does not fit: %lld, wanted %lld", tdict_dtype_name(from), tdict_dtype_name(to),
             (long long)result, (long long)first_bad);
}

/* Converts all floats of 8 and 16 bits to every dtype. */
GPU_CASE(kernel_converts_every_small_float) {
  static const tdict_dtype small[] = {TDICT_F16, TDICT_BF16, TDICT_F8E4M3, TDICT_F8E5M2};
  scoped_areas a = areas_open(1);
  for (int s = 0; s < 4; s++) {
    const size_t bytes = tdict_dtype_bytes(small[s]), count = (size_t)1 << 8 * bytes;
    scoped_bytes all = malloc(count * bytes);
    for (size_t i = 0; i < count; i++) memcpy(all + i * bytes, &i, bytes); /* GPUs are little-endian, too */
    for (int t = 0; t < NUM_DTYPES; t++) check_conversion(&a, all_dtypes[t], small[s], all, count);
  }
}

/* Converts a million random bit patterns of float32 and float64 to each float dtype. */
GPU_CASE(kernel_converts_random_floats) {
  static const tdict_dtype tos[] = {TDICT_F16, TDICT_BF16, TDICT_F8E4M3, TDICT_F8E5M2, TDICT_F32, TDICT_F64};
  scoped_areas a = areas_open(1);
  TD_FREED uint64_t *bits = malloc(MANY * sizeof *bits);
  td_fill_random(bits, MANY * sizeof *bits, 42);
  for (int t = 0; t < 6; t++) check_conversion(&a, tos[t], TDICT_F32, bits, MANY);
  /* Few random bit patterns are in the range of a small float, so the exponents are chosen around that range. */
  rng r = {8};
  for (size_t i = 0; i < MANY; i++)
    if (i % 8) bits[i] = (bits[i] & ~((uint64_t)0x7ff << 52)) | (uint64_t)pick(&r, 1023 - 160, 1023 + 140) << 52;
  for (size_t i = 0; i < MANY; i += 3) bits[i] &= ~(uint64_t)0 << pick(&r, 20, 51); /* ties */
  for (int t = 0; t < 6; t++) check_conversion(&a, tos[t], TDICT_F64, bits, MANY);
}

/* Fills `out` with elements of a dtype: random bits, numbers near the limits of the integer and floating-point types,
 * infinity and NaN. */
static size_t make_elements(tdict_dtype dtype, uint64_t seed, unsigned char *out) {
  static const double bases[] = {0,
                                 1,
                                 2,
                                 127,
                                 128,
                                 255,
                                 256,
                                 32767,
                                 32768,
                                 65535,
                                 448,
                                 57344,
                                 65504,
                                 65519,
                                 65520,
                                 2147483647,
                                 2147483648,
                                 4294967295,
                                 0x1p32,
                                 0x1p53,
                                 0x1p62,
                                 0x1p63,
                                 0x1.fffffffffffffp63,
                                 0x1p64,
                                 0x1p65,
                                 3.4028235677973366e38,
                                 0x1p-149,
                                 0x1p-150,
                                 0x1.8p-150,
                                 0x1p-24,
                                 0x1p-25,
                                 0x1p-1074,
                                 1e300,
                                 INFINITY,
                                 NAN};
  static const double steps[] = {0, 1, -1, 0.5, -0.5, 0.75, -0.999};
  const size_t bytes = tdict_dtype_bytes(dtype);
  size_t count = 400;
  td_fill_random(out, count * bytes, seed);
  for (size_t i = 0; i < sizeof bases / sizeof *bases; i++)
    for (size_t k = 0; k < 2 * sizeof steps / sizeof *steps; k++) {
      const double value = (bases[i] + steps[k / 2]) * (k % 2 ? -1 : 1);
      tdict_dtype from = TDICT_F64;
      if (tdict_convert_simple(dtype, out + count * bytes, from, &value, 1) == 1) count++;
    }
  for (int64_t i = -3; i < 4; i++) { /* integers that float64 cannot represent */
    const int64_t edges[] = {INT64_MAX - 3 + i,
                             INT64_MIN + 3 + i,
                             ((int64_t)1 << 53) + i,
                             ((int64_t)1 << 24) + i,
                             ((int64_t)1 << 62) + ((int64_t)1 << 38) + i,
                             ((int64_t)1 << 62) + ((int64_t)1 << 9) + i};
    for (size_t k = 0; k < sizeof edges / sizeof *edges; k++) {
      if (tdict_convert_simple(dtype, out + count * bytes, TDICT_I64, &edges[k], 1) == 1) count++;
      if (tdict_convert_simple(dtype, out + count * bytes, TDICT_U64, &edges[k], 1) == 1) count++;
    }
  }
  return count;
}

/* Converts the elements of make_elements() between all supported pairs of dtypes. */
GPU_CASE(kernel_converts_all_pairs_of_dtypes) {
  int pairs = 0;
  scoped_areas a = areas_open(1);
  scoped_bytes elements = malloc(16 * 4096);
  for (int f = 0; f < NUM_DTYPES; f++) {
    const size_t count = make_elements(all_dtypes[f], (uint64_t)f, elements);
    for (int t = 0; t < NUM_DTYPES; t++) {
      const bool supported = tdict_kernel_converts(all_dtypes[t], all_dtypes[f]);
      if (supported) check_conversion(&a, all_dtypes[t], all_dtypes[f], elements, count);
      pairs += supported;
    }
  }
  assert_int_equal(pairs, 17 * 17 - 2 * 15);
}

/* The element is multiplied by the scale in float32 and rounded, then the offset is added, and the sum is rounded. */
GPU_CASE(kernel_scales_elements) {
  static const float factors[][2] = {{1 / 255.0F, -0.5F}, {2, 0}, {-0.1F, 1e-3F}, {1e38F, 0}, {1e-40F, 1e-42F}};
  scoped_areas a = areas_open(1);
  scoped_bytes elements = malloc(16 * 4096), found = malloc(16 * 4096), wanted = malloc(16 * 4096);
  for (int f = 0; f < NUM_DTYPES; f++) {
    const tdict_dtype from = all_dtypes[f];
    const size_t count = make_elements(from, (uint64_t)f, elements), bytes = tdict_dtype_bytes(from);
    for (int t = 0; t < NUM_DTYPES; t++) {
      const tdict_dtype to = all_dtypes[t];
      if (to == TDICT_C64 || to == TDICT_C128 || !tdict_kernel_converts(to, from)) continue;
      const float *factor = factors[(f + t) % 5];
      uint64_t first_bad = TDICT_KERNEL_NO_RESULT;
      td_fill_random(found, count * tdict_dtype_bytes(to), 5);
      memcpy(wanted, found, count * tdict_dtype_bytes(to));
      for (size_t i = 0; i < count; i++) {
        volatile float x; /* volatile, so that no compiler fuses the product and the sum */
        float single, element[2];
        assert_int_equal(tdict_convert_simple(TDICT_F32, &single, from, elements + i * bytes, 1), 1);
        x = single * factor[0];
        x = x + factor[1];
        single = x;
        if (tdict_convert_simple(to, element, TDICT_F32, &single, 1) == 1)
          memcpy(wanted + i * tdict_dtype_bytes(to), element, tdict_dtype_bytes(to));
        else if (first_bad == TDICT_KERNEL_NO_RESULT)
          first_bad = i;
      }
      const tdict_cast cast = {to, from, true, factor[0], factor[1]};
      assert_true(convert_there(&a, &cast, found, elements, count) == first_bad);
      check_elements(tdict_dtype_name(from), to, found, wanted, count);
    }
  }
}

/* Converts one element on the host. Returns false if the dtype cannot hold the number. */
static bool cast_here(const tdict_cast *cast, void *to, const void *from) {
  volatile float x; /* volatile, so that no compiler fuses the product and the sum */
  float single;
  if (!cast->is_scaled) return tdict_convert_simple(cast->to, to, cast->from, from, 1) == 1;
  assert_int_equal(tdict_convert_simple(TDICT_F32, &single, cast->from, from, 1), 1);
  x = single * cast->scale;
  x = x + cast->offset;
  single = x;
  return tdict_convert_simple(cast->to, to, TDICT_F32, &single, 1) == 1;
}

/* Converts a row of random elements from one address to another, and compares the row and the bytes around it. */
static void check_row(areas *a, const tdict_cast *cast, size_t count, size_t dst, size_t src) {
  enum { GUARD = 0x5c, AROUND = 32 };
  const size_t to = tdict_dtype_bytes(cast->to), from = tdict_dtype_bytes(cast->from), end = dst + count * to;
  const int64_t shape[] = {(int64_t)count}, dst_strides[] = {(int64_t)to}, src_strides[] = {(int64_t)from};
  const tdict_kernel_move move = {.dst = (char *)a->dst.data + dst,
                                  .src = (const char *)a->src.data + src,
                                  .ndim = 1,
                                  .shape = shape,
                                  .dst_strides = dst_strides,
                                  .src_strides = src_strides};
  tdict_kernel_work work;
  scoped_bytes found = malloc(end + AROUND), wanted = malloc(count * to + 1);
  assert_true(end + AROUND <= AREA_BYTES && src + count * from <= AREA_BYTES);
  raw_fill(a->raw, a->dst.data, GUARD, end + AROUND);
  tdict_kernel_work_init(&work, TDICT_KERNEL_CONVERT);
  td_ok(tdict_kernel_add_convert(&work, &move, cast, err));
  td_ok(a->b.memory->ops->run(a->b.memory, &work, NULL, err));
  tdict_kernel_work_reset(&work);
  raw_read(a->raw, found, a->dst.data, end + AROUND);
  for (size_t i = 0; i < count; i++) assert_true(cast_here(cast, wanted + i * to, a->model_src + src + i * from));
  check_elements(tdict_dtype_name(cast->from), cast->to, found + dst, wanted, count);
  for (size_t i = 0; i < end + AROUND; i++)
    if ((i < dst || i >= end) && found[i] != GUARD)
      fail_msg("%zu elements of %s to %s: byte %zu is %d, but the row has the bytes %zu to %zu", count,
               tdict_dtype_name(cast->from), tdict_dtype_name(cast->to), i, found[i], dst, end);
}

/* Rows of elements are converted through float32, four elements at once if both sides are aligned. The rows here have
 * any length and begin at any address, some with a scale. */
GPU_CASE(kernel_converts_rows_at_any_address) {
  static const tdict_dtype tos[] = {TDICT_F16, TDICT_BF16, TDICT_F32};
  static const tdict_dtype froms[] = {TDICT_I8,  TDICT_U8,  TDICT_BOOL, TDICT_I16,
                                      TDICT_U16, TDICT_F16, TDICT_BF16, TDICT_F32};
  rng r = {51};
  scoped_areas a = areas_open(6);
  for (int f = 0; f < 8; f++)
    for (int t = 0; t < 3; t++)
      for (int i = 0; i < 16; i++) {
        tdict_cast cast = {.to = tos[t], .from = froms[f], .is_scaled = pick(&r, 0, 2) == 0};
        cast.scale = (float)pick(&r, -99, 99) / 64;
        cast.offset = (float)pick(&r, -99, 99) / 7;
        const size_t count = (size_t)(pick(&r, 0, 3) ? pick(&r, 0, 40) : pick(&r, 4000, 9000));
        const size_t dst = (size_t)(pick(&r, 0, 2) ? 8 * pick(&r, 0, 4) : pick(&r, 0, 32));
        const size_t src = (size_t)(pick(&r, 0, 2) ? 4 * pick(&r, 0, 8) : pick(&r, 0, 32));
        check_row(&a, &cast, count, dst, src);
      }
}

/* The blocks of a long row convert several batches each. */
GPU_CASE(kernel_converts_long_rows) {
  enum { LONG = 2 * 512 * 4096 + 4096 + 7 }; /* the last elements are in the second batch of a block */
  scoped_areas a = areas_open(1);
  scoped_bytes bytes = malloc(LONG);
  td_fill_random(bytes, LONG, 3);
  check_conversion(&a, TDICT_F16, TDICT_U8, bytes, LONG);
}

typedef struct convert_model {
  areas *a;
  tdict_dtype to, from;
  uint64_t index, first_bad;
} convert_model;
static void model_convert(void *user, int64_t dst, int64_t src) {
  convert_model *c = user;
  unsigned char element[16];
  if (tdict_convert_simple(c->to, element, c->from, c->a->model_src + src, 1) == 1)
    memcpy(c->a->model_dst + dst, element, tdict_dtype_bytes(c->to));
  else if (c->first_bad == TDICT_KERNEL_NO_RESULT)
    c->first_bad = c->index;
  c->index++;
}

/* Clears bit 6 of each source byte, so that no element is a NaN. The bits of converted NaNs could differ. */
static void clear_nans(areas *a) {
  for (size_t i = 0; i < AREA_BYTES; i++) a->model_src[i] &= 0xbf;
  raw_write(a->raw, a->src.data, a->model_src, AREA_BYTES);
}

/* Converts random layouts and lists with unaligned elements. The index of the first element that does not fit is
 * counted in C order. */
GPU_CASE(kernel_converts_random_layouts) {
  scoped_areas a = areas_open(0);
  for (uint64_t seed = 0; seed < 60; seed++) {
    enum { MOST = 40 };
    rng r = {seed};
    tdict_kernel_work work;
    uint64_t first_bad[MOST];
    areas_fill(&a, seed);
    clear_nans(&a);
    tdict_kernel_work_init(&work, TDICT_KERNEL_CONVERT);
    const int64_t wanted = pick(&r, 1, MOST);
    for (int64_t i = 0; i < wanted; i++) {
      random_move m;
      convert_model c = {.a = &a, .first_bad = TDICT_KERNEL_NO_RESULT};
      do {
        c.to = all_dtypes[pick(&r, 0, NUM_DTYPES - 1)];
        c.from = all_dtypes[pick(&r, 0, NUM_DTYPES - 1)];
      } while (!tdict_kernel_converts(c.to, c.from));
      if (!make_move(&r, &a, &work, (items){tdict_dtype_bytes(c.to), tdict_dtype_bytes(c.from)}, &m)) break;
      td_ok(tdict_kernel_add_convert(&work, &m.move, &(tdict_cast){.to = c.to, .from = c.from}, err));
      each_element(&m, model_convert, &c);
      first_bad[i] = c.first_bad;
      free_move(&m);
    }
    td_ok(a.b.memory->ops->run(a.b.memory, &work, NULL, err));
    areas_check_dst(&a);
    for (size_t i = 0; i < work.num_entries; i++) assert_true(work.results[i] == first_bad[i]);
    tdict_kernel_work_reset(&work);
  }
}

/* Only conversions that can fail report results, because the caller must wait for a result. */
CASE(kernel_results_only_where_an_element_may_not_fit) {
  static const struct {
    tdict_dtype to, from;
    bool scaled, may_fail;
  } rows[] = {
      {TDICT_F32, TDICT_F64, false, false}, {TDICT_I32, TDICT_F32, false, true}, {TDICT_I32, TDICT_I64, false, true},
      {TDICT_I64, TDICT_I32, false, false}, {TDICT_U8, TDICT_U8, false, false},  {TDICT_U8, TDICT_I8, false, true},
      {TDICT_U64, TDICT_I8, false, true},   {TDICT_I16, TDICT_U8, false, false}, {TDICT_I8, TDICT_U8, false, true},
      {TDICT_U8, TDICT_BOOL, false, false}, {TDICT_U8, TDICT_BOOL, true, true},  {TDICT_BOOL, TDICT_F64, false, false},
      {TDICT_F32, TDICT_U8, true, false},   {TDICT_I64, TDICT_U64, false, true}};
  const int64_t shape[] = {3}, strides[] = {8};
  const tdict_kernel_move move = {.ndim = 1, .shape = shape, .dst_strides = strides, .src_strides = strides};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    tdict_kernel_work work;
    tdict_kernel_work_init(&work, TDICT_KERNEL_CONVERT);
    const tdict_cast cast = {.to = rows[i].to, .from = rows[i].from, .is_scaled = rows[i].scaled};
    td_ok(tdict_kernel_add_convert(&work, &move, &cast, err));
    if (work.has_results != rows[i].may_fail) fail_msg("row %zu: has_results is wrong", i);
    tdict_kernel_work_reset(&work);
  }
}
