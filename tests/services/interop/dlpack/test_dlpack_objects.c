/* Tests exports of objects: the tensors of an object are exported below its path, or the error names the object. */
#include "rig.h"

static tdict_dlpack_entry *exported(const tdict_tree *tree, size_t wanted) {
  tdict_dlpack_entry *entries = NULL;
  size_t count = 0;
  td_ok(tdict_dlpack_export_tree(NULL, tree, NULL, &entries, &count, err));
  assert_int_equal(count, wanted);
  return entries;
}

CASE(dlpack_export_tree_of_ragged_leaves) {
  static const int64_t offsets[] = {0, 2, 2, 5};
  const int64_t four = 4;
  tdict_tree *tree = plain_tree();
  scoped_tensor values = small_tensor(TDICT_F32, 5, 3), ends = NULL;
  td_ok(tdict_tensor_from_array(TDICT_I64, 1, &four, offsets, &ends, err));
  tdict_ragged *ragged = td_made(ragged, tdict_ragged_create(values, ends, &made, err));
  td_ok(tdict_set_ragged(tree, "n.text", ragged, err));
  td_put(tree, "n.z", small_tensor(TDICT_U8, 2, 1));
  td_release(ragged, ends);
  tdict_dlpack_entry *entries = exported(tree, 3);
  tdict_release(tree);
  assert_string_equal(entries[0].name, "n.text.values");
  assert_string_equal(entries[1].name, "n.text.offsets");
  assert_string_equal(entries[2].name, "n.z");
  assert_ptr_equal(versioned_of(entries[0].versioned)->tensor.data, tdict_tensor_data(values));
  assert_memory_equal(versioned_of(entries[1].versioned)->tensor.data, offsets, sizeof offsets);
  tdict_dlpack_release_entries(entries, 3);
}

CASE(dlpack_export_tree_refuses_text) {
  scoped_tree tree = plain_tree();
  tdict_dlpack_entry *entries = NULL;
  size_t count = 0;
  td_put(tree, "a", small_tensor(TDICT_U8, 2, 1));
  td_ok(tdict_set_text(tree, "n.name", "text", err));
  td_fails(TDICT_ENOTSUP, "no flatten hook", tdict_dlpack_export_tree(NULL, tree, NULL, &entries, &count, err));
  assert_string_equal(td_last_error.path, "n.name");
}

/* An object of the program with two tensors. Its hook `flatten` returns flatten_status. */
typedef struct pair {
  tdict_tensor *first, *second;
} pair;
static tdict_status flatten_status;
static void release_pair(void *self) {
  pair *p = self;
  td_release(p->first, p->second);
  free(p);
}
static tdict_status flatten_pair(const void *self, tdict_tree **out, tdict_error *err) {
  const pair *p = self;
  (void)err;
  if (flatten_status != TDICT_OK) return flatten_status;
  tdict_status status = tdict_create(0, NULL, out, err);
  if (status == TDICT_OK) status = tdict_set(*out, "one", p->first, err);
  if (status == TDICT_OK) status = tdict_set(*out, "deep.two", p->second, err);
  if (status != TDICT_OK) tdict_release(*out);
  return status;
}
static tdict_status unflatten_pair(const void *self, const tdict_tree *tree, void **out, tdict_error *err) {
  (void)self, (void)tree, (void)out, (void)err;
  return TDICT_ENOTSUP;
}
static const tdict_type pair_type = {.struct_size = sizeof(tdict_type),
                                     .name = "pair",
                                     .release = release_pair,
                                     .flatten = flatten_pair,
                                     .unflatten = unflatten_pair};
static void set_pair(tdict_tree *tree, const char *path, uint64_t seed) {
  pair *p = td_alloc(sizeof *p);
  p->first = small_tensor(TDICT_I16, 3, seed);
  p->second = small_tensor(TDICT_I32, 2, seed + 1);
  td_ok(tdict_set_object(tree, path, &pair_type, p, err));
}

CASE(dlpack_export_tree_of_objects) {
  static const char *const names[] = {"a", "n.p\\.q.one", "n.p\\.q.deep.two", "n.r.one", "n.r.deep.two", "n.z"};
  static const uint64_t seeds[] = {1, 4, 5, 6, 7, 2};
  tdict_tree *tree = plain_tree();
  tdict_dlpack_entry *entries = NULL;
  size_t count = 0;
  td_put(tree, "a", small_tensor(TDICT_U8, 2, 1));
  set_pair(tree, "n.p\\.q", 4);
  set_pair(tree, "n.r", 6);
  td_put(tree, "n.z", small_tensor(TDICT_U8, 2, 2));
  TD_WITHOUT_MEMORY_THEN(tdict_dlpack_export_tree(NULL, tree, NULL, &entries, &count, err), assert_null(entries));
  assert_int_equal(count, 6);
  tdict_release(tree);
  for (int i = 0; i < 6; i++) {
    const tdict_dl_tensor *t = &versioned_of(entries[i].versioned)->tensor;
    unsigned char want[16];
    const size_t bytes = (size_t)t->shape[0] * t->dtype.bits / 8;
    td_fill_random(want, bytes, seeds[i]);
    assert_string_equal(entries[i].name, names[i]);
    assert_memory_equal(t->data, want, bytes);
  }
  tdict_dlpack_release_entries(entries, count);
}

CASE(dlpack_export_tree_reports_hooks) {
  scoped_tree tree = plain_tree();
  tdict_dlpack_entry *entries = NULL;
  size_t count = 0;
  set_pair(tree, "n.p", 4);
  flatten_status = TDICT_EIO;
  td_fails_at(TDICT_EIO, "flatten", "n.p", tdict_dlpack_export_tree(NULL, tree, NULL, &entries, &count, err));
  flatten_status = TDICT_OK;
}

CASE(dlpack_export_of_deep_trees) {
  enum { LEVELS = 300, LENGTH = 200 };
  scoped_chars path = td_alloc((LENGTH + 1) * LEVELS + 8);
  char key[LENGTH + 1];
  memset(key, 'k', LENGTH);
  key[LENGTH] = 0;
  char *end = path;
  scoped_tree tree = plain_tree();
  for (int i = 0; i < LEVELS; i++) end += sprintf(end, "%s.", key);
  strcpy(end, "leaf");
  td_put(tree, path, small_tensor(TDICT_U8, 2, 1));
  tdict_dlpack_entry *entries = exported(tree, 1);
  assert_string_equal(entries[0].name, path);
  tdict_dlpack_release_entries(entries, 1);
}
