/* Tests operations on trees whose leaves are not in memory. Operations that need no elements must succeed. All others
 * must fail with the path of the leaf. No operation may read the file. */
#include "support/unloaded.h"

/* A tree of six rows. In `twin`, the leaves "file.*" are unloaded tensors, whose elements are still in files. */
typedef struct rig {
  disk d;
  tdict_tree *tree, *twin;
} rig;
static void add_leaf(tdict_tree *tree, const char *path, tdict_dtype dtype, int ndim, const int64_t *shape) {
  scoped_tensor t = td_made(tensor, tdict_tensor_empty(dtype, ndim, shape, NULL, &made, err));
  td_fill_random(tdict_tensor_data(t), tdict_tensor_bytes(t), strlen(path));
  td_ok(tdict_set(tree, path, t, err));
}
static rig *rig_open(void) {
  rig *r = td_zeros(1, sizeof *r);
  r->d = disk_open();
  td_ok(tdict_create(1, (const int64_t[]){6}, &r->tree, err));
  add_leaf(r->tree, "memory", TDICT_I32, TDICT_SHAPE(6, 4));
  add_leaf(r->tree, "file.matrix", TDICT_F32, TDICT_SHAPE(6, 5, 3));
  add_leaf(r->tree, "file.mask", TDICT_BOOL, TDICT_SHAPE(6));
  td_ok(tdict_clone(r->tree, &r->twin, err));
  static const char *const paths[] = {"file.matrix", "file.mask"};
  for (int i = 0; i < 2; i++) {
    tdict_tensor *like = td_made(tensor, tdict_get(r->tree, paths[i], &made, err));
    scoped_storage file = disk_add(&r->d, like->storage->data, like->storage->bytes, paths[i]);
    scoped_tensor t = disk_leaf(file, like);
    td_ok(tdict_set(r->twin, paths[i], t, err));
  }
  return r;
}
static void rig_close(rig *r) {
  assert_int_equal(r->d.begun, 0);
  td_release(r->twin, r->tree);
  disk_reset(&r->d);
  free(r);
}
#define scoped_rig TD_SCOPED(rig_close, rig)

/* Reads the bytes of an unloaded leaf as a transfer does, and checks them. The leaf must be in C order. */
static void check_bytes(const tdict_tensor *t, const void *wanted) {
  const size_t bytes = tdict_tensor_bytes(t);
  scoped_bytes got = td_alloc(bytes + 1);
  assert_true(tdict_tensor_is_contiguous(t));
  td_ok(tdict_storage_read(t->storage, (uintptr_t)t->data - (uintptr_t)t->storage->data, got, bytes, err));
  assert_memory_equal(got, wanted, bytes);
}

CASE(unloaded_tensor_is_made_inside_its_storage) {
  scoped_disk d = disk_open();
  unsigned char bytes[100];
  td_fill_random(bytes, sizeof bytes, 1);
  scoped_storage s = disk_add(&d, bytes, sizeof bytes, "x"), none = NULL;
  const int64_t shape[] = {5, 3}, empty[] = {0, 7}, negative[] = {-1};
  tdict_tensor *t = NULL;
  tdict_tensor_desc layout = td_with(tdict_tensor_desc, dtype = TDICT_F32, ndim = 2, shape = shape);
  td_ok(tdict_tensor_unloaded(s, &layout, 40, &t, err)); /* the tensor ends at the end of the storage */
  assert_true(tdict_device_equal(tdict_tensor_device(t), tdict_cpu()));
  assert_int_equal(tdict_tensor_strides(t)[0], 3);
  assert_int_equal(tdict_tensor_bytes(t), 60);
  assert_null(tdict_tensor_data(t));
  assert_null(tdict_tensor_const_data(t));
  assert_false(tdict_tensor_is_pinned(t));
  tdict_tensor_desc seen = tdict_tensor_desc_default();
  tdict_tensor_get_desc(t, &seen);
  assert_null(seen.data);
  assert_int_equal(seen.storage_bytes, 0);
  assert_int_equal(seen.flags, TDICT_DESC_READ_ONLY);
  check_bytes(t, bytes + 40);
  td_release(t);
  td_fails(TDICT_ESHAPE, "60 bytes at offset 41 of a storage of 100", tdict_tensor_unloaded(s, &layout, 41, &t, err));
  td_fails(TDICT_ESHAPE, "of a storage of 100", tdict_tensor_unloaded(s, &layout, SIZE_MAX, &t, err));
  layout.shape = empty;
  td_fails(TDICT_ESHAPE, "0 bytes at offset 101", tdict_tensor_unloaded(s, &layout, 101, &t, err));
  layout.shape = negative;
  layout.ndim = 1;
  td_fails(TDICT_EINVAL, "", tdict_tensor_unloaded(s, &layout, 0, &t, err));
  layout.dtype = 0;
  td_fails(TDICT_EDTYPE, "", tdict_tensor_unloaded(s, &layout, 0, &t, err));
  assert_null(t);
  layout.dtype = TDICT_F32;
  layout.shape = empty;
  layout.ndim = 2;
  td_ok(tdict_tensor_unloaded(s, &layout, 100, &t, err));
  assert_null(tdict_tensor_const_data(t));
  tdict_tensor_release(t);
  td_fails(TDICT_EOVERFLOW, "63 bits",
           tdict_storage_create_unloaded(&(tdict_storage_reader){disk_read, disk_release, NULL}, SIZE_MAX / 2 + 1,
                                         &none, err));
  assert_null(none);
  none = disk_add(&d, bytes, sizeof bytes, "y");
  assert_ptr_not_equal(none->data, s->data); /* unique, because hash tables use the addresses of leaves as keys */
}

/* A read succeeds, or fails with the error of the callback. */
CASE(unloaded_storage_reads_or_fails) {
  scoped_disk d = disk_open();
  unsigned char bytes[64], got[64];
  td_fill_random(bytes, sizeof bytes, 2);
  scoped_storage s = disk_add(&d, bytes, sizeof bytes, "x");
  td_ok(tdict_storage_read(s, 10, got, 54, err));
  assert_memory_equal(got, bytes + 10, 54);
  static const char *const texts[NUM_DISK_FAULTS] = {"the disk is on fire",
                                                     "read 53 bytes at offset 10, wanted 54",
                                                     "read 55 bytes at offset 10, wanted 54",
                                                     "read 0 bytes at offset 10, wa",
                                                     "storage: read returned TDICT_EFORMAT without",
                                                     "returned 999"};
  for (int fault = 0; fault < NUM_DISK_FAULTS; fault++) {
    disk_fail(&d, 1, (disk_fault)fault);
    td_fails(disk_status((disk_fault)fault), texts[fault], tdict_storage_read(s, 10, got, 54, err));
    disk_fail(&d, 1, (disk_fault)fault);
    assert_int_equal(tdict_storage_read(s, 10, got, 54, NULL), disk_status((disk_fault)fault));
  }
}

CASE(unloaded_trees_are_arranged) {
  rig *r = rig_open();
  const float *matrix = tdict_const_data(r->tree, "file.matrix");
  /* a slice of rows is a view at an offset */
  tdict_tree *out = td_made(tree, tdict_index_get(NULL, r->twin, TDICT_INDEX(TDICT_RANGE(2, 5, 1)), NULL, &made, err));
  assert_int_equal(tdict_tensor_shape(td_leaf(out, "file.matrix"))[0], 3);
  check_bytes(td_leaf(out, "file.matrix"), matrix + 2 * 15);
  r->d.begun = 0;
  assert_null(tdict_const_data(out, "file.matrix"));
  tdict_release(out);
  td_ok(tdict_index_get(NULL, r->twin, TDICT_INDEX(TDICT_AT(4)), NULL, &out, err));
  check_bytes(td_leaf(out, "file.matrix"), matrix + 4 * 15);
  r->d.begun = 0;
  tdict_release(out);
  /* accessors return NULL even for a leaf without rows */
  td_ok(tdict_index_get(NULL, r->twin, TDICT_INDEX(TDICT_RANGE(3, 3, 1)), NULL, &out, err));
  assert_null(tdict_const_data(out, "file.matrix"));
  tdict_release(out);
  /* keys */
  td_ok(tdict_select(r->twin, (const char *const[]){"file.matrix"}, 1, true, &out, err));
  assert_ptr_equal(td_leaf(out, "file.matrix")->storage, td_leaf(r->twin, "file.matrix")->storage);
  tdict_release(out);
  td_ok(tdict_clone(r->twin, &out, err));
  td_ok(tdict_rename(out, "file.matrix", "file.other", false, err));
  assert_true(tdict_has(out, "file.other"));
  tdict_release(out);
  tdict_release(td_made(tree, tdict_flatten_keys(r->twin, ".", &made, err)));
  td_ok(tdict_reshape_view(r->twin, 2, (const int64_t[]){2, 3}, &out, err));
  check_bytes(td_leaf(out, "file.matrix"), matrix);
  r->d.begun = 0;
  tdict_release(out);
  /* text and counts */
  char text[2000];
  tdict_format(r->twin, text, sizeof text);
  assert_non_null(strstr(text, "matrix"));
  FILE *file = fmemopen(text, sizeof text, "w");
  assert_non_null(file);
  td_ok(tdict_describe(r->twin, file, err));
  fclose(file);
  const char *line = strstr(text, "matrix");
  assert_non_null(line);
  assert_non_null(strstr(line, "not read: in a file"));
  assert_int_equal(tdict_num_leaves(r->twin), 3);
  td_ok(tdict_to_dtype(r->twin, TDICT_F32,
                       &(tdict_dtype_options){.struct_size = sizeof(tdict_dtype_options), .floats_only = true}, NULL,
                       &out, err));
  tdict_release(out);
  rig_close(r);
}

/* Checks that the call fails because the elements are in a file, and that the error names the leaf. */
#define REFUSED(path_, call)                                                         \
  do {                                                                               \
    td_fails(TDICT_EINVAL, "the elements are in a file; load the tree first", call); \
    assert_string_equal(td_last_error.path, path_);                                  \
  } while (0)

CASE(unloaded_elements_are_refused) {
  rig *r = rig_open();
  tdict_tree *out = NULL, *deep = NULL;
  tdict_tensor *matrix = td_leaf(r->twin, "file.matrix"), *mask = td_leaf(r->twin, "file.mask"), *made = NULL;
  struct ArrowSchema schema;
  struct ArrowArray array;
  assert_null(tdict_data(r->twin, "file.matrix"));
  assert_null(tdict_const_data(r->twin, "file.matrix"));
  td_ok(tdict_clone_deep(r->tree, NULL, &deep, err));
  REFUSED("file.matrix", tdict_clone_deep(r->twin, NULL, &out, err));
  REFUSED("file.matrix", tdict_consolidate(r->twin, NULL, &out, err));
  REFUSED("file.matrix", tdict_share_create(r->twin, NULL, &out, err));
  REFUSED("file.matrix", tdict_arrow_export(r->twin, &schema, &array, err));
  REFUSED("file.matrix", tdict_stack((const tdict_tree *const[]){r->tree, r->twin}, 2, NULL, NULL, &out, err));
  REFUSED("file.matrix", tdict_cat((const tdict_tree *const[]){r->tree, r->twin}, 2, NULL, NULL, &out, err));
  REFUSED("file.matrix",
          tdict_index_get(NULL, r->twin, TDICT_INDEX(TDICT_LIST(((const int64_t[]){5, 1}), 2)), NULL, &out, err));
  REFUSED("file.matrix", tdict_update_in_place(deep, r->twin, NULL, 0, err));
  REFUSED("file.matrix", tdict_write(deep, "file.matrix", NULL, matrix, err));
  REFUSED("file.matrix", tdict_write_rows(deep, 0, r->twin, err));
  REFUSED("file.matrix", tdict_to_dtype(r->twin, TDICT_F64, NULL, NULL, &out, err));
  tdict_difference difference;
  REFUSED("file.matrix", tdict_get_difference(r->tree, r->twin, NULL, &difference, err));
  assert_false(tdict_equal(r->tree, r->twin));
  REFUSED("", tdict_index_get(NULL, r->tree, TDICT_INDEX(TDICT_MASK(mask)), NULL, &out, err));
  REFUSED("", tdict_tensor_clone(matrix, NULL, &made, err));
  REFUSED("", tdict_tensor_copy(td_leaf(deep, "file.matrix"), matrix, err));
  /* strides cannot describe this shape, so the call would have to copy elements */
  tdict_tensor *turned = NULL;
  td_ok(tdict_tensor_permute(matrix, 3, (const int[]){2, 1, 0}, &turned, err));
  REFUSED("", tdict_tensor_reshape(turned, 1, (const int64_t[]){90}, &made, err));
  REFUSED("", tdict_tensor_contiguous(turned, &made, err));
  tdict_tensor_release(turned);
  /* as a destination */
  td_fails(TDICT_EREADONLY, "", tdict_write(r->twin, "file.matrix", NULL, td_leaf(r->tree, "file.matrix"), err));
  td_fails(TDICT_EREADONLY, "", tdict_update_in_place(r->twin, r->tree, NULL, 0, err));
  td_fails(TDICT_EREADONLY, "", tdict_fill(r->twin, NULL, 0, NULL, err));
  assert_null(out);
  assert_null(made);
  assert_true(tdict_equal(deep, r->tree)); /* the refused calls wrote nothing */
  tdict_release(deep);
  rig_close(r);
}
