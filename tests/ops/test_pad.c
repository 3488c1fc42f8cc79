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
