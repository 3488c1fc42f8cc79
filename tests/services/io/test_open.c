/* Tests tdict_open(): the golden file of the package safetensors, mappings, options, shards, failing allocations. */
#include "support/descriptors.h"
#include "without_memory.h"

/* The tensors of golden/all.safetensors, which safetensors 0.8 wrote: name, dtype, offset after the header, shape. */
typedef struct golden {
  const char *path;
  tdict_dtype dtype;
  size_t offset;
  int ndim;
  int64_t shape[4];
} golden;
static const golden goldens[] = {
    {"i64", TDICT_I64, 0, 2, {2, 4}},
    {"f64", TDICT_F64, 64, 3, {2, 2, 2}},
    {"empty", TDICT_F32, 128, 3, {2, 0, 3}},
    {"f32", TDICT_F32, 128, 2, {2, 3}},
    {"nest.a.b", TDICT_F32, 152, 1, {2}},
    {"nest.a/b:c", TDICT_F32, 160, 2, {2, 2}},
    {"nest.obs.state", TDICT_F32, 176, 2, {2, 11}},
    {"nest.sp ace", TDICT_F32, 264, 2, {2, 2}},
    {"nest.é漢", TDICT_F32, 280, 2, {2, 2}},
    {"scalar", TDICT_F32, 296, 0, {0}},
    {"strided", TDICT_F32, 300, 3, {2, 4, 6}},
    {"i32", TDICT_I32, 492, 2, {2, 1}},
    {"bf16", TDICT_BF16, 500, 2, {2, 7}},
    {"f16", TDICT_F16, 528, 2, {2, 5}},
    {"i16", TDICT_I16, 548, 1, {2}},
    {"f8e4m3", TDICT_F8E4M3, 552, 1, {6}},
    {"f8e5m2", TDICT_F8E5M2, 558, 1, {6}},
    {"i8", TDICT_I8, 564, 2, {2, 3}},
    {"nest.obs.pixels", TDICT_U8, 570, 4, {2, 3, 8, 8}},
    {"u8", TDICT_U8, 954, 3, {2, 3, 4}},
    {"mask", TDICT_BOOL, 978, 2, {2, 9}},
};
enum { NUM_GOLDENS = sizeof goldens / sizeof *goldens, GOLDEN_DATA = 8 + 1408 };

/* Returns the path of the golden file. Skips the case if the build was copied to a machine without the repository. */
static const char *golden_path(void) {
  static const char path[] = GOLDEN_FOLDER "/all.safetensors";
  if (access(path, R_OK) != 0) td_skip("the repository's files are not on this machine");
  return path;
}

CASE(open_reads_a_file_of_the_package) {
  size_t count;
  scoped_bytes bytes = read_bytes(golden_path(), &count);
  scoped_tree tree = td_made(tree, tdict_open(golden_path(), NULL, &made, err));
  assert_int_equal(tdict_num_leaves(tree), NUM_GOLDENS);
  assert_int_equal(tdict_batch_ndim(tree), 0);
  assert_string_equal(tdict_get_entry_at(tree, 0).key, "i64"); /* the keys have the order of the header */
  assert_string_equal(tdict_get_entry_at(tree, 4).key, "nest");
  for (int i = 0; i < NUM_GOLDENS; i++) {
    const golden *g = &goldens[i];
    tdict_tensor *t = td_made(tensor, tdict_get(tree, g->path, &made, err));
    assert_int_equal(tdict_tensor_dtype(t), g->dtype);
    assert_int_equal(tdict_tensor_ndim(t), g->ndim);
    for (int d = 0; d < g->ndim; d++) assert_int_equal(tdict_tensor_shape(t)[d], g->shape[d]);
    assert_memory_equal(tdict_tensor_const_data(t), bytes + GOLDEN_DATA + g->offset, tdict_tensor_bytes(t));
    assert_null(tdict_tensor_data(t)); /* read-only */
  }
}

static bool is_mapped(const char *path) {
  char line[1024];
  bool found = false;
  FILE *maps = fopen("/proc/self/maps", "r");
  assert_non_null(maps);
  while (fgets(line, sizeof line, maps)) found = found || strstr(line, path);
  fclose(maps);
  return found;
}

CASE(open_maps_until_the_last_leaf) {
  scoped_folder f = folder_create();
  const int descriptors = td_count_descriptors();
  tdict_tree *tree = NULL;
  tdict_tensor *t = NULL, *view = NULL;
  size_t count;
  scoped_bytes bytes = read_bytes(golden_path(), &count);
  write_bytes(in(&f, "x"), bytes, count);
  td_ok(tdict_open(in(&f, "x"), NULL, &tree, err));
  assert_true(is_mapped(in(&f, "x")));
  td_ok(tdict_get(tree, "nest.obs.pixels", &t, err));
  const tdict_tensor_range range = {0, 1, 1, 1};
  td_ok(tdict_tensor_slice(t, &range, &view, err));
  tdict_release(tree);
  assert_true(is_mapped(in(&f, "x")));
  assert_memory_equal(tdict_tensor_const_data(view), bytes + GOLDEN_DATA + 570 + 192, 192);
  tdict_tensor_release(view);
  assert_false(is_mapped(in(&f, "x")));
  assert_int_equal(td_count_descriptors(), descriptors);
}

CASE(open_copies_unaligned_tensors) {
  static const char header[] =
      "{\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"x\":{\"dtype\":\"F32\","
      "\"shape\":[3],\"data_offsets\":[1,13]},\"c\":{\"dtype\":\"C64\",\"shape\":[],"
      "\"data_offsets\":[13,21]}}";
  scoped_folder f = folder_create();
  for (size_t pad = 0; pad < 8; pad++) {
    char padded[300];
    const size_t length = sizeof header - 1 + pad;
    memset(padded, ' ', sizeof padded);
    memcpy(padded, header, sizeof header - 1);
    write_safetensors(in(&f, "x"), padded, length, 21);
    scoped_tree tree = td_made(tree, tdict_open(in(&f, "x"), NULL, &made, err));
    const unsigned char *x = tdict_const_data(tree, "x"), *c = tdict_const_data(tree, "c");
    assert_true((uintptr_t)x % 4 == 0 && (uintptr_t)c % 4 == 0);
    for (int i = 0; i < 12; i++) assert_int_equal(x[i], 1 + i);
    for (int i = 0; i < 8; i++) assert_int_equal(c[i], 13 + i);
    assert_null(tdict_data(tree, "x"));
  }
}

static tdict_tree *open_with(const char *path, tdict_open_options o) {
  return td_made(tree, tdict_open(path, &o, &made, err));
}

CASE(open_selects_keys) {
  static const char *const keys[] = {"nest.obs", "u8"}, *const none[] = {"u8", "nest.ob"};
  const char *none_of_root[1];
  tdict_tree *tree;
  tdict_open_options o = td_with(tdict_open_options, keys = keys, num_keys = 2);
  tree = open_with(golden_path(), o);
  assert_int_equal(tdict_num_leaves(tree), 3);
  assert_true(tdict_has(tree, "nest.obs.pixels") && tdict_has(tree, "nest.obs.state") && tdict_has(tree, "u8"));
  tdict_release(tree);
  o.num_keys = 0;
  tree = open_with(golden_path(), o);
  assert_int_equal(tdict_num_keys(tree), 0);
  tdict_release(tree);
  o.keys = none;
  o.num_keys = 2;
  tree = NULL;
  td_fails(TDICT_ENOTFOUND, "open: the file has no key 'nest.ob': 'ob' is not a key of 'nest'; keys: obs, ",
           tdict_open(golden_path(), &o, &tree, err));
  assert_null(tree);
  td_fails(TDICT_ENOTFOUND, "open: the file has no key 'u9'; keys: u8, ",
           (none_of_root[0] = "u9", o.keys = none_of_root, o.num_keys = 1, tdict_open(golden_path(), &o, &tree, err)));
  td_fails(TDICT_ENOTFOUND, "open: the file has no key 'u8.x': 'x' is not a key of 'u8'",
           (none_of_root[0] = "u8.x", tdict_open(golden_path(), &o, &tree, err)));
  assert_null(strstr(td_last_error.message, "keys: "));
  o.num_keys = 2;
  o.keys = NULL;
  td_fails(TDICT_EINVAL, "num_keys is 2, but keys is NULL", tdict_open(golden_path(), &o, &tree, err));
  const char *const missing[] = {"u8", NULL};
  o.keys = missing;
  td_fails(TDICT_EINVAL, "keys[1] is NULL", tdict_open(golden_path(), &o, &tree, err));
}

CASE(open_renames_prefixes) {
  tdict_open_options o = td_with(tdict_open_options, strip_prefix = "nest.obs", add_prefix = "a.b");
  scoped_tree tree = open_with(golden_path(), o);
  assert_int_equal(tdict_num_leaves(tree), NUM_GOLDENS);
  assert_true(tdict_has(tree, "a.b.pixels") && tdict_has(tree, "a.b.state") && tdict_has(tree, "a.b.nest.sp ace"));
  assert_int_equal(tdict_num_keys(tree), 1);
  td_release(tree);
  o = tdict_open_options_default();
  o.strip_prefix = "u8"; /* the prefix is the path of a leaf, which keeps this path */
  tree = open_with(golden_path(), o);
  assert_true(tdict_has(tree, "u8"));
}

/* A prefix is a path. In flat trees, any string that does not end with a dot may be a prefix of names. */
CASE(open_refuses_prefixes_that_are_no_path) {
  static const struct {
    const char *prefix, *text;
    bool is_wrong_if_flat;
  } wrong[] = {{".", "' is not a path: the path has an empty key", true},
               {"nest.", "'nest.' ends with a dot: write 'nest'", true},
               {"nest..", "'nest..' ends with a dot: write 'nest'", true},
               {".nest", "'.nest' is not a path: the path has an empty key", false},
               {"nest..x", "'nest..x' is not a path: the path has an empty key", false},
               {"nest\\", "is not a path: the path ends with a backslash that escapes nothing", false}};
  tdict_tree *tree = NULL;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    char strip[96], add[96];
    snprintf(strip, sizeof strip, "open: strip_prefix '%s", wrong[i].prefix);
    snprintf(add, sizeof add, "open: add_prefix '%s", wrong[i].prefix);
    tdict_open_options o = td_with(tdict_open_options, strip_prefix = wrong[i].prefix);
    td_fails(TDICT_EINVAL, wrong[i].text, tdict_open(golden_path(), &o, &tree, err));
    td_fails(TDICT_EINVAL, strip, tdict_open(golden_path(), &o, &tree, err));
    o = td_with(tdict_open_options, add_prefix = wrong[i].prefix);
    td_fails(TDICT_EINVAL, wrong[i].text, tdict_open(golden_path(), &o, &tree, err));
    td_fails(TDICT_EINVAL, add, tdict_open(golden_path(), &o, &tree, err));
    assert_null(tree);
    o.flat = true;
    if (wrong[i].is_wrong_if_flat)
      td_fails(TDICT_EINVAL, add, tdict_open(golden_path(), &o, &tree, err));
    else
      tdict_release(open_with(golden_path(), o));
  }
  scoped_tree dotted = open_with(golden_path(), td_with(tdict_open_options, add_prefix = "a\\."));
  assert_string_equal(tdict_get_entry_at(dotted, 0).key, "a.");
}

/* A prefix that the file does not have is an error, even if `keys` selects only other keys. */
CASE(open_refuses_prefixes_without_match) {
  static const struct {
    const char *strip, *text;
  } wrong[] = {{"nst", "open: strip_prefix 'nst' matches no key; keys: nest, "},
               {"nest.ob", "open: strip_prefix 'nest.ob' matches no key: 'ob' is not a key of 'nest'; keys: obs, "}};
  static const char *const keys[] = {"u8"};
  tdict_open_options o = tdict_open_options_default();
  scoped_tree tree = NULL;
  for (int flat = 0; flat < 2; flat++)
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
      o.flat = flat != 0;
      o.strip_prefix = wrong[i].strip;
      td_fails(TDICT_ENOTFOUND, wrong[i].text, tdict_open(golden_path(), &o, &tree, err));
      assert_null(tree);
      assert_string_equal(td_last_error.path, golden_path());
    }
  o.flat = false;
  o.keys = keys;
  o.num_keys = 1;
  td_fails(TDICT_ENOTFOUND, wrong[0].text,
           (o.strip_prefix = wrong[0].strip, tdict_open(golden_path(), &o, &tree, err)));
  o.strip_prefix = "nest"; /* the file has this prefix, so the selected key need not have it */
  tree = open_with(golden_path(), o);
  assert_int_equal(tdict_num_leaves(tree), 1);
  tdict_release(tree);
  o.strip_prefix = "";
  tree = open_with(golden_path(), o);
}

/* strip_prefix does not change the batch sizes of trees, and must not give two entries the same path. */
CASE(open_renames_in_a_structure) {
  scoped_folder f = folder_create();
  const int64_t batch[] = {2, 3};
  tdict_tree *tree = NULL, *child = NULL, *back = NULL;
  td_ok(tdict_create(1, batch, &tree, err));
  td_ok(tdict_create(2, batch, &child, err));
  scoped_tensor t = td_made(tensor, tdict_tensor_zeros(TDICT_F32, TDICT_SHAPE(2, 3), NULL, &made, err));
  td_put_tree(tree, "a", child);
  td_ok(tdict_set(tree, "a.b.c", t, err));
  td_ok(tdict_set(tree, "a.d", t, err));
  td_ok(tdict_set(tree, "e", t, err));
  td_ok(tdict_save(NULL, in(&f, "x"), tree, NULL, err));
  tdict_open_options o = td_with(tdict_open_options, strip_prefix = "a.b");
  back = open_with(in(&f, "x"), o);
  assert_true(tdict_has(back, "c") && tdict_has(back, "a.d") && tdict_has(back, "e") && !tdict_has(back, "a.b"));
  assert_int_equal(tdict_batch_ndim(back), 1);
  td_ok(tdict_get_tree(back, "a", &child, err));
  assert_int_equal(tdict_batch_ndim(child), 2);
  tdict_release(back);
  o.strip_prefix = "a";
  td_ok(tdict_set(tree, "a.e", t, err));
  td_ok(tdict_save(NULL, in(&f, "x"), tree, NULL, err));
  back = NULL;
  td_fails(TDICT_EEXIST, "key 'e': two entries have this key", tdict_open(in(&f, "x"), &o, &back, err));
  assert_null(back);
  tdict_release(tree);
}

CASE(open_makes_flat_names) {
  static const char *const keys[] = {"nest.obs"};
  tdict_open_options o = td_with(tdict_open_options, flat = true);
  scoped_tree tree = open_with(golden_path(), o);
  assert_int_equal(tdict_num_keys(tree), NUM_GOLDENS);
  assert_true(tdict_has(tree, "nest\\.a\\.b") && tdict_has(tree, "u8"));
  tdict_release(tree);
  o.keys = keys;
  o.num_keys = 1;
  o.strip_prefix = "nest";
  o.add_prefix = "p";
  tree = open_with(golden_path(), o);
  assert_int_equal(tdict_num_keys(tree), 2);
  assert_true(tdict_has(tree, "p\\.obs\\.state"));
}

CASE(open_reads_many_tensors_in_order) {
  scoped_folder f = folder_create();
  enum { MANY = 5000, ROOM = MANY * 80 };
  scoped_chars header = malloc(ROOM);
  char key[32];
  size_t length = 1;
  strcpy(header, "{");
  for (int i = 0; i < MANY; i++)
    length += (size_t)snprintf(header + length, ROOM - length,
                               "%s\"layer%d.w\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[%d,%d]}", i ? "," : "",
                               i, MANY - 1 - i, MANY - i);
  header[length++] = '}';
  write_safetensors(in(&f, "x"), header, length, MANY);
  scoped_tree tree = td_made(tree, tdict_open(in(&f, "x"), NULL, &made, err));
  for (int i = 0; i < MANY; i++) {
    snprintf(key, sizeof key, "layer%d", i);
    assert_string_equal(tdict_get_entry_at(tree, (size_t)i).key, key);
    strcat(key, ".w");
    assert_int_equal(*(const unsigned char *)tdict_const_data(tree, key), (MANY - 1 - i) & 255);
  }
}

CASE(open_maps_sparse_files) {
  static const char header[] = "{\"x\":{\"dtype\":\"U8\",\"shape\":[5000000000],\"data_offsets\":[0,5000000000]}}";
  scoped_folder f = folder_create();
  scoped_tree tree = NULL;
  write_safetensors(in(&f, "x"), header, sizeof header - 1, 0);
  if (truncate(in(&f, "x"), 8 + sizeof header - 1 + 5000000000) != 0) td_skip("this file system has no sparse files");
  td_ok(tdict_open(in(&f, "x"), NULL, &tree, err));
  const unsigned char *x = tdict_const_data(tree, "x");
  assert_int_equal(x[0] | x[4999999999] | x[4400000000], 0);
}

CASE(open_and_save_survive_enomem) {
  scoped_folder f = folder_create();
  tdict_save_options o = tdict_save_options_default();
  save_and_open_without_memory(&f, "x", &o);
  folder_empty(&f);
  o.max_shard_bytes = 30;
  save_and_open_without_memory(&f, "x.safetensors.index.json", &o);
}

/* A dataset can use an opened tree even after the program has released the tree. */
CASE(open_makes_the_source_of_a_dataset) {
  scoped_folder f = folder_create();
  const int64_t rows = 5;
  dice d = {3};
  scoped_tree tree = NULL, mapped = NULL, sample = NULL;
  scoped_tensor t = random_tensor(&d, TDICT_F64, 1, &rows);
  scoped_dataset dataset = NULL;
  td_ok(tdict_create(1, &rows, &tree, err));
  td_ok(tdict_set(tree, "x", t, err));
  td_ok(tdict_set_text(tree, "name", "data", err));
  td_ok(tdict_save(NULL, in(&f, "x"), tree, NULL, err));
  td_ok(tdict_open(in(&f, "x"), NULL, &mapped, err));
  td_ok(tdict_dataset_from_tree(mapped, &dataset, err));
  td_release(mapped);
  const tdict_dataset_table *functions = tdict_dataset_get_table(dataset);
  assert_int_equal(functions->length(functions->self), rows);
  td_ok(functions->fetch_sample(functions->self, NULL, 3, &sample, err));
  tdict_tensor *row = td_made(tensor, tdict_get(sample, "x", &made, err));
  scoped_bytes all = elements_of(t), one = elements_of(row);
  assert_memory_equal(one, all + 3 * tdict_tensor_bytes(row), tdict_tensor_bytes(row));
}
