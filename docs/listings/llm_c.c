#define _POSIX_C_SOURCE 200809L
#include <glob.h>
#include <tdict/sim.h>
#include <tdict/tdict.h>
#include <tdict/tokens.h>
#include <tdict/try.h>

enum { SHARDS = 2, SHARD_TOKENS = 1000, B = 4, T = 16, STEPS = 5 };

/* Writes a file as dev/data/data_common.py of llm.c does: a header, then the tokens. */
static int write_shard(const char *path, int first) {
  const int32_t header[256] = {20240520, 1, SHARD_TOKENS};
  uint16_t tokens[SHARD_TOKENS];
  FILE *file = fopen(path, "wb");
  if (!file) return 1;
  for (int i = 0; i < SHARD_TOKENS; i++) tokens[i] = (uint16_t)(first + i);
  const bool is_written = fwrite(header, sizeof header, 1, file) == 1 &&
                          fwrite(tokens, sizeof tokens, 1, file) == 1;
  return fclose(file) != 0 || !is_written;
}

/* Opens all files of a pattern. Replaces dataloader_init(). */
static tdict_status open_tokens(tdict_context *context, const char *pattern, int rank,
                                int num_processes, tdict_loader **out,
                                tdict_error *err) {
  tdict_token_options tokens = tdict_token_options_default();
  tdict_loader_options loading = tdict_loader_options_default();
  tdict_dataset *dataset = NULL;
  glob_t files = {0};
  if (glob(pattern, 0, NULL, &files) != 0)
    return tdict_error_set(err, TDICT_EIO, pattern, "no file has such a name");
  tokens.paths = (const char *const *)files.gl_pathv;
  tokens.num_paths = files.gl_pathc;
  tokens.window = T;
  tokens.dtype = TDICT_I32; /* llm.c's kernels read int */
  tdict_status status = tdict_dataset_from_tokens(&tokens, &dataset, err);
  globfree(&files);
  loading.batch_size = B;
  loading.shuffle = true;
  loading.seed = 42;
  loading.endless = true;
  loading.rank = rank;
  loading.world_size = num_processes;
  loading.device = tdict_cpu(); /* encoder_backward() reads the tokens on the host */
  loading.pin_memory = true;
  if (status == TDICT_OK)
    status = tdict_loader_create(context, dataset, &loading, out, err);
  tdict_dataset_release(dataset);
  return status;
}

/* What the kernels of a step read, and what the last of them writes. */
typedef struct model {
  tdict_stream stream;
  tdict_tree *tokens;              /* on the device, with the keys of a batch */
  const int32_t *inputs, *targets; /* its device addresses, which stay the same */
  int steps, wrong;
} model;

/* Stands for the kernels of a step. */
static void check_targets(void *user) {
  model *m = user;
  const int32_t *inputs = tdict_sim_host_pointer(m->stream, m->inputs);
  const int32_t *targets = tdict_sim_host_pointer(m->stream, m->targets);
  m->steps++;
  for (int i = 0; inputs && targets && i < B * T; i++)
    m->wrong += targets[i] != inputs[i] + 1;
}

/* Trains with one batch. No call waits for the device. */
static tdict_status step(tdict_context *context, tdict_loader *loader, model *m,
                         tdict_error *err) {
  tdict_tree *batch = NULL;
  tdict_future *copy = NULL;
  tdict_status status = tdict_loader_next(loader, tdict_no_stream(), &batch, err);
  if (status == TDICT_OK)
    status = tdict_transfer_into_async(context, m->tokens, batch, NULL, &copy, err);
  if (status == TDICT_OK)
    status = tdict_future_wait_on_stream(copy, m->stream, NULL, err);
  if (status == TDICT_OK) status = tdict_sim_launch(m->stream, check_targets, m, err);
  /* the copy of the next batch waits for these kernels */
  if (status == TDICT_OK) status = tdict_record_stream(m->tokens, m->stream, err);
  tdict_future_release(copy);
  tdict_release(batch);
  return status;
}

int main(void) {
  static const tdict_field fields[] = {TDICT_FIELD("tokens", TDICT_I32, T),
                                       TDICT_FIELD("targets", TDICT_I32, T)};
  tdict_context_options options = tdict_context_options_default();
  tdict_context *context = NULL;
  tdict_loader *loader = NULL;
  model m = {0};
  tdict_error err = {0};
  options.device = tdict_sim(0);
  if (write_shard("fineweb_0.bin", 0) || write_shard("fineweb_1.bin", 2000)) return 1;
  TDICT_TRY(tdict_context_create(&options, &context, &err));
  TDICT_TRY(tdict_stream_create(context, options.device, &m.stream, &err));
  TDICT_TRY(tdict_create_from(fields, 2, TDICT_SHAPE(B),
                              tdict_device_memory(context, options.device), &m.tokens,
                              &err));
  m.inputs = tdict_const_data(m.tokens, "tokens");
  m.targets = tdict_const_data(m.tokens, "targets");
  TDICT_TRY(open_tokens(context, "fineweb_*.bin", 0, 1, &loader, &err));
  printf("%d batches in an epoch\n", (int)tdict_loader_length(loader));
  for (int i = 0; i < STEPS; i++) TDICT_TRY(step(context, loader, &m, &err));
  TDICT_TRY(tdict_stream_synchronize(context, m.stream, &err));
  printf("%d steps, %d wrong targets\n", m.steps, m.wrong);
done:
  tdict_loader_destroy(loader);
  tdict_release(m.tokens);
  if (m.stream.handle) tdict_stream_destroy(context, m.stream);
  tdict_context_destroy(context);
  remove("fineweb_0.bin");
  remove("fineweb_1.bin");
  return err.status != TDICT_OK;
}
