/* Tests each area of TensorDict's behavior on every device. There is one case for each row of the table in
 * docs/container.md. Other files test details and errors. */
#include "rig.h"
#include "tdict/debug.h"

#define NEW(r, ...) tensor_on(r, TDICT_F32, COUNTS(__VA_ARGS__))

/* Returns the address of a tensor's elements, even in device memory. */
static const void *address(const tdict_tree *td, const char *path) {
  tdict_tensor_desc v = tdict_tensor_desc_default();
  tdict_tensor_get_desc(td_leaf(td, path), &v);
  return v.data;
}

DEVICE_CASE(must_batch_size) {
  scoped_rig r = rig_open();
  scoped_tree td = TREE(4), none = help_tree_without_batch();
  td_put(none, "x", NEW(&r, 7, 2));
  assert_int_equal(tdict_batch_ndim(none), 0); /* never inferred */
  td_put(td, "n.a", NEW(&r, 4, 3));
  td_put(td, "b", NEW(&r, 4, 3, 2));
  char *before = help_snapshot(td);
  scoped_tensor other = NEW(&r, 5, 3);
  td_fails_at(TDICT_ESHAPE, "[5, 3]", "n.c", tdict_set(td, "n.c", other, err));
  td_fails(TDICT_ESHAPE, "tensor has shape [4, 3]", tdict_set_batch_size(td, 2, (const int64_t[]){4, 9}, err));
  help_unchanged(td, before);
  td_ok(tdict_set_batch_size(td, 2, (const int64_t[]){4, 3}, err));
  assert_int_equal(tdict_batch_ndim(td_child(td, "n")), 2); /* children get the additional dimension */
  td_ok(tdict_set_batch_size(td, 1, (const int64_t[]){4}, err));
  assert_int_equal(tdict_batch_ndim(td_child(td, "n")), 2); /* children may have more dimensions */
  td_put_tree(td, "empty", TREE(9));                        /* an empty child may have any batch size */
}

DEVICE_CASE(must_set_shares) {
  scoped_rig r = rig_open();
  scoped_tree td = TREE(4), child = help_tree_without_batch();
  scoped_tensor t = NEW(&r, 4, 3);
  td_ok(tdict_set(td, "n.m.a", t, err));
  assert_ptr_equal(td_leaf(td, "n.m.a"), t);
  assert_int_equal(tdict_batch_size(td_child(td, "n.m"))[0], 4); /* created nodes have the parent's batch size */
  td_fails(TDICT_ETYPE, "'a' is a tensor", tdict_set(td, "n.m.a.b", t, err));
  td_ok(tdict_set(child, "x", t, err));
  td_ok(tdict_set_tree(td, "c", child, err));
  assert_int_equal(tdict_batch_ndim(td_child(td, "c")), 1);
  assert_int_equal(tdict_batch_ndim(child), 0); /* `child` has not changed */
}

DEVICE_CASE(must_device) {
  scoped_rig r = rig_open();
  scoped_tree td = TREE(2);
  const tdict_device here = td_device(), other = tdict_sim(7);
  td_put(td, "a", NEW(&r, 2));
  tdict_tensor *far = help_tensor_on(other, COUNTS(2, 0));
  td_ok(tdict_set(td, "far", far, err)); /* the tree has no device, so its leaves may be on any device */
  td_fails(TDICT_EWRONGDEVICE, "sim:7", tdict_set_device(td, &here, err));
  td_ok(tdict_delete(td, "far", err));
  td_ok(tdict_set_device(td, &here, err));
  td_fails_at(TDICT_EWRONGDEVICE, "sim:7", "far", tdict_set(td, "far", far, err));
  tdict_tensor_release(far);
  if (r.context) { /* tdict_set_to() moves the tensor before it sets it */
    scoped_tensor host = TENSOR(2, 3);
    td_fails(TDICT_EWRONGDEVICE, "cpu", tdict_set(td, "b", host, err));
    td_ok(tdict_set_to(r.context, td, "b", host, err));
    assert_true(tdict_device_equal(tdict_tensor_device(td_leaf(td, "b")), here));
  }
}

DEVICE_CASE(must_get_delete_pop_rename_has) {
  scoped_rig r = rig_open();
  scoped_tree td = TREE(2), tree = NULL;
  scoped_tensor got = NULL;
  td_put(td, "n.a", NEW(&r, 2));
  td_put(td, "b", NEW(&r, 2));
  td_put(td, "c", NEW(&r, 2));
  td_fails(TDICT_ENOTFOUND, "'x'", tdict_get(td, "x.y", &got, err));
  td_fails(TDICT_ETYPE, "'b' is a tensor", tdict_get(td, "b.y", &got, err));
  td_fails(TDICT_ENOTFOUND, "'x'", tdict_delete(td, "x", err));
  td_fails(TDICT_ENOTFOUND, "'x'", tdict_pop(td, "x", &got, err));
  td_fails(TDICT_ENOTFOUND, "'x'", tdict_rename(td, "x", "y", false, err));
  td_fails(TDICT_EEXIST, "taken", tdict_rename(td, "b", "c", true, err));
  td_ok(tdict_rename(td, "b", "c", false, err)); /* replaces "c" */
  help_paths(td, "n n.a c");
  assert_true(tdict_has(td, "n.a") && !tdict_has(td, "b"));
  td_ok(tdict_pop(td, "c", &got, err));
  td_ok(tdict_pop_tree(td, "n", &tree, err));
  td_ok(tdict_delete(tree, "a", err));
  help_paths(td, "");
}

DEVICE_CASE(must_keep_order) {
  scoped_rig r = rig_open();
  scoped_tree td = TREE(2);
  const char *const paths[] = {"z", "n.q", "a", "n.b", "m"};
  for (int i = 0; i < 5; i++) td_put(td, paths[i], NEW(&r, 2));
  help_paths(td, "z n n.q n.b a m");
  td_put(td, "z", NEW(&r, 2, 2)); /* keeps its position */
  char *before = help_snapshot(td);
  scoped_tensor bad = NEW(&r, 3);
  td_fails(TDICT_ESHAPE, "[3]", tdict_set(td, "new.path.x", bad, err)); /* the new nodes are released */
  help_unchanged(td, before);
}

DEVICE_CASE(must_write_in_place) {
  scoped_rig r = rig_open();
  m_tree *model = SAMPLE(3, 4);
  scoped_tree td = rig_tree(&r, model), other = rig_tree(&r, rig_like(model));
  const void *a = address(td, "a"), *u = address(td, "n.m.u");
  tdict_lock(td);
  td_ok(tdict_write(td, "a", NULL, td_leaf(other, "a"), err));
  td_ok(tdict_fill(td, NULL, 0, NULL, err));
  td_ok(tdict_fill(td, "n", 0, NULL, err));
  td_ok(tdict_copy(td, other, NULL, err));
  assert_true(tdict_equal(td, other));
  scoped_tree row = td_made(tree, tdict_index_get(NULL, other, TDICT_INDEX(TDICT_AT(0)), NULL, &made, err));
  td_ok(tdict_write(td, "a", TDICT_INDEX(TDICT_AT(2)), td_leaf(row, "a"), err));
  td_fails(TDICT_ENOTFOUND, "'x'", tdict_write(td, "x", NULL, td_leaf(other, "a"), err));
  td_fails(TDICT_ESHAPE, "[4]", tdict_write(td, "a", NULL, td_leaf(row, "a"), err));
  assert_ptr_equal(address(td, "a"), a);
  assert_ptr_equal(address(td, "n.m.u"), u);
}

DEVICE_CASE(must_update) {
  scoped_rig r = rig_open();
  scoped_tree td = TREE(2), src = TREE(2);
  td_put(td, "n.a", NEW(&r, 2));
  td_put(td, "n.b", NEW(&r, 2));
  tdict_tensor *a = td_put(src, "n.a", NEW(&r, 2, 3)), *c = td_put(src, "c", NEW(&r, 2));
  td_ok(tdict_update(td, src, (const char *const[]){"n"}, 1, err));
  help_paths(td, "n n.a n.b");
  assert_ptr_equal(td_leaf(td, "n.a"), a);
  td_ok(tdict_update(td, src, NULL, 0, err));
  assert_ptr_equal(td_leaf(td, "c"), c);
  char *before = help_snapshot(td);
  td_ok(tdict_update(td, td, NULL, 0, err)); /* itself */
  help_unchanged(td, before);
  before = help_snapshot(td);
  td_put(src, "d", NEW(&r, 2));
  scoped_tree wrong = TREE(3);
  td_put(wrong, "d", NEW(&r, 3));
  td_fails(TDICT_ESHAPE, "[3]", tdict_update(td, wrong, NULL, 0, err)); /* changes nothing */
  td_fails(TDICT_ENOTFOUND, "no such key", tdict_update_in_place(td, src, NULL, 0, err));
  help_unchanged(td, before);
  td_ok(tdict_update_in_place(td, src, (const char *const[]){"n", "c"}, 2, err));
}

DEVICE_CASE(must_select_exclude_split_keys) {
  scoped_rig r = rig_open();
  tdict_tree *td = rig_tree(&r, SAMPLE(3)), *out = NULL, *parts[2] = {NULL};
  const char *const one[] = {"n.m"}, *const gone[] = {"n.m", "x.y"}, *const missing[] = {"a", "x"};
  td_ok(tdict_select(td, one, 1, true, &out, err));
  help_paths(out, "n n.m n.m.u");
  assert_ptr_equal(td_leaf(out, "n.m.u"), td_leaf(td, "n.m.u"));
  tdict_release(out);
  td_fails(TDICT_ENOTFOUND, "'x'", tdict_select(td, missing, 2, true, &out, err));
  td_ok(tdict_select(td, missing, 2, false, &out, err));
  help_paths(out, "a");
  tdict_release(out);
  td_ok(tdict_exclude(td, gone, 2, &out, err));
  help_paths(out, "a n n.b e");
  tdict_release(out);
  td_ok(tdict_split_keys(td, &(const tdict_key_set){one, 1}, 1, parts, &(size_t){2}, err));
  help_paths(parts[0], "n n.m n.m.u");
  assert_false(tdict_has(parts[1], "n.m.u"));
  for (int i = 0; i < 2; i++) tdict_release(parts[i]);
  tdict_release(td);
}

DEVICE_CASE(must_flatten_and_unflatten_keys) {
  scoped_rig r = rig_open();
  scoped_tree td = rig_tree(&r, SAMPLE(3)), flat = td_made(tree, tdict_flatten_keys(td, NULL, &made, err)), back = NULL;
  help_paths(flat, "a n\\.b n\\.m\\.u");
  assert_ptr_equal(td_leaf(flat, "n\\.m\\.u"), td_leaf(td, "n.m.u"));
  td_ok(tdict_unflatten_keys(flat, NULL, &back, err));
  help_paths(back, "a n n.b n.m n.m.u"); /* the empty tree e is missing */
  td_put(td, "n\\.b", NEW(&r, 3));
  char *before = help_snapshot(td);
  tdict_tree *const nothing = NULL, *out = nothing;
  td_fails(TDICT_EEXIST, "", tdict_flatten_keys(td, NULL, &out, err));
  td_fails(TDICT_EEXIST, "", tdict_unflatten_keys(td, NULL, &out, err));
  assert_null(out);
  help_unchanged(td, before);
}

/* Lists and masks return copies, and other indices return views, on all devices. */
DEVICE_CASE(must_index) {
  scoped_rig r = rig_open();
  m_tree *model = SAMPLE(3, 4);
  scoped_tree td = rig_tree(&r, model), out = NULL, none = help_tree_without_batch();
  const int64_t list[] = {2, 0};
  scoped_tensor mask = td_made(tensor, tdict_tensor_zeros(TDICT_BOOL, 1, (const int64_t[]){3}, NULL, &made, err));
  td_ok(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_AT(1), TDICT_NEW_AXIS, TDICT_RANGE(3, 0, -2)), NULL, &out, err));
  rig_shares(out, td, true);
  assert_int_equal(tdict_batch_ndim(out), 2);
  assert_int_equal(tdict_batch_size(out)[1], 2);
  td_release(out);
  const tdict_indices *const copies[] = {TDICT_INDEX(TDICT_LIST(list, 2)), TDICT_INDEX(TDICT_MASK(mask)),
                                         TDICT_INDEX(TDICT_LIST(list, 2), TDICT_LIST(list, 2))};
  for (int i = 0; i < 3; i++) {
    td_ok(tdict_index_get(NULL, td, copies[i], NULL, &out, err));
    rig_shares(out, td, false);
    assert_int_equal(tdict_batch_size(out)[0], i == 1 ? 0 : 2);
    tdict_release(out);
  }
  td_fails(TDICT_EINVAL, "for 1 dimensions", tdict_index_get(NULL, none, TDICT_INDEX(TDICT_AT(0)), NULL, &out, err));
  td_fails(TDICT_EINVAL, "TDICT_REST is used twice",
           tdict_index_get(NULL, td, TDICT_INDEX(TDICT_REST, TDICT_REST), NULL, &out, err));
  scoped_tree row = rig_tree(&r, rig_like(SAMPLE(4)));
  td_ok(tdict_index_set(NULL, td, TDICT_INDEX(TDICT_RANGE(0, 2, 1)), row, NULL, err)); /* the value is repeated */
  td_ok(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_AT(1)), NULL, &out, err));
  assert_true(tdict_equal(out, row));
}

DEVICE_CASE(must_change_shape) {
  scoped_rig r = rig_open();
  tdict_tree *td = rig_tree(&r, SAMPLE(2, 6)), *outs[9] = {NULL};
  const int64_t grouped[] = {2, 2, 3}, wide[] = {5, 2, 6};
  const int order[] = {1, 0};
  td_ok(tdict_reshape_view(td, 1, (const int64_t[]){-1}, &outs[0], err));
  td_ok(tdict_reshape(td, 3, grouped, &outs[1], err));
  td_ok(tdict_merge_dims(td, 0, 1, &outs[2], err));
  td_ok(tdict_split_dim(td, 1, 2, grouped + 1, &outs[3], err));
  td_ok(tdict_unsqueeze(td, 0, &outs[4], err));
  td_ok(tdict_squeeze(outs[4], 0, &outs[5], err));
  td_ok(tdict_expand(td, 3, wide, &outs[6], err));
  td_ok(tdict_permute(td, 2, order, &outs[7], err));
  td_ok(tdict_transpose(td, 0, 1, &outs[8], err));
  static const int ndims[] = {1, 3, 1, 3, 3, 2, 3, 2, 2};
  for (int i = 0; i < 9; i++) {
    assert_int_equal(tdict_batch_ndim(outs[i]), ndims[i]);
    rig_shares(outs[i], td, true);
    assert_int_equal(tdict_tensor_ndim(td_leaf(outs[i], "n.b")), ndims[i] + 1); /* feature dimensions are kept */
  }
  assert_true(tdict_equal(outs[5], td));
  for (int i = 0; i < 9; i++) tdict_release(outs[i]);
  tdict_release(td);
}

DEVICE_CASE(must_split_chunk_unbind_stack_cat) {
  scoped_rig r = rig_open();
  tdict_tree *td = rig_tree(&r, SAMPLE(5)), *pieces[5] = {NULL}, *whole = NULL, *into = NULL;
  size_t count = 2;
  td_fails(TDICT_ESHAPE, "sum to 4", tdict_split(td, 0, (const int64_t[]){2, 2}, pieces, &(size_t){2}, err));
  td_ok(tdict_split_every(td, 0, 3, pieces, &count, err));
  assert_int_equal(tdict_batch_size(pieces[1])[0], 2); /* the last piece is shorter */
  rig_shares(pieces[1], td, true);
  td_ok(tdict_cat((const tdict_tree *const *)pieces, 2, NULL, NULL, &whole, err));
  assert_true(tdict_equal(whole, td));
  td_fails(TDICT_ESHAPE, "tree 1", tdict_stack((const tdict_tree *const *)pieces, 2, NULL, NULL, &into, err));
  for (int i = 0; i < 2; i++) tdict_release(pieces[i]);
  count = 5;
  td_ok(tdict_unbind(td, 0, pieces, &count, err));
  td_ok(tdict_stack((const tdict_tree *const *)pieces, 5, NULL, NULL, &into, err));
  assert_true(tdict_equal(into, td));
  const void *before = address(into, "n.b");
  td_ok(tdict_fill(into, NULL, 0, NULL, err));
  td_ok(tdict_stack_into(into, (const tdict_tree *const *)pieces, 5, NULL, NULL, err));
  assert_true(tdict_equal(into, td));
  assert_ptr_equal(address(into, "n.b"), before);
  td_ok(tdict_delete(pieces[3], "n.b", err));
  tdict_tree *none = NULL;
  td_fails(TDICT_ENOTFOUND, "tree 3", tdict_stack((const tdict_tree *const *)pieces, 5, NULL, NULL, &none, err));
  assert_string_equal(td_last_error.path, "n.b");
  for (int i = 0; i < 5; i++) tdict_release(pieces[i]);
  td_release(into, whole, td);
}

DEVICE_CASE(must_preallocate) {
  scoped_rig r = rig_open();
  static const tdict_field fields[] = {{"obs", TDICT_F32, 1, {3}}, {"n.done", TDICT_BOOL, 0, {0}}};
  scoped_tree td = NULL, empty = TREE(4), row = NULL, got = NULL;
  td_ok(tdict_create_from(fields, 2, 1, (const int64_t[]){4}, r.memory, &td, err));
  td_ok(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_AT(0)), NULL, &row, err));
  td_ok(tdict_write_rows(empty, 2, row, err)); /* allocates the leaves */
  assert_true(tdict_equal(empty, td));         /* their elements are 0 */
  tdict_release(row);
  td_ok(tdict_create_from(fields, 2, 0, NULL, r.memory, &row, err));
  scoped_tensor obs = NEW(&r, 3);
  td_ok(tdict_write(row, "obs", NULL, obs, err));
  td_ok(tdict_write_rows(td, 3, row, err));
  td_ok(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_AT(3)), NULL, &got, err));
  assert_true(tdict_equal(got, row));
}

DEVICE_CASE(must_pad_sequence) {
  scoped_rig r = rig_open();
  scoped_tree td = rig_tree(&r, SAMPLE(4)), two = NULL, out = NULL, end = NULL, zeros = NULL;
  td_ok(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_RANGE(0, 2, 1)), NULL, &two, err));
  td_ok(tdict_pad_sequence((const tdict_tree *const[]){two, td}, 2, NULL, NULL, &out, err));
  assert_int_equal(tdict_batch_size(out)[1], 4);
  td_ok(tdict_index_get(NULL, out, TDICT_INDEX(TDICT_AT(0), TDICT_RANGE(2, 4, 1)), NULL, &end, err));
  td_ok(tdict_clone_deep(two, NULL, &zeros, err));
  td_ok(tdict_fill(zeros, NULL, 0, NULL, err));
  assert_true(tdict_equal(end, zeros));
}

DEVICE_CASE(must_lock) {
  scoped_rig r = rig_open();
  scoped_tree td = rig_tree(&r, SAMPLE(3)), out = NULL;
  scoped_tensor t = NEW(&r, 3);
  tdict_lock(td);
  td_fails(TDICT_ELOCKED, "", tdict_set(td, "n.new", t, err));
  td_fails(TDICT_ELOCKED, "", tdict_set(td, "a", t, err));
  td_fails(TDICT_ELOCKED, "", tdict_delete(td, "n.b", err));
  td_fails(TDICT_ELOCKED, "", tdict_unlock(td_child(td, "n"), err));
  td_ok(tdict_fill(td, NULL, 0, NULL, err)); /* elements may be written */
  td_ok(tdict_clone(td, &out, err));
  assert_false(tdict_is_locked(out));
  td_release(out);
  td_ok(tdict_unsqueeze(td, 0, &out, err));
  assert_true(tdict_is_locked(out));
  td_release(out);
  if (r.context) {
    td_ok(tdict_to_device(r.context, td, tdict_cpu(), NULL, &out, err));
    assert_true(tdict_is_locked(out));
    td_release(out);
  }
}

static tdict_status clone_leaf(void *user, const tdict_leaves *at, tdict_tensor **out, tdict_error *err) {
  (void)user;
  return tdict_tensor_clone(at->tensors[at->count - 1], NULL, out, err);
}
DEVICE_CASE(must_walk_and_apply) {
  scoped_rig r = rig_open();
  scoped_tree td = rig_tree(&r, SAMPLE(3)), other = rig_tree(&r, rig_like(SAMPLE(3))), out = NULL;
  help_paths(td, "a n n.b n.m n.m.u e");
  td_ok(tdict_apply(r.context, (const tdict_tree *const[]){td, other}, 2, clone_leaf, NULL, NULL, &out, err));
  assert_true(tdict_equal(out, other));
  size_t bytes = 0;
  assert_int_equal(tdict_num_leaves(td), 3);
  assert_int_equal(tdict_bytes(td), 3 * 4 + 3 * 3 * 8 + 3 * 2 * 2);
  td_put(out, "again", tdict_tensor_retain(td_leaf(out, "a")));
  td_ok(tdict_unique_bytes(out, &bytes, err));
  assert_int_equal(bytes, tdict_bytes(td)); /* shared elements count only once */
  assert_int_equal(tdict_depth(td), 2);
  assert_false((tdict_num_leaves(td) + tdict_num_objects(td) == 0));
  assert_true((tdict_num_leaves(td_child(td, "e")) + tdict_num_objects(td_child(td, "e")) == 0));
  td_ok(tdict_delete(other, "n.m.u", err));
  tdict_tree *none = NULL;
  td_fails(TDICT_ENOTFOUND, "tree 1",
           tdict_apply(r.context, (const tdict_tree *const[]){td, other}, 2, clone_leaf, NULL, NULL, &none, err));
}

DEVICE_CASE(must_compare_and_print) {
  scoped_rig r = rig_open();
  scoped_tree td = rig_tree(&r, SAMPLE(3)), other = NULL;
  tdict_difference found;
  char text[1024], line[160], *shown;
  td_ok(tdict_clone_deep(td, NULL, &other, err));
  assert_true(tdict_equal(td, other));
  td_ok(tdict_fill(other, "n.b", 0, NULL, err));
  td_ok(tdict_get_difference(td, other, NULL, &found, err));
  assert_true(found.differs);
  assert_string_equal(found.path, "n.b");
  assert_int_equal(found.ndim, 2);
  tdict_format(td, text, sizeof text);
  tdict_device_format(td_device(), line, sizeof line);
  shown = strstr(text, " int64   [3, 3]");
  assert_non_null(shown);
  assert_non_null(strstr(shown, line));
  assert_null(strstr(text, " shared"));
  td_ok(tdict_set(td, "c", td_leaf(td, "n.b"), err));
  tdict_format(td, text, sizeof text);
  assert_non_null(strstr(text, " shared"));
}

GPU_CASE(must_to) {
  scoped_rig r = rig_open();
  scoped_tree host = ops_tree(SAMPLE(3)), device = NULL, again = NULL, back = NULL;
  tdict_lock(host);
  td_ok(tdict_to_device(r.context, host, td_device(), NULL, &device, err));
  assert_true(tdict_is_locked(device));
  assert_int_equal(tdict_batch_size(device)[0], 3);
  td_ok(tdict_to_device(r.context, device, td_device(), NULL, &again, err));
  assert_ptr_equal(again, device); /* the same tree */
  td_ok(tdict_to_device(r.context, device, tdict_cpu(), NULL, &back, err));
  assert_true(tdict_equal(back, host)); /* the copy is complete when the call returns */
  const void *before = address(device, "n.b");
  td_ok(tdict_fill(host, NULL, 0, NULL, err));
  td_ok(tdict_transfer_into(r.context, device, host, NULL, err));
  assert_ptr_equal(address(device, "n.b"), before);
  assert_true(tdict_equal(device, host));
}

GPU_CASE(must_pin_memory) {
  scoped_rig r = rig_open();
  scoped_tree host = ops_tree(SAMPLE(3)), pinned = NULL, again = NULL, device = NULL;
  td_ok(tdict_pin_memory(r.context, host, NULL, &pinned, err));
  assert_true(tdict_is_pinned(pinned) && !tdict_is_pinned(host));
  assert_true(tdict_equal(pinned, host));
  td_ok(tdict_pin_memory(r.context, pinned, NULL, &again, err));
  rig_shares(again, pinned, true); /* pinned tensors are shared */
  td_ok(tdict_clone_deep(host, TD_IN(r.memory), &device, err));
  td_ok(tdict_set_tree(host, "d", device, err));
  tdict_tree *none = NULL;
  td_fails_at(TDICT_EWRONGDEVICE, "", "d.a", tdict_pin_memory(r.context, host, NULL, &none, err));
}
