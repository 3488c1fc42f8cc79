#include <tdict/io.h>

#include "batch.h"

static int load_files(tdict_context *context, tdict_tree *batch) {
  tdict_tree *loaded = NULL;
  tdict_future *future = NULL, *again = NULL;
  tdict_error err = {0};
  TDICT_TRY(tdict_save(context, "batch.safetensors", batch, NULL, &err));
  TDICT_TRY(tdict_load_async(context, "batch.safetensors", tdict_sim(0), NULL, &future,
                             &err));
  TDICT_TRY(tdict_future_wait(future, &loaded, &err)); /* on the device */
  /* to the same memory */
  TDICT_TRY(
      tdict_load_into_async(context, loaded, "batch.safetensors", NULL, &again, &err));
  TDICT_TRY(tdict_future_wait(again, NULL, &err));
  printf("%d tensors loaded\n", (int)tdict_num_leaves(loaded));
done:
  tdict_future_release(again);
  tdict_future_release(future);
  tdict_release(loaded);
  return err.status != TDICT_OK;
}

static int append_rows(tdict_context *context, tdict_tree *batch) {
  tdict_save_options options = tdict_save_options_default();
  tdict_tree *opened = NULL;
  tdict_error err = {0};
  /* TensorDict's directory of memory-mapped files */
  options.format = TDICT_FORMAT_MEMMAP;
  TDICT_TRY(tdict_save(context, "rows", batch, &options, &err));
  TDICT_TRY(tdict_append(context, "rows", batch, NULL, &err));
  TDICT_TRY(tdict_open("rows", NULL, &opened, &err)); /* maps the files */
  printf("%d rows\n", (int)tdict_batch_size(opened)[0]);
done:
  tdict_release(opened);
  return err.status != TDICT_OK;
}

static int save_in_background(tdict_context *context, tdict_tree *batch,
                              tdict_stream stream) {
  tdict_future *saving = NULL, *second = NULL;
  tdict_error err = {0};
  TDICT_TRY(tdict_save_async(context, "first.safetensors", batch, NULL, &saving, &err));
  /* kernels may now write the batch */
  TDICT_TRY(tdict_future_wait_on_stream(saving, stream, NULL, &err));
  TDICT_TRY(tdict_future_wait_source(saving, &err)); /* and so may this thread */
  TDICT_TRY(tdict_future_wait(saving, NULL, &err));  /* the file is complete */
  printf("done: %d\n", tdict_future_is_ready(saving));
  TDICT_TRY(
      tdict_save_async(context, "second.safetensors", batch, NULL, &second, &err));
  tdict_future_cancel(second); /* the file is not written, or is complete */
done:
  tdict_future_release(second);
  tdict_future_release(saving);
  return err.status != TDICT_OK;
}

int main(void) {
  tdict_context_options options = tdict_context_options_default();
  tdict_context *context = NULL;
  tdict_stream stream = {{0, 0}, NULL};
  tdict_tree *batch = make_batch();
  int failed = 1;
  tdict_error err = {0};
  options.device = tdict_sim(0);
  TDICT_TRY(tdict_context_create(&options, &context, &err));
  TDICT_TRY(tdict_stream_create(context, options.device, &stream, &err));
  failed = load_files(context, batch) + append_rows(context, batch) +
           save_in_background(context, batch, stream);
done:
  tdict_release(batch);
  if (stream.handle) tdict_stream_destroy(context, stream);
  tdict_context_destroy(context);
  return failed;
}
