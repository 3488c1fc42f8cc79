/* Tests DLPack exports: what the managed tensors describe, and when they drop their references to the bytes. */
#include <sys/mman.h>

#include "rig.h"
#include "support/threads.h"

/* Returns a view of a random tensor, with random strides. */
static tdict_tensor *random_view(naive_random *r, tdict_dtype dtype) {
  naive_layout layout = {0};
  naive_shape(r, 5, &layout);
  naive_strides(r, true, &layout);
  const int64_t span = layout.end - layout.low;
  tdict_tensor *all = small_tensor(dtype, span ? span : 1, naive_next(r)), *view = NULL;
  tdict_tensor_desc desc =
      td_with(tdict_tensor_desc, ndim = layout.ndim, shape = layout.shape, strides = layout.strides);
  td_ok(tdict_tensor_as_strided(all, &desc, -layout.low, &view, err));
  tdict_tensor_release(all);
  return view;
}

static void check_managed(const tdict_dl_tensor *m, const tdict_tensor *t) {
  const size_t item = tdict_dtype_bytes(tdict_tensor_dtype(t));
  assert_int_equal(m->device.type, TDICT_DL_CPU);
  assert_int_equal(m->device.id, 0);
  assert_int_equal(m->ndim, tdict_tensor_ndim(t));
  assert_int_equal(m->byte_offset, 0);
  assert_non_null(m->shape);
  assert_non_null(m->strides); /* even for 0 dimensions */
  assert_memory_equal(m->shape, tdict_tensor_shape(t), (size_t)m->ndim * sizeof(int64_t));
  if (tdict_tensor_numel(t) == 0) {
    assert_null(m->data);
    return;
  }
  const naive_layout from = naive_layout_of(t), to = layout_of_managed(m);
  assert_ptr_equal(m->data, tdict_tensor_const_data(t));
  scoped_bytes want = elements_at(t->data, &from, item), found = elements_at(m->data, &to, item);
  assert_memory_equal(want, found, (size_t)from.numel * item);
}

CASE(dlpack_export_describes_views) {
  naive_random r = {5};
  static const tdict_dtype dtypes[] = {TDICT_U8, TDICT_BF16, TDICT_F32, TDICT_I64, TDICT_C128};
  for (int n = 0; n < 400; n++) {
    scoped_tensor view = random_view(&r, dtypes[naive_below(&r, 5)]);
    struct DLManagedTensorVersioned *m = NULL;
    struct DLManagedTensor *old = NULL;
    td_ok(export_versioned(NULL, view, NULL, &m, err));
    td_ok(export_legacy(NULL, view, NULL, &old, err));
    assert_int_equal(versioned_of(m)->major, 1);
    assert_int_equal(versioned_of(m)->minor, 3);
    assert_int_equal(versioned_of(m)->flags, 0);
    check_managed(&versioned_of(m)->tensor, view);
    check_managed(&legacy_of(old)->tensor, view);
    delete_versioned_of(m);
    delete_legacy_of(old);
  }
}

CASE(dlpack_export_outlives_its_tensor) {
  unsigned char bytes[8] = {8, 7, 6, 5, 4, 3, 2, 1};
  atomic_int released = 0;
  tdict_tensor *t = counted_tensor(bytes, 8, 0, &released);
  struct DLManagedTensorVersioned *m = NULL, *second = NULL;
  td_ok(export_versioned(NULL, t, NULL, &m, err));
  td_ok(export_versioned(NULL, t, NULL, &second, err));
  tdict_tensor_release(t);
  assert_memory_equal(versioned_of(m)->tensor.data, bytes, 8);
  assert_int_equal(versioned_of(m)->tensor.shape[0], 8);
  delete_versioned_of(m);
  assert_int_equal(atomic_load(&released), 0);
  delete_versioned_of(second);
  assert_int_equal(atomic_load(&released), 1);
}

/* The flags must tell the consumer that a page is read-only, because a write would kill the process. */
CASE(dlpack_export_keeps_read_only) {
  atomic_int released = 0;
  void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  scoped_tensor t = counted_tensor(page, 16, TDICT_DESC_READ_ONLY, &released);
  struct DLManagedTensorVersioned *m = NULL;
  struct DLManagedTensor *old = NULL;
  td_ok(export_versioned(NULL, t, NULL, &m, err));
  assert_int_equal(versioned_of(m)->flags, TDICT_DL_READ_ONLY);
  delete_versioned_of(m);
  td_fails(TDICT_EREADONLY, "wanted the option read_only", export_legacy(NULL, t, NULL, &old, err));
  assert_null(old);
  tdict_dlpack_export_options o = td_with(tdict_dlpack_export_options, read_only = true);
  td_ok(export_legacy(NULL, t, &o, &old, err));
  delete_legacy_of(old);
  tdict_tensor_release(t);
  assert_int_equal(atomic_load(&released), 1);
  munmap(page, 4096);
  /* the program may also set the flag for any tensor */
  t = small_tensor(TDICT_F32, 3, 1);
  td_ok(export_versioned(NULL, t, &o, &m, err));
  assert_int_equal(versioned_of(m)->flags, TDICT_DL_READ_ONLY);
  delete_versioned_of(m);
}

CASE(dlpack_export_of_claimed_pinned_memory) {
  unsigned char bytes[8] = {0};
  atomic_int released = 0;
  scoped_tensor t = counted_tensor(bytes, 8, TDICT_DESC_PINNED, &released), back = NULL;
  struct DLManagedTensorVersioned *m = NULL;
  td_ok(export_versioned(NULL, t, NULL, &m, err));
  assert_int_equal(versioned_of(m)->tensor.device.type, TDICT_DL_CUDA_HOST);
  assert_int_equal(versioned_of(m)->tensor.device.id, 0);
  td_ok(import_versioned(NULL, &m, NULL, &back, err));
  assert_true(tdict_tensor_is_pinned(back));
  td_release(back);
  td_ok(export_versioned(NULL, t, td_options(tdict_dlpack_export_options, pinned_as_cpu = true), &m, err));
  assert_int_equal(versioned_of(m)->tensor.device.type, TDICT_DL_CPU);
  delete_versioned_of(m);
}

CASE(dlpack_export_refuses_arguments) {
  scoped_tensor t = small_tensor(TDICT_U8, 3, 1);
  scoped_tree tree = plain_tree();
  struct DLManagedTensorVersioned *m = NULL;
  struct DLManagedTensor *old = NULL;
  tdict_dlpack_entry *entries = NULL;
  size_t count = 7;
  td_fails(TDICT_EINVAL, "tensor is NULL", export_versioned(NULL, NULL, NULL, &m, err));
  td_fails(TDICT_EINVAL, "out is NULL", export_versioned(NULL, t, NULL, NULL, err));
  td_fails(TDICT_EINVAL, "tensor is NULL", export_legacy(NULL, NULL, NULL, &old, err));
  td_fails(TDICT_EINVAL, "out is NULL", export_legacy(NULL, t, NULL, NULL, err));
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_dlpack_export_tree(NULL, NULL, NULL, &entries, &count, err));
  td_fails(TDICT_EINVAL, "entries is NULL", tdict_dlpack_export_tree(NULL, tree, NULL, NULL, &count, err));
  td_fails(TDICT_EINVAL, "count is NULL", tdict_dlpack_export_tree(NULL, tree, NULL, &entries, NULL, err));
  tdict_dlpack_export_options o = td_with(tdict_dlpack_export_options, struct_size = 5);
  td_fails(TDICT_EINVAL, "struct_size", export_versioned(NULL, t, &o, &m, err));
  o = tdict_dlpack_export_options_default();
  const tdict_stream stream = {tdict_sim(0), NULL};
  o.stream = stream;
  td_fails(TDICT_EINVAL, "context is NULL", export_versioned(NULL, t, &o, &m, err));
  td_fails(TDICT_EINVAL, "context is NULL", tdict_dlpack_export_tree(NULL, tree, &o, &entries, &count, err));
  assert_null(m);
  assert_null(entries);
  assert_int_equal(count, 7);
  tdict_dlpack_release_entries(NULL, 0);
}

CASE(dlpack_export_survives_enomem) {
  unsigned char bytes[8] = {1, 2, 3};
  atomic_int released = 0;
  tdict_tensor *t = counted_tensor(bytes, 8, 0, &released);
  struct DLManagedTensorVersioned *m = NULL;
  struct DLManagedTensor *old = NULL;
  TD_WITHOUT_MEMORY_THEN(export_versioned(NULL, t, NULL, &m, err), assert_null(m));
  TD_WITHOUT_MEMORY_THEN(export_legacy(NULL, t, NULL, &old, err), assert_null(old));
  tdict_tensor_release(t);
  delete_versioned_of(m);
  assert_int_equal(atomic_load(&released), 0);
  delete_legacy_of(old);
  assert_int_equal(atomic_load(&released), 1);
}

enum { COUNT = 6 };
static const char *const paths[COUNT] = {"x", "n.a", "n.m.b", "h\\.0", "n.back\\\\slash", "y"};
/* A tree whose storages are memory of the program. Leaves 0 and 1 share a storage. */
typedef struct counted_tree {
  tdict_tree *tree;
  unsigned char bytes[COUNT][4];
  atomic_int released[COUNT];
} counted_tree;
static void make_counted(counted_tree *c) {
  memset(c, 0, sizeof *c);
  c->tree = plain_tree();
  tdict_tensor *first = NULL;
  for (int i = 0; i < COUNT; i++) {
    td_fill_random(c->bytes[i], 4, (uint64_t)i + 9);
    if (i == 1)
      td_put(c->tree, paths[1], tdict_tensor_retain(first));
    else
      td_put(c->tree, paths[i], first = counted_tensor(c->bytes[i], 4, 0, &c->released[i]));
  }
  td_ok(tdict_get(c->tree, "x", &first, err));
}
static int count_released(counted_tree *c) {
  int sum = 0;
  for (int i = 0; i < COUNT; i++) sum += atomic_load(&c->released[i]);
  return sum;
}
/* Names in the order of the tree. */
static const char *const in_order[COUNT] = {"x", "n.a", "n.m.b", "n.back\\\\slash", "h\\.0", "y"};

CASE(dlpack_export_tree_has_the_leaves) {
  counted_tree c;
  for (int legacy = 0; legacy < 2; legacy++) {
    tdict_dlpack_entry *entries = NULL;
    size_t count = 0;
    make_counted(&c);
    tdict_dlpack_export_options o = td_with(tdict_dlpack_export_options, legacy = legacy);
    td_ok(tdict_dlpack_export_tree(NULL, c.tree, &o, &entries, &count, err));
    assert_int_equal(count, COUNT);
    for (int i = 0; i < COUNT; i++) {
      tdict_tensor *t = td_made(tensor, tdict_get(c.tree, entries[i].name, &made, err));
      assert_string_equal(entries[i].name, in_order[i]);
      assert_int_equal(entries[i].legacy != NULL, legacy);
      assert_int_equal(entries[i].versioned != NULL, !legacy);
      check_managed(legacy ? &legacy_of(entries[i].legacy)->tensor : &versioned_of(entries[i].versioned)->tensor, t);
    }
    /* later changes to the tree do not change the result */
    td_ok(tdict_delete(c.tree, "n", err));
    tdict_release(c.tree);
    assert_int_equal(count_released(&c), 0);
    assert_string_equal(entries[2].name, "n.m.b");
    tdict_dlpack_release_entries(entries, count);
    assert_int_equal(count_released(&c), COUNT - 1);
  }
}

/* All managed tensors share the references to the bytes. The deleter that is called last drops them. */
CASE(dlpack_export_tree_frees_with_the_last) {
  naive_random r = {3};
  counted_tree c;
  for (int n = 0; n < 200; n++) {
    tdict_dlpack_entry *entries = NULL;
    struct DLManagedTensorVersioned *taken[COUNT];
    size_t count = 0;
    make_counted(&c);
    td_ok(tdict_dlpack_export_tree(NULL, c.tree, NULL, &entries, &count, err));
    tdict_release(c.tree);
    const int array_at = (int)naive_below(&r, COUNT + 1);
    for (int i = 0; i < COUNT; i++) {
      taken[i] = entries[i].versioned;
      entries[i].versioned = NULL;
    }
    for (int left = COUNT, i = 0; i <= COUNT; i++) {
      assert_int_equal(count_released(&c), 0);
      if (i == array_at) {
        tdict_dlpack_release_entries(entries, count);
        continue;
      }
      const int at = (int)naive_below(&r, left--);
      delete_versioned_of(taken[at]);
      taken[at] = taken[left];
    }
    for (int i = 0; i < COUNT; i++) assert_int_equal(atomic_load(&c.released[i]), i == 1 ? 0 : 1);
  }
}

static void *delete_some(void *user) {
  struct DLManagedTensorVersioned **taken = user;
  for (; *taken; taken++) delete_versioned_of(*taken);
  return NULL;
}
CASE(dlpack_export_tree_deletes_on_any_thread) {
  counted_tree c;
  for (int n = 0; n < 200; n++) {
    tdict_dlpack_entry *entries = NULL;
    struct DLManagedTensorVersioned *taken[2][COUNT / 2 + 1] = {{NULL}};
    pthread_t threads[2];
    size_t count = 0;
    make_counted(&c);
    td_ok(tdict_dlpack_export_tree(NULL, c.tree, NULL, &entries, &count, err));
    for (int i = 0; i < COUNT; i++) {
      taken[i % 2][i / 2] = entries[i].versioned;
      entries[i].versioned = NULL;
    }
    for (int i = 0; i < 2; i++) threads[i] = td_start(delete_some, taken[i]);
    tdict_dlpack_release_entries(entries, count);
    tdict_release(c.tree);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    assert_int_equal(count_released(&c), COUNT - 1);
  }
}

CASE(dlpack_export_tree_of_nothing) {
  scoped_tree tree = plain_tree(), child = plain_tree();
  tdict_dlpack_entry *entries = NULL;
  size_t count = 7;
  td_ok(tdict_set_tree(tree, "child", child, err)); /* an empty tree adds no entry */
  td_ok(tdict_dlpack_export_tree(NULL, tree, NULL, &entries, &count, err));
  assert_non_null(entries);
  assert_int_equal(count, 0);
  tdict_dlpack_release_entries(entries, count);
}

static void nothing_released(counted_tree *c, const tdict_dlpack_entry *entries) {
  assert_int_equal(count_released(c), 0);
  assert_null(entries);
}
CASE(dlpack_export_tree_survives_enomem) {
  counted_tree c;
  tdict_dlpack_entry *entries = NULL;
  size_t count = 0;
  make_counted(&c);
  TD_WITHOUT_MEMORY_THEN(tdict_dlpack_export_tree(NULL, c.tree, NULL, &entries, &count, err),
                         nothing_released(&c, entries));
  tdict_release(c.tree);
  nothing_released(&c, NULL);
  tdict_dlpack_release_entries(entries, count);
  assert_int_equal(count_released(&c), COUNT - 1);
}

CASE(dlpack_export_tree_names_the_leaf) {
  atomic_int released = 0;
  unsigned char bytes[4] = {0};
  int64_t one = 1;
  tdict_tree *tree = plain_tree();
  tdict_dlpack_entry *entries = NULL;
  size_t count = 7;
  tdict_dlpack_export_options o = td_with(tdict_dlpack_export_options, legacy = true);
  td_put(tree, "a", small_tensor(TDICT_U8, 4, 1));
  td_put(tree, "n.b", counted_tensor(bytes, 4, TDICT_DESC_READ_ONLY, &released));
  td_fails_at(TDICT_EREADONLY, "legacy", "n.b", tdict_dlpack_export_tree(NULL, tree, &o, &entries, &count, err));
  tdict_tensor *lanes = td_made(tensor, tdict_tensor_zeros(TDICT_DTYPE(0, 8, 3), 1, &one, NULL, &made, err));
  td_put(tree, "n.b", lanes);
  td_fails_at(TDICT_EDTYPE, "3 lanes", "n.b", tdict_dlpack_export_tree(NULL, tree, NULL, &entries, &count, err));
  assert_null(entries);
  assert_int_equal(count, 7);
  tdict_release(tree);
  assert_int_equal(atomic_load(&released), 1);
}

CASE(dlpack_tree_round_trip) {
  naive_random r = {17};
  for (int n = 0; n < 50; n++) {
    scoped_tree tree = plain_tree(), back = NULL;
    tdict_dlpack_entry *entries = NULL;
    size_t count = 0;
    for (int i = 0; i < 40; i++) {
      const char *path = td_text("k%d.m%d.l%d", (int)naive_below(&r, 3), (int)naive_below(&r, 3), i);
      td_put(tree, path, random_view(&r, naive_below(&r, 2) ? TDICT_I32 : TDICT_U8));
    }
    td_ok(tdict_dlpack_export_tree(NULL, tree, NULL, &entries, &count, err));
    td_ok(tdict_dlpack_import_tree(NULL, entries, count, NULL, &back, err));
    tdict_dlpack_release_entries(entries, count);
    assert_int_equal(tdict_num_leaves(back), 40);
    for (size_t i = 0; i < tdict_num_keys(tree); i++)
      assert_string_equal(tdict_get_entry_at(back, i).key, tdict_get_entry_at(tree, i).key);
    assert_true(tdict_equal(tree, back));
  }
}
