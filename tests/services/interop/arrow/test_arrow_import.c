/* Tests the import of valid Arrow arrays, which are written by hand. */
#include <math.h>

#include "services/interop/arrow/rig.h"
#include "support/threads.h"

static tdict_tree *import_hand(hand *h, const tdict_arrow_import_options *options) {
  num_array_releases = num_schema_releases = 0;
  tdict_tree *tree = td_made(tree, tdict_arrow_import(&h->schema, &h->array, options, &made, err));
  assert_null(h->array.release);      /* the import now owns the array */
  assert_non_null(h->schema.release); /* the schema is only borrowed */
  assert_int_equal(tdict_batch_ndim(tree), 1);
  assert_false(tdict_get_device(tree, NULL));
  return tree;
}
static tdict_arrow_import_options nulls_as(tdict_arrow_nulls nulls) {
  return td_with(tdict_arrow_import_options, nulls = (int32_t)nulls);
}

static void *release_tensor_there(void *user) {
  tdict_tensor_release(user);
  return NULL;
}

CASE(arrow_import_shares_numbers_and_releases_once) {
  static const struct {
    const char *format;
    tdict_dtype dtype;
  } types[] = {{"c", TDICT_I8},  {"C", TDICT_U8},  {"s", TDICT_I16}, {"S", TDICT_U16},
               {"i", TDICT_I32}, {"I", TDICT_U32}, {"l", TDICT_I64}, {"L", TDICT_U64},
               {"e", TDICT_F16}, {"f", TDICT_F32}, {"g", TDICT_F64}};
  static const double elements[8];
  for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
    hand root, x;
    hand_one(&root, &x, types[i].format, 3, elements);
    root.array.offset = 2;
    x.array.length = 6;
    x.array.offset = 1;
    tdict_tree *tree = import_hand(&root, NULL);
    const tdict_tensor *t = td_leaf(tree, "x");
    assert_int_equal(tdict_tensor_dtype(t), types[i].dtype);
    has_shape(t, 1, (const int64_t[]){3});
    assert_ptr_equal(tdict_tensor_const_data(t), (const char *)elements + 3 * tdict_dtype_bytes(types[i].dtype));
    assert_null(tdict_tensor_data((tdict_tensor *)(uintptr_t)t)); /* read-only */
    /* The release of the last tensor releases the array, on the same thread. */
    tdict_tensor *kept = tdict_tensor_retain(t);
    tdict_release(tree);
    assert_int_equal(num_array_releases, 0);
    pthread_t thread = td_start(release_tensor_there, kept);
    pthread_join(thread, NULL);
    assert_int_equal(num_array_releases, 2); /* the struct and its field */
    assert_int_equal(num_schema_releases, 0);
  }
}

CASE(arrow_import_releases_copied_arrays_at_once) {
  static const uint8_t bits[] = {0x5};
  hand root, x;
  hand_one(&root, &x, "b", 3, bits);
  tdict_tree *tree = import_hand(&root, NULL);
  assert_int_equal(num_array_releases, 2);
  static const uint8_t wanted[] = {1, 0, 1};
  assert_memory_equal(tdict_const_data(tree, "x"), wanted, 3);
  assert_non_null(tdict_data(tree, "x")); /* copies may be written */
  tdict_release(tree);
  assert_int_equal(num_array_releases, 2);
}

CASE(arrow_import_reads_bits_at_any_offset) {
  uint8_t bits[40];
  td_fill_random(bits, sizeof bits, 9);
  for (int start = 0; start < 20; start++)
    for (int count = 0; count < 40; count += 3) {
      hand root, x;
      hand_one(&root, &x, "b", count, bits);
      x.array.offset = start / 2;
      root.array.offset = start - start / 2;
      x.array.length = count + root.array.offset;
      scoped_tree tree = import_hand(&root, NULL);
      const uint8_t *found = tdict_const_data(tree, "x");
      for (int i = 0; i < count; i++) assert_int_equal(found[i], hand_bit(bits, start + i));
    }
}

CASE(arrow_import_adds_offsets_of_all_levels) {
  static int32_t numbers[200];
  hand root, lists, pairs, items;
  for (int i = 0; i < 200; i++) numbers[i] = i;
  hand_make(&root, "+s", "", 4, 1);
  hand_make(&lists, "+w:3", "a.b", 9, 1);
  hand_make(&pairs, "+w:2", "item", 50, 1);
  hand_make(&items, "i", "item", 120, 2);
  hand_buffers(&items, NULL, numbers, NULL);
  hand_add(&root, &lists);
  hand_add(&lists, &pairs);
  hand_add(&pairs, &items);
  root.array.offset = 1;
  lists.array.offset = 2;
  pairs.array.offset = 5;
  items.array.offset = 7;
  tdict_tree *tree = import_hand(&root, NULL);
  const tdict_tensor *t = td_leaf(tree, "a\\.b");
  has_shape(t, 3, (const int64_t[]){4, 3, 2});
  assert_ptr_equal(tdict_tensor_const_data(t), numbers + ((1 + 2) * 3 + 5) * 2 + 7);
  tdict_release(tree);
  assert_int_equal(num_array_releases, 4);
}

CASE(arrow_import_copies_elements_that_are_not_aligned) {
  static const unsigned char bytes[17] = {9, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0};
  hand root, x;
  hand_one(&root, &x, "l", 2, bytes + 1);
  scoped_tree tree = import_hand(&root, NULL);
  assert_int_equal(num_array_releases, 2);
  const int64_t *found = tdict_const_data(tree, "x");
  assert_int_equal((uintptr_t)found % 8, 0);
  assert_true(found[0] == 1 && found[1] == 2);
}

/* Checks row `i` of a ragged leaf of int16 elements. */
static void is_row(const tdict_tree *tree, int64_t i, int64_t length, int first) {
  scoped_tensor row = NULL;
  tdict_ragged *r = td_made(ragged, tdict_get_ragged(tree, "x", &made, err));
  td_ok(tdict_ragged_get_row(r, i, &row, err));
  has_shape(row, 1, &length);
  for (int64_t k = 0; k < length; k++) assert_int_equal(((const int16_t *)tdict_tensor_const_data(row))[k], first + k);
}

CASE(arrow_import_makes_ragged_leaves) {
  static const int32_t narrow[] = {0, 2, 2, 5, 6};
  static const int64_t wide[] = {0, 2, 2, 5, 6};
  static const int16_t numbers[] = {0, 1, 2, 3, 4, 5, 6, 7};
  for (int first = 0; first < 2; first++)
    for (int large = 0; large < 2; large++) {
      hand root, x, item;
      hand_make(&root, "+s", "", 4 - first, 1);
      hand_make(&x, large ? "+L" : "+l", "x", 4, 2);
      hand_make(&item, "s", "item", 7, 2);
      hand_buffers(&x, NULL, large ? (const void *)wide : narrow, NULL);
      hand_buffers(&item, NULL, numbers, NULL);
      item.array.offset = 1;
      root.array.offset = first;
      hand_add(&root, &x);
      hand_add(&x, &item);
      tdict_tree *tree = import_hand(&root, NULL);
      tdict_ragged *r = td_made(ragged, tdict_get_ragged(tree, "x", &made, err));
      assert_int_equal(tdict_ragged_get_info(r).num_rows, 4 - first);
      const void *offsets = tdict_tensor_const_data(tdict_ragged_get_info(r).offsets);
      assert_int_equal(tdict_tensor_dtype(tdict_ragged_get_info(r).offsets), large ? TDICT_I64 : TDICT_I32);
      if (first == 0) assert_ptr_equal(offsets, large ? (const void *)wide : narrow); /* not copied */
      assert_ptr_equal(tdict_tensor_const_data(tdict_ragged_get_info(r).values), numbers + 1 + (first ? 2 : 0));
      if (!first) is_row(tree, 0, 2, 1);
      is_row(tree, 1 - first, 0, 0);
      is_row(tree, 2 - first, 3, 3);
      is_row(tree, 3 - first, 1, 6);
      tdict_release(tree);
      assert_int_equal(num_array_releases, 3);
    }
}

static void is_text(const tdict_tree *tree, const char *path, int64_t i, const char *wanted) {
  tdict_value value;
  td_ok(tdict_get_value(tree, path, i, &value, err));
  assert_int_equal(value.kind, wanted ? TDICT_VALUE_TEXT : TDICT_VALUE_NULL);
  if (!wanted) return;
  assert_int_equal(value.length, strlen(wanted));
  assert_memory_equal(value.text, wanted, strlen(wanted));
}

CASE(arrow_import_makes_columns_of_texts) {
  static const int32_t narrow[] = {1, 3, 3, 7, 8};
  static const int64_t wide[] = {1, 3, 3, 7, 8};
  static const char text[] = "xab\xf0\x9f\x8c\x8dz";
  static const char *const wanted[] = {"ab", "", "\xf0\x9f\x8c\x8d", "z"};
  for (int large = 0; large < 2; large++)
    for (int first = 0; first <= 4; first++) {
      hand root, x;
      hand_make(&root, "+s", "", 4 - first, 1);
      hand_make(&x, large ? "U" : "u", "x", 4, 3);
      hand_buffers(&x, NULL, large ? (const void *)wide : narrow, text);
      root.array.offset = first;
      hand_add(&root, &x);
      scoped_tree tree = import_hand(&root, NULL);
      assert_int_equal(num_array_releases, 2);
      for (int i = first; i < 4; i++) is_text(tree, "x", i - first, wanted[i]);
    }
}

CASE(arrow_import_refuses_nulls_by_default) {
  static const float numbers[] = {1, 2, 3};
  static const uint8_t valid[] = {5};
  hand root, x, item;
  tdict_tree *tree = NULL;
  hand_one(&root, &x, "f", 3, numbers);
  x.buffers[0] = valid;
  x.array.null_count = -1; /* unknown */
  num_array_releases = 0;
  td_fails(TDICT_EINVAL, "1 of 3 rows are null", tdict_arrow_import(&root.schema, &root.array, NULL, &tree, err));
  assert_string_equal(td_last_error.path, "x");
  assert_non_null(root.array.release);
  assert_non_null(x.array.release);
  assert_int_equal(num_array_releases, 0);
  /* Imports only the first row, which is not null. */
  root.array.length = 1;
  tree = import_hand(&root, NULL);
  assert_ptr_equal(tdict_const_data(tree, "x"), numbers);
  tdict_release(tree);
  /* Nulls inside lists are refused, too. */
  hand_make(&root, "+s", "", 1, 1);
  hand_make(&x, "+w:3", "x", 1, 1);
  hand_make(&item, "f", "item", 3, 2);
  hand_buffers(&item, valid, numbers, NULL);
  item.array.null_count = 1;
  hand_add(&root, &x);
  hand_add(&x, &item);
  td_fails(TDICT_EINVAL, "1 of 3 rows", tdict_arrow_import(&root.schema, &root.array, NULL, &tree, err));
  /* With a null count of 0, there are no nulls, whatever the bits are. */
  item.array.null_count = 0;
  tree = import_hand(&root, NULL);
  tdict_release(tree);
  /* All rows of a field of the null type are null. */
  hand_make(&root, "+s", "", 2, 1);
  hand_make(&x, "n", "x", 2, 0);
  hand_add(&root, &x);
  td_fails(TDICT_EINVAL, "2 of 2 rows", tdict_arrow_import(&root.schema, &root.array, NULL, &tree, err));
}

CASE(arrow_import_fills_nulls) {
  static const float floats[] = {1, 2, 3, 4};
  static const int16_t numbers[] = {1, 2, 3, 4, 5, 6, 7, 8};
  static const uint8_t valid[] = {0xa}, bits[] = {0xf}, inner[] = {0x7f};
  for (int given = 0; given < 2; given++) {
    hand root, f, b, w, w_item;
    tdict_arrow_import_options o = nulls_as(TDICT_ARROW_NULLS_FILL);
    if (given) o.fill_value = 1;
    hand_make(&root, "+s", "", 4, 1);
    hand_numbers(&root, &f, "f", "f", valid, floats);
    hand_numbers(&root, &b, "b", "b", valid, bits);
    hand_make(&w, "+w:2", "w", 4, 1);
    hand_buffers(&w, valid, NULL, NULL);
    hand_make(&w_item, "s", "item", 8, 2);
    hand_buffers(&w_item, inner, numbers, NULL);
    hand_add(&w, &w_item);
    hand_add(&root, &w);
    f.array.null_count = b.array.null_count = w.array.null_count = 2;
    w_item.array.null_count = 1;
    scoped_tree tree = import_hand(&root, &o);
    const float *found = tdict_const_data(tree, "f");
    assert_true(found[1] == 2 && found[3] == 4);
    if (given) assert_true(found[0] == 1 && found[2] == 1);
    if (!given) assert_true(isnan(found[0]) && isnan(found[2]));
    const uint8_t bools[] = {(uint8_t)given, 1, (uint8_t)given, 1};
    assert_memory_equal(tdict_const_data(tree, "b"), bools, 4);
    const int16_t fill = (int16_t)given, pairs[] = {fill, fill, 3, 4, fill, fill, 7, fill};
    assert_memory_equal(tdict_const_data(tree, "w"), pairs, sizeof pairs);
    assert_false(tdict_has(tree, "_mask"));
    assert_true(floats[0] == 1 && numbers[0] == 1); /* the array is unchanged */
  }
}

/* Null lists become empty, even if their offsets include elements. Null texts become null values. */
CASE(arrow_import_empties_null_lists_and_texts) {
  static const int16_t numbers[] = {1, 2, 3, 4, 5, 6, 7, 8};
  static const uint8_t valid[] = {0xa};
  static const int32_t offsets[] = {0, 3, 5, 8, 8};
  static const char text[] = "abcdefgh";
  hand root, x, item, t;
  tdict_arrow_import_options o = nulls_as(TDICT_ARROW_NULLS_FILL);
  hand_make(&root, "+s", "", 4, 1);
  hand_make(&x, "+l", "x", 4, 2);
  hand_buffers(&x, valid, offsets, NULL);
  hand_make(&item, "s", "item", 8, 2);
  hand_buffers(&item, NULL, numbers, NULL);
  hand_make(&t, "u", "t", 4, 3);
  hand_buffers(&t, valid, offsets, text);
  x.array.null_count = t.array.null_count = 2;
  hand_add(&root, &x);
  hand_add(&x, &item);
  hand_add(&root, &t);
  scoped_tree tree = import_hand(&root, &o);
  is_row(tree, 0, 0, 0);
  is_row(tree, 1, 2, 4);
  is_row(tree, 2, 0, 0);
  is_row(tree, 3, 0, 0);
  is_text(tree, "t", 0, NULL);
  is_text(tree, "t", 1, "de");
  is_text(tree, "t", 2, NULL);
  is_text(tree, "t", 3, "");
}

CASE(arrow_import_masks_nulls) {
  static const int32_t numbers[] = {1, 2, 3, 4};
  static const uint8_t valid[] = {0xd}, above[] = {0x7};
  for (int all = 0; all < 2; all++) {
    hand root, n, x, y, z, t;
    tdict_arrow_import_options o = nulls_as(TDICT_ARROW_NULLS_MASK);
    o.mask_all = all;
    o.mask_path = all ? "masks.here" : "_mask";
    hand_make(&root, "+s", "", 4, 1);
    hand_make(&n, "+s", "n", 4, 1);
    hand_buffers(&n, above, NULL, NULL);
    n.array.null_count = 1;
    hand_add(&root, &n);
    hand_numbers(&n, &x, "i", "x.y", valid, numbers);
    x.array.null_count = 1;
    hand_numbers(&n, &y, "i", "y", NULL, numbers);
    hand_numbers(&root, &z, "i", "z", NULL, numbers);
    hand_make(&t, "n", "t", 4, 0);
    hand_add(&root, &t);
    scoped_tree tree = import_hand(&root, &o);
    char path[64];
    static const uint8_t of_x[] = {1, 0, 1, 0}, of_y[] = {1, 1, 1, 0}, of_z[] = {1, 1, 1, 1}, of_t[] = {0, 0, 0, 0};
    static const struct {
      const char *path;
      const uint8_t *mask;
    } masks[] = {{"n.x\\.y", of_x}, {"n.y", of_y}, {"t", of_t}, {"z", of_z}};
    for (int i = 0; i < 3 + all; i++) {
      snprintf(path, sizeof path, "%s.%s", o.mask_path, masks[i].path);
      assert_int_equal(tdict_tensor_dtype(td_leaf(tree, path)), TDICT_BOOL);
      has_shape(td_leaf(tree, path), 1, (const int64_t[]){4});
      assert_memory_equal(tdict_const_data(tree, path), masks[i].mask, 4);
    }
    assert_int_equal(tdict_has(tree, "masks.here.z"), all);
    assert_false(tdict_has(tree, "_mask.z"));
    static const int32_t x_filled[] = {1, 0, 3, 0}, y_filled[] = {1, 2, 3, 0};
    assert_memory_equal(tdict_const_data(tree, "n.x\\.y"), x_filled, sizeof x_filled);
    assert_memory_equal(tdict_const_data(tree, "n.y"), y_filled, sizeof y_filled);
    is_text(tree, "t", 2, NULL);
  }
  /* Without nulls, the import makes no masks. */
  hand root, x;
  tdict_arrow_import_options o = nulls_as(TDICT_ARROW_NULLS_MASK);
  hand_one(&root, &x, "i", 4, numbers);
  scoped_tree tree = import_hand(&root, &o);
  assert_false(tdict_has(tree, "_mask"));
}

/* Returns metadata in Arrow's format: the number of pairs, then the length and the bytes of each text. */
static const char *extension(const char *name, const char *json) {
  static char bytes[512];
  const char *const texts[] = {"other", "value", "ARROW:extension:name", name, "ARROW:extension:metadata", json};
  int32_t count = 3;
  char *at = bytes;
  memcpy(at, &count, 4);
  at += 4;
  for (int i = 0; i < 6; i++) {
    const int32_t length = (int32_t)strlen(texts[i]);
    memcpy(at, &length, 4);
    memcpy(at + 4, texts[i], (size_t)length);
    at += 4 + length;
  }
  return bytes;
}

CASE(arrow_import_reads_fixed_shape_tensors) {
  static const int32_t numbers[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  static const char fixed[] = "arrow.fixed_shape_tensor";
  static const struct {
    const char *name, *json, *error;
    int ndim;
    int64_t shape[3], at_first;
  } tests[] = {
      {fixed, "{\"shape\":[2,3]}", NULL, 3, {2, 2, 3}, 3},
      {fixed, "{\"dim_names\":[\"shape\",\"b\"], \"shape\" : [ 3 , 2 ] }", NULL, 3, {2, 3, 2}, 2},
      {fixed, "{\"shape\":[2,3],\"permutation\":[1,0]}", NULL, 3, {2, 3, 2}, 1},
      {fixed, "{\"shape\":[6]}", NULL, 2, {2, 6}, 1},
      {"other", "{\"shape\":[2,3]}", NULL, 2, {2, 6}, 1},
      {fixed, "{\"a\":[{\"shape\":[3,2]}],\"shape\":[2,3],\"b\":{\"permutation\":[1,0]}}", NULL, 3, {2, 2, 3}, 3},
      {fixed, "{\"a\\\\\":{},\"b\\\"shape\":[3,2],\"shape\":[2,3]}", NULL, 3, {2, 2, 3}, 3},
      {fixed, "{\"a\":{\"shape\":[2,3]}}", "does not describe", 0, {0}, 0},
      {fixed, "[{\"shape\":[2,3]}]", "does not describe", 0, {0}, 0},
      {fixed, "{\"shape\":[2,2]}", "does not describe lists of 6", 0, {0}, 0},
      {fixed, "{\"shape\":[2,3],\"permutation\":[0,0]}", "does not describe", 0, {0}, 0},
      {fixed, "{\"shape\":[2,3],\"permutation\":[0]}", "does not describe", 0, {0}, 0},
      {fixed, "{\"shape\":[2,3],\"permutation\":[0,2]}", "does not describe", 0, {0}, 0},
      {fixed, "{\"shape\":[-2,-3]}", "does not describe", 0, {0}, 0},
      {fixed, "{\"shape\":[9223372036854775807,9223372036854775807]}", "does not describe", 0, {0}, 0},
      {fixed, "{\"shape\":[99999999999999999999]}", "does not describe", 0, {0}, 0},
      {fixed, "{\"shape\":6}", "does not describe", 0, {0}, 0},
      {fixed, "{\"shape\":[[6]]}", "does not describe", 0, {0}, 0},
      {fixed, "{\"shape\":[2,3", "does not describe", 0, {0}, 0},
      {fixed, "{}", "does not describe", 0, {0}, 0},
      {fixed, "", "does not describe", 0, {0}, 0},
  };
  for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
    hand root, x, item;
    scoped_tree tree = NULL;
    hand_make(&root, "+s", "", 2, 1);
    hand_make(&x, "+w:6", "x", 2, 1);
    hand_make(&item, "i", "item", 12, 2);
    hand_buffers(&item, NULL, numbers, NULL);
    hand_add(&root, &x);
    hand_add(&x, &item);
    x.schema.metadata = extension(tests[i].name, tests[i].json);
    if (tests[i].error) {
      td_fails_at(TDICT_EFORMAT, tests[i].error, "x", tdict_arrow_import(&root.schema, &root.array, NULL, &tree, err));
      continue;
    }
    tree = import_hand(&root, NULL);
    has_shape(td_leaf(tree, "x"), tests[i].ndim, tests[i].shape);
    /* The element at index [0, 1] or [0, 1, 0]. */
    assert_int_equal(((const int32_t *)tdict_const_data(tree, "x"))[tdict_tensor_strides(td_leaf(tree, "x"))[1]],
                     tests[i].at_first);
  }
}

/* Exports and imports trees with every kind of leaf, whole and as slices. */
CASE(arrow_round_trips_return_equal_trees) {
  for (uint64_t seed = 0; seed < 60; seed++) {
    const int64_t rows = (int64_t)(seed % 8) * 3;
    scoped_tree tree = sample_tree(rows, seed), back = NULL, part = NULL;
    for (int64_t start = 0; start <= rows; start += 2) {
      exported e = export_tree(tree);
      e.array.offset = start;
      e.array.length = rows - start;
      td_ok(tdict_arrow_import(&e.schema, &e.array, NULL, &back, err));
      e.schema.release(&e.schema);
      td_ok(tdict_index_get(NULL, tree, TDICT_INDEX(TDICT_RANGE(start, rows, 1)), NULL, &part, err));
      equal_trees(part, back);
      td_release(back, part);
    }
  }
}

CASE(arrow_import_keeps_child_trees_and_empty_structs) {
  const int64_t shape[2] = {3, 2};
  scoped_tree tree = new_tree(3), empty = new_tree(3), child = NULL, back = NULL;
  td_ok(tdict_create(2, shape, &child, err));
  td_put(child, "x", random_tensor(TDICT_U8, 2, shape, 1));
  td_ok(tdict_set_tree(tree, "a.empty", empty, err));
  td_ok(tdict_set_tree(tree, "a.child", child, err));
  exported e = export_tree(tree);
  td_ok(tdict_arrow_import(&e.schema, &e.array, NULL, &back, err));
  e.schema.release(&e.schema);
  assert_int_equal(tdict_num_leaves(back), 1);
  assert_memory_equal(tdict_const_data(back, "a.child.x"), tdict_const_data(child, "x"), 6);
  tdict_tree *found = td_made(tree, tdict_get_tree(back, "a.empty", &made, err));
  assert_int_equal(tdict_num_keys(found), 0);
  assert_int_equal(tdict_batch_size(found)[0], 3);
  td_ok(tdict_get_tree(back, "a.child", &found, err));
  assert_int_equal(tdict_batch_ndim(found), 1); /* Arrow has no second batch dimension */
}

CASE(arrow_import_survives_enomem) {
  static const uint8_t valid[] = {0x16};
  scoped_tree tree = sample_tree(5, 4);
  tdict_arrow_import_options o = nulls_as(TDICT_ARROW_NULLS_MASK);
  int64_t failures = 0;
  TD_SWEEP(s) {
    exported e = export_tree(tree);
    scoped_tree back = NULL;
    struct ArrowArray *ragged = e.array.children[2];
    const void *without = ragged->buffers[0];
    ragged->buffers[0] = e.array.children[0]->buffers[0] = valid;
    ragged->null_count = e.array.children[0]->null_count = -1;
    if (td_sweep_call(s, tdict_arrow_import(&e.schema, &e.array, &o, &back, err)) == TDICT_OK) {
      assert_null(e.array.release);
    } else {
      assert_null(back);
      assert_non_null(e.array.release); /* the caller still owns the array */
      ragged->buffers[0] = without;
      e.array.release(&e.array);
      failures++;
    }
    e.schema.release(&e.schema);
  }
  assert_true(failures > 60);
}
