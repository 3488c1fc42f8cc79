/* Tests that opens, loads and saves of safetensors files lose no entry of the metadata. */
#include "files.h"
#include "tdict/io.h"

static const char file_text[] =
    "{\"__metadata__\":{\"format\":\"pt\",\"a.b\":\"\",\"\\u00e9\\\"\":\"\\u0000x\\n\",\"part\":\"0\"},"
    "\"x\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}";
static const struct {
  const char *path, *text;
  size_t length;
} entries[] = {{"format", "pt", 2}, {"a\\.b", "", 0}, {"é\"", "\0x\n", 3}, {"part", "0", 1}};
enum { NUM_ENTRIES = sizeof entries / sizeof *entries };

/* Checks that a tree has the first `count` entries above, and no other entries. */
static void check_entries(const tdict_tree *metadata, size_t count) {
  assert_non_null(metadata);
  assert_int_equal(tdict_num_keys(metadata), count);
  for (size_t i = 0; i < count; i++) {
    tdict_value value;
    td_ok(tdict_get_value(metadata, entries[i].path, -1, &value, err));
    assert_int_equal(value.kind, TDICT_VALUE_TEXT);
    assert_int_equal(value.length, entries[i].length);
    assert_memory_equal(value.text, entries[i].text, value.length);
  }
}

static void check_text(const tdict_tree *metadata, const char *path, const char *wanted) {
  const char *text;
  size_t length;
  td_ok(tdict_get_text(metadata, path, -1, &text, &length, err));
  assert_int_equal(length, strlen(wanted));
  assert_memory_equal(text, wanted, length);
}

/* Opens a file with its metadata. The caller releases both trees. */
static tdict_tree *open_with_metadata(const char *path, tdict_tree **metadata) {
  *metadata = NULL;
  return td_made(tree, tdict_open(path, td_options(tdict_open_options, metadata = metadata), &made, err));
}

/* Returns the header of a file as a string. The caller frees it. */
static char *header_of(const char *path) {
  size_t count;
  scoped_bytes bytes = read_bytes(path, &count);
  const size_t length = bytes[0] | (size_t)bytes[1] << 8 | (size_t)bytes[2] << 16;
  char *text = calloc(1, length + 1);
  memcpy(text, bytes + 8, length);
  return text;
}
static void check_header(const char *path, const char *wanted, bool exists) {
  scoped_chars header = header_of(path);
  if ((strstr(header, wanted) != NULL) != exists) fail_msg("presence of '%s' in '%s' is wrong", wanted, header);
}

CASE(metadata_survives_opens_and_saves) {
  scoped_folder f = folder_create();
  scoped_context c = td_context(NULL);
  tdict_save_options o = tdict_save_options_default();
  write_safetensors(in(&f, "x"), file_text, strlen(file_text), 4);
  for (int way = 0; way < 4; way++) {
    const char *name = way == 1 ? "y.safetensors.index.json" : "y";
    scoped_tree metadata = NULL, again = NULL, tree = open_with_metadata(in(&f, "x"), &metadata), back = NULL;
    check_entries(metadata, NUM_ENTRIES);
    o.metadata = metadata;
    o.max_shard_bytes = way == 1;
    o.without_structure = way == 2;
    if (way == 3) {
      scoped_future saving = td_made(future, tdict_save_async(c, in(&f, name), tree, &o, &made, err));
      td_ok(tdict_delete(metadata, "part", err)); /* the save has read the metadata */
      td_ok(tdict_future_wait(saving, NULL, err));
    } else {
      td_ok(tdict_save(NULL, in(&f, name), tree, &o, err));
    }
    back = open_with_metadata(in(&f, name), &again);
    check_entries(again, NUM_ENTRIES);
    same_trees(back, tree);
  }
}

/* Each allocation of a save, of an open and of a load fails once. A call that fails changes neither files nor
 * results. */
CASE(metadata_without_memory) {
  scoped_folder f = folder_create();
  scoped_context c = td_context(NULL);
  tdict_open_options open = tdict_open_options_default();
  tdict_load_options load = tdict_load_options_default();
  tdict_transfer_options on_caller = tdict_transfer_options_default();
  tdict_tree *metadata, *again = NULL, *back = NULL;
  write_safetensors(in(&f, "x"), file_text, strlen(file_text), 4);
  scoped_tree tree = open_with_metadata(in(&f, "x"), &metadata);
  open.metadata = &again;
  load.open = &open;
  on_caller.num_threads = 0;
  load.transfer = &on_caller;
  tdict_save_options o = td_with(tdict_save_options, metadata = metadata);
  for (int way = 0; way < 2; way++) {
    const char *name = way ? "y.safetensors.index.json" : "y";
    const int num_old = folder_count(&f, NULL);
    o.max_shard_bytes = (uint64_t)way;
    TD_WITHOUT_MEMORY_THEN(tdict_save(NULL, in(&f, name), tree, &o, err), {
      assert_true(err->message[0] != 0);
      assert_int_equal(folder_count(&f, NULL), num_old);
    });
    for (int loads = 0; loads < 2; loads++) {
      TD_WITHOUT_MEMORY_THEN(loads ? tdict_load(c, in(&f, name), tdict_cpu(), &load, &back, err)
                                   : tdict_open(in(&f, name), &open, &back, err),
                             {
                               assert_true(err->message[0] != 0);
                               assert_null(back);
                               assert_null(again);
                             });
      check_entries(again, NUM_ENTRIES);
      same_trees(back, tree);
      td_release(back, again);
      back = again = NULL;
    }
  }
  tdict_release(metadata);
}

CASE(metadata_of_a_load) {
  scoped_folder f = folder_create();
  scoped_context c = td_context(NULL);
  tdict_load_options o = tdict_load_options_default();
  tdict_tree *metadata = NULL, *tree = NULL;
  write_safetensors(in(&f, "x"), file_text, strlen(file_text), 4);
  tdict_open_options open = td_with(tdict_open_options, metadata = &metadata);
  o.open = &open;
  td_ok(tdict_load(c, in(&f, "x"), tdict_cpu(), &o, &tree, err));
  check_entries(metadata, NUM_ENTRIES);
  td_release(tree, metadata);
  metadata = NULL;
  tdict_future *future = td_made(future, tdict_load_async(c, in(&f, "x"), tdict_cpu(), &o, &made, err));
  check_entries(metadata, NUM_ENTRIES);
  td_ok(tdict_future_wait(future, NULL, err));
  td_release(future, metadata);
  /* A call that fails does not set the pointer to the metadata. */
  metadata = NULL;
  o.first_row = 5;
  td_fails(TDICT_EINVAL, "", tdict_load(c, in(&f, "x"), tdict_cpu(), &o, &tree, err));
  assert_null(metadata);
  open.strip_prefix = "none";
  td_fails(TDICT_ENOTFOUND, "",
           (open.keys = (const char *const[]){"none"}, open.num_keys = 1, tdict_open(in(&f, "x"), &open, &tree, err)));
  assert_null(metadata);
}

CASE(metadata_of_other_files) {
  static const char null[] = "{\"__metadata__\":null}", none[] = "{}", empty[] = "{\"__metadata__\":{\"\":\"x\"}}";
  static const char index[] =
      "{\"metadata\":{\"total_size\":8,\"part\":\"0\",\"more\":{\"a\":1}},\"weight_map\":{\"x\":\"a\","
      "\"y\":\"b\"}}";
  scoped_folder f = folder_create();
  scoped_tree metadata = NULL, tree = NULL;
  const char *const texts[] = {null, none, empty};
  for (int i = 0; i < 3; i++) {
    write_safetensors(in(&f, "x"), texts[i], strlen(texts[i]), 0);
    tree = open_with_metadata(in(&f, "x"), &metadata);
    check_entries(metadata, 0);
    td_release(tree, metadata);
  }
  /* For a format without metadata, the pointer is set to NULL. */
  tdict_tree *before = (tdict_tree *)&f;
  tdict_tensor *t = NULL;
  td_ok(tdict_create(0, NULL, &tree, err));
  td_ok(tdict_tensor_zeros(TDICT_U8, 0, NULL, NULL, &t, err));
  td_ok(tdict_set(tree, "x", t, err));
  td_ok(tdict_save(NULL, in(&f, "x.npy"), tree, NULL, err));
  td_release(t, tree);
  td_ok(tdict_open(in(&f, "x.npy"), td_options(tdict_open_options, metadata = &before), &tree, err));
  assert_null(before);
  tdict_release(tree);
  /* With shards, the metadata have the entries of all shards. If several shards have the same key, the first value is
   * used. */
  static const char shards[2][160] = {"{\"__metadata__\":{\"format\":\"pt\",\"part\":\"1\"},"
                                      "\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
                                      "{\"__metadata__\":{\"format\":\"np\",\"a.b\":\"\"},"
                                      "\"y\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}"};
  write_safetensors(in(&f, "a"), shards[0], strlen(shards[0]), 1);
  write_safetensors(in(&f, "b"), shards[1], strlen(shards[1]), 1);
  write_bytes(in(&f, "i.json"), index, strlen(index));
  tree = open_with_metadata(in(&f, "i.json"), &metadata);
  assert_int_equal(tdict_num_keys(metadata), 3);
  check_text(metadata, "part", "0");
  check_text(metadata, "format", "pt");
  check_text(metadata, "a\\.b", "");
}

CASE(metadata_of_a_save) {
  scoped_folder f = folder_create();
  scoped_tree tree = td_made(tree, tdict_create(0, NULL, &made, err)), metadata = NULL;
  td_ok(tdict_create(0, NULL, &metadata, err));
  td_ok(tdict_save(NULL, in(&f, "x"), tree, NULL, err));
  check_header(in(&f, "x"), "\"__metadata__\":{\"format\":\"pt\",\"tensordict\":", true);
  tdict_save_options o = td_with(tdict_save_options, without_structure = true);
  td_ok(tdict_save(NULL, in(&f, "x"), tree, &o, err));
  check_header(in(&f, "x"), "__metadata__", false);
  o.without_structure = false;
  o.metadata = metadata;
  td_ok(tdict_save(NULL, in(&f, "x"), tree, &o, err));
  check_header(in(&f, "x"), "\"__metadata__\":{\"tensordict\":", true);
  o.format = TDICT_FORMAT_TDZ;
  td_ok(tdict_save(NULL, in(&f, "x"), tree, &o, err)); /* empty metadata are allowed */
  td_ok(tdict_set_text(metadata, "a", "b", err));
  td_fails(TDICT_EINVAL, "only safetensors files hold metadata", tdict_save(NULL, in(&f, "x"), tree, &o, err));
  o.format = TDICT_FORMAT_AUTO;
  for (int i = 0; i < 4; i++) {
    static const char *const keys[] = {"tensordict", "total_size", "number", "tree"};
    const tdict_value value = {.kind = TDICT_VALUE_INTEGER, .integer = 3};
    if (i < 2) td_ok(tdict_set_text(metadata, keys[i], "x", err));
    if (i == 2) td_ok(tdict_set_values(metadata, keys[i], &value, TDICT_WHOLE_TREE, err));
    if (i == 3) td_ok(tdict_set_text(metadata, "tree.y", "x", err));
    o.max_shard_bytes = i == 1;
    td_fails_at(TDICT_EINVAL, "metadata: ", keys[i],
                tdict_save(NULL, in(&f, i == 1 ? "x.safetensors.index.json" : "x"), tree, &o, err));
    td_ok(tdict_delete(metadata, keys[i], err));
  }
}
