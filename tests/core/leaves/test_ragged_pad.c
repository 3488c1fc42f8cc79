/* Tests conversions between ragged leaves and padded tensors. Compares the results with plain arrays of rows. */
#include "rows.h"

/* Returns the rows, each padded to `longest` elements with `rest`. The caller frees the array. */
static float *pad(const rows *r, int64_t longest, float rest) {
  float *all = td_alloc((size_t)(r->count * longest * r->width) * sizeof *all + 1);
  for (int64_t i = 0; i < r->count * longest * r->width; i++) {
    const int64_t row = i / (longest * r->width), k = i % (longest * r->width);
    if (k < r->length[row] * r->width)
      memcpy(&all[i], &r->value[row][k], sizeof *all);
    else
      all[i] = rest;
  }
  return all;
}
static int64_t longest_of(const rows *r) {
  int64_t longest = 0;
  for (int64_t i = 0; i < r->count; i++) longest = r->length[i] > longest ? r->length[i] : longest;
  return longest;
}
static tdict_tensor *in_memory(tdict_tensor *host, tdict_memory *memory) {
  if (!memory) return host;
  tdict_tensor *moved = td_made(tensor, tdict_tensor_clone(host, memory, &made, err));
  tdict_tensor_release(host);
  return moved;
}
static tdict_tensor *padded_of(const rows *r, int64_t longest, tdict_memory *memory) {
  tdict_tensor *t = NULL;
  TD_FREED float *all = pad(r, longest, -1);
  td_ok(tdict_tensor_from_array(TDICT_F32, COUNTS(r->count, longest, r->width), all, &t, err));
  return in_memory(t, memory);
}
/* Returns the lengths of the rows as an int64 (`kind` 0) or int32 (1) tensor, or as a mask of bool (2) or uint8 (3). */
static tdict_tensor *lengths_of(const rows *r, int64_t longest, int kind, tdict_memory *memory) {
  int32_t narrow[MOST_ROWS];
  unsigned char mask[MOST_ROWS * 16] = {0};
  tdict_tensor *t = NULL;
  for (int64_t i = 0; i < r->count; i++) {
    narrow[i] = (int32_t)r->length[i];
    memset(mask + i * longest, kind == 2 ? 1 : 7, (size_t)r->length[i]);
  }
  if (kind < 2)
    td_ok(tdict_tensor_from_array(kind ? TDICT_I32 : TDICT_I64, COUNTS(r->count),
                                  kind ? (const void *)narrow : r->length, &t, err));
  else
    td_ok(tdict_tensor_from_array(kind == 2 ? TDICT_BOOL : TDICT_U8, COUNTS(r->count, longest), mask, &t, err));
  return in_memory(t, memory);
}

DEVICE_CASE(ragged_from_padded_copies_rows) {
  scoped_place w = open_place();
  tdict_memory *memory = w.gpu ? w.memory : NULL;
  for (int i = 0; i < 24; i++) {
    scoped_rows r = rows_random(i % 9, 1 + i % 3);
    const int64_t longest = longest_of(&r) + i % 2 * 3;
    scoped_tensor padded = padded_of(&r, longest, memory);
    scoped_tensor lengths = lengths_of(&r, longest, i % 4, i % 3 ? memory : NULL);
    scoped_ragged leaf = NULL;
    tdict_ragged_options o = td_with(tdict_ragged_options, offsets_dtype = i % 2 ? TDICT_I32 : TDICT_I64);
    td_ok(tdict_ragged_from_padded(padded, lengths, &o, &leaf, err));
    rows_check(&w, &r, leaf);
    assert_int_equal(tdict_tensor_dtype(tdict_ragged_get_info(leaf).offsets), o.offsets_dtype);
    assert_true(tdict_device_equal(tdict_tensor_device(tdict_ragged_get_info(leaf).values), w.device));
  }
}

DEVICE_CASE(ragged_to_padded_fills) {
  scoped_place w = open_place();
  tdict_memory *memory = w.gpu ? w.memory : NULL;
  for (int i = 0; i < 10; i++) {
    scoped_rows r = rows_random(i, 1 + i % 2);
    const int64_t longest = longest_of(&r), shape[] = {i, longest, r.width};
    scoped_ragged leaf = rows_make(&r, TDICT_I64, memory);
    scoped_tensor padded = NULL, mask = NULL;
    const float rest = w.gpu ? 0 : 2.5f; /* device memory can only be filled with a repeated byte */
    td_ok(tdict_ragged_to_padded(leaf, (double)rest, NULL, &padded, i % 3 ? &mask : NULL, err));
    assert_int_equal(tdict_tensor_ndim(padded), 3);
    assert_memory_equal(tdict_tensor_shape(padded), shape, sizeof shape);
    float *wanted = pad(&r, longest, rest);
    unsigned char *found = read_elements(&w, padded);
    assert_memory_equal(found, wanted, tdict_tensor_bytes(padded));
    free(found);
    free(wanted);
    if (mask) {
      assert_int_equal(tdict_tensor_dtype(mask), TDICT_BOOL);
      assert_memory_equal(tdict_tensor_shape(mask), shape, 2 * sizeof *shape);
      found = read_elements(&w, mask);
      for (int64_t k = 0; k < i * longest; k++) assert_int_equal(found[k], k % longest < r.length[k / longest]);
      free(found);
      scoped_ragged again = td_made(ragged, tdict_ragged_from_padded(padded, mask, NULL, &made, err));
      rows_check(&w, &r, again);
    }
    assert_true(tdict_device_equal(tdict_tensor_device(padded), w.device));
  }
}

GPU_CASE(ragged_to_padded_takes_a_memory) {
  scoped_place w = open_place();
  scoped_rows r = rows_of(2, COUNTS(1, 4, 0));
  scoped_ragged leaf = rows_make(&r, TDICT_I64, w.memory);
  tdict_tensor *padded = NULL, *mask = NULL;
  td_ok(tdict_ragged_to_padded(leaf, 3.5, w.pinned, &padded, &mask, err));
  assert_true(tdict_tensor_is_pinned(padded) && tdict_tensor_is_pinned(mask));
  float *wanted = pad(&r, 4, 3.5f);
  assert_memory_equal(tdict_tensor_const_data(padded), wanted, tdict_tensor_bytes(padded));
  free(wanted);
  td_release(padded, mask);
  padded = mask = NULL;
  td_fails(TDICT_ENOTSUP, "equal bytes", tdict_ragged_to_padded(leaf, 3.5, NULL, &padded, &mask, err));
  assert_true(!padded && !mask);
}

CASE(ragged_padded_refuses) {
  scoped_rows r = rows_of(2, COUNTS(1, 3));
  scoped_tensor padded = padded_of(&r, 3, NULL), lengths = lengths_of(&r, 3, 0, NULL);
  tdict_tensor *t = NULL, *out = NULL;
  scoped_ragged leaf = NULL;
  td_fails(TDICT_EINVAL, "padded is NULL", tdict_ragged_from_padded(NULL, lengths, NULL, &leaf, err));
  td_fails(TDICT_EINVAL, "lengths is NULL", tdict_ragged_from_padded(padded, NULL, NULL, &leaf, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_ragged_from_padded(padded, lengths, NULL, NULL, err));
  td_fails(TDICT_EDTYPE, "lengths is float32", tdict_ragged_from_padded(padded, padded, NULL, &leaf, err));
  td_fails(TDICT_ESHAPE, "padded has shape [2]", tdict_ragged_from_padded(lengths, lengths, NULL, &leaf, err));
  td_ok(tdict_tensor_from_array(TDICT_I32, COUNTS(3), (const int32_t[]){1, 2, 3}, &t, err));
  td_fails(TDICT_ESHAPE, "tensor of lengths has shape [3], wanted [2]",
           tdict_ragged_from_padded(padded, t, NULL, &leaf, err));
  tdict_tensor_release(t);
  td_ok(tdict_tensor_zeros(TDICT_BOOL, COUNTS(2, 4), NULL, &t, err));
  td_fails(TDICT_ESHAPE, "mask has shape [2, 4], wanted [2, 3]", tdict_ragged_from_padded(padded, t, NULL, &leaf, err));
  tdict_tensor_release(t);
  td_ok(tdict_tensor_from_array(TDICT_I64, COUNTS(2), (const int64_t[]){3, 4}, &t, err));
  td_fails(TDICT_EINVAL, "lengths[1] is 4, wanted 0 to 3", tdict_ragged_from_padded(padded, t, NULL, &leaf, err));
  tdict_tensor_release(t);
  td_ok(tdict_tensor_from_array(TDICT_I64, COUNTS(2), (const int64_t[]){-1, 3}, &t, err));
  td_fails(TDICT_EINVAL, "lengths[0] is -1", tdict_ragged_from_padded(padded, t, NULL, &leaf, err));
  tdict_tensor_release(t);
  td_ok(tdict_tensor_from_array(TDICT_BOOL, COUNTS(2, 3), (const char[]){1, 1, 0, 0, 0, 1}, &t, err));
  td_fails(TDICT_EINVAL, "row 1 of the mask is set at 2, but not at 0",
           tdict_ragged_from_padded(padded, t, NULL, &leaf, err));
  tdict_tensor_release(t);
  tdict_ragged_options o = td_with(tdict_ragged_options, offsets_dtype = TDICT_F32);
  td_fails(TDICT_EDTYPE, "offsets_dtype is float32", tdict_ragged_from_padded(padded, lengths, &o, &leaf, err));
  assert_null(leaf);
  td_fails(TDICT_EINVAL, "ragged is NULL", tdict_ragged_to_padded(NULL, 0, NULL, &out, NULL, err));
  td_ok(tdict_ragged_from_rows(&lengths, 1, NULL, &leaf, err)); /* a leaf with one row, of int64 */
  td_fails(TDICT_EINVAL, "padded is NULL", tdict_ragged_to_padded(leaf, 0, NULL, NULL, NULL, err));
  td_fails(TDICT_EOVERFLOW, "int64 does not hold 1e+30", tdict_ragged_to_padded(leaf, 1e30, NULL, &out, NULL, err));
  assert_null(out);
}

CASE(ragged_padded_survives_enomem) {
  scoped_rows r = rows_of(2, COUNTS(1, 3));
  scoped_tensor padded = padded_of(&r, 3, NULL), out = NULL, mask = NULL;
  tdict_ragged *leaf = NULL;
  for (int kind = 0; kind < 4; kind++) {
    scoped_tensor lengths = lengths_of(&r, 3, kind, NULL);
    TD_WITHOUT_MEMORY(tdict_ragged_from_padded(padded, lengths, NULL, &leaf, err));
    TD_WITHOUT_MEMORY(tdict_ragged_to_padded(leaf, 0, NULL, &out, &mask, err));
    td_release(out, mask, leaf);
  }
}
