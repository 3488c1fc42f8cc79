#include <tdict/arrow.h>
#include <tdict/clone.h>
#include <tdict/dlpack.h>

#include "batch.h"

static int exchange_with_arrow(tdict_tree *batch) {
  struct ArrowSchema schema;
  struct ArrowArray array;
  tdict_tree *back = NULL;
  tdict_error err = {0};
  /* for another library; here, for this program */
  TDICT_TRY(tdict_arrow_export(batch, &schema, &array, &err));
  /* takes `array` on success */
  TDICT_TRY(tdict_arrow_import(&schema, &array, NULL, &back, &err));
  printf("equal: %d\n", tdict_equal(batch, back));
  schema.release(&schema);
done:
  tdict_release(back);
  return err.status != TDICT_OK;
}

static int read_a_stream(tdict_tree *batch) {
  const tdict_tree *trees[2] = {batch, batch};
  struct ArrowArrayStream stream;
  tdict_tree *first = NULL, *others = NULL;
  tdict_error err = {0};
  /* other programs get a stream from a library */
  TDICT_TRY(tdict_arrow_export_stream(trees, 2, &stream, &err));
  TDICT_TRY(tdict_arrow_stream_next(&stream, NULL, &first, &err));
  /* all that are left, in one tree */
  TDICT_TRY(tdict_arrow_import_stream(&stream, NULL, &others, &err));
  printf("%d rows, then %d\n", (int)tdict_batch_size(first)[0],
         (int)tdict_batch_size(others)[0]);
  stream.release(&stream);
done:
  tdict_release(others);
  tdict_release(first);
  return err.status != TDICT_OK;
}

static int exchange_on_a_device(tdict_tree *batch) {
  tdict_context_options options = tdict_context_options_default();
  tdict_context *context = NULL;
  tdict_tree *moved = NULL, *back = NULL;
  struct ArrowSchema schema;
  struct ArrowDeviceArray array;
  tdict_error err = {0};
  options.device = tdict_sim(0);
  TDICT_TRY(tdict_context_create(&options, &context, &err));
  TDICT_TRY(tdict_to_device(context, batch, tdict_sim(0), NULL, &moved, &err));
  TDICT_TRY(tdict_arrow_export_device(moved, &schema, &array, &err));
  TDICT_TRY(tdict_arrow_import_device(context, &schema, &array, NULL, &back, &err));
  printf("%d columns on the device\n", (int)tdict_num_keys(back));
  schema.release(&schema);
done:
  tdict_release(back);
  tdict_release(moved);
  tdict_context_destroy(context);
  return err.status != TDICT_OK;
}

static int exchange_with_dlpack(tdict_tree *batch) {
  tdict_dlpack_export_options older = tdict_dlpack_export_options_default();
  tdict_dlpack_entry managed, legacy;
  tdict_tensor *reward, *back = NULL, *back_again = NULL;
  tdict_error err = {0};
  TDICT_TRY(tdict_get(batch, "reward", &reward, &err));
  TDICT_TRY(tdict_dlpack_export(NULL, reward, NULL, &managed, &err));
  TDICT_TRY(tdict_dlpack_import(NULL, &managed, NULL, &back, &err));
  older.legacy = true; /* for libraries from before DLPack 1.0 */
  TDICT_TRY(tdict_dlpack_export(NULL, reward, &older, &legacy, &err));
  TDICT_TRY(tdict_dlpack_import(NULL, &legacy, NULL, &back_again, &err));
  printf("the same address: %d, %d\n",
         tdict_tensor_const_data(back) == tdict_tensor_const_data(reward),
         tdict_tensor_const_data(back_again) == tdict_tensor_const_data(reward));
done:
  tdict_tensor_release(back_again);
  tdict_tensor_release(back);
  return err.status != TDICT_OK;
}

int main(void) {
  return run_on_batch(exchange_with_arrow) + run_on_batch(read_a_stream) +
         run_on_batch(exchange_on_a_device) + run_on_batch(exchange_with_dlpack);
}
