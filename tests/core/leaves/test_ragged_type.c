/* Tests operations on trees with ragged leaves against plain arrays of rows. "n.x" is a ragged leaf, "t" a tensor. */
#include "rows.h"

CASE(ragged_set_and_get) {
  scoped_place w = open_place();
  rows r = rows_random(4, 2), other = rows_random(3, 1);
  tdict_tree *td = TREE(4), *plain = help_tree(0, NULL);
  tdict_ragged *leaf = rows_put(td, "n.x", &r, NULL), *wrong = rows_make(&other, TDICT_I64, NULL), *got = NULL;
  assert_ptr_equal(rows_get(td, "n.x"), leaf);
  assert_ptr_equal(tdict_object_type(td, "n.x"), tdict_ragged_type());
  td_ok(tdict_set_ragged(td, "n.x", leaf, err));  /* sets the same leaf again */
  td_ok(tdict_set_ragged(plain, "a", leaf, err)); /* and in a second tree, which has no batch dimensions */
  td_ok(tdict_set_ragged(plain, "b", wrong, err));
  tdict_entry entry;
  td_ok(tdict_get_entry(td, "n.x", &entry, err));
  assert_ptr_equal(entry.object, leaf);
  assert_ptr_equal(entry.type, tdict_ragged_type());
  char *before = help_snapshot(td);
  td_fails_at(TDICT_ESHAPE, "batch size is [4], the object has [3]", "n.y", tdict_set_ragged(td, "n.y", wrong, err));
  td_fails(TDICT_EINVAL, "ragged is NULL", tdict_set_ragged(td, "n.y", NULL, err));
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_set_ragged(NULL, "n.y", leaf, err));
  td_fails(TDICT_EINVAL, "path is NULL", tdict_set_ragged(td, NULL, leaf, err));
  td_fails(TDICT_EINVAL, "empty key", tdict_set_ragged(td, "n..y", leaf, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_get_ragged(td, "n.x", NULL, err));
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_get_ragged(NULL, "n.x", &got, err));
  td_fails(TDICT_ENOTFOUND, "", tdict_get_ragged(td, "n.z", &got, err));
  td_fails(TDICT_ETYPE, "found a tree", tdict_get_ragged(td, "n", &got, err));
  td_fails(TDICT_ESHAPE, "", tdict_update(td, plain, NULL, 0, err));
  td_fails(TDICT_ESHAPE, "", tdict_set_tree(td, "n.sub", plain, err));
  td_fails(TDICT_ESHAPE, "the tree has [4]", tdict_set_batch_size(td, 1, (const int64_t[]){3}, err));
  td_fails(TDICT_ESHAPE, "the object has [4]",
           tdict_set_batch_size(td_child(td, "n"), 2, (const int64_t[]){4, 2}, err));
  help_unchanged(td, before);
  tdict_lock(td);
  td_fails(TDICT_ELOCKED, "locked", tdict_set_ragged(td, "n.x", leaf, err));
  TD_WITHOUT_MEMORY(tdict_set_ragged(plain, "c", wrong, err));
  td_release(wrong, plain);
  rows_check_and_release(&w, &r, td);
  rows_free(&other);
}

DEVICE_CASE(ragged_index_takes_rows_and_ranges) {
  scoped_place w = open_place();
  for (int n = 0; n < 40; n++) {
    rows r = rows_random(1 + n % 7, 1 + n % 3);
    tdict_tree *td = rows_tree(&r, MEMORY(w)), *out = NULL;
    tdict_tensor *values = tdict_ragged_get_info(rows_get(td, "n.x")).values;
    const int64_t i = rows_pick((uint32_t)r.count), first = rows_pick((uint32_t)r.count);
    const int64_t count = rows_pick((uint32_t)(r.count - first) + 1);
    td_ok(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_AT(i - r.count)), NULL, &out, err));
    assert_int_equal(tdict_batch_ndim(out), 0);
    rows_check_row(&w, &r, i, td_leaf(out, "n.x"));
    assert_true(tdict_tensor_shares_storage(td_leaf(out, "n.x"), values));
    tdict_release(out);
    td_ok(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_RANGE(first, first + count, 1)), NULL, &out, err));
    int64_t positions[MOST_ROWS];
    for (int64_t k = 0; k < count; k++) positions[k] = first + k;
    rows part = rows_select(&r, count, positions);
    assert_true(tdict_tensor_shares_storage(tdict_ragged_get_info(rows_get(out, "n.x")).values, values));
    rows_check_and_release(&w, &part, out);
    td_ok(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_ALL), NULL, &out, err));
    assert_ptr_equal(rows_get(out, "n.x"), rows_get(td, "n.x"));
    tdict_release(out);
    rows_check_and_release(&w, &r, td);
  }
}

DEVICE_CASE(ragged_index_lists_copy) {
  scoped_place w = open_place();
  for (int n = 0; n < 40; n++) {
    rows r = rows_random(1 + n % 7, 1 + n % 3);
    tdict_tree *td = rows_tree(&r, MEMORY(w)), *out = NULL;
    int64_t list[9] = {0}, back[MOST_ROWS], set[MOST_ROWS], num_set = 0;
    bool mask[MOST_ROWS];
    const int64_t count = n % 9;
    for (int64_t k = 0; k < count; k++)
      list[k] = n % 2 && k ? (list[k - 1] + 1) % r.count : rows_pick((uint32_t)r.count);
    for (int64_t k = 0; k < r.count; k++) {
      back[k] = r.count - 1 - k;
      mask[k] = rows_pick(2);
      if (mask[k]) set[num_set++] = k;
    }
    tdict_tensor *mask_tensor = td_made(tensor, tdict_tensor_from_array(TDICT_BOOL, COUNTS(r.count), mask, &made, err));
    if (w.gpu) {
      td_fails(TDICT_ENOTSUP, "", tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST(list, 1)), NULL, &out, err));
      td_ok(tdict_delete(td, "t", err));
      td_fails_at(TDICT_ENOTSUP, "rows on a device", "n.x",
                  tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST(list, 1)), NULL, &out, err));
    } else {
      const tdict_tensor *values = tdict_ragged_get_info(rows_get(td, "n.x")).values;
      td_ok(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST(list, count)), NULL, &out, err));
      rows part = rows_select(&r, count, list);
      assert_false(tdict_tensor_shares_storage(tdict_ragged_get_info(rows_get(out, "n.x")).values, values));
      rows_check_and_release(&w, &part, out);
      td_ok(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_MASK(mask_tensor)), NULL, &out, err));
      part = rows_select(&r, num_set, set);
      rows_check_and_release(&w, &part, out);
      td_ok(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_RANGE(TDICT_NONE, TDICT_NONE, -1)), NULL, &out, err));
      part = rows_select(&r, r.count, back);
      rows_check_and_release(&w, &part, out);
    }
    tdict_tensor_release(mask_tensor);
    rows_check_and_release(&w, &r, td);
  }
}

CASE(ragged_shapes_refuse) {
  static const int64_t pairs[] = {2, 2};
  place w = open_place();
  rows r = rows_random(4, 2);
  tdict_tree *td = rows_tree(&r, NULL), *out = NULL;
  const tdict_tree *both[] = {td, td};
#define REFUSED(call)                               \
  do {                                              \
    td_fails(TDICT_ENOTSUP, "ragged", call);        \
    assert_string_equal(td_last_error.path, "n.x"); \
    assert_null(out);                               \
  } while (0)
  REFUSED(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_NEW_AXIS), NULL, &out, err));
  REFUSED(tdict_unsqueeze(td, 0, &out, err));
  REFUSED(tdict_reshape(td, 2, pairs, &out, err));
  REFUSED(tdict_expand(td, 2, (const int64_t[]){3, 4}, &out, err));
  REFUSED(tdict_stack(both, 2, NULL, NULL, &out, err));
  assert_non_null(strstr(td_last_error.message, "would get a second batch dimension, wanted cat"));
  REFUSED(tdict_pad_sequence(both, 2, NULL, NULL, &out, err));
  rows_check_and_release(&w, &r, td);
  place_close(&w);
}

DEVICE_CASE(ragged_split_and_unbind) {
  scoped_place w = open_place();
  rows r = rows_random(7, 2);
  tdict_tree *td = rows_tree(&r, MEMORY(w)), *parts[8] = {NULL};
  size_t count = 8;
  td_ok(tdict_unbind(td, 0, parts, &count, err));
  assert_int_equal(count, 7);
  for (size_t i = 0; i < count; i++) {
    rows_check_row(&w, &r, (int64_t)i, td_leaf(parts[i], "n.x"));
    tdict_release(parts[i]);
  }
  count = 8;
  td_ok(tdict_split(td, 0, (const int64_t[]){2, 0, 4, 1}, parts, &(size_t){4}, err));
  const int64_t starts[] = {0, 2, 2, 6, 7}, all[] = {0, 1, 2, 3, 4, 5, 6};
  for (int i = 0; i < 4; i++) {
    rows part = rows_select(&r, starts[i + 1] - starts[i], all + starts[i]);
    rows_check_and_release(&w, &part, parts[i]);
  }
  rows_check_and_release(&w, &r, td);
}

DEVICE_CASE(ragged_cat_joins_rows) {
  scoped_place w = open_place();
  for (int n = 0; n < 10; n++) {
    rows r[3], sum = {.width = 2};
    tdict_tree *td[3], *out = NULL;
    for (int i = 0; i < 3; i++) {
      r[i] = rows_random(rows_pick(5), 2);
      td[i] = rows_tree(&r[i], MEMORY(w));
      for (int64_t k = 0; k < r[i].count; k++) rows_add_copy(&sum, &r[i], k);
    }
    td_ok(tdict_cat((const tdict_tree *const *)td, 3, NULL, NULL, &out, err));
    assert_int_equal(tdict_tensor_dtype(tdict_ragged_get_info(rows_get(out, "n.x")).offsets),
                     tdict_tensor_dtype(tdict_ragged_get_info(rows_get(td[0], "n.x")).offsets));
    assert_true(tdict_device_equal(tdict_tensor_device(tdict_ragged_get_info(rows_get(out, "n.x")).values), w.device));
    rows_check_and_release(&w, &sum, out);
    for (int i = 0; i < 3; i++) rows_check_and_release(&w, &r[i], td[i]);
  }
}

CASE(ragged_cat_refuses) {
  scoped_place w = open_place();
  rows r = rows_random(3, 2), wide = rows_random(3, 3);
  tdict_tree *a = rows_tree(&r, NULL), *b = rows_tree(&wide, NULL), *out = NULL;
  const tdict_tree *both[] = {a, b}, *same[] = {a, a};
  td_fails_at(TDICT_ESHAPE, "tensor 1 has shape", "n.x", tdict_cat(both, 2, NULL, NULL, &out, err));
  TD_WITHOUT_MEMORY(tdict_cat(same, 2, NULL, NULL, &out, err));
  tdict_release(out);
  rows_check_and_release(&w, &wide, b);
  rows_check_and_release(&w, &r, a);
}

/* Makes trees of batch size []. Tree i has row i of `r` at "n.x" and a tensor of two numbers at "t". */
static void make_samples(const rows *r, tdict_memory *memory, tdict_tree **samples) {
  for (int64_t i = 0; i < r->count; i++) {
    samples[i] = help_tree(0, NULL);
    td_put(samples[i], "n.x", rows_tensor(r, i, memory));
    td_put(samples[i], "t", td_made(tensor, tdict_tensor_zeros(TDICT_I16, COUNTS(2), memory, &made, err)));
  }
}

DEVICE_CASE(ragged_stack_makes_leaves) {
  scoped_place w = open_place();
  for (int n = 0; n < 6; n++) {
    scoped_rows r = rows_random(5, 2);
    tdict_tree *samples[5], *out = NULL;
    if (n == 5) { /* rows of equal length are stacked into a tensor */
      rows_free(&r);
      r = rows_of(2, COUNTS(3, 3, 3, 3, 3));
    }
    make_samples(&r, MEMORY(w), samples);
    const tdict_tree *const *items = (const tdict_tree *const *)samples;
    tdict_join_options o = tdict_join_options_default();
    tdict_run run = tdict_run_default();
    bool is_ragged = false;
    for (int i = 1; i < 5; i++) is_ragged |= r.length[i] != r.length[0];
    if (is_ragged) td_fails(TDICT_ESHAPE, "shape", tdict_stack(items, 5, &o, &run, &out, err));
    o.ragged = true;
    if (w.gpu && n == 1) run.memory = w.memory;
    td_ok(tdict_stack(items, 5, &o, &run, &out, err));
    assert_int_equal(tdict_tensor_shape(td_leaf(out, "t"))[0], 5);
    if (is_ragged) {
      rows_check_at(&w, &r, out, "n.x");
      assert_int_equal(tdict_tensor_dtype(tdict_ragged_get_info(rows_get(out, "n.x")).offsets), TDICT_I64);
    } else {
      assert_int_equal(tdict_tensor_ndim(td_leaf(out, "n.x")), 3);
    }
    assert_int_equal(tdict_batch_size(out)[0], 5);
    tdict_release(out);
    if (!w.gpu) {
      TD_WITHOUT_MEMORY(tdict_stack(items, 5, &o, &run, &out, err));
      tdict_release(out);
    }
    for (int i = 0; i < 5; i++) tdict_release(samples[i]);
  }
}

static void end_number(void *self) { free(self); }
static tdict_status flatten_number(const void *self, tdict_tree **out, tdict_error *err) {
  (void)self;
  return tdict_create(0, NULL, out, err);
}
static tdict_status unflatten_number(const void *self, const tdict_tree *tree, void **out, tdict_error *err) {
  (void)self, (void)tree, (void)err;
  *out = malloc(1);
  return TDICT_OK;
}
static const tdict_type number_type =
    TD_TYPE(.name = "number", .release = end_number, .flatten = flatten_number, .unflatten = unflatten_number);

CASE(ragged_stack_refuses) {
  scoped_rows r = rows_of(2, COUNTS(1, 3));
  tdict_tree *samples[2], *batched = TREE(1), *out = NULL;
  make_samples(&r, NULL, samples);
  const tdict_tree *const *items = (const tdict_tree *const *)samples, *one[] = {batched};
  tdict_join_options o = td_with(tdict_join_options, ragged = true);
  td_fails(TDICT_EINVAL, "1 batch dimensions, wanted 0", tdict_stack(one, 1, &o, NULL, &out, err));
  td_fails(TDICT_EINVAL, "only stack makes ragged leaves", tdict_cat(one, 1, &o, NULL, &out, err));
  td_fails(TDICT_EINVAL, "only stack makes ragged leaves", tdict_cat_into(batched, one, 1, &o, NULL, err));
  td_fails(TDICT_EINVAL, "only stack makes ragged leaves", tdict_stack_into(batched, items, 2, &o, NULL, err));
  /* a child that has a batch dimension itself cannot get a ragged leaf */
  for (int i = 0; i < 2; i++)
    td_ok(tdict_set_batch_size(td_child(samples[i], "n"), 1, (const int64_t[]){i ? 3 : 1}, err));
  td_fails(TDICT_ESHAPE, "batch size is [2, 1], the object has [2]", tdict_stack(items, 2, &o, NULL, &out, err));
  assert_string_equal(td_last_error.path, "n.x");
  for (int i = 0; i < 2; i++) td_ok(tdict_set_batch_size(td_child(samples[i], "n"), 0, NULL, err));
  tdict_tensor *t = TENSOR(3);
  td_ok(tdict_set(samples[1], "n.x", t, err));
  td_fails(TDICT_ESHAPE, "has shape [3] in tree 1", tdict_stack(items, 2, &o, NULL, &out, err));
  td_ok(tdict_delete(samples[0], "n", err));
  td_ok(tdict_delete(samples[1], "n", err));
  for (int i = 0; i < 2; i++) td_ok(tdict_set_object(samples[i], "o", &number_type, malloc(1), err));
  td_fails(TDICT_ENOTSUP, "an object has no stack hook", tdict_stack(items, 2, &o, NULL, &out, err));
  assert_null(out);
  tdict_tensor_release(t);
  for (int i = 0; i < 2; i++) tdict_release(samples[i]);
  tdict_release(batched);
}

static tdict_status note_leaf(void *user, const tdict_leaves *at, tdict_error *err) {
  (void)err;
  help_add(user, "%s ", at->path);
  return TDICT_OK;
}
static tdict_status negate(void *user, const tdict_leaves *at, tdict_tensor **out, tdict_error *err) {
  (void)user;
  tdict_status status = tdict_tensor_clone(at->tensors[0], NULL, out, err);
  if (status != TDICT_OK || strcmp(at->path, "n.x.values") != 0) return status;
  float *data = tdict_tensor_data(*out);
  for (int64_t i = 0; i < tdict_tensor_numel(*out); i++) data[i] = 1;
  return TDICT_OK;
}
static tdict_status shorten(void *user, const tdict_leaves *at, tdict_tensor **out, tdict_error *err) {
  (void)user;
  return tdict_tensor_slice(at->tensors[0], &(tdict_tensor_range){0, 0, 1, 1}, out, err);
}
static bool drop_values(void *user, const tdict_leaves *at) {
  (void)user;
  return strcmp(at->path, "n.x.values") != 0;
}

CASE(ragged_visits_see_values) {
  scoped_place w = open_place();
  scoped_rows r = rows_of(2, COUNTS(3, 0, 2));
  scoped_tree td = rows_tree(&r, NULL), out = NULL;
  const tdict_tree *trees[] = {td};
  help_text seen = {NULL, 0, 0, false};
  td_ok(tdict_visit(NULL, trees, 1, note_leaf, &seen, NULL, err));
  assert_string_equal(seen.text, "t n.x.values ");
  free(seen.text);
  td_ok(tdict_apply(NULL, trees, 1, negate, NULL, NULL, &out, err));
  rows ones = rows_of(2, COUNTS(3, 0, 2));
  for (int i = 0; i < 3; i++)
    for (int64_t k = 0; k < ones.length[i] * 2; k++) ones.value[i][k] = 1;
  rows_check_at(&w, &ones, out, "n.x");
  assert_ptr_equal(tdict_ragged_get_info(rows_get(out, "n.x")).offsets,
                   tdict_ragged_get_info(rows_get(td, "n.x")).offsets);
  td_ok(tdict_fill(td, "n.x", 1, NULL, err));
  rows_check_at(&w, &ones, td, "n.x");
  td_ok(tdict_fill(td, NULL, 0, NULL, err));
  for (int i = 0; i < 3; i++) memset(ones.value[i], 0, (size_t)(ones.length[i] * 2) * sizeof(float));
  rows_check_and_release(&w, &ones, tdict_retain(td));
  td_release(out);
  td_ok(tdict_delete(td, "t", err));
  td_fails_at(TDICT_ESHAPE, "the new values have shape [1, 2], wanted 5 elements", "n.x",
              tdict_apply(NULL, trees, 1, shorten, NULL, NULL, &out, err));
  td_ok(tdict_filter(td, drop_values, NULL, &out, err));
  assert_false(tdict_has(out, "n.x"));
}

DEVICE_CASE(ragged_clone_and_compare) {
  scoped_place w = open_place();
  scoped_rows r = rows_of(2, COUNTS(3, 0, 2)), other = rows_of(2, COUNTS(3, 1, 1));
  scoped_tree td = rows_tree(&r, MEMORY(w)), shallow = NULL, deep = NULL, changed = TREE(3), host = NULL;
  td_ok(tdict_clone(td, &shallow, err));
  assert_ptr_equal(rows_get(shallow, "n.x"), rows_get(td, "n.x"));
  td_ok(tdict_clone_deep(td, TD_IN(MEMORY(w)), &deep, err));
  const tdict_ragged *a = rows_get(td, "n.x"), *b = rows_get(deep, "n.x");
  assert_false(tdict_tensor_shares_storage(tdict_ragged_get_info(a).values, tdict_ragged_get_info(b).values));
  assert_false(tdict_tensor_shares_storage(tdict_ragged_get_info(a).offsets, tdict_ragged_get_info(b).offsets));
  rows_check(&w, &r, b);
  assert_true(tdict_equal(td, deep) && tdict_equal(td, shallow));
  assert_int_equal(tdict_bytes(td), 3 * 8 + 5 * 2 * 4 + 4 * 4); /* int32 offsets */
  td_ok(tdict_fill(deep, "n.x", 0, NULL, err));
  assert_false(tdict_equal(td, deep));
  rows_check(&w, &r, a);
  rows_put(changed, "n.x", &other, MEMORY(w));
  td_ok(tdict_set(changed, "t", td_leaf(td, "t"), err));
  tdict_difference found;
  td_ok(tdict_get_difference(td, changed, NULL, &found, err));
  assert_true(found.differs);
  td_ok(tdict_clone_deep(td, NULL, &host, err));
  if (!w.gpu) {
    tdict_tree *again = NULL;
    TD_WITHOUT_MEMORY(tdict_clone_deep(td, NULL, &again, err));
    rows_check_and_release(&w, &r, again);
    TD_WITHOUT_MEMORY(tdict_get_difference(td, host, NULL, &found, err));
  }
}

CASE(ragged_values_are_converted) {
  scoped_rows r = rows_of(2, COUNTS(3, 0, 2, 1));
  scoped_tree td = rows_tree(&r, NULL), out = td_made(tree, tdict_to_dtype(td, TDICT_F64, NULL, NULL, &made, err));
  const tdict_ragged *leaf = rows_get(out, "n.x");
  assert_int_equal(tdict_tensor_dtype(tdict_ragged_get_info(leaf).values), TDICT_F64);
  assert_ptr_equal(tdict_ragged_get_info(leaf).offsets, tdict_ragged_get_info(rows_get(td, "n.x")).offsets);
  const double *data = tdict_tensor_const_data(tdict_ragged_get_info(leaf).values);
  for (int64_t i = 0, at = 0; i < 4; i++) {
    assert_int_equal(tdict_ragged_row_length(leaf, i), r.length[i]);
    for (int64_t k = 0; k < r.length[i] * 2; k++) assert_true(data[at++] == (double)r.value[i][k]);
  }
  tdict_release(out);
  TD_WITHOUT_MEMORY(tdict_to_dtype(td, TDICT_F64, NULL, NULL, &out, err));
  tdict_release(out);
  td_ok(tdict_to_dtype(td, TDICT_F32, NULL, NULL, &out, err)); /* the leaf already has dtype float32 */
  assert_ptr_equal(tdict_ragged_get_info(rows_get(out, "n.x")).values,
                   tdict_ragged_get_info(rows_get(td, "n.x")).values);
}

CASE(ragged_is_printed) {
  scoped_rows r = rows_of(17, COUNTS(3, 0, 9)), flat = rows_of(1, COUNTS(1));
  scoped_tree td = help_tree(0, NULL);
  char text[600];
  rows_put(td, "x", &r, NULL);
  tdict_tensor *one = TENSOR(1);
  tdict_ragged *leaf = td_made(ragged, tdict_ragged_from_rows(&one, 1, NULL, &made, err));
  td_ok(tdict_set_ragged(td, "y", leaf, err));
  td_release(leaf, one);
  (void)tdict_format(td, text, sizeof text);
  assert_string_equal(text, "tree batch=[]\n"
                            "  x  ragged float32 [3, *, 17], 12 elements, cpu\n"
                            "  y  ragged float32 [1, *], 1 element, cpu\n"
                            "0 tensors, 2 objects, 852 bytes\n");
}
