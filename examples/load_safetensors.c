/* load_safetensors: loads a safetensors file to a device, and prints the tree and a
 * checksum.
 *
 *   load_safetensors [DEVICE [FILE]]     auto (default), cpu, sim, cuda:N
 *
 * FILE can also be the folder or the index of a model in several files. Without FILE,
 * the program first writes a small file. The checksum is computed from the bytes that
 * come back from the device, and compared with the checksum of the file. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tdict/io.h>
#include <tdict/nontensor.h>
#include <tdict/sim.h>
#include <tdict/tdict.h>
#include <tdict/try.h>

/* Writes a file with three tensors and a text. `path`
 * ends with XXXXXX, which the function replaces. */
static int write_small_file(char *path) {
  static const tdict_field fields[] = {
      TDICT_FIELD("layers.0.weight", TDICT_F32, 64, 32),
      TDICT_FIELD("layers.0.bias", TDICT_F32, 64), TDICT_FIELD("steps", TDICT_I64)};
  tdict_tree *tree = NULL;
  tdict_error err = {0};
  int code = 1;
  const int fd = mkstemp(path);
  if (fd < 0) return 1;
  close(fd);
  TDICT_TRY(tdict_create_from(fields, 3, 0, NULL, NULL, &tree, &err));
  float *weight = tdict_data(tree, "layers.0.weight");
  for (int i = 0; i < 64 * 32; i++) weight[i] = (float)i / 7;
  TDICT_TRY(tdict_set_text(tree, "name", "a small model", &err));
  TDICT_TRY(tdict_save(NULL, path, tree, NULL, &err));
  code = 0;
done:
  tdict_release(tree);
  return code;
}

/* Adds the bytes of a tensor to an FNV-1a checksum. */
static tdict_status add_to_checksum(void *user, const tdict_entry *entry,
                                    tdict_error *err) {
  uint64_t *sum = user;
  (void)err;
  if (!entry->tensor) return TDICT_OK;
  const unsigned char *bytes = tdict_tensor_const_data(entry->tensor);
  for (size_t i = 0; i < tdict_tensor_bytes(entry->tensor); i++)
    *sum = (*sum ^ bytes[i]) * 1099511628211u;
  return TDICT_OK;
}

static int load(tdict_context *context, const char *path) {
  tdict_tree *model = NULL, *back = NULL, *mapped = NULL;
  tdict_error err = {0};
  uint64_t in_file = 14695981039346656037u, on_device = in_file;
  int code = 1;
  TDICT_TRY(tdict_load(context, path, tdict_context_device(context, NULL), NULL, &model,
                       &err));
  TDICT_TRY(tdict_print(model, stdout, &err));
  TDICT_TRY(tdict_to_device(context, model, tdict_cpu(), NULL, &back, &err));
  TDICT_TRY(tdict_open(path, NULL, &mapped, &err));
  TDICT_TRY(tdict_walk(mapped, add_to_checksum, &in_file, &err));
  TDICT_TRY(tdict_walk(back, add_to_checksum, &on_device, &err));
  printf("%zu tensors, %zu bytes, checksum %016llx\n", tdict_num_leaves(model),
         tdict_bytes(model), (unsigned long long)on_device);
  code = in_file == on_device ? 0 : 1;
  if (code)
    fprintf(stderr, "load_safetensors: the file has checksum %016llx\n",
            (unsigned long long)in_file);
done:
  tdict_release(mapped);
  tdict_release(back);
  tdict_release(model);
  return code;
}

int main(int argc, char **argv) {
  char small[] = "/tmp/load_safetensors.XXXXXX";
  const char *path = argc > 2 ? argv[2] : small;
  tdict_context *context = NULL;
  tdict_error err = {0};
  int code = 1;
  /* so that "auto" finds a device on any machine */
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options options = tdict_context_options_default();
  options.sim = &sim;
  TDICT_TRY(tdict_device_parse(argc > 1 ? argv[1] : "auto", &options.device, &err));
  TDICT_TRY(tdict_context_create(&options, &context, &err));
  code = path == small ? write_small_file(small) : 0;
  if (code == 0) code = load(context, path);
  if (path == small) unlink(small);
done:
  tdict_context_destroy(context);
  return code;
}
