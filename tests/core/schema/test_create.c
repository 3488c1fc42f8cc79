/* Tests creating trees from schemas: their storage, shapes and batch sizes, and refused schemas. */

#include "core/schema/create.h"
#include "core/schema/schema.h"
#include "core/tensor/tensor.h"
#include "rig.h"
#include "support/random.h"
#include "support/threads.h"

static void check_shape(const tdict_tree *td, const char *path, tdict_dtype dtype, int ndim, const int64_t *shape) {
  const tdict_tensor *t = td_leaf(td, path);
  assert_int_equal(tdict_tensor_dtype(t), dtype);
  assert_int_equal(tdict_tensor_ndim(t), ndim);
  assert_memory_equal(tdict_tensor_shape(t), shape, (size_t)ndim * sizeof *shape);
  assert_true(tdict_tensor_is_contiguous(t));
}

/* Checks that a schema is unchanged after it is written, read, made into a tree and exported from that tree. */
static void check_law(const tdict_tree *td) {
  size_t bytes;
  scoped_schema first = rig_export(td);
  uint8_t *blob = rig_blob(first, &bytes);
  scoped_schema read = rig_read(blob, bytes);
  free(blob);
  scoped_tree made = NULL;
  td_ok(tdict_create_from_schema(read, NULL, &made, err));
  scoped_schema last = rig_export(made);
  assert_true(tdict_schema_equal(first, last, NULL));
}

CASE(schema_create_makes_the_tree_again) {
  tdict_tree *td = rig_tree(NULL), *made = NULL;
  check_law(td);
  tdict_schema *s = rig_export(td);
  td_ok(tdict_create_from_schema(s, NULL, &made, err));
  help_paths(made, "obs obs.pixels obs.none r h\\.0");
  check_shape(made, "obs.pixels", TDICT_U8, COUNTS(2, 3, 4, 5));
  check_shape(made, "r", TDICT_F32, COUNTS(2, 3));
  check_shape(made, "h\\.0", TDICT_I64, COUNTS(2, 3, 0));
  assert_int_equal(tdict_batch_ndim(td_child(made, "obs.none")), 3);
  assert_false(tdict_get_device(made, NULL));
  assert_false(tdict_is_locked(made));
  const tdict_tensor *pixels = td_leaf(made, "obs.pixels"), *r = td_leaf(made, "r");
  assert_true(tdict_tensor_shares_storage(pixels, r));
  assert_int_equal((uintptr_t)r->data - (uintptr_t)pixels->data, 256);
  assert_true(r->storage->flags & TDICT_STORAGE_ARENA);
  for (size_t i = 0; i < r->storage->bytes; i++) assert_int_equal(((const uint8_t *)r->storage->data)[i], 0);
  /* The new tree is not locked, so its keys can be changed. */
  td_put(made, "more", TENSOR(2, 3));
  td_ok(tdict_delete(made, "obs.pixels", err));
  td_release(made, s, td);
  td = TREE(0, 4);
  check_law(td);
  tdict_release(td);
  td = help_tree_without_batch();
  check_law(td);
  td_put_tree(td, "n", TREE(5));
  td_put(td, "n.x", TENSOR(5));
  td_put(td, "s", help_tensor(0, NULL));
  check_law(td);
  tdict_release(td);
}

/* tdict_schema_measure() returns the sum of the tensors' sizes, each rounded up to a multiple of 256 bytes. */
CASE(schema_measures_its_tensors) {
  static const tdict_dtype dtypes[] = {TDICT_F32, TDICT_I64, TDICT_U8, TDICT_DTYPE(2, 32, 3)};
  rng random = {11};
  for (int try = 0; try < 200; try++) {
    scoped_tree td = TREE(2);
    size_t bytes = 0, padding = 0, dims = 0, measured = 77;
    int max_ndim = 0, max_batch_ndim = 1;
    tdict_dtype dtype = 0;
    bool is_mixed = false;
    const int most_dtype = try % 3 ? 3 : 0;
    const int count = (int)pick(&random, 0, 6);
    for (int i = 0; i < count; i++) {
      const int d = (int)pick(&random, 0, most_dtype), ndim = (int)pick(&random, 1, 3);
      const int64_t sizes[] = {2, pick(&random, 0, 90), pick(&random, 0, 9)};
      const char *key = td_text("%c.%d", "ab"[i % 2], i);
      td_put(td, key, td_made(tensor, tdict_tensor_zeros(dtypes[d], ndim, sizes, NULL, &made, err)));
      dims += (size_t)ndim;
      max_ndim = ndim > max_ndim ? ndim : max_ndim;
      is_mixed = is_mixed || (dtype && dtype != dtypes[d]);
      dtype = dtypes[d];
    }
    if (try % 4 == 0) {
      max_batch_ndim = (int)pick(&random, 1, 3);
      td_put_tree(td, "c", help_tree(max_batch_ndim, (const int64_t[]){2, 3, 4}));
    }
    scoped_schema s = rig_export(td);
    for (size_t i = 0; i < tdict_schema_get_info(s).num_entries; i++) { /* the last tensor gets `padding` */
      const tdict_schema_entry e = rig_entry(s, i);
      if (e.kind != TDICT_SCHEMA_TENSOR) continue;
      char path[32];
      tdict_schema_get_path(s, i, path, sizeof path);
      const size_t own = tdict_tensor_bytes(td_leaf(td, path));
      bytes += (own + 255) / 256 * 256;
      if (own) padding = (own + 255) / 256 * 256 - own;
    }
    td_ok(tdict_schema_measure(s, &measured, err));
    assert_int_equal(measured, bytes);
    assert_int_equal(s->size.padding, padding);
    assert_int_equal(s->size.num_dims, dims);
    assert_int_equal(s->size.dtype, is_mixed ? 0 : dtype);
    assert_int_equal(s->size.max_ndim, max_ndim);
    assert_int_equal(s->size.max_batch_ndim, max_batch_ndim);
    assert_false(s->size.is_too_large);
  }
}

/* Each of two tensors may have 2^62 bytes, but their sum is too large. */
CASE(schema_that_is_too_large_has_no_tree) {
  const uint8_t blob[] = {
      't', 'd', 's', 'c', 1, 0, 0, 0, 0,                                              /* no batch size */
      1,   'a', 0,   1,   8, 1, 0, 1, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, /* U8 [2^62] */
      64,  1,   'b', 0,   1, 8, 1, 0, 1,    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 64, 0,
  };
  tdict_tree *made = NULL;
  scoped_schema s = rig_read(blob, sizeof blob);
  size_t bytes = 77;
  td_fails_at(TDICT_EOVERFLOW, "up to this one", "b", tdict_schema_measure(s, &bytes, err));
  td_fails(TDICT_EOVERFLOW, "up to this one", tdict_create_from_schema(s, NULL, &made, err));
  assert_int_equal(bytes, 77);
  assert_null(made);
}

/* The second pass probably reuses memory that the first pass has filled. All bytes must then be 0. */
CASE(schema_create_zeroes) {
  enum { TREES = 64 };
  tdict_tree *td = rig_tree(NULL), *made[TREES];
  tdict_schema *s = rig_export(td);
  tdict_create_options o = tdict_create_options_default();
  for (int pass = 0; pass < 2; pass++) {
    o.is_uninitialized = pass == 0;
    for (int i = 0; i < TREES; i++) td_ok(tdict_create_from_schema(s, &o, &made[i], err));
    for (int i = 0; i < TREES; i++) {
      const tdict_storage *storage = td_leaf(made[i], "r")->storage;
      if (pass == 0) memset(storage->data, 0xA5, storage->bytes);
      for (size_t b = 0; pass == 1 && b < storage->bytes; b++) assert_int_equal(((uint8_t *)storage->data)[b], 0);
    }
    for (int i = 0; i < TREES; i++) tdict_release(made[i]);
  }
  td_release(s, td);
}

CASE(schema_create_with_another_batch_size) {
  scoped_tree td = rig_tree(NULL), made = NULL;
  scoped_schema s = rig_export(td);
  const int64_t seven[] = {7}, four[] = {1, 2, 0, 4};
  tdict_create_options o = td_with(tdict_create_options, batch_ndim = 1, batch_size = seven);
  td_ok(tdict_create_from_schema(s, &o, &made, err));
  check_shape(made, "obs.pixels", TDICT_U8, COUNTS(7, 4, 5));
  check_shape(made, "h\\.0", TDICT_I64, COUNTS(7, 0));
  assert_int_equal(tdict_batch_ndim(made), 1);
  assert_int_equal(tdict_batch_ndim(td_child(made, "obs")), 2);
  assert_int_equal(tdict_batch_size(td_child(made, "obs"))[1], 4);
  tdict_release(made);
  o.batch_ndim = 4;
  o.batch_size = four;
  td_ok(tdict_create_from_schema(s, &o, &made, err));
  check_shape(made, "obs.pixels", TDICT_U8, COUNTS(1, 2, 0, 4, 4, 5));
  tdict_release(made);
  o.batch_ndim = 0;
  o.is_uninitialized = true;
  td_ok(tdict_create_from_schema(s, &o, &made, err));
  check_shape(made, "r", TDICT_F32, 0, NULL);
  td_fill_random(tdict_data(made, "obs.pixels"), 20, 3);
}

DEVICE_CASE(schema_create_in_device_memory) {
  scoped_context context = td_context(NULL);
  scoped_tree td = rig_tree(NULL), made = NULL;
  scoped_schema s = rig_export(td);
  tdict_create_options o = td_with(tdict_create_options, memory = tdict_device_memory(context, td_device()));
  td_ok(tdict_create_from_schema(s, &o, &made, err));
  tdict_tensor *t = td_leaf(made, "obs.pixels"), *host = NULL;
  assert_true(tdict_device_equal(tdict_tensor_device(t), td_device()));
  td_ok(tdict_tensor_empty(TDICT_U8, COUNTS(2, 3, 4, 5), NULL, &host, err));
  memset(tdict_tensor_data(host), 0xA5, 120);
  td_ok(tdict_tensor_copy(host, t, err));
  for (int i = 0; i < 120; i++) assert_int_equal(((const uint8_t *)tdict_tensor_const_data(host))[i], 0);
  scoped_schema again = rig_export(made);
  assert_true(tdict_schema_equal(s, again, NULL)); /* the device is not part of a schema */
  tdict_tensor_release(host);
}

CASE(schema_create_refuses) {
  int ends = 0;
  tdict_tree *const none = (tdict_tree *)(uintptr_t)0xA5A5, *made = none, *td = rig_tree(&ends);
  tdict_schema *s = rig_export(td);
  td_fails(TDICT_ENOTSUP, "an object of type thing cannot be created", tdict_create_from_schema(s, NULL, &made, err));
  assert_string_equal(td_last_error.path, "x");
  td_fails(TDICT_EINVAL, "schema is NULL", tdict_create_from_schema(NULL, NULL, &made, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_create_from_schema(s, NULL, NULL, err));
  tdict_schema_release(s);
  td_ok(tdict_delete(td, "x", err));
  s = rig_export(td);
  int64_t sizes[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  tdict_create_options o = td_with(tdict_create_options, batch_size = sizes);
  td_fails(TDICT_EINVAL, "batch_size is set, but batch_ndim is -1", tdict_create_from_schema(s, &o, &made, err));
  o.batch_ndim = 17;
  td_fails(TDICT_EINVAL, "17 batch dimensions", tdict_create_from_schema(s, &o, &made, err));
  o.batch_ndim = -2;
  td_fails(TDICT_EINVAL, "-2 batch dimensions", tdict_create_from_schema(s, &o, &made, err));
  o.batch_ndim = 16;
  td_fails_at(TDICT_EINVAL, "17 batch dimensions", "obs", tdict_create_from_schema(s, &o, &made, err));
  sizes[3] = -1;
  td_fails_at(TDICT_EINVAL, "is -1", "", tdict_create_from_schema(s, &o, &made, err));
  sizes[3] = INT64_MAX / 8;
  o.batch_ndim = 4;
  td_fails_at(TDICT_EOVERFLOW, "do not fit 63 bits", "obs.pixels", tdict_create_from_schema(s, &o, &made, err));
  sizes[3] = INT64_MAX / 22;
  td_fails_at(TDICT_EOVERFLOW, "up to this one", "r", tdict_create_from_schema(s, &o, &made, err));
  o.batch_size = NULL;
  td_fails(TDICT_EINVAL, "NULL", tdict_create_from_schema(s, &o, &made, err));
  o.struct_size = 1;
  td_fails(TDICT_EINVAL, "create_options", tdict_create_from_schema(s, &o, &made, err));
  assert_ptr_equal(made, none);
  td_release(s, td);
}

CASE(schema_create_of_a_deep_tree_survives_enomem) {
  scoped_tree td = help_deep_tree(100);
  scoped_schema s = rig_export(td);
  TD_SWEEP(sweep) {
    scoped_tree tree = NULL;
    if (td_refused(sweep, tdict_create_from_schema(s, NULL, &tree, err)))
      assert_null(tree);
    else
      assert_true(tdict_equal(tree, td));
  }
}

CASE(schema_create_survives_enomem) {
  tdict_tree *td = rig_tree(NULL);
  scoped_schema s = rig_export(td);
  tdict_release(td);
  TD_SWEEP(sweep) {
    scoped_tree tree = NULL;
    if (td_refused(sweep, tdict_create_from_schema(s, NULL, &tree, err))) assert_true(!tree && sweep.error.message[0]);
  }
}

/* Adds random tensors and trees to a tree. Returns how many keys were added. */
static int grow_randomly(tdict_tree *td, uint64_t seed, int depth) {
  uint8_t r[16];
  int added = 0;
  td_fill_random(r, sizeof r, seed);
  const int count = r[0] % 14; /* tables with more than 8 keys have an index */
  for (int i = 0; i < count; i++) {
    const char *key = td_text("k%d", (r[1 + i % 8] + 31 * i) % 1000);
    if (tdict_has(td, key)) continue;
    added++;
    if (depth < 3 && r[15] % 3 == i % 3)
      added += grow_randomly(td_put_tree(td, key, TREE(2, 3)), seed * 31 + (uint64_t)i, depth + 1);
    else
      td_put(td, key, TENSOR(2, 3, 1 + i));
  }
  return added;
}
static void check_exports(const tdict_schema *s, const tdict_tree *td) {
  scoped_schema now = rig_export(td);
  assert_true(tdict_schema_equal(s, now, NULL));
}

/* All trees created from one schema are equal. Changing the keys of one tree must not change another tree. */
CASE(schema_create_again_makes_separate_trees) {
  enum { TREES = 4, SEEDS = 40 };
  for (uint64_t seed = 1; seed <= SEEDS; seed++) {
    tdict_tree *td = TREE(2, 3), *made[TREES];
    const int keys = grow_randomly(td, seed, 0);
    tdict_schema *s = rig_export(td);
    assert_int_equal(tdict_schema_get_info(s).num_entries, keys);
    for (int i = 0; i < TREES; i++) {
      td_ok(tdict_create_from_schema(s, NULL, &made[i], err));
      check_exports(s, made[i]);
      td_put(made[i], "added", TENSOR(2, 3));
      if (tdict_has(made[i], "k1")) td_ok(tdict_delete(made[i], "k1", err));
    }
    tdict_release(made[0]);
    td_ok(tdict_create_from_schema(s, NULL, &made[0], err));
    tdict_schema_release(s);
    s = rig_export(td);
    check_exports(s, made[0]);
    for (int i = 1; i < TREES; i++) assert_true(tdict_has(made[i], "added"));
    tdict_schema_release(s);
    for (int i = 0; i < TREES; i++) tdict_release(made[i]);
    tdict_release(td);
  }
}

/* If another batch size is given, all sizes are computed again, even for a prefix of the schema's batch size. */
CASE(schema_create_again_measures_other_sizes) {
  scoped_tree td = td_tree("[50,60] r:f32[50,60] p:f32[50,60,20]"), made = NULL;
  scoped_schema s = rig_export(td);
  const int64_t many[] = {70, 80};
  const size_t item = tdict_dtype_bytes(tdict_tensor_dtype(td_leaf(td, "r")));
  for (int i = 0; i < 8; i++) {
    tdict_create_options o = td_with(tdict_create_options,
                                     batch_ndim = i % 4 == 3   ? -1
                                                  : i % 4 == 1 ? 1
                                                               : 2,
                                     batch_size = i % 4 == 2   ? many
                                                  : i % 4 == 3 ? NULL
                                                               : tdict_schema_get_info(s).batch_size);
    td_ok(tdict_create_from_schema(s, &o, &made, err));
    const tdict_tensor *r = td_leaf(made, "r"), *p = td_leaf(made, "p");
    const size_t rows = i % 4 == 1 ? 50 : i % 4 == 2 ? 70 * 80 : 50 * 60;
    assert_int_equal(tdict_tensor_numel(r), rows);
    assert_int_equal(tdict_tensor_numel(p), rows * 20);
    assert_int_equal(r->storage->bytes, (rows * item + 255) / 256 * 256 + (rows * 20 * item + 255) / 256 * 256);
    td_release(made);
  }
}

/* Several threads create trees from a schema that no thread has used before. */
typedef struct creator {
  const tdict_schema *schema;
  int failures;
} creator;
static void *create_often(void *user) {
  creator *c = user;
  for (int i = 0; i < 20; i++) {
    scoped_tree made = NULL;
    tdict_error why;
    c->failures += tdict_create_from_schema(c->schema, NULL, &made, &why) != TDICT_OK;
    c->failures += tdict_num_leaves(made) != tdict_schema_get_info(c->schema).num_leaves;
  }
  return NULL;
}
CASE(schema_create_serves_several_threads) {
  enum { THREADS = 4 };
  for (uint64_t seed = 1; seed < 10; seed++) {
    scoped_tree td = TREE(2, 3);
    (void)grow_randomly(td, seed, 0);
    scoped_schema s = rig_export(td);
    creator creators[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
      creators[i] = (creator){.schema = s};
      threads[i] = td_start(create_often, &creators[i]);
    }
    for (int i = 0; i < THREADS; i++) {
      pthread_join(threads[i], NULL);
      assert_int_equal(creators[i].failures, 0);
    }
  }
}
