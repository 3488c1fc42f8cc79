/* Tests stacking sequences of different lengths on each device. */
#include "rig.h"

DEVICE_CASE(pad_sequence_pads) {
  static const int64_t lengths[] = {2, 5, 0};
  rig r = rig_open();
  tdict_tree *td[3], *out = NULL;
  m_tree *model[3];
  for (int i = 0; i < 3; i++) {
    model[i] = SAMPLE(lengths[i], 2);
    td[i] = rig_tree(&r, model[i]);
  }
  td_ok(tdict_pad_sequence((const tdict_tree *const *)td, 3, 0, NULL, &out, err));
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
  rig_close(&r);
}

CASE(pad_sequence_converts_the_value) {
  tdict_tree *a = TREE(1), *b = TREE(2), *out = NULL;
  for (int i = 0; i < 2; i++) {
    help_put(i ? b : a, "x", TENSOR(i + 1));
    tdict_tensor *t = NULL;
    td_ok(tdict_tensor_zeros(TDICT_I16, COUNTS(i + 1, 2), NULL, &t, err));
    help_put(i ? b : a, "y", t);
    td_ok(tdict_tensor_zeros(TDICT_BOOL, COUNTS(i + 1), NULL, &t, err));
    help_put(i ? b : a, "z", t);
  }
  const tdict_tree *both[] = {a, b};
  td_ok(tdict_pad_sequence(both, 2, -7, NULL, &out, err));
  assert_true(((const float *)tdict_const_data(out, "x"))[1] == -7);
  assert_int_equal(((const int16_t *)tdict_const_data(out, "y"))[2], -7);
  assert_int_equal(((const int16_t *)tdict_const_data(out, "y"))[3], -7);
  assert_int_equal(((const int16_t *)tdict_const_data(out, "y"))[1], 0);
  assert_int_equal(((const char *)tdict_const_data(out, "z"))[1], 1);
  tdict_release(out);
  tdict_release(a);
  tdict_release(b);
}

DEVICE_CASE(pad_sequence_refuses) {
  rig r = rig_open();
  tdict_tree *a = rig_tree(&r, SAMPLE(2)), *b = rig_tree(&r, SAMPLE(3)), *scalar = help_tree(0, NULL), *out = NULL;
  const tdict_tree *both[] = {a, b}, *scalars[] = {scalar};
  tdict_join_options o = tdict_join_options_default();
  o.dim = 1;
  td_fails(TDICT_EINVAL, "no trees", tdict_pad_sequence(NULL, 0, 0, NULL, &out, err));
  td_fails(TDICT_EINVAL, "dim is 1", tdict_pad_sequence(both, 2, 0, &o, &out, err));
  td_fails(TDICT_EINVAL, "no batch dimension", tdict_pad_sequence(scalars, 1, 0, NULL, &out, err));
  td_fails(TDICT_EOVERFLOW, "uint8 does not hold 300", tdict_pad_sequence(both, 2, 300, NULL, &out, err));
  if (r.context) td_fails(TDICT_ENOTSUP, "equal bytes", tdict_pad_sequence(both, 2, 1, NULL, &out, err));
  help_put(b, "n.b", TENSOR(3, 3));
  td_fails(TDICT_EDTYPE, "tree 1", tdict_pad_sequence(both, 2, 0, NULL, &out, err));
  help_put(b, "n.b", TENSOR(3, 4));
  td_fails(TDICT_ESHAPE, "tree 1", tdict_pad_sequence(both, 2, 0, NULL, &out, err));
  assert_string_equal(td_last_error.path, "n.b");
  td_ok(tdict_delete(b, "n.b", err));
  td_fails(TDICT_ENOTFOUND, "tree 1 lacks", tdict_pad_sequence(both, 2, 0, NULL, &out, err));
  assert_null(out);
  tdict_release(a);
  tdict_release(b);
  tdict_release(scalar);
  rig_close(&r);
}

/* Copies a mask to the host, and compares each element with the lengths. `width` elements belong to one step. */
static void check_mask(const tdict_tree *out, const char *path, const int64_t *lengths, int64_t width) {
  tdict_tensor *mask = NULL, *host = NULL;
  td_ok(tdict_get(out, path, &mask, err));
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
  rig r = rig_open();
  tdict_tree *td[4], *out = NULL, *plain = NULL;
  for (int i = 0; i < 4; i++) td[i] = rig_tree(&r, SAMPLE(lengths[i], 2));
  const tdict_tree *const *items = (const tdict_tree *const *)td;
  tdict_join_options o = tdict_join_options_default();
  const char *paths[] = {"masks", "n.masks", "deep.masks"};
  td_ok(tdict_pad_sequence(items, 4, 0, NULL, &plain, err));
  for (int i = 0; i < 3; i++) {
    o.masks = paths[i];
    td_ok(tdict_pad_sequence(items, 4, 0, &o, &out, err));
    char path[32];
    static const char *const leaves[] = {"a", "n.b", "n.m.u"};
    for (int k = 0; k < 3; k++) {
      snprintf(path, sizeof path, "%s.%s", paths[i], leaves[k]);
      check_mask(out, path, lengths, 2);
    }
    assert_int_equal(tdict_num_leaves(out), 2 * tdict_num_leaves(plain));
    snprintf(path, sizeof path, "%s.n.m", paths[i]); /* The masks of this node lack its own batch dimension. */
    assert_int_equal(tdict_batch_ndim(help_get_tree(out, path)), 3);
    tdict_release(out);
  }
  out = NULL;
  o.masks = "n.b";
  td_fails(TDICT_EEXIST, "path of the masks", tdict_pad_sequence(items, 4, 0, &o, &out, err));
  assert_string_equal(td_last_error.path, "n.b");
  o.masks = "a.masks";
  td_fails(TDICT_ETYPE, "", tdict_pad_sequence(items, 4, 0, &o, &out, err));
  o.masks = "masks";
  td_fails(TDICT_EINVAL, "only pad_sequence", tdict_stack(items, 4, &o, &out, err));
  assert_null(out);
  tdict_release(plain);
  for (int i = 0; i < 4; i++) tdict_release(td[i]);
  rig_close(&r);
}

/* Each allocation fails once. The sanitizers report what a failed call does not free. */
CASE(pad_sequence_mask_needs_memory) {
  tdict_tree *td[2] = {TREE(2), TREE(3)};
  for (int i = 0; i < 2; i++) help_put(td[i], "x", TENSOR(i + 2));
  tdict_join_options o = tdict_join_options_default();
  o.masks = "deep.masks";
  int64_t failures = 0;
  for (bool failed = true; failed; failures++) {
    tdict_tree *out = NULL;
    tdict_error error = {0};
    td_fail_alloc(failures, false);
    tdict_status status = tdict_pad_sequence((const tdict_tree *const *)td, 2, 0, &o, &out, &error);
    failed = td_fail_alloc_stop();
    assert_int_equal(status, failed ? TDICT_ENOMEM : TDICT_OK);
    assert_true(failed == (out == NULL));
    tdict_release(out);
  }
  assert_true(failures > 5);
  for (int i = 0; i < 2; i++) tdict_release(td[i]);
}
