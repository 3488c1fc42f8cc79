/* Helpers for tests of conversions: the conversions, source trees, and a check of the results against the slow
 * conversion in core/tensor/naive_convert.h. Thread rule: only the main thread. */
#ifndef TDICT_TESTS_ENGINE_CONVERSIONS_H
#define TDICT_TESTS_ENGINE_CONVERSIONS_H

#include "core/tensor/naive_convert.h"
#include "trees.h"

static inline tdict_conversion to_dtype(const char *pattern, tdict_dtype dtype) {
  return td_with(tdict_conversion, pattern = pattern, dtype = dtype);
}
static inline tdict_conversion scaled(const char *pattern, tdict_dtype dtype, double scale, double offset) {
  tdict_conversion c = to_dtype(pattern, dtype);
  c.scale = scale;
  c.offset = offset;
  return c;
}

static inline void use_conversions(tdict_transfer_options *o, const tdict_conversion *conversions, size_t count) {
  o->conversions = conversions;
  o->num_conversions = count;
}
/* Returns options with conversions. `stats` may be NULL. */
static inline tdict_transfer_options converting(const tdict_conversion *conversions, size_t count,
                                                tdict_transfer_stats *stats) {
  tdict_transfer_options o = tdict_transfer_options_default();
  use_conversions(&o, conversions, count);
  o.stats = stats;
  return o;
}

/* A leaf and its conversion. The array `pairs` narrows, widens and scales integers, bools and floats. */
typedef struct pair_of {
  const char *path;
  tdict_dtype from, to;
  double scale, offset;
} pair_of;
static const pair_of pairs[] = {
    {"image", TDICT_U8, TDICT_BF16, 1 / 255.0, -0.5},
    {"tokens", TDICT_I64, TDICT_U16, 1, 0},
    {"wide", TDICT_U16, TDICT_I64, 1, 0},
    {"weights", TDICT_F32, TDICT_BF16, 1, 0},
    {"plain", TDICT_I32, TDICT_I32, 1, 0},
    {"deep.one", TDICT_F64, TDICT_F8E4M3, 1, 0},
    {"deep.two", TDICT_F16, TDICT_F64, 1, 0},
    {"deep.mask", TDICT_BOOL, TDICT_F32, 2, 1},
    {"deep.counts", TDICT_I64, TDICT_F16, 0.25, 3},
    {"few", TDICT_F64, TDICT_U8, 1, 0},
    {"last", TDICT_U8, TDICT_BOOL, 1, 0},
};
enum { NUM_PAIRS = sizeof pairs / sizeof *pairs };
static inline void use_rules(tdict_transfer_options *o) {
  static tdict_conversion rules[NUM_PAIRS];
  for (int i = 0; i < NUM_PAIRS; i++) rules[i] = scaled(pairs[i].path, pairs[i].to, pairs[i].scale, pairs[i].offset);
  use_conversions(o, rules, NUM_PAIRS);
}

/* Fills a tensor with random elements that the target dtype can represent. */
static inline void fill_fitting(tdict_tensor *t, const pair_of *p) {
  naive_random r = {next_seed()};
  const naive_dtype *from = naive_find(p->from), *to = naive_find(p->to);
  for (int64_t i = 0; i < tdict_tensor_numel(t); i++) {
    uint64_t bits = naive_bits(&r, from), unused;
    while (!naive_convert(to, from, bits, &unused)) bits = naive_bits(&r, from);
    naive_store(from, t->data, (size_t)i, bits);
  }
}
/* Makes the source tree. Its leaves are plain (`layout` 0), strided (1) or pinned (2). */
static inline tdict_tree *make_sources(const place *w, int layout) {
  tdict_tree *td = new_tree();
  for (int i = 0; i < NUM_PAIRS; i++) {
    const int64_t rows = i == 0 ? 151 : 1 + 7 * i, columns = i == 3 ? 300 : 131;
    tdict_tensor *t = NULL;
    td_ok(tdict_tensor_empty(pairs[i].from, SHAPE(rows, columns), layout == 2 ? w->pinned : NULL, &t, err));
    fill_fitting(t, &pairs[i]);
    if (layout == 1 && i % 2) t = permuted(t, (const int[]){1, 0});
    if (layout == 1 && i % 2 == 0) t = sliced(t, (tdict_tensor_range){1, columns - 2, columns / 2 - 1, -2});
    td_put(td, pairs[i].path, t);
  }
  return td;
}

static inline void check_converted(const place *w, const pair_of *p, const tdict_tensor *src, const tdict_tensor *got) {
  const naive_dtype *from = naive_find(p->from), *to = naive_find(p->to), *single = naive_find(TDICT_F32);
  const bool is_scaled = p->scale != 1 || p->offset != 0;
  assert_int_equal(tdict_tensor_dtype(got), p->to);
  assert_int_equal(tdict_tensor_ndim(got), tdict_tensor_ndim(src));
  for (int i = 0; i < tdict_tensor_ndim(src); i++)
    assert_int_equal(tdict_tensor_shape(got)[i], tdict_tensor_shape(src)[i]);
  scoped_bytes a = read_elements(w, src), b = read_elements(w, got);
  for (int64_t i = 0; i < tdict_tensor_numel(src); i++) {
    uint64_t want = 0;
    assert_true(naive_convert(is_scaled ? single : to, from, naive_load(from, a, (size_t)i), &want));
    if (is_scaled) {
      const uint32_t bits = (uint32_t)want;
      float x;
      memcpy(&x, &bits, sizeof x);
      volatile float product = x * (float)p->scale;
      volatile float sum = product + (float)p->offset;
      want = naive_float(to, (long double)sum);
    }
    if (!naive_equal(to, naive_load(to, b, (size_t)i), want))
      fail_msg("'%s': element %d is 0x%llx, wanted 0x%llx", p->path, (int)i,
               (unsigned long long)naive_load(to, b, (size_t)i), (unsigned long long)want);
  }
}
static inline void check_all(const place *w, const tdict_tree *src, const tdict_tree *out, tdict_device device) {
  for (int i = 0; i < NUM_PAIRS; i++)
    check_converted(w, &pairs[i], td_leaf(src, pairs[i].path), td_leaf(out, pairs[i].path));
  check_device(out, device);
}

#endif
