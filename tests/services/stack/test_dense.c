/* Tests making a dense tree from a lazy stack, stacked or padded with masks. Loops compute the expected elements. */
#include "rig.h"
#include "support/things.h"

DEVICE_CASE(lazy_stack_densify_stacks) {
  scoped_context context = td_context(NULL);
  scoped_lazy_stack host = STACK(rig_new_item(4, NULL), rig_new_item(4, NULL)), s = NULL;
  td_ok(td_lazy_to_device(context, host, td_device(), NULL, &s, err));
  tdict_tree *dense = td_made(tree, tdict_lazy_stack_densify(s, NULL, NULL, &made, err));
  help_paths(dense, "x n n.y");
  assert_true(tdict_batch_ndim(dense) == 2 && tdict_batch_size(dense)[0] == 2 && tdict_batch_size(dense)[1] == 2);
  assert_true(tdict_device_equal(tdict_tensor_device(td_leaf(dense, "n.y")), td_device()));
  tdict_tensor *y = NULL;
  td_ok(tdict_tensor_clone(td_leaf(dense, "n.y"), NULL, &y, err));
  for (size_t i = 0; i < 2; i++)
    assert_memory_equal((const float *)tdict_tensor_const_data(y) + 8 * i,
                        tdict_const_data(rig_item(host, (int64_t)i), "n.y"), 32);
  td_release(y, dense, s, host);
  s = rig_three();
  dense = NULL;
  td_ok(tdict_delete(rig_item(s, 1), "only", err));
  td_fails_at(TDICT_ESHAPE, "tree 1", "n.y", tdict_lazy_stack_densify(s, NULL, NULL, &dense, err));
  td_fails(TDICT_EINVAL, "NULL", tdict_lazy_stack_densify(s, NULL, NULL, NULL, err));
  td_fails(TDICT_EINVAL, "NULL", tdict_lazy_stack_densify(NULL, NULL, NULL, &dense, err));
  tdict_join_options o = td_with(tdict_join_options, dim = 1);
  td_fails(TDICT_EINVAL, "dim is 1, wanted 0", tdict_lazy_stack_densify(s, &o, NULL, &dense, err));
  td_put(rig_item(s, 0), "own", TENSOR(2));
  td_fails_at(TDICT_ENOTFOUND, "", "own", tdict_lazy_stack_densify(s, NULL, NULL, &dense, err));
  assert_null(dense);
}

CASE(lazy_stack_densify_makes_ragged_leaves) {
  tdict_tree *items[3], *dense = NULL;
  tdict_ragged *ragged = NULL;
  for (int i = 0; i < 3; i++) {
    items[i] = help_tree_without_batch();
    td_put(items[i], "tokens", TENSOR(1 + 2 * i, 3));
  }
  scoped_lazy_stack s = rig_stack(items, 3);
  td_ok(tdict_lazy_stack_densify(s, td_options(tdict_join_options, ragged = true), NULL, &dense, err));
  td_ok(tdict_get_ragged(dense, "tokens", &ragged, err));
  const float *values = tdict_tensor_const_data(tdict_ragged_get_info(ragged).values);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(tdict_ragged_row_length(ragged, i), 1 + 2 * i);
    assert_memory_equal(values, tdict_const_data(rig_item(s, i), "tokens"), (size_t)(1 + 2 * i) * 12);
    values += (1 + 2 * i) * 3;
  }
  tdict_release(dense);
}

enum { DIMS = 3, MOST_ITEMS = 5 };
static int64_t pick(uint64_t *state, int64_t below) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (int64_t)(*state >> 33) % below;
}

/* Reads element `index` of a contiguous int32 or bool tensor in host memory. */
static int64_t element(const tdict_tensor *t, const int64_t *index) {
  int64_t at = 0;
  for (int d = 0; d < tdict_tensor_ndim(t); d++) at = at * tdict_tensor_shape(t)[d] + index[d];
  if (tdict_tensor_dtype(t) == TDICT_BOOL) return ((const uint8_t *)tdict_tensor_const_data(t))[at];
  return ((const int32_t *)tdict_tensor_const_data(t))[at];
}

/* Checks the padded tensor and its mask element by element. The items have batch size [2]. */
static void check_padded(const tdict_lazy_stack *s, const tdict_tensor *padded, const tdict_tensor *mask,
                         int32_t value) {
  const int64_t count = (int64_t)td_lazy_count(s);
  int64_t most[1 + DIMS] = {2, 0, 0, 0};
  int masked = 1;
  for (int64_t i = 0; i < count; i++) {
    const int64_t *shape = tdict_tensor_shape(td_leaf(rig_item(s, i), "a"));
    const int64_t *first = tdict_tensor_shape(td_leaf(rig_item(s, 0), "a"));
    for (int d = 1; d <= DIMS; d++) {
      if (shape[d] > most[d]) most[d] = shape[d];
      if (shape[d] != first[d] && d + 1 > masked) masked = d + 1;
    }
  }
  assert_int_equal(tdict_tensor_ndim(padded), 2 + DIMS);
  assert_int_equal(tdict_tensor_shape(padded)[0], count);
  assert_memory_equal(tdict_tensor_shape(padded) + 1, most, sizeof most);
  assert_int_equal(tdict_tensor_dtype(mask), TDICT_BOOL);
  assert_int_equal(tdict_tensor_ndim(mask), 1 + masked);
  assert_memory_equal(tdict_tensor_shape(mask), tdict_tensor_shape(padded), (size_t)(1 + masked) * sizeof *most);
  for (int64_t i = 0; i < count; i++) {
    const tdict_tensor *from = td_leaf(rig_item(s, i), "a");
    const int64_t *shape = tdict_tensor_shape(from);
    for (int64_t k = 0; k < most[0] * most[1] * most[2] * most[3]; k++) {
      const int64_t at[] = {i, k / (most[1] * most[2] * most[3]), k / (most[2] * most[3]) % most[1],
                            k / most[3] % most[2], k % most[3]};
      bool inside = true, shown = true;
      for (int d = 1; d <= DIMS; d++) {
        inside = inside && at[d + 1] < shape[d];
        if (d < masked) shown = shown && at[d + 1] < shape[d];
      }
      assert_int_equal(element(padded, at), inside ? element(from, at + 1) : value);
      assert_int_equal(element(mask, at), shown);
    }
  }
}

CASE(lazy_stack_pad_fills_all_dimensions) {
  uint64_t state = 5;
  for (int round = 0; round < 200; round++) {
    const size_t count = 1 + (size_t)pick(&state, MOST_ITEMS);
    const bool varies[] = {pick(&state, 2), pick(&state, 2), pick(&state, 2)};
    tdict_tree *items[MOST_ITEMS], *padded = NULL, *mask = NULL;
    int64_t shape[1 + DIMS] = {2, pick(&state, 4), pick(&state, 4), pick(&state, 4)};
    for (size_t i = 0; i < count; i++) {
      for (int d = 0; d < DIMS; d++)
        if (varies[d]) shape[d + 1] = pick(&state, 4);
      tdict_tensor *t = td_made(tensor, tdict_tensor_empty(TDICT_I32, 1 + DIMS, shape, NULL, &made, err));
      if (tdict_tensor_bytes(t)) td_fill_random(tdict_tensor_data(t), tdict_tensor_bytes(t), state);
      items[i] = TREE(2);
      td_put(items[i], "a", t);
    }
    scoped_lazy_stack s = rig_stack(items, count);
    td_ok(tdict_lazy_stack_pad(s, td_options(tdict_lazy_pad_options, value = -17, mask = &mask), &padded, err));
    check_padded(s, td_leaf(padded, "a"), td_leaf(mask, "a"), -17);
    td_release(padded, mask);
    padded = NULL;
    td_ok(tdict_lazy_stack_pad(s, NULL, &padded, err));
    tdict_release(padded);
  }
}

DEVICE_CASE(lazy_stack_pad_on_devices) {
  scoped_context context = td_context(NULL);
  tdict_tree *items[2] = {help_tree_without_batch(), help_tree_without_batch()}, *padded = NULL, *mask = NULL;
  td_put(items[0], "n.y", TENSOR(1));
  td_put(items[1], "n.y", TENSOR(3));
  scoped_lazy_stack s = rig_stack(items, 2), moved = NULL;
  td_ok(td_lazy_to_device(context, s, td_device(), NULL, &moved, err));
  td_ok(tdict_lazy_stack_pad(moved, td_options(tdict_lazy_pad_options, mask = &mask), &padded, err));
  tdict_tensor *y = NULL, *bits = NULL;
  assert_true(tdict_device_equal(tdict_tensor_device(td_leaf(padded, "n.y")), td_device()));
  assert_true(tdict_device_equal(tdict_tensor_device(td_leaf(mask, "n.y")), td_device()));
  td_ok(tdict_tensor_clone(td_leaf(padded, "n.y"), NULL, &y, err));
  td_ok(tdict_tensor_clone(td_leaf(mask, "n.y"), NULL, &bits, err));
  const float zeros[2] = {0};
  const uint8_t wanted[] = {1, 0, 0, 1, 1, 1};
  assert_memory_equal(tdict_tensor_const_data(y), tdict_const_data(rig_item(s, 0), "n.y"), 4);
  assert_memory_equal((const float *)tdict_tensor_const_data(y) + 1, zeros, 8);
  assert_memory_equal((const float *)tdict_tensor_const_data(y) + 3, tdict_const_data(rig_item(s, 1), "n.y"), 12);
  assert_memory_equal(tdict_tensor_const_data(bits), wanted, 6);
  td_release(y, bits, padded, mask);
}

/* The tensors of an object are padded. Their masks are in a tree at the path of the object. */
CASE(lazy_stack_pad_pads_objects) {
  tdict_tree *items[2], *padded = NULL, *mask = NULL;
  for (int i = 0; i < 2; i++) {
    items[i] = TREE(2);
    td_ok(tdict_set_object(items[i], "o", &thing_flat, thing_create(TENSOR(2, 1 + i), TENSOR(2)), err));
  }
  tdict_lazy_stack *s = rig_stack(items, 2);
  void *made = NULL;
  tdict_lazy_pad_options o = td_with(tdict_lazy_pad_options, mask = &mask);
  td_ok(tdict_lazy_stack_pad(s, &o, &padded, err));
  td_ok(tdict_get_object(padded, "o", &thing_flat, &made, err));
  const int64_t shape[] = {2, 2, 2};
  const uint8_t wanted[] = {1, 0, 1, 0, 1, 1, 1, 1};
  assert_memory_equal(tdict_tensor_shape(((thing *)made)->a), shape, sizeof shape);
  help_paths(mask, "o o.a o.b");
  assert_memory_equal(tdict_tensor_const_data(td_leaf(mask, "o.a")), wanted, sizeof wanted);
  assert_int_equal(tdict_tensor_ndim(td_leaf(mask, "o.b")), 2);
  td_release(padded, mask, s);
  assert_int_equal(thing_count(), 0);
}

/* The padded tree and the tree of masks have the same texts and tensors without batch dimensions. */
CASE(lazy_stack_pad_keeps_other_leaves) {
  tdict_tree *items[2], *trees[2] = {NULL};
  tdict_tensor *weights = TENSOR(5), *found = NULL;
  for (int i = 0; i < 2; i++) {
    items[i] = help_tree_without_batch();
    td_put(items[i], "a", TENSOR(1 + i));
    td_ok(tdict_set_unbatched(items[i], "w", weights, err));
  }
  scoped_lazy_stack s = rig_stack(items, 2);
  td_ok(tdict_lazy_stack_pad(s, td_options(tdict_lazy_pad_options, mask = &trees[1]), &trees[0], err));
  for (int i = 0; i < 2; i++) {
    td_ok(tdict_get_unbatched(trees[i], "w", &found, err));
    assert_ptr_equal(found, weights);
    tdict_release(trees[i]);
  }
  tdict_tensor_release(weights);
}

CASE(lazy_stack_pad_refuses) {
  scoped_lazy_stack s = rig_three();
  tdict_tree *const nothing = (tdict_tree *)(uintptr_t)0xA5A5, *padded = nothing, *mask = nothing;
  tdict_lazy_pad_options o = td_with(tdict_lazy_pad_options, mask = &mask);
  td_fails_at(TDICT_ENOTFOUND, "", "only", tdict_lazy_stack_pad(s, &o, &padded, err));
  td_ok(tdict_delete(rig_item(s, 1), "only", err));
  td_put(rig_item(s, 2), "x", TENSOR(2));
  td_fails_at(TDICT_ESHAPE, "[2] in tree 2, but [2, 3] in tree 0", "x", tdict_lazy_stack_pad(s, &o, &padded, err));
  td_put(rig_item(s, 2), "x", TENSOR(2, 9));
  td_put(rig_item(s, 1), "x", td_made(tensor, tdict_tensor_zeros(TDICT_U8, COUNTS(2, 3), NULL, &made, err)));
  td_fails(TDICT_EDTYPE, "uint8 in tree 1, but float32 in tree 0", tdict_lazy_stack_pad(s, &o, &padded, err));
  for (int i = 0; i < 3; i++)
    td_put(rig_item(s, i), "x", td_made(tensor, tdict_tensor_zeros(TDICT_U8, COUNTS(2, i), NULL, &made, err)));
  o.value = 256;
  td_fails_at(TDICT_EOVERFLOW, "", "x", tdict_lazy_stack_pad(s, &o, &padded, err));
  td_fails(TDICT_EINVAL, "NULL", tdict_lazy_stack_pad(s, &o, NULL, err));
  td_fails(TDICT_EINVAL, "NULL", tdict_lazy_stack_pad(NULL, &o, &padded, err));
  o.struct_size = 1;
  td_fails(TDICT_EINVAL, "lazy_pad_options", tdict_lazy_stack_pad(s, &o, &padded, err));
  assert_true(padded == nothing && mask == nothing);
  o = tdict_lazy_pad_options_default();
  o.mask = &mask;
  TD_WITHOUT_MEMORY_THEN(tdict_lazy_stack_pad(s, &o, &padded, err), assert_true(padded == nothing && mask == nothing));
  td_release(padded, mask);
}
