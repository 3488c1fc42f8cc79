/* The part of client.c that uses tdict/io.h, in builds with TDICT_IO. */
#if WITH_IO
#include "tdict/io.h"

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
  save.format = formats[1];
  tdict_open_options open_options = tdict_open_options_default();
  OK(tdict_create(0, NULL, &tree, &last_error));
  OK(tdict_tensor_from_array(TDICT_F32, 0, NULL, &value, &tensor, &last_error));
  OK(tdict_set(tree, "a.b", tensor, &last_error));
  TRUE(save.max_shard_bytes == 0 && !save.without_structure);
  OK(tdict_save(NULL, path, tree, &save, &last_error));
  TRUE(!open_options.keys && !open_options.num_keys && !open_options.flat && !open_options.follows_links);
  open_options.strip_prefix = "a";
  open_options.add_prefix = "c";
  OK(tdict_open(path, &open_options, &back, &last_error));
  TRUE(tdict_has(back, "c.b"));
  tdict_release(back);
  tdict_release(tree);
  tdict_tensor_release(tensor);
  TRUE(remove(path) == 0);
}
#else
static void use_io(void) {}
#endif
