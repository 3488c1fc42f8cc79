/* Tests DLPack imports: the tensor's properties, the owner of the managed tensor, and when its deleter is called. */

#include "rig.h"
#include "support/threads.h"

/* Imports random layouts with byte offsets. If `strides` is NULL, the layout is in C order. */
CASE(dlpack_import_has_the_elements) {
  naive_random r = {71};
  for (int n = 0; n < 400; n++) {
    naive_layout layout = {0};
    naive_shape(&r, 5, &layout);
    naive_strides(&r, true, &layout);
    const bool has_strides = naive_below(&r, 3) != 0;
    if (!has_strides) {
      int64_t step = 1;
      for (int i = layout.ndim - 1; i >= 0; step *= layout.shape[i--]) layout.strides[i] = step;
      layout.low = 0;
      layout.end = layout.numel;
    }
    static const tdict_dtype dtypes[] = {TDICT_U8, TDICT_I16, TDICT_BF16, TDICT_F32, TDICT_C128};
    const tdict_dtype dtype = dtypes[naive_below(&r, 5)];
    const size_t item = tdict_dtype_bytes(dtype), offset = (size_t)naive_below(&r, 3) * item;
    const size_t span = (size_t)(layout.end - layout.low) * item + 3 * item;
    scoped_bytes bytes = td_alloc(span);
    td_fill_random(bytes, span, (uint64_t)n + 1);
    unsigned char *first = bytes - layout.low * (int64_t)item;
    produced p;
    produce(&p, first, (tdict_dl_device){TDICT_DL_CPU, 0}, dtype, &layout);
    p.versioned.tensor.byte_offset = offset;
    if (!has_strides) p.versioned.tensor.strides = NULL;
    struct DLManagedTensorVersioned *m = give_versioned(&p);
    tdict_tensor *t = td_made(tensor, import_versioned(NULL, &m, NULL, &made, err));
    assert_null(m);
    assert_int_equal(t->ndim, layout.ndim);
    assert_memory_equal(tdict_tensor_shape(t), layout.shape, (size_t)layout.ndim * sizeof(int64_t));
    if (layout.numel) {
      assert_ptr_equal(tdict_tensor_data(t), first + offset);
      const naive_layout got = naive_layout_of(t);
      scoped_bytes want = elements_at(first + offset, &layout, item), found = elements_at(t->data, &got, item);
      assert_memory_equal(want, found, (size_t)layout.numel * item);
    }
    assert_int_equal(times_deleted(&p), 0);
    tdict_tensor_release(t);
    assert_int_equal(times_deleted(&p), 1);
  }
}

CASE(dlpack_import_of_empty_tensors) {
  produced p;
  tdict_tensor *t = NULL;
  produce_bytes(&p, NULL, 0);
  p.versioned.tensor.byte_offset = 64; /* NULL plus an offset is not an address */
  struct DLManagedTensorVersioned *m = give_versioned(&p);
  td_ok(import_versioned(NULL, &m, NULL, &t, err));
  assert_null(tdict_tensor_data(t));
  assert_int_equal(tdict_tensor_numel(t), 0);
  tdict_tensor_release(t);
  assert_int_equal(times_deleted(&p), 1);
}

static void *release_tensor(void *user) {
  tdict_tensor_release(user);
  return NULL;
}
CASE(dlpack_import_deletes_once) {
  unsigned char bytes[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  produced p;
  pthread_t thread;
  for (int legacy = 0; legacy < 2; legacy++) {
    tdict_tensor *t = NULL, *view = NULL;
    produce_bytes(&p, bytes, 8);
    struct DLManagedTensorVersioned *m = give_versioned(&p);
    struct DLManagedTensor *old = give_legacy(&p);
    if (legacy)
      td_ok(import_legacy(NULL, &old, NULL, &t, err));
    else
      td_ok(import_versioned(NULL, &m, NULL, &t, err));
    assert_ptr_equal(m, legacy ? give_versioned(&p) : NULL);
    assert_ptr_equal(old, legacy ? NULL : give_legacy(&p));
    td_ok(tdict_tensor_slice(t, &(tdict_tensor_range){0, 2, 3, 1}, &view, err));
    tdict_tensor_release(t);
    assert_int_equal(times_deleted(&p), 0); /* the view still uses the bytes */
    assert_memory_equal(tdict_tensor_data(view), bytes + 2, 3);
    thread = td_start(release_tensor, view);
    pthread_join(thread, NULL);
    assert_int_equal(times_deleted(&p), 1);
  }
  /* a producer may have no deleter */
  produce_bytes(&p, bytes, 8);
  p.versioned.deleter = NULL;
  struct DLManagedTensorVersioned *m = give_versioned(&p);
  tdict_tensor_release(td_made(tensor, import_versioned(NULL, &m, NULL, &made, err)));
  assert_int_equal(times_deleted(&p), 0);
}

CASE(dlpack_import_refuses_newer_versions) {
  unsigned char bytes[8] = {0};
  produced p;
  tdict_tensor *t = NULL;
  produce_bytes(&p, bytes, 8);
  p.versioned.major = 2;
  p.versioned.minor = 7;
  p.versioned.tensor.ndim = -5; /* in an unknown version, the fields after the deleter have no meaning */
  struct DLManagedTensorVersioned *m = give_versioned(&p);
  td_fails(TDICT_EFORMAT, "version 2.7, and the library knows version 1.3", import_versioned(NULL, &m, NULL, &t, err));
  assert_null(m);
  assert_int_equal(times_deleted(&p), 1);
  p.versioned.deleter = NULL;
  m = give_versioned(&p);
  td_fails(TDICT_EFORMAT, "2.7", import_versioned(NULL, &m, NULL, &t, err));
  assert_null(m);
  /* version 0.1 was never published, so this is not DLPack's struct, and the deleter is not called */
  produce_bytes(&p, bytes, 8);
  p.versioned.major = 0;
  m = give_versioned(&p);
  td_fails(TDICT_EFORMAT, "version 0.1", import_versioned(NULL, &m, NULL, &t, err));
  assert_ptr_equal(m, give_versioned(&p));
  assert_int_equal(times_deleted(&p), 0);
  /* a newer minor version has the same layout */
  produce_bytes(&p, bytes, 8);
  p.versioned.minor = 99;
  m = give_versioned(&p);
  tdict_tensor_release(td_made(tensor, import_versioned(NULL, &m, NULL, &made, err)));
  assert_int_equal(times_deleted(&p), 1);
}

CASE(dlpack_import_keeps_read_only) {
  unsigned char bytes[6] = {9, 8, 7, 6, 5, 4};
  const naive_layout turned = {.ndim = 2, .shape = {3, 2}, .strides = {1, 3}, .numel = 6};
  produced p;
  scoped_tensor t = NULL;
  tdict_dlpack_import_options o = tdict_dlpack_import_options_default();
  for (int copies = 0; copies < 2; copies++) {
    produce(&p, bytes, (tdict_dl_device){TDICT_DL_CPU, 0}, TDICT_U8, &turned);
    p.versioned.flags = TDICT_DL_READ_ONLY;
    struct DLManagedTensorVersioned *m = give_versioned(&p);
    o.copy_read_only = copies;
    td_ok(import_versioned(NULL, &m, &o, &t, err));
    assert_null(m);
    assert_int_equal(times_deleted(&p), copies); /* the producer's bytes are not needed after the copy */
    if (copies)
      assert_memory_equal(tdict_tensor_data(t), ((unsigned char[]){9, 6, 8, 5, 7, 4}), 6);
    else
      assert_ptr_equal(tdict_tensor_const_data(t), bytes);
    assert_int_equal(tdict_tensor_data(t) != NULL, copies);
    tdict_tensor_release(t);
    assert_int_equal(times_deleted(&p), 1);
  }
  /* writable bytes are not copied */
  produce_bytes(&p, bytes, 6);
  struct DLManagedTensorVersioned *m = give_versioned(&p);
  td_ok(import_versioned(NULL, &m, &o, &t, err));
  assert_ptr_equal(tdict_tensor_data(t), bytes);
}

CASE(dlpack_import_refuses_arguments) {
  unsigned char bytes[8] = {0};
  produced p;
  tdict_tensor *t = NULL;
  tdict_tree *tree = NULL;
  produce_bytes(&p, bytes, 8);
  struct DLManagedTensorVersioned *m = give_versioned(&p), *none = NULL;
  struct DLManagedTensor *old = give_legacy(&p);
  tdict_dlpack_entry both = {NULL, m, old};
  td_fails(TDICT_EINVAL, "entry is NULL", tdict_dlpack_import(NULL, NULL, NULL, &t, err));
  td_fails(TDICT_EINVAL, "no managed tensor, wanted one", import_versioned(NULL, &none, NULL, &t, err));
  td_fails(TDICT_EINVAL, "two managed tensors, wanted one", tdict_dlpack_import(NULL, &both, NULL, &t, err));
  td_fails(TDICT_EINVAL, "out is NULL", import_versioned(NULL, &m, NULL, NULL, err));
  td_fails(TDICT_EINVAL, "out is NULL", import_legacy(NULL, &old, NULL, NULL, err));
  td_fails(TDICT_EINVAL, "entries is NULL", tdict_dlpack_import_tree(NULL, NULL, 1, NULL, &tree, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_dlpack_import_tree(NULL, NULL, 0, NULL, NULL, err));
  tdict_dlpack_import_options o = td_with(tdict_dlpack_import_options, struct_size = 3);
  td_fails(TDICT_EINVAL, "struct_size", import_versioned(NULL, &m, &o, &t, err));
  o = tdict_dlpack_import_options_default();
  const tdict_stream stream = {tdict_sim(0), NULL};
  o.stream = stream;
  td_fails(TDICT_EINVAL, "context is NULL", import_versioned(NULL, &m, &o, &t, err));
  o.stream = tdict_no_stream();
  o.copy_read_only = true; /* the library has no memory for copies on this device */
  p.versioned.tensor.device = (tdict_dl_device){TDICT_DL_EXT_DEV, 0};
  p.versioned.flags = TDICT_DL_READ_ONLY;
  td_fails(TDICT_EINVAL, "copy_read_only needs", import_versioned(NULL, &m, &o, &t, err));
  assert_ptr_equal(m, give_versioned(&p));
  assert_int_equal(times_deleted(&p), 0);
}

static void untouched(struct DLManagedTensorVersioned *m, produced *p) {
  assert_ptr_equal(m, give_versioned(p));
  assert_int_equal(times_deleted(p), 0);
}
CASE(dlpack_import_survives_enomem) {
  unsigned char bytes[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  produced p;
  for (int copies = 0; copies < 2; copies++) {
    tdict_tensor *t = NULL;
    tdict_dlpack_import_options o = td_with(tdict_dlpack_import_options, copy_read_only = copies);
    produce_bytes(&p, bytes, 8);
    p.versioned.flags = TDICT_DL_READ_ONLY;
    struct DLManagedTensorVersioned *m = give_versioned(&p);
    TD_WITHOUT_MEMORY_THEN(import_versioned(NULL, &m, &o, &t, err), untouched(m, &p));
    assert_memory_equal(tdict_tensor_const_data(t), bytes, 8);
    tdict_tensor_release(t);
    assert_int_equal(times_deleted(&p), 1);
  }
}

enum { COUNT = 4 };
static const char *const names[COUNT] = {"a", "n.b", "n.m.c\\.d", "z"};
typedef struct batch {
  produced made[COUNT];
  tdict_dlpack_entry entries[COUNT];
  unsigned char bytes[COUNT][4];
} batch;
/* Makes a batch of entries. Every second entry has the older struct. */
static void make_batch(batch *b) {
  memset(b, 0, sizeof *b);
  for (int i = 0; i < COUNT; i++) {
    td_fill_random(b->bytes[i], 4, (uint64_t)i + 1);
    produce_bytes(&b->made[i], b->bytes[i], 4);
    b->entries[i].name = names[i];
    if (i % 2)
      b->entries[i].legacy = give_legacy(&b->made[i]);
    else
      b->entries[i].versioned = give_versioned(&b->made[i]);
  }
}
/* Checks that the caller still owns all entries except entry `except`. */
static void check_owned(batch *b, int except) {
  for (int i = 0; i < COUNT; i++) {
    assert_int_equal(times_deleted(&b->made[i]), i == except);
    if (i == except)
      assert_null(b->entries[i].versioned);
    else
      assert_true(b->entries[i].versioned || b->entries[i].legacy);
  }
}

CASE(dlpack_import_tree_has_the_leaves) {
  batch b;
  scoped_tree tree = NULL;
  make_batch(&b);
  td_ok(tdict_dlpack_import_tree(NULL, b.entries, COUNT, NULL, &tree, err));
  assert_int_equal(tdict_num_leaves(tree), COUNT);
  assert_int_equal(tdict_batch_ndim(tree), 0);
  assert_false(tdict_get_device(tree, NULL));
  assert_string_equal(tdict_get_entry_at(tree, 0).key, "a");
  assert_string_equal(tdict_get_entry_at(tree, 1).key, "n");
  assert_string_equal(tdict_get_entry_at(tree, 2).key, "z");
  for (int i = 0; i < COUNT; i++) {
    assert_memory_equal(tdict_data(tree, names[i]), b.bytes[i], 4);
    assert_null(b.entries[i].versioned);
    assert_null(b.entries[i].legacy);
    assert_int_equal(times_deleted(&b.made[i]), 0);
  }
  const int64_t four = 4;
  td_ok(tdict_set_batch_size(tree, 1, &four, err));
  td_ok(tdict_delete(tree, "n.b", err)); /* each leaf retains only its own managed tensor */
  for (int i = 0; i < COUNT; i++) assert_int_equal(times_deleted(&b.made[i]), i == 1);
  tdict_release(tree);
  for (int i = 0; i < COUNT; i++) assert_int_equal(times_deleted(&b.made[i]), 1);
  td_ok(tdict_dlpack_import_tree(NULL, NULL, 0, NULL, &tree, err));
  assert_int_equal(tdict_num_keys(tree), 0);
}

static void fail_tree(batch *b, tdict_status status, const char *text, const char *path, int except) {
  tdict_tree *tree = NULL;
  td_fails_at(status, text, path, tdict_dlpack_import_tree(NULL, b->entries, COUNT, NULL, &tree, err));
  assert_null(tree);
  check_owned(b, except);
  make_batch(b);
}
CASE(dlpack_import_tree_refuses) {
  batch b;
  tdict_tree *tree = NULL;
  make_batch(&b);
  b.entries[3].name = "n.b";
  fail_tree(&b, TDICT_EEXIST, "two entries", "n.b", -1);
  b.entries[3].name = "n";
  fail_tree(&b, TDICT_ETYPE, "beginning of this name", "n.b", -1);
  b.entries[3].name = "a.x";
  fail_tree(&b, TDICT_ETYPE, "", "a.x", -1);
  b.entries[2].name = "";
  fail_tree(&b, TDICT_EINVAL, "empty", "", -1);
  b.entries[2].name = NULL;
  fail_tree(&b, TDICT_EINVAL, "name of entry 2 is NULL", "", -1);
  b.entries[2].legacy = give_legacy(&b.made[2]);
  fail_tree(&b, TDICT_EINVAL, "two managed tensors", "n.m.c\\.d", -1);
  b.made[3].legacy.tensor.dtype.bits = 4;
  fail_tree(&b, TDICT_EDTYPE, "uint (code 1, 4 bits", "z", -1);
  b.made[2].versioned.tensor.device.type = 10;
  fail_tree(&b, TDICT_ENOTSUP, "rocm", "n.m.c\\.d", -1);
  b.made[2].versioned.major = 3; /* the version is unknown, so this entry is deleted */
  fail_tree(&b, TDICT_EFORMAT, "version 3.1", "n.m.c\\.d", 2);
  b.entries[2].versioned = NULL;
  td_fails(TDICT_EINVAL, "no managed tensor, wanted one",
           tdict_dlpack_import_tree(NULL, b.entries, COUNT, NULL, &tree, err));
}

static void owned_and_no_tree(batch *b, const tdict_tree *tree) {
  check_owned(b, -1);
  assert_null(tree);
}
CASE(dlpack_import_tree_survives_enomem) {
  batch b;
  tdict_tree *tree = NULL;
  make_batch(&b);
  tdict_dlpack_import_options o = td_with(tdict_dlpack_import_options, copy_read_only = true);
  b.made[2].versioned.flags = TDICT_DL_READ_ONLY;
  TD_WITHOUT_MEMORY_THEN(tdict_dlpack_import_tree(NULL, b.entries, COUNT, &o, &tree, err), owned_and_no_tree(&b, tree));
  for (int i = 0; i < COUNT; i++) {
    assert_memory_equal(tdict_data(tree, names[i]), b.bytes[i], 4);
    assert_int_equal(times_deleted(&b.made[i]), i == 2); /* entry 2 was copied */
  }
  tdict_release(tree);
  for (int i = 0; i < COUNT; i++) assert_int_equal(times_deleted(&b.made[i]), 1);
}
