/* Makes each allocation of the calls that read files fail once, in all formats. The call must return TDICT_ENOMEM and
 * change nothing, or succeed and return the bytes of the file. */
#include "directory.h"

/* The key and the text are longer than small buffers, and need escapes in JSON. */
static const char long_key[] = "a key of more than sixteen bytes, \"quoted\", \\\\ and é漢 \t";
static const char long_text[] = "a text of more than sixteen bytes\n\"quoted\" \\ \x01 é漢 and the end";

/* What a tree in the format may contain. */
typedef enum content { CONTENT_ARRAY, CONTENT_ARRAYS, CONTENT_ROWS, CONTENT_ALL } content;
typedef struct format_case {
  const char *name;
  tdict_file_format format;
  uint64_t max_shard_bytes;
  content content;
} format_case;
static const format_case formats[] = {
    {"x.safetensors", TDICT_FORMAT_SAFETENSORS, 0, CONTENT_ALL},
    {"model.safetensors.index.json", TDICT_FORMAT_SAFETENSORS, 40, CONTENT_ALL},
    {"x.npy", TDICT_FORMAT_NPY, 0, CONTENT_ARRAY},
    {"x.npz", TDICT_FORMAT_NPZ, 0, CONTENT_ARRAYS},
    {"x.td", TDICT_FORMAT_CONSOLIDATED, 0, CONTENT_ALL},
    {"x.tdz", TDICT_FORMAT_TDZ, 0, CONTENT_ALL},
    {"x", TDICT_FORMAT_MEMMAP, 0, CONTENT_ALL},
};

static void add_tensor(tdict_tree *tree, const char *path, tdict_dtype dtype, int64_t rows, bool is_unbatched) {
  scoped_tensor t = td_made(tensor, tdict_tensor_empty(dtype, TDICT_SHAPE(rows, 5), NULL, &made, err));
  td_fill_random(tdict_tensor_data(t), tdict_tensor_bytes(t), (uint64_t)dtype);
  td_ok(is_unbatched ? tdict_set_unbatched(tree, path, t, err) : tdict_set(tree, path, t, err));
}

static void add_ragged(tdict_tree *tree, const char *path) {
  static const int64_t at[] = {0, 1, 3};
  scoped_tensor values = NULL, offsets = NULL;
  scoped_ragged ragged = NULL;
  td_ok(tdict_tensor_from_array(TDICT_I64, TDICT_SHAPE(3), at, &offsets, err));
  td_ok(tdict_tensor_empty(TDICT_F32, TDICT_SHAPE(3), NULL, &values, err));
  td_fill_random(tdict_tensor_data(values), tdict_tensor_bytes(values), 7);
  td_ok(tdict_ragged_create(values, offsets, &ragged, err));
  td_ok(tdict_set_ragged(tree, path, ragged, err));
}

static void add_values(tdict_tree *tree, const char *path) {
  tdict_value values[2];
  memset(values, 0, sizeof values);
  for (int i = 0; i < 2; i++) values[i].kind = TDICT_VALUE_TEXT;
  values[0].text = long_text;
  values[0].length = strlen(long_text);
  values[1].text = "short";
  values[1].length = 5;
  td_ok(tdict_set_values(tree, path, values, 2, err));
}

static tdict_tree *make_tree(content kind, int64_t rows) {
  static const char json[] = "{\"a longer member\":[\"a longer text of JSON\",0.5,-7,{}]}";
  tdict_value value = {.kind = TDICT_VALUE_JSON, .text = json, .length = strlen(json)};
  tdict_tree *tree = NULL, *child = NULL;
  const bool is_numpy = kind == CONTENT_ARRAY || kind == CONTENT_ARRAYS;
  td_ok(tdict_create(is_numpy ? 0 : 1, &rows, &tree, err));
  add_tensor(tree, "arr_0", TDICT_F32, rows, false);
  if (kind == CONTENT_ARRAY) return tree;
  add_tensor(tree, long_key, TDICT_I16, rows, false);
  td_ok(tdict_create(is_numpy ? 0 : 1, &rows, &child, err));
  add_tensor(child, "a longer name of a tensor", TDICT_U8, rows, false);
  td_put_tree(tree, "a longer name of a child", child);
  if (is_numpy) return tree;
  td_ok(tdict_set_text(tree, "a longer name of a text", long_text, err));
  td_ok(tdict_set_values(tree, "json", &value, TDICT_WHOLE_TREE, err));
  if (kind == CONTENT_ROWS) return tree;
  add_values(tree, "a longer name of a column");
  add_tensor(tree, "a longer name without batch", TDICT_I8, 2, true);
  add_ragged(tree, "a longer ragged name \"\\\\");
  return tree;
}

static tdict_tree *save_tree(const folder *f, const format_case *c) {
  tdict_save_options o = save_as(c->format);
  tdict_tree *tree = make_tree(c->content, 2);
  o.max_shard_bytes = c->max_shard_bytes;
  td_ok(tdict_save(NULL, in(f, c->name), tree, &o, err));
  return tree;
}

/* Checks the result of a call in which an allocation may have failed. */
static void check(tdict_status status, tdict_tree *found, const tdict_tree *tree) {
  if (status != TDICT_OK) {
    assert_null(found);
    return;
  }
  same_trees(found, tree);
  tdict_release(found);
}

CASE(every_allocation_of_an_open_fails_once) {
  ignores_order = true;
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
    scoped_directory f = folder_create();
    scoped_tree tree = save_tree(&f, &formats[i]);
    /* An index can also be opened by the path of its folder. */
    const bool is_index = formats[i].max_shard_bytes != 0;
    for (int by_folder = 0; by_folder <= is_index; by_folder++) {
      int64_t rounds = 0;
      TD_SWEEP(s) {
        tdict_tree *found = NULL;
        const char *path = by_folder ? f.path : in(&f, formats[i].name);
        const tdict_status status = td_sweep_call(s, tdict_open(path, NULL, &found, err));
        check(status, found, tree);
        rounds++;
      }
      assert_true(rounds > 10);
    }
  }
  ignores_order = false;
}

/* Makes loads run on the calling thread alone, so that no other thread allocates. */
static void begin_load(tdict_load_options *o, tdict_transfer_options *transfer) {
  *o = tdict_load_options_default();
  *transfer = tdict_transfer_options_default();
  transfer->num_threads = 0;
  o->transfer = transfer;
}

static tdict_tree *on_host(tdict_context *context, tdict_tree *tree) {
  if (!tree) return NULL;
  tdict_tree *host = td_made(tree, tdict_to_device(context, tree, tdict_cpu(), NULL, &made, err));
  tdict_release(tree);
  return host;
}

DEVICE_CASE(every_allocation_of_a_load_fails_once) {
  scoped_context context = td_context(NULL);
  tdict_load_options o;
  tdict_transfer_options transfer;
  begin_load(&o, &transfer);
  ignores_order = true;
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
    scoped_directory f = folder_create();
    scoped_tree tree = save_tree(&f, &formats[i]);
    TD_SWEEP(s) {
      tdict_tree *found = NULL;
      const char *path = in(&f, formats[i].name);
      const tdict_status status = td_sweep_call(s, tdict_load(context, path, td_device(), &o, &found, err));
      check(status, on_host(context, found), tree);
    }
  }
  ignores_order = false;
}

/* Called by tdict_walk(), also for the tensors of ragged leaves: fills a tensor with the byte *user. */
static tdict_status fill(void *user, const tdict_entry *entry, tdict_error *err) {
  const int *byte = user;
  tdict_tensor *t = entry->tensor;
  (void)err;
  if (t) memset(tdict_tensor_data(t), *byte, tdict_tensor_bytes(t));
  return TDICT_OK;
}

/* A load that fails before it reads elements does not change the destination. */
CASE(every_allocation_of_a_load_into_a_tree_fails_once) {
  scoped_context context = td_context(NULL);
  tdict_load_options o;
  tdict_transfer_options transfer;
  begin_load(&o, &transfer);
  ignores_order = true;
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
    scoped_directory f = folder_create();
    scoped_tree tree = save_tree(&f, &formats[i]), found = NULL, filled = NULL;
    td_ok(tdict_load(context, in(&f, formats[i].name), tdict_cpu(), &o, &found, err));
    int byte = 0x5a;
    td_ok(tdict_walk(found, fill, &byte, err));
    td_ok(tdict_clone_deep(found, NULL, &filled, err));
    TD_SWEEP(s) {
      const tdict_status status = td_sweep_call(s, td_load_into(context, found, in(&f, formats[i].name), &o, err));
      same_trees(found, status == TDICT_OK ? tree : filled);
      td_ok(tdict_walk(found, fill, &byte, err));
    }
  }
  ignores_order = false;
}

/* The files of a directory, sorted by path. A failed append must not change them. */
typedef struct image {
  struct {
    char path[PATH_BYTES];
    unsigned char *bytes;
    size_t count;
  } files[8];
  size_t count;
} image;
static image *taken;

static int take_file(const char *path, const struct stat *info, int kind, struct FTW *at) {
  (void)info, (void)at;
  if (kind != FTW_F) return 0;
  assert_true(taken->count < sizeof taken->files / sizeof *taken->files);
  snprintf(taken->files[taken->count].path, PATH_BYTES, "%s", path);
  taken->files[taken->count].bytes = read_bytes(path, &taken->files[taken->count].count);
  taken->count++;
  return 0;
}

static int compare_paths(const void *a, const void *b) { return strcmp(a, b); } /* the path is the first member */

static image take_image(const char *path) {
  image made = {.count = 0};
  taken = &made;
  assert_int_equal(nftw(path, take_file, 16, FTW_PHYS), 0);
  qsort(made.files, made.count, sizeof *made.files, compare_paths);
  return made;
}

static void release_image(image *made) {
  while (made->count) free(made->files[--made->count].bytes);
}

static void same_images(const image *a, const image *b) {
  assert_int_equal(a->count, b->count);
  for (size_t i = 0; i < a->count; i++) {
    assert_string_equal(a->files[i].path, b->files[i].path);
    assert_int_equal(a->files[i].count, b->files[i].count);
    assert_memory_equal(a->files[i].bytes, b->files[i].bytes, a->files[i].count);
  }
}

CASE(every_allocation_of_an_append_fails_once) {
  const format_case memmap = {"x", TDICT_FORMAT_MEMMAP, 0, CONTENT_ROWS};
  scoped_tree rows = make_tree(CONTENT_ROWS, 1), whole = NULL;
  int64_t rounds = 0;
  TD_SWEEP(s) {
    scoped_directory f = folder_create();
    scoped_tree tree = save_tree(&f, &memmap), found = NULL;
    image before = take_image(in(&f, "x"));
    const tdict_status status = td_sweep_call(s, tdict_append(NULL, in(&f, "x"), rows, NULL, err));
    rounds++;
    image after = take_image(in(&f, "x"));
    if (status != TDICT_OK) {
      same_images(&before, &after);
    } else {
      const tdict_tree *parts[] = {tree, rows};
      td_ok(tdict_cat(parts, 2, NULL, NULL, &whole, err));
      td_ok(tdict_open(in(&f, "x"), NULL, &found, err));
      same_trees(found, whole);
      td_release(found, whole);
    }
    release_image(&after);
    release_image(&before);
  }
  assert_true(rounds > 30);
}
