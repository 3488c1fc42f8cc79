/* Tests tdict_pad_sequence(), which pads and stacks sequences of different lengths, on each device. */
#include "rig.h"

DEVICE_CASE(pad_sequence_pads) {
  static const int64_t lengths[] = {2, 5, 0};
  scoped_rig r = rig_open();
  tdict_tree *td[3], *out = NULL;
  m_tree *model[3];
  for (int i = 0; i < 3; i++) {
    model[i] = SAMPLE(lengths[i], 2);
    td[i] = rig_tree(&r, model[i]);
  }
  td_ok(tdict_pad_sequence((const tdict_tree *const *)td, 3, NULL, NULL, &out, err));
  assert_int_equal(tdict_batch_ndim(out), 3);
  const int64_t wanted[] = {3, 5, 2};
  assert_memory_equal(tdict_batch_size(out), wanted, sizeof wanted);
  m_tree *made = rig_sample(3, wanted);
  m_array *to[8], *from[8];
  int count = m_arrays(made, to, NULL, 8);
  for (int a = 0; a < count; a++)
    for (int64_t k = 0; k < to[a]->n; k++) m_write(to[a]->cells[k], 0);
  for (int i = 0; i < 3; i++) {
    m_arrays(model[i], from, NULL, 8);
    for (int a = 0; a < count; a++)
      for (int64_t k = 0; k < from[a]->n; k++)
        m_write(to[a]->cells[i * (to[a]->n / 3) + k], m_value(from[a]->cells[k]));
  }
  rig_check(&r, made, out);
  tdict_release(out);
  for (int i = 0; i < 3; i++) tdict_release(td[i]);
}

CASE(pad_sequence_converts_the_value) {
  scoped_tree a = TREE(1), b = TREE(2), out = NULL;
  for (int i = 0; i < 2; i++) {
    td_put(i ? b : a, "x", TENSOR(i + 1));
    td_put(i ? b : a, "y", td_made(tensor, tdict_tensor_zeros(TDICT_I16, COUNTS(i + 1, 2), NULL, &made, err)));
    td_put(i ? b : a, "z", td_made(tensor, tdict_tensor_zeros(TDICT_BOOL, COUNTS(i + 1), NULL, &made, err)));
  }
  const tdict_tree *both[] = {a, b};
  td_ok(tdict_pad_sequence(both, 2, TD_PAD(-7, NULL), NULL, &out, err));
  assert_true(((const float *)tdict_const_data(out, "x"))[1] == -7);
  assert_int_equal(((const int16_t *)tdict_const_data(out, "y"))[2], -7);
  assert_int_equal(((const int16_t *)tdict_const_data(out, "y"))[3], -7);
  assert_int_equal(((const int16_t *)tdict_const_data(out, "y"))[1], 0);
  assert_int_equal(((const char *)tdict_const_data(out, "z"))[1], 1);
}

DEVICE_CASE(pad_sequence_pads_8_bit_floats) {
  static const tdict_dtype dtypes[] = {TDICT_F8E4M3, TDICT_F8E5M2};
  static const unsigned char three[] = {68, 66}; /* the bytes of 3 in PyTorch */
  scoped_rig r = rig_open();
  for (int d = 0; d < 2; d++) {
    tdict_tree *td[2], *out = NULL;
    tdict_tensor *host = NULL;
    for (int i = 0; i < 2; i++) {
      td[i] = TREE(2 + i);
      td_put(td[i], "x", td_made(tensor, tdict_tensor_zeros(dtypes[d], COUNTS(2 + i, 2), r.memory, &made, err)));
    }
    td_ok(tdict_pad_sequence((const tdict_tree *const *)td, 2, TD_PAD(3, NULL), NULL, &out, err));
    td_ok(tdict_tensor_clone(td_leaf(out, "x"), NULL, &host, err));
    const unsigned char *found = tdict_tensor_const_data(host);
    for (int k = 0; k < 12; k++) assert_int_equal(found[k], k == 4 || k == 5 ? three[d] : 0);
    td_release(host, out);
    for (int i = 0; i < 2; i++) tdict_release(td[i]);
  }
}

/* Sets a random byte tensor, with one dimension if `width` is 0, else two. The caller frees the returned elements. */
static unsigned char *put_bytes(const rig *r, tdict_tree *td, const char *path, int64_t length, int64_t width) {
  static unsigned seed = 1;
  tdict_tensor *host = NULL, *t = NULL;
  const int64_t shape[] = {length, width};
  const size_t count = (size_t)(length * (width ? width : 1));
  unsigned char *bytes = malloc(count + 1);
  for (size_t i = 0; i < count; i++) bytes[i] = (unsigned char)((seed = seed * 1103515245u + 12345u) >> 16);
  td_ok(tdict_tensor_from_array(TDICT_U8, width ? 2 : 1, shape, bytes, &host, err));
  td_ok(tdict_tensor_clone(host, r->memory, &t, err));
  tdict_tensor_release(host);
  td_put(td, path, t);
  return bytes;
}

/* Checks the rows of a padded tensor, or of its mask if `elements` is NULL. */
static void check_rows(const tdict_tree *out, const char *path, const int64_t *lengths, int64_t longest, int64_t width,
                       unsigned char *const *elements) {
  scoped_tensor host = td_made(tensor, tdict_tensor_clone(td_leaf(out, path), NULL, &made, err));
  assert_int_equal(tdict_tensor_ndim(host), elements && width ? 3 : 2);
  const int64_t wanted[] = {3, longest, width}, row = elements && width ? width : 1;
  assert_memory_equal(tdict_tensor_shape(host), wanted, sizeof *wanted * (elements && width ? 3 : 2));
  const unsigned char *found = tdict_tensor_const_data(host);
  for (int64_t i = 0; i < 3; i++)
    for (int64_t k = 0; k < longest * row; k++, found++)
      assert_int_equal(*found, k / row < lengths[i] ? (elements ? elements[i][k] : 1) : (elements ? 7 : 0));
}

/* Without batch dimensions, each key has its own lengths, as in TensorDict. */
DEVICE_CASE(pad_sequence_pads_samples) {
  static const int64_t lengths[3][3] = {{2, 5, 0}, {4, 1, 3}, {0, 0, 0}}, longest[3] = {5, 4, 0}, widths[3] = {0, 3, 2};
  static const char *const paths[3] = {"ids", "n.pixels", "n.none"}, *const masks[3] = {"m.ids", "m.n.pixels",
                                                                                        "m.n.none"};
  scoped_rig r = rig_open();
  tdict_tree *td[3], *out = NULL;
  unsigned char *elements[3][3];
  for (int i = 0; i < 3; i++) {
    td[i] = help_tree_without_batch();
    for (int k = 0; k < 3; k++) elements[k][i] = put_bytes(&r, td[i], paths[k], lengths[k][i], widths[k]);
    td_ok(tdict_set_text(td[i], "source", i ? "b" : "a", err));
  }
  td_ok(tdict_pad_sequence((const tdict_tree *const *)td, 3, TD_PAD(7, "m"), NULL, &out, err));
  static const char *const nodes[] = {"n", "m", "m.n"};
  for (int i = 0; i < 4; i++) {
    const tdict_tree *node = i < 3 ? td_child(out, nodes[i]) : out;
    assert_int_equal(tdict_batch_ndim(node), 1);
    assert_int_equal(tdict_batch_size(node)[0], 3);
  }
  for (int k = 0; k < 3; k++) {
    check_rows(out, paths[k], lengths[k], longest[k], widths[k], elements[k]);
    check_rows(out, masks[k], lengths[k], longest[k], widths[k], NULL);
  }
  const char *text = NULL;
  td_ok(tdict_get_text(out, "source", 0, &text, NULL, err));
  assert_string_equal(text, "a");
  td_ok(tdict_get_text(out, "source", 2, &text, NULL, err));
  assert_string_equal(text, "b");
  tdict_release(out);
  for (int i = 0; i < 3; i++) {
    tdict_release(td[i]);
    for (int k = 0; k < 3; k++) free(elements[k][i]);
  }
}

/* The dimension that is padded may be a batch dimension of a child. The result must still be a valid tree. */
DEVICE_CASE(pad_sequence_of_samples_keeps_batch_sizes_of_children) {
  scoped_rig r = rig_open();
  tdict_tree *td[2], *out = NULL, *row = NULL;
  for (int i = 0; i < 2; i++) {
    td[i] = help_tree_without_batch();
    td_put_tree(td[i], "both", TREE(2 + i, 3));
    free(put_bytes(&r, td[i], "both.x", 2 + i, 3));
    if (i)
      td_put_tree(td[i], "one", help_tree_without_batch());
    else
      td_put_tree(td[i], "one", TREE(4));
    free(put_bytes(&r, td[i], "one.x", 4, 0));
  }
  td_ok(tdict_pad_sequence((const tdict_tree *const *)td, 2, NULL, NULL, &out, err));
  const int64_t wanted[] = {2, 3, 3};
  const tdict_tree *both = td_child(out, "both"), *one = td_child(out, "one");
  assert_int_equal(tdict_batch_ndim(both), 3);
  assert_memory_equal(tdict_batch_size(both), wanted, sizeof wanted);
  assert_int_equal(tdict_batch_ndim(one), 1);
  td_ok(tdict_index_get(NULL, both, TDICT_INDEX(TDICT_AT(1), TDICT_AT(2), TDICT_AT(2)), NULL, &row, err));
  td_release(row, out);
  for (int i = 0; i < 2; i++) tdict_release(td[i]);
}

DEVICE_CASE(pad_sequence_refuses) {
  scoped_rig r = rig_open();
  scoped_tree a = rig_tree(&r, SAMPLE(2)), b = rig_tree(&r, SAMPLE(3)), scalar = help_tree(0, NULL);
  tdict_tree *out = NULL;
  const tdict_tree *both[] = {a, b}, *scalars[] = {scalar}, *mixed[] = {scalar, a};
  td_put(scalar, "n.b", td_made(tensor, tdict_tensor_zeros(TDICT_F32, 0, NULL, r.memory, &made, err)));
  td_fails(TDICT_EINVAL, "no trees", tdict_pad_sequence(NULL, 0, NULL, NULL, &out, err));
  td_fails(TDICT_EINVAL, "pad_sequence: the option num_threads is set",
           tdict_pad_sequence(both, 2, NULL, TD_THREADS(0), &out, err));
  td_fails_at(TDICT_ESHAPE, "no dimension to pad", "n.b", tdict_pad_sequence(scalars, 1, NULL, NULL, &out, err));
  td_ok(tdict_delete(scalar, "n", err));
  td_fails(TDICT_ENOTFOUND, "tree 1 has a key", tdict_pad_sequence(mixed, 2, NULL, NULL, &out, err));
  td_fails(TDICT_EOVERFLOW, "uint8 does not hold 300", tdict_pad_sequence(both, 2, TD_PAD(300, NULL), NULL, &out, err));
  if (r.context) td_fails(TDICT_ENOTSUP, "equal bytes", tdict_pad_sequence(both, 2, TD_PAD(1, NULL), NULL, &out, err));
  td_put(b, "n.b", TENSOR(3, 3));
  td_fails(TDICT_EDTYPE, "tree 1", tdict_pad_sequence(both, 2, NULL, NULL, &out, err));
  td_put(b, "n.b", TENSOR(3, 4));
  td_fails_at(TDICT_ESHAPE, "tree 1", "n.b", tdict_pad_sequence(both, 2, NULL, NULL, &out, err));
  td_ok(tdict_delete(b, "n.b", err));
  td_fails(TDICT_ENOTFOUND, "tree 1 lacks", tdict_pad_sequence(both, 2, NULL, NULL, &out, err));
  assert_null(out);
}

/* Copies a mask to the host and compares it with the lengths. The mask has `width` elements per step of a sequence. */
static void check_mask(const tdict_tree *out, const char *path, const int64_t *lengths, int64_t width) {
  tdict_tensor *mask = td_made(tensor, tdict_get(out, path, &made, err)), *host = NULL;
  assert_true(tdict_tensor_dtype(mask) == TDICT_BOOL);
  assert_int_equal(tdict_tensor_ndim(mask), tdict_batch_ndim(out));
  const int64_t *shape = tdict_tensor_shape(mask);
  assert_memory_equal(shape, tdict_batch_size(out), (size_t)tdict_batch_ndim(out) * sizeof *shape);
  td_ok(tdict_tensor_clone(mask, NULL, &host, err));
  const unsigned char *at = tdict_tensor_const_data(host);
  for (int64_t i = 0; i < tdict_tensor_numel(mask); i++)
    assert_int_equal(at[i], i / width % shape[1] < lengths[i / width / shape[1]]);
  tdict_tensor_release(host);
}

DEVICE_CASE(pad_sequence_makes_a_mask) {
  static const int64_t lengths[] = {2, 5, 0, 3};
  scoped_rig r = rig_open();
  tdict_tree *td[4], *out = NULL, *plain = NULL;
  for (int i = 0; i < 4; i++) td[i] = rig_tree(&r, SAMPLE(lengths[i], 2));
  const tdict_tree *const *items = (const tdict_tree *const *)td;
  const char *paths[] = {"masks", "n.masks", "deep.masks"};
  td_ok(tdict_pad_sequence(items, 4, NULL, NULL, &plain, err));
  for (int i = 0; i < 3; i++) {
    td_ok(tdict_pad_sequence(items, 4, TD_PAD(0, paths[i]), NULL, &out, err));
    char path[32];
    static const char *const leaves[] = {"a", "n.b", "n.m.u"};
    for (int k = 0; k < 3; k++) {
      snprintf(path, sizeof path, "%s.%s", paths[i], leaves[k]);
      check_mask(out, path, lengths, 2);
    }
    assert_int_equal(tdict_num_leaves(out), 2 * tdict_num_leaves(plain));
    snprintf(path, sizeof path, "%s.n.m", paths[i]); /* the masks lack the third batch dimension of this node */
    assert_int_equal(tdict_batch_ndim(td_child(out, path)), 3);
    tdict_release(out);
  }
  out = NULL;
  td_fails(TDICT_EEXIST, "path of the masks", tdict_pad_sequence(items, 4, TD_PAD(0, "n.b"), NULL, &out, err));
  assert_string_equal(td_last_error.path, "n.b");
  td_fails(TDICT_ETYPE, "", tdict_pad_sequence(items, 4, TD_PAD(0, "a.masks"), NULL, &out, err));
  assert_null(out);
  tdict_release(plain);
  for (int i = 0; i < 4; i++) tdict_release(td[i]);
}

/* Each allocation fails once. Sanitizers report what a failed call does not free. */
CASE(pad_sequence_mask_needs_memory) {
  tdict_tree *td[2] = {help_tree_without_batch(), help_tree_without_batch()};
  for (int i = 0; i < 2; i++) td_put(td[i], "n.x", TENSOR(i + 2));
  TD_SWEEP(s) {
    scoped_tree out = NULL;
    const bool failed =
        td_refused(s, tdict_pad_sequence((const tdict_tree *const *)td, 2, TD_PAD(0, "deep.masks"), NULL, &out, err));
    assert_true(failed == (out == NULL));
    assert_true(failed || s.n > 4);
  }
  for (int i = 0; i < 2; i++) tdict_release(td[i]);
}
