/* Tests entries, paths, reference counts, equality and hashes of schemas. */
#include "rig.h"

CASE(schema_lists_entries) {
  static const struct {
    const char *path;
    tdict_schema_entry e;
  } wanted[] = {
      {"obs", {.key = "obs", .kind = TDICT_SCHEMA_TREE, .parent = -1, .batch_ndim = 3}},
      {"obs.pixels",
       {.key = "pixels", .kind = TDICT_SCHEMA_TENSOR, .depth = 1, .batch_ndim = 3, .dtype = TDICT_U8, .ndim = 1}},
      {"obs.none", {.key = "none", .kind = TDICT_SCHEMA_TREE, .depth = 1, .batch_ndim = 3}},
      {"r", {.key = "r", .kind = TDICT_SCHEMA_TENSOR, .parent = -1, .batch_ndim = 2, .dtype = TDICT_F32}},
      {"h\\.0",
       {.key = "h.0", .kind = TDICT_SCHEMA_TENSOR, .parent = -1, .batch_ndim = 2, .dtype = TDICT_I64, .ndim = 1}},
      {"x", {.key = "x", .kind = TDICT_SCHEMA_OBJECT, .parent = -1, .batch_ndim = 2, .type_name = "thing"}},
  };
  const size_t count = sizeof wanted / sizeof *wanted;
  const int64_t batch[] = {2, 3, 4};
  tdict_schema *s = rig_read(rig_bytes, sizeof rig_bytes);
  assert_int_equal(tdict_schema_get_info(s).num_entries, count);
  assert_int_equal(tdict_schema_get_info(s).num_leaves, 3);
  assert_int_equal(tdict_schema_get_info(s).num_objects, 1);
  assert_int_equal(tdict_schema_get_info(s).batch_ndim, 2);
  assert_memory_equal(tdict_schema_get_info(s).batch_size, batch, 2 * sizeof *batch);
  for (size_t i = 0; i < count; i++) {
    const tdict_schema_entry e = rig_entry(s, i), *w = &wanted[i].e;
    char path[32], cut[4];
    assert_string_equal(e.key, w->key);
    assert_int_equal(e.kind, w->kind);
    assert_int_equal(e.depth, w->depth);
    assert_int_equal(e.parent, w->parent);
    assert_int_equal(e.batch_ndim, w->batch_ndim);
    assert_memory_equal(e.batch_size, batch, (size_t)e.batch_ndim * sizeof *batch);
    assert_int_equal(e.dtype, w->dtype);
    assert_int_equal(e.ndim, w->ndim);
    if (e.ndim) assert_int_equal(e.shape[0], i == 1 ? 5 : 0);
    assert_true(w->type_name ? strcmp(e.type_name, w->type_name) == 0 : e.type_name == NULL);
    assert_int_equal(tdict_schema_get_path(s, i, path, sizeof path), strlen(wanted[i].path));
    assert_string_equal(path, wanted[i].path);
    assert_int_equal(tdict_schema_get_path(s, i, cut, sizeof cut), strlen(wanted[i].path));
    assert_int_equal(strncmp(cut, wanted[i].path, 3), 0);
  }
  tdict_schema_entry e;
  char path[4] = "zzz";
  assert_int_equal(tdict_schema_get_path(s, count, path, sizeof path), 0);
  assert_string_equal(path, "");
  td_fails(TDICT_ENOTFOUND, "entry 6 of 6", tdict_schema_get_entry(s, count, &e, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_schema_get_entry(s, 0, NULL, err));
  td_fails(TDICT_EINVAL, "schema is NULL", tdict_schema_get_entry(NULL, 0, &e, err));
  scoped_schema same = tdict_schema_retain(s);
  assert_ptr_equal(same, s);
  tdict_schema_release(s);
  assert_string_equal(rig_entry(same, 0).key, "obs");
  tdict_schema_release(NULL);
}

static void check_hash(const uint8_t *blob, size_t bytes, uint64_t lo, uint64_t hi) {
  scoped_schema s = rig_read(blob, bytes);
  const tdict_hash128 h = tdict_schema_get_info(s).hash;
  if (h.lo != lo || h.hi != hi)
    fail_msg("the hash is 0x%016llx 0x%016llx", (unsigned long long)h.lo, (unsigned long long)h.hi);
}

/* These hashes must never change, because programs store them. */
CASE(schema_hash_is_pinned) {
  static const uint8_t empty[] = {'t', 'd', 's', 'c', 1, 0, 0, 0, 0, 0};
  check_hash(empty, sizeof empty, 0x3044b81a706c5de8u, 0x18f96bcc37e8a35bu);
  check_hash(rig_bytes, sizeof rig_bytes, 0x1824f123980bb609u, 0xcbc63988187558bfu);
}

CASE(schema_hash_tells_schemas_apart) {
  enum { COUNT = 6 };
  scoped_tree td = TREE(2, 3);
  tdict_schema *s[COUNT];
  s[0] = rig_export(td);
  td_put(td, "a", TENSOR(2, 3));
  s[1] = rig_export(td);
  td_put(td, "a", TENSOR(2, 3, 1));
  s[2] = rig_export(td);
  td_put(td, "b", TENSOR(2, 3));
  s[3] = rig_export(td);
  td_ok(tdict_rename(td, "b", "c", true, err));
  s[4] = rig_export(td);
  td_ok(tdict_set_batch_size(td, COUNTS(2), err));
  s[5] = rig_export(td);
  for (int i = 0; i < COUNT; i++) {
    for (int k = 0; k < COUNT; k++) {
      const tdict_hash128 a = tdict_schema_get_info(s[i]).hash, b = tdict_schema_get_info(s[k]).hash;
      assert_int_equal(a.lo == b.lo, i == k);
      assert_int_equal(a.hi == b.hi, i == k);
      assert_int_equal(tdict_schema_equal(s[i], s[k], NULL), i == k);
    }
  }
  for (int i = 0; i < COUNT; i++) tdict_schema_release(s[i]);
}

CASE(schema_write_cuts) {
  scoped_schema s = rig_read(rig_bytes, sizeof rig_bytes);
  uint8_t buffer[sizeof rig_bytes + 8];
  for (size_t n = 0; n <= sizeof buffer; n++) {
    const size_t written = n < sizeof rig_bytes ? n : sizeof rig_bytes;
    memset(buffer, 0xA5, sizeof buffer);
    assert_int_equal(tdict_schema_write(s, n ? buffer : NULL, n), sizeof rig_bytes);
    assert_memory_equal(buffer, rig_bytes, written);
    for (size_t i = written; i < sizeof buffer; i++) assert_int_equal(buffer[i], 0xA5);
  }
}
