/* The part of client.c that uses tdict/io.h. */
#include "tdict/io.h"

/* Saves a tree asynchronously with each kind of snapshot. */
static void use_saving(const char *path, const tdict_tree *tree) {
  const tdict_snapshot kinds[] = {TDICT_SNAPSHOT_AUTO, TDICT_SNAPSHOT_DEVICE, TDICT_SNAPSHOT_HOST};
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options options = tdict_context_options_default();
  tdict_save_options save = tdict_save_options_default();
  tdict_context *context = NULL;
  tdict_tree *moved = NULL;
  options.sim = &sim;
  options.device = tdict_sim(0);
  OK(tdict_context_create(&options, &context, &last_error));
  OK(tdict_to_device(context, tree, tdict_sim(0), NULL, &moved, &last_error));
  TRUE(!save.after.handle && save.snapshot == TDICT_SNAPSHOT_AUTO && !save.allows_gap);
  TRUE(save.max_bytes_per_second == 0);
  for (int i = 0; i < 3; i++) {
    tdict_future *saving = NULL;
    tdict_stream stream;
    save.snapshot = (int32_t)kinds[i];
    OK(tdict_stream_create(context, tdict_sim(0), &stream, &last_error));
    OK(tdict_save_async(context, path, moved, &save, &saving, &last_error));
    OK(tdict_future_wait_on_stream(saving, stream, NULL, &last_error));
    OK(tdict_future_wait_source(saving, &last_error));
    OK(tdict_future_take(saving, NULL, &last_error));
    tdict_stream_destroy(context, stream);
  }
  tdict_release(moved);
  tdict_context_destroy(context);
}

static bool see_load(void *user, uint64_t done, uint64_t total) {
  *(uint64_t *)user = done;
  return done <= total;
}

static void use_load(const char *path, const tdict_open_options *names) {
  tdict_context *context = NULL;
  tdict_context_options context_options = tdict_context_options_default();
  tdict_load_options o = tdict_load_options_default();
  tdict_transfer_options transfer = tdict_transfer_options_default();
  tdict_tree *tree = NULL, *same = NULL;
  tdict_future *future = NULL;
  uint64_t seen = 1;
  context_options.device = tdict_sim(0);
  TRUE(o.first_row == 0 && o.num_rows == -1 && !o.transfer && !o.open && !o.progress && !o.user);
  o.open = names;
  o.transfer = &transfer;
  o.progress = see_load;
  o.user = &seen;
  OK(tdict_context_create(&context_options, &context, &last_error));
  OK(tdict_load(context, path, tdict_sim(0), &o, &tree, &last_error));
  TRUE(seen == 4 && tdict_has(tree, "c.b"));
  OK(tdict_load_into_async(context, tree, path, &o, &future, &last_error));
  OK(tdict_future_wait(future, &same, &last_error));
  TRUE(same == tree);
  tdict_future_release(future);
  tdict_release(same);
  tdict_release(tree);
  OK(tdict_load_async(context, path, tdict_cpu(), &o, &future, &last_error));
  OK(tdict_future_wait(future, &tree, &last_error));
  TRUE(*(const float *)tdict_const_data(tree, "c.b") == 1);
  tdict_future_release(future);
  tdict_release(tree);
  tdict_context_destroy(context);
}

static void use_append(const char *path) {
  const int64_t rows = 2;
  const float values[] = {1, 2};
  tdict_tree *tree = NULL, *back = NULL;
  tdict_tensor *tensor = NULL;
  tdict_save_options save = tdict_save_options_default();
  tdict_append_options o = tdict_append_options_default();
  char file[64];
  save.format = TDICT_FORMAT_MEMMAP;
  TRUE(!o.without_flush);
  OK(tdict_create(1, &rows, &tree, &last_error));
  OK(tdict_tensor_from_array(TDICT_F32, 1, &rows, values, &tensor, &last_error));
  OK(tdict_set(tree, "x", tensor, &last_error));
  OK(tdict_save(NULL, path, tree, &save, &last_error));
  OK(tdict_append(NULL, path, tree, &o, &last_error));
  OK(tdict_open(path, NULL, &back, &last_error));
  TRUE(tdict_batch_size(back)[0] == 4);
  tdict_release(back);
  tdict_release(tree);
  tdict_tensor_release(tensor);
  snprintf(file, sizeof file, "%s/x.memmap", path);
  TRUE(remove(file) == 0);
  snprintf(file, sizeof file, "%s/meta.json", path);
  TRUE(remove(file) == 0);
  TRUE(remove(path) == 0);
}

static void use_io(void) {
#ifdef __cplusplus
  const char *path = "client_cxx.safetensors";
#else
  const char *path = "client_c.safetensors";
#endif
  const float value = 1;
  tdict_tree *tree = NULL, *back = NULL;
  tdict_tensor *tensor = NULL;
  const tdict_file_format formats[] = {TDICT_FORMAT_AUTO,         TDICT_FORMAT_SAFETENSORS, TDICT_FORMAT_MEMMAP,
                                       TDICT_FORMAT_CONSOLIDATED, TDICT_FORMAT_TDZ,         TDICT_FORMAT_NPY,
                                       TDICT_FORMAT_NPZ};
  tdict_save_options save = tdict_save_options_default();
  save.format = (int32_t)formats[1];
  tdict_open_options open_options = tdict_open_options_default();
  OK(tdict_create(0, NULL, &tree, &last_error));
  OK(tdict_tensor_from_array(TDICT_F32, 0, NULL, &value, &tensor, &last_error));
  OK(tdict_set(tree, "a.b", tensor, &last_error));
  TRUE(save.max_shard_bytes == 0 && !save.without_structure);
  OK(tdict_save(NULL, path, tree, &save, &last_error));
  TRUE(!open_options.keys && !open_options.num_keys && !open_options.flat && !open_options.follows_links);
  TRUE(!open_options.check_crc);
  open_options.strip_prefix = "a";
  open_options.add_prefix = "c";
  OK(tdict_open(path, &open_options, &back, &last_error));
  TRUE(tdict_has(back, "c.b"));
  tdict_release(back);
  use_load(path, &open_options);
  use_saving(path, tree);
  tdict_release(tree);
  tdict_tensor_release(tensor);
  TRUE(remove(path) == 0);
  use_append(path);
}
