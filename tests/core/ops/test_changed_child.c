/* Tests children that were changed through their own handle or through another parent, so that they no longer have
 * the batch size of a tree that holds them. Every operation that uses the batch size must return TDICT_ESHAPE and
 * change nothing. */
#include "rig.h"

static tdict_tensor *byte_tensor(const rig *r, int ndim, const int64_t *shape) {
  return td_made(tensor, tdict_tensor_zeros(TDICT_U8, ndim, shape, r->memory, &made, err));
}

/* Makes a tree [3, 2] with "a" and "n.a", both [3, 2]. Then changes the batch size of "n" to [] and adds the scalar
 * "n.y". */
static tdict_tree *shrunk(const rig *r) {
  const int64_t shape[] = {3, 2};
  tdict_tree *td = TREE(3, 2), *n = NULL;
  td_put(td, "a", byte_tensor(r, 2, shape));
  td_put(td, "n.a", byte_tensor(r, 2, shape));
  n = td_child(td, "n");
  td_ok(tdict_set_batch_size(n, 0, NULL, err));
  td_put(n, "y", byte_tensor(r, 0, NULL));
  return td;
}

/* An object type whose objects are trees. `flatten` returns the tree itself. */
static tdict_status show_tree(const void *self, tdict_tree **out, tdict_error *err) {
  (void)err;
  *out = tdict_retain((const tdict_tree *)self);
  return TDICT_OK;
}
static tdict_status keep_tree(const void *self, const tdict_tree *tree, void **out, tdict_error *err) {
  (void)self, (void)err;
  *out = tdict_retain(tree);
  return TDICT_OK;
}
static void end_tree(void *self) { tdict_release(self); }
static const tdict_type tree_type =
    TD_TYPE(.name = "tree", .release = end_tree, .flatten = show_tree, .unflatten = keep_tree);

/* Checks that the call fails with TDICT_ESHAPE at "n.y" and a message with both shapes, and has no result. */
#define MISMATCH(made, call)                                          \
  do {                                                                \
    td_fails(TDICT_ESHAPE, "is [3, 2], tensor has shape []", (call)); \
    assert_string_equal(td_last_error.path, "n.y");                   \
    assert_null(made);                                                \
  } while (0)

DEVICE_CASE(changed_child_is_not_indexed) {
  scoped_rig r = rig_open();
  const int64_t at[2] = {2, 1};
  scoped_tree td = shrunk(&r);
  tdict_tree *made = NULL;
  scoped_tree row = TREE(2), rows = TREE(1, 2);
  char *before = help_snapshot(td);
  if (!r.memory) { /* the lists are tested on the host only */
    MISMATCH(made, tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST(at, 2)), NULL, &made, err));
    td_put(rows, "n.y", byte_tensor(&r, 2, (const int64_t[]){1, 2}));
    MISMATCH(made, tdict_index_set(NULL, td, TDICT_INDEX(TDICT_LIST(at, 1)), rows, NULL, err));
  }
  MISMATCH(made, tdict_index_get(NULL, td, TDICT_INDEX(TDICT_AT(2)), NULL, &made, err));
  MISMATCH(made, tdict_index_get(NULL, td, TDICT_INDEX(TDICT_RANGE(1, 3, 1)), NULL, &made, err));
  MISMATCH(made, tdict_index_get(NULL, td, TDICT_INDEX(TDICT_NEW_AXIS), NULL, &made, err));
  td_put(row, "n.y", byte_tensor(&r, 1, (const int64_t[]){2}));
  td_put(rows, "n.y", byte_tensor(&r, 2, (const int64_t[]){1, 2}));
  MISMATCH(made, tdict_write_rows(td, 2, row, err));
  MISMATCH(made, tdict_write_rows(td, 2, rows, err));
  help_unchanged(td, before);
}

DEVICE_CASE(changed_child_is_not_reshaped) {
  scoped_rig r = rig_open();
  tdict_tree *td = shrunk(&r), *made = NULL, *pieces[6] = {NULL};
  size_t count = 6;
  MISMATCH(made, tdict_reshape_view(td, 1, (const int64_t[]){6}, &made, err));
  MISMATCH(made, tdict_reshape(td, 1, (const int64_t[]){-1}, &made, err));
  MISMATCH(made, tdict_merge_dims(td, 0, 1, &made, err));
  MISMATCH(made, tdict_split_dim(td, 0, 2, (const int64_t[]){3, 1}, &made, err));
  MISMATCH(made, tdict_unsqueeze(td, 2, &made, err));
  MISMATCH(made, tdict_squeeze(td, TDICT_EVERY_DIM, &made, err));
  MISMATCH(made, tdict_expand(td, 3, (const int64_t[]){2, 3, 2}, &made, err));
  MISMATCH(made, tdict_transpose(td, 0, 1, &made, err));
  MISMATCH(pieces[0], tdict_split(td, 0, (const int64_t[]){1, 2}, pieces, &(size_t){2}, err));
  MISMATCH(pieces[0], tdict_split_every(td, 1, 1, pieces, &count, err));
  MISMATCH(pieces[0], tdict_unbind(td, 1, pieces, &count, err));
  tdict_release(td);
}

/* A changed child is refused in any of the joined trees, whether the result is new or an existing tree. */
DEVICE_CASE(changed_child_is_not_joined) {
  scoped_rig r = rig_open();
  tdict_tree *made = NULL;
  scoped_tree bad = shrunk(&r), good = TREE(3, 2), out = TREE(2, 3, 2), wide = TREE(3, 4);
  tdict_join_options along = td_with(tdict_join_options, dim = 1);
  static const char *const names[] = {"a", "n.a", "n.y"};
  for (int i = 0; i < 3; i++) {
    td_put(good, names[i], byte_tensor(&r, 2, (const int64_t[]){3, 2}));
    td_put(out, names[i], byte_tensor(&r, 3, (const int64_t[]){2, 3, 2}));
    td_put(wide, names[i], byte_tensor(&r, 2, (const int64_t[]){3, 4}));
  }
  for (int first = 0; first < 2; first++) {
    const tdict_tree *items[2] = {first ? bad : good, first ? good : bad};
    MISMATCH(made, tdict_stack(items, 2, NULL, NULL, &made, err));
    MISMATCH(made, tdict_stack(items, 2, &along, NULL, &made, err));
    MISMATCH(made, tdict_cat(items, 2, NULL, NULL, &made, err));
    MISMATCH(made, tdict_cat(items, 2, &along, NULL, &made, err));
    MISMATCH(made, tdict_stack_into(out, items, 2, NULL, NULL, err));
    MISMATCH(made, tdict_cat_into(wide, items, 2, &along, NULL, err));
    MISMATCH(made, tdict_pad_sequence(items, 2, NULL, NULL, &made, err));
  }
  const tdict_tree *all[1] = {bad};
  MISMATCH(made, tdict_stack(all, 1, &along, NULL, &made, err));
  /* a changed child in the destination */
  const tdict_tree *one[1] = {good};
  td_ok(tdict_set_batch_size(td_child(wide, "n"), 0, NULL, err));
  td_put(wide, "n.y", byte_tensor(&r, 0, NULL));
  td_fails(TDICT_ESHAPE, "dst has batch size", tdict_cat_into(wide, one, 1, NULL, NULL, err));
  scoped_tree same = shrunk(&r);
  MISMATCH(made, tdict_cat_into(same, one, 1, NULL, NULL, err));
}

/* Two trees hold the same empty tree, so each of the two can change the batch size of the empty tree. */
DEVICE_CASE(changed_child_of_two_trees_is_refused) {
  scoped_rig r = rig_open();
  scoped_tree a = TREE(3), b = TREE(3), c = TREE(3), made = NULL;
  td_ok(tdict_set_tree(a, "c", c, err));
  td_ok(tdict_set_tree(b, "c", c, err));
  assert_ptr_equal(td_child(a, "c"), td_child(b, "c"));
  td_ok(tdict_set_batch_size(a, 1, (const int64_t[]){2}, err));
  td_put(a, "c.y", byte_tensor(&r, 1, (const int64_t[]){2}));
  td_fails_at(TDICT_ESHAPE, "batch size is [3], tensor has shape [2]", "c.y",
              tdict_index_get(NULL, b, TDICT_INDEX(TDICT_AT(2)), NULL, &made, err));
  td_ok(tdict_index_get(NULL, a, TDICT_INDEX(TDICT_AT(1)), NULL, &made, err));
  tdict_release(made);
  /* Setting a batch size that fits repairs the tree. */
  td_ok(tdict_delete(a, "c.y", err));
  td_ok(tdict_set_batch_size(b, 1, (const int64_t[]){3}, err));
  td_put(b, "c.y", byte_tensor(&r, 1, (const int64_t[]){3}));
  td_ok(tdict_index_get(NULL, b, TDICT_INDEX(TDICT_AT(2)), NULL, &made, err));
}

/* Only tensors are checked. In a result, a child whose batch size does not fit gets the batch size of its parent. */
CASE(changed_child_gets_the_parent_batch_size) {
  scoped_tree td = td_tree("[2] n.x:f32[2,5] n.m.z:f32[2]"), made = NULL;
  td_put_tree(td, "e", TREE(2, 4));
  td_ok(tdict_set_batch_size(td_child(td, "n"), 0, NULL, err));
  td_ok(tdict_set_batch_size(td_child(td, "e"), 2, (const int64_t[]){3, 4}, err));
  td_ok(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_RANGE(0, 1, 1), TDICT_NEW_AXIS), NULL, &made, err));
  static const char *const nodes[] = {"n", "n.m", "e"};
  for (int i = 0; i < 3; i++) {
    const tdict_tree *node = td_child(made, nodes[i]);
    assert_int_equal(tdict_batch_ndim(node), 2);
    assert_memory_equal(tdict_batch_size(node), ((const int64_t[]){1, 1}), 16);
  }
  assert_int_equal(tdict_tensor_ndim(td_leaf(made, "n.x")), 3);
  td_release(made);
  /* The same is true after a change of the parent's batch size. */
  td_ok(tdict_set_batch_size(td, 1, (const int64_t[]){2}, err));
  for (int i = 0; i < 3; i++) {
    const tdict_tree *node = td_child(td, nodes[i]);
    assert_int_equal(tdict_batch_ndim(node), 1);
    assert_int_equal(tdict_batch_size(node)[0], 2);
  }
}

static bool keep_all(void *user, const tdict_leaves *at) {
  (void)user, (void)at;
  return true;
}
static tdict_status same_tensor(void *user, const tdict_leaves *at, tdict_tensor **out, tdict_error *err) {
  (void)user, (void)err;
  *out = tdict_tensor_retain(at->tensors[0]);
  return TDICT_OK;
}

static tdict_status clone_and_update(const tdict_tree *td, tdict_tree **out, tdict_error *err) {
  const tdict_status status = tdict_clone(td, out, err);
  return status == TDICT_OK ? tdict_update(*out, td, NULL, 0, err) : status;
}

/* The functions of the next case. The first KEEPERS of them do not use the batch size of the parent. */
enum { KEEPERS = 11, FUNCTIONS = 19 };
static tdict_status make_result(int n, const tdict_tree *td, tdict_tree **out, tdict_error *err) {
  static const int64_t zero[] = {0}, turned[] = {3, 1};
  const tdict_tree *both[2] = {td, td};
  if (n == 0) return tdict_clone(td, out, err);
  if (n == 1) return tdict_clone_deep(td, NULL, out, err);
  if (n == 2) return tdict_contiguous(td, NULL, out, err);
  if (n == 3) return tdict_consolidate(td, NULL, out, err);
  if (n == 4) return tdict_select(td, (const char *[]){"d.x"}, 1, true, out, err);
  if (n == 5) return tdict_exclude(td, (const char *[]){"a"}, 1, out, err);
  if (n == 6) return tdict_unflatten_keys(td, ".", out, err);
  if (n == 7) return clone_and_update(td, out, err);
  if (n == 8) return tdict_apply(NULL, both, 1, same_tensor, NULL, NULL, out, err);
  if (n == 9) return tdict_filter(td, keep_all, NULL, out, err);
  if (n == 10) return tdict_to_dtype(td, TDICT_F64, NULL, NULL, out, err);
  if (n == 11) return tdict_index_get(NULL, td, TDICT_INDEX(TDICT_ALL), NULL, out, err);
  if (n == 12) return tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST(zero, 1)), NULL, out, err);
  if (n == 13) return tdict_reshape_view(td, 2, turned, out, err);
  if (n == 14) return tdict_unsqueeze(td, 0, out, err);
  if (n == 15) return tdict_permute(td, 2, (const int[]){0, 1}, out, err);
  if (n == 16) return tdict_stack(both, 2, NULL, NULL, out, err);
  if (n == 17) return tdict_cat(both, 2, NULL, NULL, out, err);
  return tdict_pad_sequence(both, 2, NULL, NULL, out, err);
}

/* The first KEEPERS functions keep the child's batch size. The others give the child the batch size of the result. */
CASE(changed_child_keeps_its_batch_size) {
  scoped_tree td = td_tree("[1,3] a:f32[1,3] d.x:f32[1,3,2]");
  td_ok(tdict_set_batch_size(td_child(td, "d"), 1, (const int64_t[]){1}, err));
  for (int n = 0; n < FUNCTIONS; n++) {
    scoped_tree out = td_made(tree, make_result(n, td, &made, err));
    const tdict_tree *d = td_child(out, "d");
    const int ndim = n < KEEPERS ? 1 : tdict_batch_ndim(out);
    if (tdict_batch_ndim(d) != ndim) fail_msg("function %d: %d dimensions, wanted %d", n, tdict_batch_ndim(d), ndim);
    assert_memory_equal(tdict_batch_size(d), tdict_batch_size(out), sizeof(int64_t) * (size_t)ndim);
  }
}

/* Functions that do not use the batch size succeed. A tree with a changed child can be read, copied and repaired. */
DEVICE_CASE(changed_child_can_be_cloned_and_moved) {
  scoped_rig r = rig_open();
  scoped_tree td = shrunk(&r), made = NULL;
  td_ok(tdict_clone(td, &made, err));
  assert_true(tdict_equal(td, made));
  tdict_release(made);
  td_ok(tdict_clone_deep(td, TD_IN(r.memory), &made, err));
  assert_true(tdict_equal(td, made));
  assert_int_equal(tdict_batch_ndim(td_child(made, "n")), 0);
  td_ok(tdict_copy(made, td, NULL, err));
  tdict_release(made);
  if (r.context) {
    td_ok(tdict_to_device(r.context, td, tdict_cpu(), NULL, &made, err));
    assert_true(tdict_equal(td, made));
    tdict_release(made);
  }
  td_ok(tdict_delete(td, "n.y", err));
  td_ok(tdict_set_batch_size(td, 2, (const int64_t[]){3, 2}, err));
  td_ok(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_AT(2)), NULL, &made, err));
}

/* A tensor that moves to the root must fit the batch size and the device of the root. */
CASE(changed_child_is_not_flattened) {
  const rig host = {NULL, NULL};
  const tdict_device cpu = tdict_cpu();
  tdict_tree *td = shrunk(&host), *made = NULL, *other = help_tree_without_batch();
  MISMATCH(made, tdict_flatten_keys(td, NULL, &made, err));
  td_put_tree(other, "n", help_tree_without_batch());
  td_ok(tdict_set_device(other, &cpu, err));
  td_ok(tdict_set_device(td_child(other, "n"), NULL, err));
  td_put(other, "n.far", help_tensor_on(tdict_sim(0), 1, (const int64_t[]){0}));
  td_fails_at(TDICT_EWRONGDEVICE, "the tensor is on sim:0", "n.far", tdict_flatten_keys(other, NULL, &made, err));
  assert_null(made);
  td_release(td, other);
}

/* The tensors of an object are checked at every level. */
CASE(changed_child_of_an_object_is_refused) {
  const rig host = {NULL, NULL};
  tdict_tree *td = TREE(3, 2), *made = NULL, *bad = shrunk(&host);
  td_ok(tdict_set_object(td, "o", &tree_type, bad, err));
  td_fails_at(TDICT_ESHAPE, "is [3, 2], tensor has shape []", "o.n.y", tdict_unsqueeze(td, 2, &made, err));
  const tdict_tree *items[1] = {td};
  tdict_join_options along = td_with(tdict_join_options, dim = 1);
  td_fails_at(TDICT_ESHAPE, "is [3, 2], tensor has shape []", "o.n.y", tdict_stack(items, 1, &along, NULL, &made, err));
  td_fails(TDICT_ESHAPE, "is [3, 2], tensor has shape []",
           tdict_index_set(NULL, td, TDICT_INDEX(TDICT_REST), td, NULL, err));
  assert_null(made);
  tdict_release(td);
}
