/* arrow: reads a stream of Arrow arrays into one tree and sends the tree to a device in
 * one transfer. The producer of the stream, such as a table of pyarrow, is this program
 * itself.
 *
 *   arrow [DEVICE]     auto (default), sim, cuda:N */
#include <stdio.h>

#include <tdict/arrow.h>
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
  tdict_context *context = NULL;
  tdict_tree *parts[2] = {NULL, NULL}, *host = NULL, *batch = NULL;
  struct ArrowArrayStream stream = {0};
  struct ArrowSchema columns = {0};
  tdict_error err = {0};
  options.sim = &sim;
  if (argc > 1) TDICT_TRY(tdict_device_parse(argv[1], &options.device, &err));
  TDICT_TRY(tdict_context_create(&options, &context, &err));

  /* The producer: two trees of different lengths become a stream of two arrays. */
  TDICT_TRY(
      tdict_create_from(fields, 3, 1, (const int64_t[]){64}, NULL, &parts[0], &err));
  TDICT_TRY(
      tdict_create_from(fields, 3, 1, (const int64_t[]){32}, NULL, &parts[1], &err));
  TDICT_TRY(
      tdict_arrow_export_stream((const tdict_tree *const *)parts, 2, &stream, &err));
  if (stream.get_schema(&stream, &columns) == 0)
    for (int64_t i = 0; i < columns.n_children; i++)
      printf("column %s has the format %s\n", columns.children[i]->name,
             columns.children[i]->format);

  /* The consumer. */
  TDICT_TRY(tdict_arrow_import_stream(&stream, NULL, &host, &err));
  TDICT_TRY(tdict_to_device(context, host, tdict_context_device(context, NULL), NULL,
                            &batch, &err));
  TDICT_TRY(tdict_print(batch, stdout, &err));
done:
  if (columns.release) columns.release(&columns);
  if (stream.release) stream.release(&stream);
  tdict_release(batch);
  tdict_release(host);
  tdict_release(parts[0]);
  tdict_release(parts[1]);
  tdict_context_destroy(context);
  return err.status != TDICT_OK;
}
