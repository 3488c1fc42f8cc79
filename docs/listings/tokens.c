#include <tdict/tdict.h>
#include <tdict/tokens.h>
#include <tdict/try.h>

enum { TOKENS = 1601, WINDOW = 16, BATCH = 5, RANKS = 2 };
static const char *const path = "tokens.bin";

/* Writes a file of 16-bit tokens without a header. */
static int write_tokens(void) {
  FILE *file = fopen(path, "wb");
  for (int i = 0; file && i < TOKENS; i++) {
    const uint16_t token = (uint16_t)i;
    if (fwrite(&token, sizeof token, 1, file) != 1) break;
  }
  return !file || fclose(file) != 0;
}

/* Makes the loader of one process. Each process has
 * its rank, and the processes share the samples. */
static tdict_status make_loader(tdict_context *context, int rank, tdict_loader **out,
                                tdict_error *err) {
  tdict_token_options tokens = tdict_token_options_default();
  tdict_loader_options loading = tdict_loader_options_default();
  tdict_dataset *dataset = NULL;
  tdict_status status;
  tokens.paths = &path;
  tokens.num_paths = 1;
  tokens.window = WINDOW;
  status = tdict_dataset_from_tokens(&tokens, &dataset, err);
  if (status != TDICT_OK) return status;
  loading.batch_size = BATCH;
  loading.shuffle = true;
  loading.seed = 1337;
  loading.endless = true;
  loading.rank = rank;
  loading.world_size = RANKS;
  status = tdict_loader_create(context, dataset, &loading, out, err);
  tdict_dataset_release(dataset);
  return status;
}

/* Takes batches, and returns the sum of their first
 * tokens, as a training step would use the tokens. */
static tdict_status train(tdict_loader *loader, int batches, int64_t *sum,
                          tdict_error *err) {
  for (int i = 0; i < batches; i++) {
    tdict_tree *batch = NULL;
    const tdict_status status =
        tdict_loader_next(loader, tdict_no_stream(), &batch, err);
    if (status != TDICT_OK) return status;
    *sum += ((const int64_t *)tdict_const_data(batch, "tokens"))[0];
    tdict_release(batch);
  }
  return TDICT_OK;
}

int main(void) {
  tdict_context_options options = tdict_context_options_default();
  tdict_loader_state state = tdict_loader_state_default();
  tdict_context *context = NULL;
  tdict_loader *whole = NULL, *stopped = NULL, *resumed = NULL;
  int64_t sum = 0, sum_of_parts = 0;
  tdict_error err = {0};
  options.device = tdict_cpu(); /* so that this program can read the batches */
  if (write_tokens() != 0) return 1;
  TDICT_TRY(tdict_context_create(&options, &context, &err));
  TDICT_TRY(make_loader(context, 0, &whole, &err));
  printf("%d batches in an epoch of each rank\n", (int)tdict_loader_length(whole));
  TDICT_TRY(train(whole, 15, &sum, &err));

  TDICT_TRY(make_loader(context, 0, &stopped, &err)); /* the same in two runs */
  TDICT_TRY(train(stopped, 7, &sum_of_parts, &err));
  /* save these numbers with the checkpoint */
  TDICT_TRY(tdict_loader_get_state(stopped, &state, &err));
  TDICT_TRY(make_loader(context, 0, &resumed, &err));
  TDICT_TRY(tdict_loader_set_state(resumed, &state, &err));
  printf("resumed in epoch %d after batch %d\n", (int)state.epoch, (int)state.batch);
  TDICT_TRY(train(resumed, 8, &sum_of_parts, &err));
  printf("the same batches: %s\n", sum == sum_of_parts ? "yes" : "no");
done:
  tdict_loader_destroy(resumed);
  tdict_loader_destroy(stopped);
  tdict_loader_destroy(whole);
  tdict_context_destroy(context);
  remove(path);
  return err.status != TDICT_OK;
}
