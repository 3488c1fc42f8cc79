/* Tests that files with the maximum number of nested trees are written and read on a thread with a stack of 128 KiB,
 * the default of musl. */
#include <pthread.h>

#include "directory.h"

enum { STACK_BYTES = 128 << 10, DEPTH = 128 };

/* Makes a tree of 128 levels with rows. The last level has a tensor, and leaves of other kinds if `has_others`. */
static tdict_tree *deep_tree(bool has_others) {
  scoped_tensor t = NULL, values = NULL, offsets = NULL;
  scoped_ragged ragged = NULL;
  char path[4 * DEPTH] = "";
  const int64_t rows[] = {0, 1, 3}, rows_of_tree[] = {2};
  for (int i = 1; i < DEPTH; i++) strcat(path, "k.");
  char *end = path + strlen(path);
  tdict_tree *tree = td_made(tree, tdict_create(1, rows_of_tree, &made, err));
  td_ok(tdict_tensor_zeros(TDICT_F32, TDICT_SHAPE(3), NULL, &values, err));
  td_ok(tdict_tensor_zeros(TDICT_F32, TDICT_SHAPE(2), NULL, &t, err));
  strcpy(end, "t");
  td_ok(tdict_set(tree, path, t, err));
  if (has_others) {
    td_ok(tdict_tensor_from_array(TDICT_I64, TDICT_SHAPE(3), rows, &offsets, err));
    td_ok(tdict_ragged_create(values, offsets, &ragged, err));
    strcpy(end, "u");
    td_ok(tdict_set_unbatched(tree, path, t, err));
    strcpy(end, "text");
    td_ok(tdict_set_text(tree, path, "words", err));
    strcpy(end, "r");
    td_ok(tdict_set_ragged(tree, path, ragged, err));
  }
  return tree;
}

typedef struct work {
  const char *path;
  tdict_save_options o;
  const tdict_tree *tree;
  tdict_tree *opened, *loaded;
  tdict_status status;
  tdict_error error;
  bool appends;
} work;

static void *save_and_read(void *user) {
  work *w = user;
  scoped_context context = NULL;
  tdict_context_options o = td_with(tdict_context_options, device = tdict_cpu(), num_threads = 1);
  for (int round = 0; round < 2 && w->status == TDICT_OK; round++) /* the second save replaces the first */
    w->status = tdict_save(NULL, w->path, w->tree, &w->o, &w->error);
  if (w->status == TDICT_OK) w->status = tdict_open(w->path, NULL, &w->opened, &w->error);
  if (w->status == TDICT_OK) w->status = tdict_context_create(&o, &context, &w->error);
  if (w->status == TDICT_OK) w->status = tdict_load(context, w->path, tdict_cpu(), NULL, &w->loaded, &w->error);
  if (w->status == TDICT_OK && w->appends) w->status = tdict_append(NULL, w->path, w->tree, NULL, &w->error);
  return NULL;
}

CASE(files_need_a_stack_of_128_kib) {
  static const struct {
    const char *name;
    tdict_file_format format;
    uint64_t shard_bytes;
    bool has_others, appends;
  } kinds[] = {{"x", TDICT_FORMAT_SAFETENSORS, 0, true, false},
               {"x.safetensors.index.json", TDICT_FORMAT_SAFETENSORS, 8, true, false},
               {"d", TDICT_FORMAT_MEMMAP, 0, true, false},
               {"e", TDICT_FORMAT_MEMMAP, 0, false, true},
               {"x.tdz", TDICT_FORMAT_TDZ, 0, true, false},
               {"consolidated", TDICT_FORMAT_CONSOLIDATED, 0, true, false},
               {"x.npz", TDICT_FORMAT_NPZ, 0, false, false}};
#ifndef __OPTIMIZE__
  skip(); /* without optimization, functions need more stack */
#endif
  if (SANITIZED) skip(); /* with sanitizers, too */
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    scoped_directory f = folder_create();
    work w = {.path = in(&f, kinds[i].name), .o = save_as(kinds[i].format)};
    tdict_tree *tree = deep_tree(kinds[i].has_others);
    pthread_attr_t attributes;
    pthread_t thread;
    w.tree = tree;
    w.o.max_shard_bytes = kinds[i].shard_bytes;
    w.appends = kinds[i].appends;
    pthread_attr_init(&attributes);
    assert_int_equal(pthread_attr_setstacksize(&attributes, STACK_BYTES), 0);
    assert_int_equal(pthread_create(&thread, &attributes, save_and_read, &w), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
    if (w.status != TDICT_OK) fail_msg("%s: %s", kinds[i].name, w.error.message);
    ignores_order = true;
    if (kinds[i].format != TDICT_FORMAT_NPZ) { /* NumPy's files have no batch sizes */
      same_trees(w.opened, tree);
      same_trees(w.loaded, tree);
    }
    ignores_order = false;
    td_release(w.opened, w.loaded, tree);
  }
}
