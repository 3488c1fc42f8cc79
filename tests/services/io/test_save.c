/* Tests tdict_save() together with tdict_open(): round trips, the bytes of files, shards, refusals. */
#include <errno.h>
#include <math.h>

#include "core/tensor/tensor.h"
#include "directory.h"
#include "random_tree.h"

static tdict_tree *open_tree(const char *path) { return td_made(tree, tdict_open(path, NULL, &made, err)); }

/* Saves trees with every kind of leaf, odd keys, non-contiguous tensors and empty trees. */
CASE(save_returns_random_trees) {
  scoped_folder f = folder_create();
  scoped_context c = NULL;
  int saved = 0;
  td_ok(tdict_context_create(td_options(tdict_context_options, device = tdict_sim(0)), &c, err));
  for (uint64_t seed = 0; seed < 400; seed++) {
    dice d = {seed};
    int64_t batch[2] = {(int64_t)roll(&d, 4), (int64_t)roll(&d, 3)};
    tdict_tree *tree = random_tree(&d, (int)roll(&d, 3), batch, 0), *back = NULL, *there = NULL;
    tdict_save_options o = td_with(tdict_save_options, max_shard_bytes = seed % 3 == 2 ? 1 + roll(&d, 300) : 0);
    const char *path = in(&f, o.max_shard_bytes ? "t.safetensors.index.json" : "t.safetensors");
    if (seed % 3 == 1) td_ok(tdict_to_device(c, tree, tdict_sim(0), NULL, &there, err));
    td_ok(tdict_save(seed % 3 ? c : NULL, path, there ? there : tree, &o, err));
    tdict_release(there);
    td_ok(tdict_open(path, NULL, &back, err));
    same_trees(back, tree);
    saved += tdict_num_leaves(tree) > 3;
    td_release(back, tree);
    folder_empty(&f);
  }
  assert_true(saved > 50);
}

/* Saves a scalar, an empty tensor and a non-contiguous tensor of every dtype. */
CASE(save_returns_every_dtype) {
  scoped_folder f = folder_create();
  scoped_tree tree = NULL;
  dice d = {7};
  td_ok(tdict_create(0, NULL, &tree, err));
  for (int i = 0; i < NUM_FILE_DTYPES; i++) {
    for (int k = 0; k < 3; k++) {
      const int64_t shape[] = {k ? 3 : 0, 5};
      const char *path = td_text("%s.%d", tdict_dtype_name(file_dtypes[i]), k);
      scoped_tensor t = random_tensor(&d, file_dtypes[i], k == 2 ? 0 : 2, shape);
      td_ok(tdict_set(tree, path, t, err));
    }
  }
  td_ok(tdict_save(NULL, in(&f, "x"), tree, NULL, err));
  scoped_tree back = open_tree(in(&f, "x"));
  same_trees(back, tree);
}

static tdict_tree *small_tree(void) {
  scoped_tensor t = NULL;
  const float values[] = {1, 2, 3, 4, 5, 6};
  const unsigned char bytes[] = {7, 8, 9};
  tdict_tree *tree = td_made(tree, tdict_create(0, NULL, &made, err));
  td_put(tree, "b.small", td_made(tensor, tdict_tensor_from_array(TDICT_U8, TDICT_SHAPE(3), bytes, &made, err)));
  td_ok(tdict_tensor_from_array(TDICT_F32, TDICT_SHAPE(2, 3), values, &t, err));
  td_ok(tdict_set(tree, "z", t, err));
  td_ok(tdict_set(tree, "b.large", t, err));
  return tree;
}

/* The first and the second save to a path write the same bytes as the package safetensors 0.8. */
CASE(save_writes_the_bytes_of_the_package) {
  static const char header[] = "{\"b.large\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
                               "\"z\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[24,48]},"
                               "\"b.small\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[48,51]}}";
  scoped_folder f = folder_create();
  scoped_tree tree = small_tree();
  size_t count, padded = (sizeof header - 1 + 7) / 8 * 8;
  tdict_save_options o = td_with(tdict_save_options, without_structure = true);
  for (int round = 0; round < 2; round++) {
    td_ok(tdict_save(NULL, in(&f, "x"), tree, &o, err));
    scoped_bytes bytes = read_bytes(in(&f, "x"), &count);
    assert_int_equal(count, 8 + padded + 51);
    assert_int_equal(bytes[0] | bytes[1] << 8, padded);
    assert_memory_equal(bytes + 8, header, sizeof header - 1);
    for (size_t i = sizeof header - 1; i < padded; i++) assert_int_equal(bytes[8 + i], ' ');
    assert_memory_equal(bytes + 8 + padded, tdict_const_data(tree, "b.large"), 24);
    assert_memory_equal(bytes + 8 + padded + 24, tdict_const_data(tree, "z"), 24);
    assert_memory_equal(bytes + 8 + padded + 48, tdict_const_data(tree, "b.small"), 3);
  }
}

/* Saves and opens a tensor that is not in C order and is larger than the buffer. */
CASE(save_writes_large_strided_tensors) {
  scoped_folder f = folder_create();
  scoped_tree tree = NULL;
  scoped_tensor t = NULL, turned = NULL;
  const int order[] = {2, 0, 1};
  td_ok(tdict_create(0, NULL, &tree, err));
  td_ok(tdict_tensor_empty(TDICT_I32, TDICT_SHAPE(131, 67, 83), NULL, &t, err));
  td_fill_random(tdict_tensor_data(t), tdict_tensor_bytes(t), 3);
  td_ok(tdict_tensor_permute(t, 3, order, &turned, err));
  td_ok(tdict_set(tree, "x", turned, err));
  td_ok(tdict_save(NULL, in(&f, "x"), tree, NULL, err));
  scoped_tree back = open_tree(in(&f, "x"));
  same_trees(back, tree);
}

CASE(save_keeps_permissions_and_replaces_links) {
  scoped_folder f = folder_create();
  scoped_tree tree = small_tree();
  struct stat info;
  write_bytes(in(&f, "x"), "old", 3);
  assert_int_equal(chmod(in(&f, "x"), 0640), 0);
  td_ok(tdict_save(NULL, in(&f, "x"), tree, NULL, err));
  assert_int_equal(stat(in(&f, "x"), &info), 0);
  assert_int_equal(info.st_mode & 0777, 0640);
  write_bytes(in(&f, "target"), "kept", 4);
  assert_int_equal(symlink("target", in(&f, "link")), 0);
  td_ok(tdict_save(NULL, in(&f, "link"), tree, NULL, err));
  assert_int_equal(lstat(in(&f, "link"), &info), 0);
  assert_true(S_ISREG(info.st_mode));
  assert_int_equal(stat(in(&f, "target"), &info), 0);
  assert_int_equal(info.st_size, 4);
  assert_int_equal(folder_count(&f, NULL), 3);
}

/* Each save gives its shards new names, so trees that were opened before it stay valid. */
CASE(save_shards_have_unique_names) {
  scoped_folder f = folder_create();
  scoped_tree tree = small_tree();
  tdict_save_options o = td_with(tdict_save_options, max_shard_bytes = 25);
  td_ok(tdict_save(NULL, in(&f, "model.safetensors.index.json"), tree, &o, err));
  assert_int_equal(folder_count(&f, NULL), 1 + 3);
  scoped_tree first = open_tree(f.path); /* opens the folder of the index */
  td_ok(tdict_save(NULL, in(&f, "model.safetensors.index.json"), tree, &o, err));
  assert_int_equal(folder_count(&f, NULL), 1 + 6);
  o.max_shard_bytes = 48;
  td_ok(tdict_save(NULL, in(&f, "model.safetensors.index.json"), tree, &o, err));
  assert_int_equal(folder_count(&f, NULL), 1 + 8);
  same_trees(first, tree);
  scoped_tree third = open_tree(in(&f, "model.safetensors.index.json"));
  same_trees(third, tree);
}

/* What the progress function of a save has recorded. */
typedef struct seen {
  uint64_t last, total, calls;
  uint64_t ends;     /* number of calls that report all bytes as written */
  uint64_t stops_at; /* number of the call that returns false */
  bool is_wrong;
} seen;
static bool see(void *user, uint64_t done, uint64_t total) {
  seen *s = user;
  if (s->calls == 0) s->total = total;
  s->is_wrong |= done < s->last || total != s->total || done > total || (s->calls == 0 && done != 0);
  s->last = done;
  s->ends += done == total;
  return ++s->calls != s->stops_at;
}
static tdict_status save_and_see(const char *path, const tdict_tree *tree, int i, seen *s, tdict_error *error) {
  tdict_save_options o = tdict_save_options_default();
  if (i == 1) o.max_shard_bytes = 1000;
  if (i == 2) o.format = TDICT_FORMAT_CONSOLIDATED;
  o.progress = see;
  o.user = s;
  return tdict_save(NULL, path, tree, &o, error);
}
static const char *const seen_paths[] = {"x", "x.safetensors.index.json", "y", "x.tdz", "x.npz", "d/"};
enum { NUM_SEEN_PATHS = sizeof seen_paths / sizeof *seen_paths };
/* Makes a tree with 24 MiB in C order, a tensor in another order, a ragged leaf and a leaf without batch dimensions. */
static tdict_tree *tree_to_see(int i) {
  tdict_tree *tree = small_tree();
  dice d = {(uint64_t)i};
  scoped_tensor t = td_made(tensor, tdict_tensor_zeros(TDICT_F32, TDICT_SHAPE(6, 1 << 20), NULL, &made, err));
  td_ok(tdict_set(tree, "large", t, err));
  if (i != 4) td_ok(tdict_set_unbatched(tree, "u", t, err)); /* an .npz file cannot hold unbatched or ragged leaves */
  if (i != 4) add_random_ragged(&d, tree, "r");
  tdict_tensor_release(t);
  t = random_tensor(&d, TDICT_I16, 0, NULL);
  td_ok(tdict_set(tree, "turned", t, err));
  return tree;
}
CASE(save_reports_progress) {
  for (int i = 0; i < NUM_SEEN_PATHS; i++) {
    scoped_directory f = folder_create();
    scoped_tree tree = tree_to_see(i);
    seen s = {0};
    td_ok(save_and_see(in(&f, seen_paths[i]), tree, i, &s, err));
    assert_true(!s.is_wrong && s.last == s.total && s.calls > 3 && s.calls < 1100);
    assert_true(s.total >= 24 << 20 && s.ends == 2); /* the last call comes before the rename */
  }
}
CASE(save_stops_if_progress_returns_false) {
  for (int i = 0; i < NUM_SEEN_PATHS; i++) {
    scoped_directory f = folder_create();
    scoped_tree tree = tree_to_see(i), old = small_tree();
    const char *path = in(&f, seen_paths[i]);
    tdict_error error = {0};
    seen all = {0}, s = {0};
    td_ok(save_and_see(path, tree, i, &all, err));
    td_ok(save_and_see(path, old, i, &s, err));
    const int count = folder_count(&f, NULL);
    for (uint64_t at = 1; at <= all.calls; at++) {
      s = (seen){.stops_at = at};
      assert_int_equal(save_and_see(path, tree, i, &s, &error), TDICT_ECANCELLED);
      assert_non_null(strstr(error.message, "save: the function `progress` returned false"));
      assert_string_equal(error.path, path);
      assert_int_equal(s.calls, at);
      assert_int_equal(folder_count(&f, NULL), count);
    }
    scoped_tree found = open_tree(path);
    ignores_order = true;
    same_trees(old, found);
    ignores_order = false;
  }
}

/* Saves to names of up to 255 bytes, the system's limit. Names of shards are longer than their index's name. */
CASE(save_writes_names_of_255_bytes) {
  static const char *const ends[] = {"", ".safetensors.index.json", ".tdz", ".npz", "/"};
  for (size_t kind = 0; kind < sizeof ends / sizeof *ends; kind++) {
    for (size_t length = 200; length <= 256; length += length < 250 ? 10 : 1) {
      scoped_directory f = folder_create();
      scoped_tree tree = small_tree();
      tdict_save_options o = tdict_save_options_default();
      char name[300];
      const size_t end = strlen(ends[kind]), is_folder = strcmp(ends[kind], "/") == 0;
      memset(name, 'n', sizeof name);
      snprintf(name + length + is_folder - end, sizeof name - length, "%s", ends[kind]);
      if (kind == 1) o.max_shard_bytes = 25;
      for (int round = 0; round < 2; round++) {
        if (length > 255) {
          td_fails(TDICT_EIO, "File name too long", tdict_save(NULL, in(&f, name), tree, &o, err));
          assert_int_equal(folder_count(&f, NULL), 0);
          continue;
        }
        td_ok(tdict_save(NULL, in(&f, name), tree, &o, err));
        tdict_tree *found = open_tree(in(&f, name));
        same_trees(tree, found);
        tdict_release(found);
        assert_int_equal(folder_count(&f, NULL), kind == 1 ? 1 + 3 * (round + 1) : 1);
      }
    }
  }
}

static void release_nothing(void *self) { (void)self; }

/* The error of each refused save names the leaf, and no file is left. */
CASE(save_refuses_what_the_format_lacks) {
  static const tdict_type type = TD_TYPE(.name = "gadget", .release = release_nothing);
  scoped_folder f = folder_create();
  const char *path = in(&f, "x");
  const tdict_value nan = {.kind = TDICT_VALUE_REAL, .real = NAN}, one = {.kind = TDICT_VALUE_INTEGER, .integer = 1};
  const tdict_value twice = {.kind = TDICT_VALUE_JSON, .text = "{\"a\":1,\"a\":2}", .length = 13};
  tdict_save_options plain = td_with(tdict_save_options, without_structure = true);
#define REFUSED(status, at, text, options, set)                         \
  do {                                                                  \
    tdict_tree *tree = small_tree();                                    \
    td_ok(set);                                                         \
    td_fails(status, text, tdict_save(NULL, path, tree, options, err)); \
    assert_string_equal(td_last_error.path, at);                        \
    assert_int_equal(folder_count(&f, NULL), 0);                        \
    tdict_release(tree);                                                \
  } while (0)
  tdict_tensor *t = td_made(tensor, tdict_tensor_zeros(TDICT_C128, TDICT_SHAPE(2), NULL, &made, err));
  REFUSED(TDICT_ENOTSUP, "n.c", "no dtype for complex128", NULL, tdict_set(tree, "n.c", t, err));
  tdict_tensor_release(t);
  td_ok(tdict_tensor_zeros(TDICT_DTYPE(2, 32, 4), TDICT_SHAPE(2), NULL, &t, err));
  REFUSED(TDICT_ENOTSUP, "n.c", "no dtype for float32 x 4", NULL, tdict_set(tree, "n.c", t, err));
  tdict_tensor_release(t);
  td_ok(tdict_tensor_zeros(TDICT_F32, TDICT_SHAPE(2), NULL, &t, err));
  REFUSED(TDICT_EEXIST, "b.small", "two tensors have the name 'b.small'", NULL, tdict_set(tree, "b\\.small", t, err));
  REFUSED(TDICT_ENOTSUP, "n.\xff", "not UTF-8", NULL, tdict_set(tree, "n.\xff", t, err));
  REFUSED(TDICT_ENOTSUP, "__metadata__", "reserves the name", NULL, tdict_set(tree, "__metadata__", t, err));
  tdict_tensor_release(t);
  REFUSED(TDICT_ENOTSUP, "n.o", "an object of type gadget", NULL, tdict_set_object(tree, "n.o", &type, &f, err));
  REFUSED(TDICT_ENOTSUP, "n.v", "not finite", NULL, tdict_set_values(tree, "n.v", &nan, TDICT_WHOLE_TREE, err));
  REFUSED(TDICT_ENOTSUP, "n.v", "duplicate keys", NULL, tdict_set_values(tree, "n.v", &twice, TDICT_WHOLE_TREE, err));
  REFUSED(TDICT_ENOTSUP, "n.v", "values need TensorDict's entry", &plain,
          tdict_set_values(tree, "n.v", &one, TDICT_WHOLE_TREE, err));
  tdict_tree *none = td_made(tree, tdict_create(0, NULL, &made, err));
  REFUSED(TDICT_ENOTSUP, "n", "an empty tree needs", &plain, tdict_set_tree(tree, "n", none, err));
  tdict_release(none);
  dice d = {3};
  scoped_tree ragged = small_tree();
  add_random_ragged(&d, ragged, "r");
  td_fails(TDICT_ENOTSUP, "a ragged leaf needs", tdict_save(NULL, path, ragged, &plain, err));
}

/* Up to 128 levels of trees can be saved. 129 levels are refused. A value with too many JSON levels is refused, too. */
CASE(save_limits_the_depth) {
  scoped_folder f = folder_create();
  scoped_tensor t = NULL;
  char path[600] = "a", deep[2 * 500 + 1];
  td_ok(tdict_tensor_zeros(TDICT_F32, 0, NULL, NULL, &t, err));
  for (int depth = 1; depth <= 129; depth++) {
    if (depth > 1) strcat(path, ".a");
    if (depth < 127) continue;
    scoped_tree tree = td_made(tree, tdict_create(0, NULL, &made, err));
    td_ok(tdict_set(tree, path, t, err));
    if (depth <= 128) {
      td_ok(tdict_save(NULL, in(&f, "x"), tree, NULL, err));
      scoped_tree back = open_tree(in(&f, "x"));
      same_trees(back, tree);
    } else {
      td_fails(TDICT_ENOTSUP, "more than 128 nested trees", tdict_save(NULL, in(&f, "x"), tree, NULL, err));
    }
  }
  memset(deep, '[', 500);
  memset(deep + 500, ']', 500);
  const tdict_value value = {.kind = TDICT_VALUE_JSON, .text = deep, .length = 1000};
  scoped_tree tree = small_tree();
  td_ok(tdict_set_values(tree, "a.a.a.a.v", &value, TDICT_WHOLE_TREE, err));
  td_fails(TDICT_ENOTSUP, "cannot be read again: too many levels", tdict_save(NULL, in(&f, "x"), tree, NULL, err));
}

CASE(save_refuses_wrong_arguments) {
  scoped_folder f = folder_create();
  scoped_tree tree = small_tree();
  td_fails(TDICT_EINVAL, "path is NULL", tdict_save(NULL, NULL, tree, NULL, err));
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_save(NULL, in(&f, "x"), NULL, NULL, err));
  tdict_save_options o = td_with(tdict_save_options, format = TDICT_FORMAT_SAFETENSORS);
  td_fails(TDICT_EINVAL, "does not end with the name", tdict_save(NULL, in(&f, ""), tree, &o, err));
  o.format = 99;
  td_fails(TDICT_EINVAL, "format is 99", tdict_save(NULL, in(&f, "x"), tree, &o, err));
  o.format = TDICT_FORMAT_AUTO;
  td_fails(TDICT_EINVAL, "does not end with the name", tdict_save(NULL, in(&f, ".."), tree, NULL, err));
  td_fails(TDICT_EINVAL, "does not end with the name", tdict_save(NULL, "", tree, NULL, err));
  td_fails(TDICT_EIO, "/none/' does not exist", tdict_save(NULL, in(&f, "none/x"), tree, NULL, err));
  assert_int_equal(td_last_error.native, ENOENT);
  assert_string_equal(td_last_error.path, in(&f, "none/x"));
  td_ok(tdict_save(NULL, in(&f, "y"), tree, NULL, err));
  td_fails(TDICT_EIO, "the file cannot be created: Not a directory", tdict_save(NULL, in(&f, "y/x"), tree, NULL, err));
  td_fails(TDICT_EFORMAT, "names a directory", tdict_save(NULL, f.path, tree, NULL, err));
  assert_int_equal(mkfifo(in(&f, "fifo"), 0600), 0);
  td_fails(TDICT_EFORMAT, "a device, FIFO or socket", tdict_save(NULL, in(&f, "fifo"), tree, NULL, err));
  assert_int_equal(unlink(in(&f, "fifo")), 0);
  o.max_shard_bytes = 5;
  td_fails(TDICT_EINVAL, "wanted an end '.safetensors.index.json'", tdict_save(NULL, in(&f, "x.json"), tree, &o, err));
  td_fails(TDICT_EINVAL, "wanted an end", tdict_save(NULL, in(&f, ".safetensors.index.json"), tree, &o, err));
  o.struct_size = 3;
  td_fails(TDICT_EINVAL, "save_options", tdict_save(NULL, in(&f, "x"), tree, &o, err));
}

GPU_CASE(save_copies_device_trees_to_the_host) {
  scoped_folder f = folder_create();
  scoped_context context = td_context(NULL);
  dice d = {12};
  scoped_tree host = small_tree(), moved = NULL, part = NULL;
  char name[32], text[96];
  add_random_ragged(&d, host, "r");
  td_ok(tdict_set_text(host, "text", "words", err));
  td_ok(tdict_to_device(context, host, td_device(), NULL, &moved, err));
  snprintf(text, sizeof text, "save: context is NULL, but the tensor is on %s, wanted host memory",
           tdict_device_format(td_device(), name, sizeof name));
  static const char *const files[] = {"x", "x.npz", "x/"};
  for (int i = 0; i < 3; i++) {
    td_fails_at(TDICT_EINVAL, text, "b.small", tdict_save(NULL, in(&f, files[i]), moved, NULL, err));
  }
  td_ok(tdict_select(moved, (const char *const[]){"r"}, 1, true, &part, err));
  td_fails_at(TDICT_EINVAL, text, "r", tdict_save(NULL, in(&f, "x"), part, NULL, err));
  td_ok(tdict_save(context, in(&f, "x"), moved, NULL, err));
  scoped_tree back = open_tree(in(&f, "x"));
  same_trees(back, host);
}

/* A tree with lost bytes is not saved, and the old file is kept. */
CASE(save_refuses_lost_tensors) {
  scoped_folder f = folder_create();
  scoped_tree tree = small_tree();
  td_ok(tdict_save(NULL, in(&f, "x"), tree, NULL, err));
  tdict_tensor *t = td_leaf(tree, "z");
  tdict_tensor_lose(t);
  td_fails(TDICT_EINVAL, "a transfer into tensor 'b.large' failed", tdict_save(NULL, in(&f, "x"), tree, NULL, err));
  tdict_tensor_regain(t);
  scoped_tree back = open_tree(in(&f, "x"));
  same_trees(back, tree);
  assert_int_equal(folder_count(&f, NULL), 1);
}

/* Saves an opened tree to its own file. The opened tree keeps the old bytes. */
CASE(save_replaces_its_own_source) {
  scoped_folder f = folder_create();
  scoped_tree tree = small_tree();
  td_ok(tdict_save(NULL, in(&f, "x"), tree, NULL, err));
  scoped_tree first = open_tree(in(&f, "x"));
  td_ok(tdict_delete(first, "b.small", err));
  td_ok(tdict_save(NULL, in(&f, "x"), first, NULL, err));
  scoped_tree second = open_tree(in(&f, "x"));
  same_trees(second, first);
  assert_memory_equal(tdict_const_data(first, "z"), tdict_const_data(tree, "z"), 24);
}
