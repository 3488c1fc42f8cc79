/* Tests exporting the schemas of trees: their bytes, the batch sizes of children, and refused trees. */
#include "rig.h"

CASE(schema_export_writes_the_blob) {
  int ends = 0;
  tdict_tree *td = rig_tree(&ends);
  tdict_schema *s = rig_export(td);
  size_t bytes;
  uint8_t *blob = rig_blob(s, &bytes);
  assert_int_equal(bytes, sizeof rig_bytes);
  assert_memory_equal(blob, rig_bytes, sizeof rig_bytes);
  free(blob);
  td_release(s, td);
  assert_int_equal(ends, 1); /* the schema does not keep the object */
}

/* Elements, strides, devices and locks are not part of a schema. */
CASE(schema_export_ignores_what_it_has_not) {
  scoped_tree a = TREE(2), b = TREE(2);
  const tdict_device cpu = tdict_cpu();
  tdict_tensor *wide = TENSOR(2, 6), *narrow = NULL;
  td_ok(tdict_tensor_slice(wide, &(tdict_tensor_range){1, 5, 3, -2}, &narrow, err));
  tdict_tensor_release(wide);
  td_put(a, "x", TENSOR(2, 3));
  td_put(b, "x", narrow);
  td_ok(tdict_set_device(b, &cpu, err));
  tdict_lock(b);
  scoped_schema s = rig_export(a), t = rig_export(b);
  assert_true(tdict_schema_equal(s, t, NULL));
}

/* A child is changed through its own handle. If its tensors still fit, its entry gets the batch size of its parent. If
 * not, the error has the path of the tensor. */
CASE(schema_export_changed_children) {
  scoped_tree td = TREE(2, 3);
  tdict_tree *child = td_put_tree(td, "n", TREE(2, 3, 4)), *below = td_put_tree(child, "m", TREE(2, 3, 4));
  td_put(below, "t", TENSOR(2, 3, 4));
  td_ok(tdict_set_batch_size(below, COUNTS(2), err));
  tdict_schema *s = rig_export(td);
  tdict_schema_entry e = rig_entry(s, 1);
  assert_string_equal(e.key, "m");
  assert_int_equal(e.batch_ndim, 3); /* the batch size of n */
  assert_int_equal(e.batch_size[2], 4);
  assert_int_equal(rig_entry(s, 2).ndim, 0);
  tdict_schema_release(s);
  td_ok(tdict_delete(below, "t", err));
  td_ok(tdict_set_batch_size(below, COUNTS(7), err)); /* an empty tree may have any batch size */
  s = rig_export(td);
  assert_int_equal(rig_entry(s, 1).batch_ndim, 3);
  tdict_schema_release(s);
  td_put(below, "t", TENSOR(7, 3, 4));
  tdict_schema *const none = (tdict_schema *)(uintptr_t)0xA5A5;
  s = none;
  td_fails_at(TDICT_ESHAPE, "[2, 3, 4], the tensor has shape [7, 3, 4]", "n.m.t", tdict_schema_from_tree(td, &s, err));
  assert_ptr_equal(s, none);
}

CASE(schema_export_refuses) {
  tdict_schema *const none = (tdict_schema *)(uintptr_t)0xA5A5, *s = none;
  scoped_tree td = help_deep_tree(TDICT_SCHEMA_MAX_DEPTH);
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_schema_from_tree(NULL, &s, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_schema_from_tree(td, NULL, err));
  tdict_schema *deep = rig_export(td);
  assert_int_equal(tdict_schema_get_info(deep).num_entries, TDICT_SCHEMA_MAX_DEPTH);
  assert_int_equal(tdict_schema_get_path(deep, TDICT_SCHEMA_MAX_DEPTH - 1, NULL, 0), 2 * TDICT_SCHEMA_MAX_DEPTH - 1);
  td_release(deep, td);
  td = help_deep_tree(TDICT_SCHEMA_MAX_DEPTH + 1);
  td_fails(TDICT_ENOTSUP, "more than 1024 keys", tdict_schema_from_tree(td, &s, err));
  assert_int_equal(strncmp(td_last_error.path, "d.d.d.", 6), 0);
  assert_ptr_equal(s, none);
}

CASE(schema_export_survives_enomem) {
  int ends = 0;
  tdict_tree *td = rig_tree(&ends), *deep = help_deep_tree(100);
  td_put_tree(td, "deep", deep);
  TD_SWEEP(sweep) {
    scoped_schema s = NULL;
    scoped_chars before = help_snapshot(td);
    if (td_refused(sweep, tdict_schema_from_tree(td, &s, err))) assert_true(!s && sweep.error.message[0]);
    help_is(td, before);
  }
  tdict_release(td);
}
