/* dlpack: gives a tree on a device to another library through DLPack, and takes it back
 * as a tree. Nothing is copied. The library at the other end, such as PyTorch, is this
 * program itself.
 *
 *   dlpack [DEVICE]     auto (default), sim, cuda:N */
#include <stdio.h>

#include <tdict/dlpack.h>
#include <tdict/sim.h>
#include <tdict/tdict.h>
#include <tdict/try.h>

static const tdict_field fields[] = {TDICT_FIELD("obs.state", TDICT_F32, 17),
                                     TDICT_FIELD("action", TDICT_F32, 6),
                                     TDICT_FIELD("done", TDICT_BOOL)};

int main(int argc, char **argv) {
  /* so that "auto" finds a device on any machine */
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options options = tdict_context_options_default();
  tdict_dlpack_export_options consumer = tdict_dlpack_export_options_default();
  tdict_dlpack_import_options producer = tdict_dlpack_import_options_default();
  tdict_context *context = NULL;
  tdict_future *future = NULL;
  tdict_tree *host = NULL, *batch = NULL, *back = NULL;
  tdict_dlpack_entry *entries = NULL;
  /* the stream on which the other library works */
  tdict_stream stream = tdict_no_stream();
  size_t count = 0;
  tdict_error err = {0};
  options.sim = &sim;
  if (argc > 1) TDICT_TRY(tdict_device_parse(argv[1], &options.device, &err));
  TDICT_TRY(tdict_context_create(&options, &context, &err));
  TDICT_TRY(
      tdict_stream_create(context, tdict_context_device(context, NULL), &stream, &err));
  TDICT_TRY(tdict_create_from(fields, 3, 1, (const int64_t[]){64}, NULL, &host, &err));
  TDICT_TRY(tdict_to_device_async(context, host, stream.device, NULL, &future, &err));
  TDICT_TRY(tdict_future_wait_on_stream(future, stream, &batch, &err));

  /* Export. The other library takes the managed tensors, queues
   * its work on its stream, and calls their deleters. */
  consumer.stream = stream;
  TDICT_TRY(
      tdict_dlpack_export_tree(context, batch, &consumer, &entries, &count, &err));
  for (size_t i = 0; i < count; i++) printf("exported %s\n", entries[i].name);

  /* Import. Later transfers of the new tree wait for the
   * work that the other library has queued on its stream. */
  producer.stream = stream;
  TDICT_TRY(tdict_dlpack_import_tree(context, entries, count, &producer, &back, &err));
  TDICT_TRY(tdict_set_batch_size(back, 1, (const int64_t[]){64}, &err));
  TDICT_TRY(tdict_print(back, stdout, &err));
done:
  tdict_dlpack_release_entries(entries, count);
  tdict_release(back);
  tdict_release(batch);
  tdict_release(host);
  tdict_future_release(future);
  if (context) tdict_stream_destroy(context, stream);
  tdict_context_destroy(context);
  return err.status != TDICT_OK;
}
