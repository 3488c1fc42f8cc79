/* Tests unbatched leaves. Operations on batch dimensions share the leaf's tensor. Other operations use its elements. */
#include "core/ops/rig.h"

static tdict_tensor *unbatched(const tdict_tree *td, const char *path) {
  return td_made(tensor, tdict_get_unbatched(td, path, &made, err));
}

/* Makes a tree [2, 3] with the tensor "t" and, at "n.u", an unbatched float32 tensor [4, 5]. */
static tdict_tree *make_tree(const rig *r) {
  tdict_tree *td = td_tree("[2,3] t:f32[2,3]"), *out = NULL;
  tdict_tensor *u = TENSOR(4, 5);
  td_ok(tdict_set_unbatched(td, "n.u", u, err));
  assert_ptr_equal(unbatched(td, "n.u"), u); /* not copied */
  tdict_tensor_release(u);
  if (!r->memory) return td;
  td_ok(tdict_clone_deep(td, TD_IN(r->memory), &out, err));
  tdict_release(td);
  return out;
}

DEVICE_CASE(unbatched_is_shared) {
  rig r = rig_open();
  tdict_tree *td = make_tree(&r), *out = NULL, *parts[2] = {NULL};
  const tdict_tree *both[] = {td, td};
  const tdict_tensor *u = unbatched(td, "n.u");
#define SHARES(call)                            \
  do {                                          \
    td_ok(call);                                \
    assert_ptr_equal(unbatched(out, "n.u"), u); \
    tdict_release(out);                         \
  } while (0)
  SHARES(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_AT(1)), NULL, &out, err));
  SHARES(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_AT(1), TDICT_AT(2)), NULL, &out, err));
  SHARES(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_ALL, TDICT_RANGE(0, 2, 1)), NULL, &out, err));
  if (!r.memory)
    SHARES(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST(((const int64_t[]){1, 1}), 2)), NULL, &out, err));
  SHARES(tdict_reshape(td, 1, (const int64_t[]){6}, &out, err));
  SHARES(tdict_transpose(td, 0, 1, &out, err));
  SHARES(tdict_expand(td, 3, (const int64_t[]){7, 2, 3}, &out, err));
  SHARES(tdict_unsqueeze(td, 0, &out, err));
  SHARES(tdict_clone(td, &out, err));
  SHARES(tdict_stack(both, 2, NULL, NULL, &out, err));
  SHARES(tdict_cat(both, 2, NULL, NULL, &out, err));
  SHARES(tdict_pad_sequence(both, 2, NULL, NULL, &out, err));
  td_ok(tdict_unbind(td, 0, parts, &(size_t){2}, err));
  for (int i = 0; i < 2; i++) {
    assert_ptr_equal(unbatched(parts[i], "n.u"), u);
    tdict_release(parts[i]);
  }
  tdict_release(td);
  rig_close(&r);
}

/* Returns a copy of `td` with its own tensors. If `changes` is true, one element of the unbatched tensor differs. */
static tdict_tree *twin_of(const rig *r, const tdict_tree *td, bool changes) {
  tdict_tree *host = td_made(tree, tdict_clone_deep(td, NULL, &made, err)), *out = NULL;
  tdict_tensor *u = NULL;
  td_ok(tdict_tensor_clone(unbatched(td, "n.u"), NULL, &u, err));
  if (changes) ((float *)tdict_tensor_data(u))[19] += 1;
  td_ok(tdict_set_unbatched(host, "n.u", u, err));
  tdict_tensor_release(u);
  if (!r->memory) return host;
  td_ok(tdict_clone_deep(host, TD_IN(r->memory), &out, err));
  tdict_release(host);
  return out;
}

DEVICE_CASE(unbatched_is_joined_if_equal) {
  scoped_rig r = rig_open();
  scoped_tree td = make_tree(&r), equal = twin_of(&r, td, false), other = twin_of(&r, td, true);
  tdict_tree *out = NULL;
  const tdict_tree *good[] = {td, equal}, *bad[] = {td, equal, other};
  tdict_join_options second = td_with(tdict_join_options, dim = 1);
  td_ok(tdict_stack(good, 2, &second, NULL, &out, err));
  assert_ptr_equal(unbatched(out, "n.u"), unbatched(td, "n.u"));
  tdict_release(out);
  td_ok(tdict_cat(good, 2, &second, NULL, &out, err));
  assert_ptr_equal(unbatched(out, "n.u"), unbatched(td, "n.u"));
  td_release(out);
  td_fails(TDICT_EINVAL, "the tensors of tree 0 and tree 2 differ", tdict_stack(bad, 3, NULL, NULL, &out, err));
  assert_string_equal(td_last_error.path, "n.u");
  td_fails(TDICT_EINVAL, "the tensors of tree 0 and tree 2 differ", tdict_cat(bad, 3, NULL, NULL, &out, err));
  assert_null(out);
}

/* Comparisons ignore strides, but not dtypes or shapes. */
CASE(unbatched_is_compared_by_elements) {
  const int64_t shape[] = {2, 3}, strides[] = {1, 2};
  float across[6] = {0, 1, 2, 3, 4, 5}, down[6] = {0, 3, 1, 4, 2, 5};
  tdict_tensor_desc view = tdict_tensor_desc_default();
  tdict_tree *trees[4];
  tdict_tree *out = NULL;
  for (int i = 0; i < 4; i++) {
    scoped_tensor t = NULL;
    view.data = i == 1 ? down : across;
    view.dtype = i == 2 ? TDICT_I32 : TDICT_F32;
    view.ndim = i == 3 ? 1 : 2;
    view.shape = i == 3 ? (const int64_t[]){6} : shape;
    view.strides = i == 1 ? strides : NULL;
    td_ok(tdict_tensor_from_data(&view, NULL, NULL, &t, err));
    trees[i] = TREE(2);
    td_ok(tdict_set_unbatched(trees[i], "u", t, err));
  }
  tdict_release(td_made(tree, tdict_stack((const tdict_tree *const[]){trees[0], trees[1]}, 2, NULL, NULL, &made, err)));
  td_fails(TDICT_EINVAL, "differ",
           tdict_stack((const tdict_tree *const[]){trees[0], trees[2]}, 2, NULL, NULL, &out, err));
  td_fails(TDICT_EINVAL, "differ",
           tdict_stack((const tdict_tree *const[]){trees[0], trees[3]}, 2, NULL, NULL, &out, err));
  assert_true(tdict_equal(trees[0], trees[1]));
  assert_false(tdict_equal(trees[0], trees[2]));
  assert_false(tdict_equal(trees[0], trees[3]));
  for (int i = 0; i < 4; i++) tdict_release(trees[i]);
}

DEVICE_CASE(unbatched_is_copied_and_compared) {
  scoped_rig r = rig_open();
  scoped_tree td = make_tree(&r), deep = NULL, other = twin_of(&r, td, true);
  tdict_difference found;
  td_ok(tdict_clone_deep(td, TD_IN(r.memory), &deep, err));
  assert_false(tdict_tensor_shares_storage(unbatched(deep, "n.u"), unbatched(td, "n.u")));
  assert_true(tdict_equal(td, deep));
  td_ok(tdict_get_difference(td, other, NULL, &found, err));
  assert_true(found.differs);
  assert_string_equal(found.path, "n.u.tensor");
  assert_int_equal(found.index[0] * 5 + found.index[1], 19);
  /* A write to the whole tree also writes the elements of the unbatched tensor. */
  const tdict_tensor *u = unbatched(td, "n.u");
  td_ok(tdict_copy(td, other, NULL, err));
  assert_true(tdict_equal(td, other));
  assert_ptr_equal(unbatched(td, "n.u"), u);
  td_ok(tdict_update_in_place(td, deep, (const char *const[]){"n"}, 1, err));
  assert_false(tdict_equal(td, other));
  assert_true(tdict_equal(td, deep));
}

CASE(unbatched_is_not_written_in_part) {
  rig r = {NULL, NULL};
  scoped_tree td = make_tree(&r), equal = twin_of(&r, td, false), row = NULL, dst = TREE(2, 2, 3);
  td_ok(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_AT(0)), NULL, &row, err));
  td_ok(tdict_write_rows(td, 1, row, err)); /* `row` has the same object */
  tdict_tensor *u = unbatched(td, "n.u");
  td_ok(tdict_set_unbatched(row, "n.u", u, err)); /* the same tensor in a new object */
  td_ok(tdict_write_rows(td, 1, row, err));
  td_fails_at(TDICT_ENOTSUP, "belongs to all elements of the tree", "n.u",
              tdict_index_set(NULL, td, TDICT_INDEX(TDICT_ALL), equal, NULL, err));
  td_fails(TDICT_ENOTSUP, "belongs to all elements",
           tdict_index_into(NULL, td, equal, TDICT_INDEX(TDICT_ALL), NULL, err));
  tdict_release(row);
  td_ok(tdict_index_get(NULL, equal, TDICT_INDEX(TDICT_AT(0)), NULL, &row, err));
  td_fails(TDICT_ENOTSUP, "belongs to all elements", tdict_write_rows(td, 1, row, err));
  const tdict_tree *both[] = {td, td};
  td_put(dst, "t", TENSOR(2, 2, 3));
  td_ok(tdict_set_unbatched(dst, "n.u", u, err));
  td_ok(tdict_stack_into(dst, both, 2, NULL, NULL, err));
  assert_memory_equal((const char *)tdict_const_data(dst, "t") + 24, tdict_const_data(td, "t"), 24);
  both[1] = equal;
  td_fails_at(TDICT_ENOTSUP, "belongs to all elements", "n.u", tdict_stack_into(dst, both, 2, NULL, NULL, err));
}

static tdict_status note_path(void *user, const tdict_leaves *at, tdict_error *err) {
  (void)err;
  strcat(user, at->path);
  strcat(user, " ");
  return TDICT_OK;
}
static tdict_status first_row(void *user, const tdict_leaves *at, tdict_tensor **out, tdict_error *err) {
  (void)user;
  if (strcmp(at->path, "n.u.tensor") != 0) return tdict_tensor_clone(at->tensors[0], NULL, out, err);
  return tdict_tensor_empty(TDICT_U8, 1, (const int64_t[]){9}, NULL, out, err);
}

CASE(unbatched_is_visited) {
  rig r = {NULL, NULL};
  scoped_tree td = make_tree(&r), out = NULL;
  const tdict_tree *trees[] = {td};
  char paths[64] = "";
  td_ok(tdict_visit(NULL, trees, 1, note_path, paths, NULL, err));
  assert_string_equal(paths, "t n.u.tensor ");
  td_ok(tdict_apply(NULL, trees, 1, first_row, NULL, NULL, &out, err));
  assert_int_equal(tdict_tensor_ndim(unbatched(out, "n.u")), 1);
  td_release(out);
  td_ok(tdict_fill(td, NULL, 2.5, NULL, err));
  for (int i = 0; i < 20; i++) assert_true(((const float *)tdict_tensor_const_data(unbatched(td, "n.u")))[i] == 2.5f);
  td_ok(tdict_fill(td, "n.u", 1.5, NULL, err));
  assert_true(((const float *)tdict_tensor_const_data(unbatched(td, "n.u")))[19] == 1.5f);
  assert_int_equal(tdict_bytes(td), 24 + 80);
  assert_int_equal(tdict_num_objects(td), 1);
  assert_ptr_equal(tdict_object_type(td, "n.u"), tdict_unbatched_type());
  char text[256];
  tdict_format(td, text, sizeof text);
  assert_non_null(strstr(text, "u  unbatched float32 [4, 5] cpu\n"));
}

CASE(unbatched_refuses) {
  scoped_tree td = TREE(2);
  scoped_tensor t = TENSOR(5), out = NULL;
  const tdict_device cpu = tdict_cpu();
  td_put(td, "t", TENSOR(2));
  td_ok(tdict_set_text(td, "s", "text", err));
  td_ok(tdict_set_device(td, &cpu, err));
  scoped_tensor elsewhere = help_tensor_on(tdict_sim(0), 1, (const int64_t[]){0});
  char *before = help_snapshot(td);
  td_fails(TDICT_EINVAL, "set_unbatched: tree is NULL", tdict_set_unbatched(NULL, "u", t, err));
  td_fails(TDICT_EINVAL, "set_unbatched: path is NULL", tdict_set_unbatched(td, NULL, t, err));
  td_fails(TDICT_EINVAL, "set_unbatched: tensor is NULL", tdict_set_unbatched(td, "u", NULL, err));
  td_fails(TDICT_EINVAL, "empty key", tdict_set_unbatched(td, "u.", t, err));
  td_fails(TDICT_ETYPE, "set_unbatched", tdict_set_unbatched(td, "t.u", t, err));
  td_fails_at(TDICT_EWRONGDEVICE, "set_unbatched", "u", tdict_set_unbatched(td, "u", elsewhere, err));
  tdict_lock(td);
  td_fails(TDICT_ELOCKED, "set_unbatched", tdict_set_unbatched(td, "u", t, err));
  td_ok(tdict_unlock(td, err));
  td_fails(TDICT_EINVAL, "get_unbatched: tree is NULL", tdict_get_unbatched(NULL, "u", &out, err));
  td_fails(TDICT_EINVAL, "get_unbatched: path is NULL", tdict_get_unbatched(td, NULL, &out, err));
  td_fails(TDICT_EINVAL, "get_unbatched: out is NULL", tdict_get_unbatched(td, "u", NULL, err));
  td_fails(TDICT_ENOTFOUND, "get_unbatched", tdict_get_unbatched(td, "u", &out, err));
  td_fails(TDICT_ETYPE, "get_unbatched: found a tensor, wanted an object of type unbatched",
           tdict_get_unbatched(td, "t", &out, err));
  td_fails(TDICT_ETYPE, "found an object of type nontensor", tdict_get_unbatched(td, "s", &out, err));
  assert_null(out);
  help_unchanged(td, before);
}

CASE(unbatched_survives_enomem) {
  rig r = {NULL, NULL};
  scoped_tree td = make_tree(&r), equal = twin_of(&r, td, false);
  tdict_tree *out = NULL;
  scoped_tensor t = TENSOR(5);
  const tdict_tree *both[] = {td, equal};
  RIG_WITHOUT_MEMORY(td, tdict_set_unbatched(td, "a.b", t, err));
  RIG_WITHOUT_MEMORY(td, tdict_set_unbatched(equal, "a.b", t, err));
  RIG_WITHOUT_MEMORY(td, tdict_stack(both, 2, NULL, NULL, &out, err));
  tdict_release(out);
  RIG_WITHOUT_MEMORY(td, tdict_clone_deep(td, NULL, &out, err));
  tdict_release(out);
  RIG_WITHOUT_MEMORY(td, tdict_copy(td, equal, NULL, err));
}

DEVICE_CASE(unbatched_is_transferred) {
  static const int32_t modes[] = {TDICT_MODE_BLOCKING, TDICT_MODE_NON_BLOCKING, TDICT_MODE_NON_BLOCKING_PIN};
  rig r = {NULL, NULL};
  scoped_context context = td_context(NULL);
  scoped_tree src = make_tree(&r);
  tdict_tree *out = NULL;
  scoped_tree back = NULL, dst = NULL;
  for (int i = 0; i < 3; i++) {
    tdict_transfer_options o = td_with(tdict_transfer_options, mode = modes[i]);
    td_ok(tdict_to_device(context, src, td_device(), &o, &out, err));
    assert_true(tdict_device_equal(tdict_tensor_device(unbatched(out, "n.u")), td_device()));
    td_ok(tdict_to_device(context, out, tdict_cpu(), &o, &back, err));
    assert_true(tdict_equal(back, src));
    td_release(back, out);
  }
  if (td_device().type != TDICT_DEVICE_CPU) {
    td_ok(tdict_pin_memory(context, src, NULL, &out, err));
    assert_true(tdict_tensor_is_pinned(unbatched(out, "n.u")));
    assert_true(tdict_is_pinned(out));
    char text[256];
    tdict_format(out, text, sizeof text);
    assert_non_null(strstr(text, "u  unbatched float32 [4, 5] cpu pinned\n"));
    td_ok(tdict_delete(src, "t", err));
    assert_false(tdict_is_pinned(src));
    td_put(src, "t", TENSOR(2, 3));
    tdict_release(out);
  }
  td_ok(tdict_to_device(context, src, td_device(), NULL, &dst, err));
  scoped_tree changed = twin_of(&r, src, true);
  td_ok(tdict_transfer_into(context, dst, changed, NULL, err));
  td_ok(tdict_to_device(context, dst, tdict_cpu(), NULL, &back, err));
  assert_true(tdict_equal(back, changed));
  /* On the CPU, `dst` shares its tensors with `src`, so `src` has changed too. */
  assert_int_equal(tdict_equal(back, src), td_device().type == TDICT_DEVICE_CPU);
}
