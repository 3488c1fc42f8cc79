/* Tests that comparing two trees finds the first difference. */
#include <math.h>

#include "rig.h"

static tdict_difference differ(const tdict_tree *a, const tdict_tree *b, const tdict_difference_options *o) {
  tdict_difference found;
  memset(&found, 0xA5, sizeof found);
  td_ok(tdict_get_difference(a, b, o, &found, err));
  return found;
}
static tdict_tree *numbers(void) {
  tdict_tree *td = TREE(2);
  td_put(td, "x", td_made(tensor, tdict_tensor_zeros(TDICT_F32, COUNTS(2, 3), NULL, &made, err)));
  td_put(td, "n.i", td_made(tensor, tdict_tensor_zeros(TDICT_I64, COUNTS(2), NULL, &made, err)));
  return td;
}

DEVICE_CASE(compare_finds_first_difference) {
  scoped_rig r = rig_open();
  scoped_tree host = numbers(), a = NULL, b = NULL;
  tdict_tree *other = NULL;
  td_ok(tdict_clone_deep(host, TD_IN(r.memory), &a, err));
  ((float *)tdict_data(host, "x"))[4] = 2;
  ((int64_t *)tdict_data(host, "n.i"))[1] = 5;
  td_ok(tdict_clone_deep(host, TD_IN(r.memory), &b, err));
  tdict_difference d = differ(a, b, NULL);
  assert_true(d.differs);
  assert_string_equal(d.path, "x");
  assert_int_equal(d.ndim, 2);
  assert_int_equal(d.index[0], 1);
  assert_int_equal(d.index[1], 1);
  assert_non_null(strstr(d.message, "0 and 2"));
  td_ok(tdict_fill(b, NULL, 0, NULL, err));
  assert_false(differ(a, b, NULL).differs);
  assert_false(differ(a, host, NULL).differs == differ(host, host, NULL).differs);
  td_ok(tdict_select(b, (const char *const[]){"n"}, 1, true, &other, err));
  d = differ(a, other, NULL);
  assert_string_equal(d.path, "x");
  assert_non_null(strstr(d.message, "only the first"));
  d = differ(other, a, NULL);
  assert_non_null(strstr(d.message, "only the second"));
  assert_string_equal(d.path, "x");
  assert_int_equal(d.ndim, 0);
  tdict_release(other);
  td_put(b, "n.i", TENSOR(2));
  assert_non_null(strstr(differ(a, b, NULL).message, "dtypes int64"));
  td_put_tree(b, "n.i", TREE(2));
  assert_non_null(strstr(differ(a, b, NULL).message, "a tensor and a tree"));
  td_put(b, "x", TENSOR(2, 4));
  d = differ(a, b, NULL);
  assert_non_null(strstr(d.message, "[2, 3] and [2, 4]"));
  assert_string_equal(d.path, "x");
  scoped_tree none = TREE(3);
  d = differ(a, none, NULL);
  assert_string_equal(d.path, "");
  assert_non_null(strstr(d.message, "batch sizes"));
}

CASE(compare_equal) {
  scoped_tree a = numbers(), b = NULL, turned = NULL;
  td_ok(tdict_select(a, (const char *const[]){"n", "x"}, 2, true, &b, err)); /* in another order */
  assert_true(tdict_equal(a, b));
  tdict_lock(b);
  assert_true(tdict_equal(a, b));
  td_ok(tdict_clone_deep(a, NULL, &turned, err));
  ((float *)tdict_data(turned, "x"))[0] = -0.0f; /* equal as a value, but not as bytes */
  assert_true(tdict_equal(a, turned));
  ((int64_t *)tdict_data(turned, "n.i"))[0] = INT64_C(1) << 62;
  assert_false(tdict_equal(a, turned));
  ((int64_t *)tdict_data(a, "n.i"))[0] = (INT64_C(1) << 62) + 1; /* a double could not represent this */
  assert_false(tdict_equal(a, turned));
  assert_false(tdict_equal(a, NULL));
}

CASE(compare_uses_tolerances) {
  scoped_tree a = numbers(), b = NULL;
  td_ok(tdict_clone_deep(a, NULL, &b, err));
  ((float *)tdict_data(a, "x"))[2] = 100.5f;
  ((float *)tdict_data(b, "x"))[2] = 100;
  ((int64_t *)tdict_data(a, "n.i"))[1] = 1;
  tdict_difference_options o = td_with(tdict_difference_options, relative = 0.004);
  assert_string_equal(differ(a, b, &o).path, "x");
  o.absolute = 0.11;
  assert_string_equal(differ(a, b, &o).path, "n.i");
  o.absolute = 1;
  assert_false(differ(a, b, &o).differs);
  ((float *)tdict_data(a, "x"))[2] = INFINITY;
  assert_true(differ(a, b, &o).differs);
  ((float *)tdict_data(b, "x"))[2] = INFINITY;
  assert_false(differ(a, b, &o).differs);
}

/* A bool is true if its byte is not 0, even if a tolerance is given. */
CASE(compare_takes_bools_as_truth) {
  static const unsigned char bytes[][2] = {{1, 2}, {255, 1}, {0, 1}};
  for (size_t i = 0; i < 3; i++) {
    tdict_tree *trees[2] = {NULL, NULL};
    for (int side = 0; side < 2; side++) {
      td_ok(tdict_create(0, NULL, &trees[side], err));
      scoped_tensor t = td_made(tensor, tdict_tensor_zeros(TDICT_BOOL, 0, NULL, NULL, &made, err));
      *(unsigned char *)tdict_tensor_data(t) = bytes[i][side];
      td_ok(tdict_set(trees[side], "b", t, err));
    }
    tdict_difference_options o = tdict_difference_options_default();
    for (o.absolute = 0; o.absolute < 1; o.absolute += 0.5)
      assert_int_equal(differ(trees[0], trees[1], &o).differs, (bytes[i][0] != 0) != (bytes[i][1] != 0));
    td_release(trees[0], trees[1]);
  }
}

/* Contiguous floats are compared in blocks. The first difference must be found at any position. */
CASE(compare_finds_one_of_many_floats) {
  static const int64_t places[] = {0, 1, 31, 32, 33, 63, 64, 99, 100, 149};
  static const tdict_dtype dtypes[] = {TDICT_F32, TDICT_F64};
  const int64_t shape[] = {3, 50};
  for (int i = 0; i < 20; i++) {
    const tdict_dtype dtype = dtypes[i % 2];
    const int64_t at = places[i / 2];
    for (int as_nan = 0; as_nan < 2; as_nan++) {
      scoped_tensor x = NULL;
      scoped_tree a = TREE(3), b = NULL;
      tdict_difference d = {0};
      td_ok(tdict_tensor_arange(dtype, 0, as_nan ? 0 : 1, 150, &x, err));
      tdict_tensor_desc view = td_with(tdict_tensor_desc, ndim = 2, shape = shape);
      td_put(a, "x", td_made(tensor, tdict_tensor_as_strided(x, &view, 0, &made, err)));
      td_ok(tdict_clone_deep(a, NULL, &b, err));
      tdict_tensor *whole = td_leaf(b, "x");
      assert_true(tdict_equal(a, b));
      const double other = as_nan ? NAN : -1;
      const float single = (float)other;
      for (int side = as_nan ? 0 : 1; side < 2; side++) {
        unsigned char *bytes = tdict_tensor_data(side ? whole : td_leaf(a, "x"));
        if (dtype == TDICT_F64) memcpy(bytes + at * 8, &other, 8);
        if (dtype == TDICT_F32) memcpy(bytes + at * 4, &single, 4);
      }
      td_ok(tdict_get_difference(a, b, NULL, &d, err));
      assert_true(d.differs);
      assert_int_equal(d.index[0] * 50 + d.index[1], at);
      td_ok(tdict_get_difference(a, b, td_options(tdict_difference_options, nan_equal = true), &d, err));
      assert_int_equal(d.differs, !as_nan);
    }
  }
}

CASE(compare_nan) {
  scoped_tree a = numbers(), b = NULL;
  tdict_difference_options o = tdict_difference_options_default();
  ((float *)tdict_data(a, "x"))[5] = NAN;
  td_ok(tdict_clone_deep(a, NULL, &b, err));
  assert_int_equal(differ(a, b, &o).index[1], 2);
  o.nan_equal = true;
  assert_false(differ(a, b, &o).differs);
  ((float *)tdict_data(a, "x"))[5] = 1;
  assert_true(differ(a, b, &o).differs);
}

/* Numbers of all dtypes are compared by value, within the tolerance. */
CASE(compare_reads_all_dtypes) {
  static const struct {
    tdict_dtype dtype;
    unsigned char one[16], near[16], far[16]; /* 1; within 0.3 of 1; farther from 1 */
  } rows[] = {{TDICT_F16, {0, 0x3c}, {0, 0x3d}, {0, 0x40}},
              {TDICT_BF16, {0x80, 0x3f}, {0xa0, 0x3f}, {0, 0x40}},
              {TDICT_F8E4M3, {0x38}, {0x3a}, {0x40}},
              {TDICT_F8E5M2, {0x3c}, {0x3d}, {0x40}},
              {TDICT_F64, {0, 0, 0, 0, 0, 0, 0xf0, 0x3f}, {0, 0, 0, 0, 0, 0, 0xf4, 0x3f}, {0, 0, 0, 0, 0, 0, 0, 0x40}},
              {TDICT_C64, {0, 0, 0x80, 0x3f}, {0, 0, 0xa0, 0x3f}, {0, 0, 0x80, 0x3f, 0, 0, 0x80, 0x3f}},
              {TDICT_I8, {1}, {1}, {0xff}},
              {TDICT_U16, {1}, {1}, {0xff, 0xff}}};
  tdict_difference_options o = td_with(tdict_difference_options, absolute = 0.3);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    tdict_tree *td[3];
    const unsigned char *bytes[] = {rows[i].one, rows[i].near, rows[i].far};
    for (int k = 0; k < 3; k++) {
      td[k] = help_tree(0, NULL);
      tdict_tensor *t = td_made(tensor, tdict_tensor_full(rows[i].dtype, COUNTS(2), bytes[k], &made, err));
      td_put(td[k], "t", t);
    }
    assert_false(differ(td[0], td[1], &o).differs);
    assert_true(differ(td[0], td[2], &o).differs);
    assert_true(differ(td[2], td[0], &o).differs);
    for (int k = 0; k < 3; k++) tdict_release(td[k]);
  }
}

CASE(compare_refuses) {
  scoped_tree a = numbers(), b = numbers();
  tdict_difference d;
  td_fails(TDICT_EINVAL, "b is NULL", tdict_get_difference(a, NULL, NULL, &d, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_get_difference(a, b, NULL, NULL, err));
  tdict_difference_options o = td_with(tdict_difference_options, absolute = -1);
  td_fails(TDICT_EINVAL, "-1", tdict_get_difference(a, b, &o, &d, err));
  o.absolute = NAN;
  td_fails(TDICT_EINVAL, "nan", tdict_get_difference(a, b, &o, &d, err));
  td_put(a, "far", help_tensor_on(tdict_sim(5), COUNTS(2)));
  td_put(b, "far", help_tensor_on(tdict_sim(5), COUNTS(2)));
  td_fails_at(TDICT_EWRONGDEVICE, "no context", "far", tdict_get_difference(a, b, NULL, &d, err));
}
