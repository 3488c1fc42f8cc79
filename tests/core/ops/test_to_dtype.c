/* Tests which tensors of a tree are converted and which are shared, and which properties the result keeps. */
#include <math.h>

#include "core/tensor/tensor.h"
#include "twins.h"

/* Makes the tree SAMPLE(2, 3) with small integers in n.b and fractions in a. */
static tdict_tree *numbers(void) {
  m_tree *t = SAMPLE(2, 3);
  tdict_tree *td = ops_tree(t);
  int64_t *b = tdict_data(td, "n.b");
  float *a = tdict_data(td, "a");
  for (int i = 0; i < 18; i++) b[i] = i * 5 - 40;
  for (int i = 0; i < 6; i++) a[i] = (float)i + 0.75f;
  return td;
}

static const float *floats_at(const tdict_tree *td, const char *path) {
  assert_true(tdict_tensor_dtype(td_leaf(td, path)) == TDICT_F32);
  return tdict_tensor_const_data(td_leaf(td, path));
}

CASE(to_dtype_converts_every_tensor) {
  scoped_tree td = numbers(), out = NULL;
  const int64_t *b = tdict_data(td, "n.b");
  const uint8_t *u = tdict_data(td, "n.m.u");
  const tdict_device cpu = tdict_cpu();
  td_ok(tdict_set_device(td, &cpu, err));
  tdict_lock(td_child(td, "n"));
  td_ok(tdict_to_dtype(td, TDICT_F32, NULL, NULL, &out, err));
  help_paths(out, "a n n.b n.m n.m.u e");
  assert_int_equal(tdict_batch_ndim(out), 2);
  assert_int_equal(tdict_batch_ndim(td_child(out, "n.m")), 3);
  assert_false(tdict_is_locked(out));
  assert_true(tdict_is_locked(td_child(out, "n")) && tdict_is_locked(td_child(out, "n.m")));
  tdict_device device;
  assert_true(tdict_get_device(out, &device) && tdict_device_equal(device, cpu));
  for (int i = 0; i < 18; i++) assert_true(floats_at(out, "n.b")[i] == (float)b[i]);
  for (int i = 0; i < 24; i++) assert_true(floats_at(out, "n.m.u")[i] == (float)u[i]);
  assert_ptr_equal(td_leaf(out, "a"), td_leaf(td, "a")); /* already has the dtype */
  assert_true(tdict_tensor_shares_storage(td_leaf(out, "n.b"), td_leaf(out, "n.m.u")));
  assert_ptr_not_equal(td_child(out, "e"), td_child(td, "e"));
}

typedef struct asked {
  const char *wanted;
  char paths[64];
} asked;
static bool is_wanted(void *user, const tdict_leaves *at) {
  asked *a = user;
  assert_int_equal(at->count, 1);
  snprintf(a->paths + strlen(a->paths), sizeof a->paths - strlen(a->paths), "%s ", at->path);
  return strstr(a->wanted, at->path) != NULL;
}

CASE(to_dtype_filters) {
  scoped_tree td = numbers(), out = NULL;
  asked a = {"n.b", ""};
  tdict_dtype_options o = td_with(tdict_dtype_options, filter = is_wanted, user = &a);
  td_ok(tdict_to_dtype(td, TDICT_I16, &o, NULL, &out, err));
  assert_string_equal(a.paths, "a n.b n.m.u "); /* the filter is called once for each leaf */
  assert_ptr_equal(td_leaf(out, "a"), td_leaf(td, "a"));
  assert_ptr_equal(td_leaf(out, "n.m.u"), td_leaf(td, "n.m.u"));
  const int16_t *b = tdict_data(out, "n.b");
  for (int i = 0; i < 18; i++) assert_int_equal(b[i], i * 5 - 40);
  td_release(out);
  a = (asked){"n.m.u a", ""};
  o.floats_only = true;
  td_ok(tdict_to_dtype(td, TDICT_F64, &o, NULL, &out, err));
  assert_true(tdict_tensor_dtype(td_leaf(out, "a")) == TDICT_F64);
  assert_ptr_equal(td_leaf(out, "n.b"), td_leaf(td, "n.b"));
  assert_ptr_equal(td_leaf(out, "n.m.u"), td_leaf(td, "n.m.u"));
}

CASE(to_dtype_floats_only) {
  static const tdict_dtype kept[] = {TDICT_I8,  TDICT_I16, TDICT_I32,  TDICT_I64, TDICT_U8,  TDICT_U16,
                                     TDICT_U32, TDICT_U64, TDICT_BOOL, TDICT_C64, TDICT_C128};
  static const tdict_dtype changed[] = {TDICT_F16, TDICT_F32, TDICT_F64, TDICT_F8E4M3, TDICT_F8E5M2};
  scoped_tree td = help_tree_without_batch(), out = NULL;
  char name[8];
  tdict_dtype_options o = td_with(tdict_dtype_options, floats_only = true);
  for (int i = 0; i < 16; i++) {
    tdict_tensor *t = NULL;
    snprintf(name, sizeof name, "%d", i);
    td_ok(tdict_tensor_zeros(i < 11 ? kept[i] : changed[i - 11], TDICT_SHAPE(3), NULL, &t, err));
    td_put(td, name, t);
  }
  td_ok(tdict_to_dtype(td, TDICT_BF16, &o, NULL, &out, err));
  for (int i = 0; i < 16; i++) {
    snprintf(name, sizeof name, "%d", i);
    assert_int_equal(td_leaf(out, name) == td_leaf(td, name), i < 11);
    if (i >= 11) assert_true(tdict_tensor_dtype(td_leaf(out, name)) == TDICT_BF16);
  }
  td_release(out);
  td_fails_at(TDICT_ENOTSUP, "from complex64 to bfloat16", "9", tdict_to_dtype(td, TDICT_BF16, NULL, NULL, &out, err));
}

CASE(to_dtype_names_path_and_element) {
  tdict_tree *td = numbers(), *out = NULL;
  char *before = help_snapshot(td);
  ((int64_t *)tdict_data(td, "n.b"))[3 * 4 + 2] = 200;
  td_fails_at(TDICT_EOVERFLOW, "to_dtype: element [1, 1, 2] is 200, wanted -128 to 127 (int8)", "n.b",
              tdict_to_dtype(td, TDICT_I8, NULL, NULL, &out, err));
  ((float *)tdict_data(td, "a"))[4] = NAN;
  td_fails(TDICT_EOVERFLOW, "to_dtype: element [1, 1] is nan", tdict_to_dtype(td, TDICT_I64, NULL, NULL, &out, err));
  assert_string_equal(td_last_error.path, "a");
  assert_null(out);
  help_unchanged(td, before);
  td_fails(TDICT_EINVAL, "to_dtype: tree is NULL", tdict_to_dtype(NULL, TDICT_I8, NULL, NULL, &out, err));
  td_fails(TDICT_EINVAL, "to_dtype: out is NULL", tdict_to_dtype(td, TDICT_I8, NULL, NULL, NULL, err));
  td_fails(TDICT_EDTYPE, "to_dtype: dtype 0x99 is unknown", tdict_to_dtype(td, 0x99, NULL, NULL, &out, err));
  tdict_dtype_options o = td_with(tdict_dtype_options, struct_size = 3);
  td_fails(TDICT_EINVAL, "dtype options", tdict_to_dtype(td, TDICT_I8, &o, NULL, &out, err));
  tdict_storage_lose_all(td_leaf(td, "n.b")->storage);
  td_fails_at(TDICT_EINVAL, "transfer into them failed", "n.b", tdict_to_dtype(td, TDICT_F32, NULL, NULL, &out, err));
  tdict_release(td);
}

GPU_CASE(to_dtype_shares_on_devices) {
  scoped_rig r = rig_open();
  scoped_tree td = rig_tree(&r, SAMPLE(3)), out = NULL;
  tdict_device device = td_device();
  tdict_dtype_options o = tdict_dtype_options_default();
  asked a = {"nothing", ""};
  td_ok(tdict_set_device(td, &device, err));
  tdict_run run = td_with(tdict_run, memory = tdict_pinned_memory(r.context));
  td_fails(TDICT_EWRONGDEVICE, "to cpu, wanted one device", tdict_to_dtype(td, TDICT_F32, &o, &run, &out, err));
  assert_string_equal(td_last_error.path, "n.b");
  o.filter = is_wanted;
  o.user = &a;
  td_ok(tdict_to_dtype(td, TDICT_F32, &o, &run, &out, err)); /* no tensor is converted, so the tree keeps its device */
  assert_true(tdict_get_device(out, &device) && tdict_device_equal(device, td_device()));
  assert_ptr_equal(td_leaf(out, "n.b"), td_leaf(td, "n.b"));
  td_release(out, td);
  td = numbers();
  o.filter = NULL;
  run.memory = r.memory;
  td_fails_at(TDICT_EWRONGDEVICE, "wanted host memory", "n.b", tdict_to_dtype(td, TDICT_F32, &o, &run, &out, err));
  run.memory = tdict_pinned_memory(r.context);
  td_ok(tdict_to_dtype(td, TDICT_F32, &o, &run, &out, err));
  assert_true(tdict_tensor_is_pinned(td_leaf(out, "n.b")) && tdict_tensor_is_pinned(td_leaf(out, "n.m.u")));
  assert_false(tdict_tensor_is_pinned(td_leaf(out, "a")));
}

CASE(to_dtype_converts_objects) {
  tdict_tree *td = numbers(), *out = NULL;
  tdict_tensor *a = NULL, *b = NULL;
  void *self = NULL;
  asked asks = {"n.object.b", ""};
  td_ok(tdict_tensor_arange(TDICT_I32, 0, 1, 4, &a, err));
  td_ok(tdict_tensor_arange(TDICT_I32, 10, 1, 4, &b, err));
  td_ok(tdict_set_object(td, "n.object", &thing_flat, thing_create(a, b), err));
  tdict_dtype_options o = td_with(tdict_dtype_options, filter = is_wanted, user = &asks);
  td_ok(tdict_to_dtype(td, TDICT_F32, &o, NULL, &out, err));
  assert_string_equal(asks.paths, "a n.b n.m.u n.object.a n.object.b ");
  td_ok(tdict_get_object(out, "n.object", &thing_flat, &self, err));
  assert_ptr_equal(((thing *)self)->a, a);
  assert_true(tdict_tensor_dtype(((thing *)self)->b) == TDICT_F32);
  assert_true(((const float *)tdict_tensor_const_data(((thing *)self)->b))[3] == 13);
  td_release(out);
  RIG_WITHOUT_MEMORY(td, tdict_to_dtype(td, TDICT_F32, &o, NULL, &out, err));
  td_release(out);
  td_ok(tdict_tensor_arange(TDICT_I32, 0, 1, 4, &a, err));
  td_ok(tdict_tensor_arange(TDICT_I32, 10, 1, 4, &b, err));
  td_ok(tdict_set_object(td, "hooked", &thing_hooked, thing_create(a, b), err));
  /* An object without `flatten` is shared, whether or not other leaves are converted. */
  for (int i = 0; i < 4; i++) {
    void *shared = NULL;
    asks.paths[0] = 0;
    td_ok(tdict_to_dtype(td, TDICT_F32, i % 2 ? &o : NULL, NULL, &out, err));
    assert_true(!strstr(asks.paths, "hooked"));
    assert_int_equal(tdict_num_keys(out), tdict_num_keys(td));
    td_ok(tdict_get_object(td, "hooked", &thing_hooked, &self, err));
    td_ok(tdict_get_object(out, "hooked", &thing_hooked, &shared, err));
    assert_ptr_equal(shared, self);
    assert_true(tdict_tensor_dtype(td_leaf(out, "n.b")) == (i % 2 ? TDICT_I64 : TDICT_F32));
    if (i < 2) {
      td_ok(tdict_get_object(out, "n.object", &thing_flat, &self, err));
      assert_true(tdict_tensor_dtype(((thing *)self)->b) == TDICT_F32);
    }
    td_release(out);
    asks.paths[0] = 0;
    RIG_WITHOUT_MEMORY(td, (asks.paths[0] = 0, tdict_to_dtype(td, TDICT_F32, i % 2 ? &o : NULL, NULL, &out, err)));
    td_release(out);
    if (i == 1) td_ok(tdict_delete(td, "n.object", err));
  }
  tdict_release(td);
  assert_int_equal(thing_count(), 0);
}

CASE(to_dtype_survives_enomem) {
  scoped_tree td = numbers(), out = NULL;
  asked a = {"n.b", ""};
  RIG_WITHOUT_MEMORY(td, tdict_to_dtype(td, TDICT_F32, NULL, NULL, &out, err));
  td_release(out);
  tdict_dtype_options o = td_with(tdict_dtype_options, filter = is_wanted, user = &a);
  RIG_WITHOUT_MEMORY(td, (a.paths[0] = 0, tdict_to_dtype(td, TDICT_F32, &o, NULL, &out, err)));
}
