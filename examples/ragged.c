/* ragged: stacks sentences of different lengths into a ragged leaf, moves the batch to
 * a device, and reads it back.
 *
 *   ragged [DEVICE]     auto (default), cpu, sim, cuda:N */
#include <stdio.h>

#include <tdict/combine.h>
#include <tdict/index.h>
#include <tdict/ragged.h>
#include <tdict/sim.h>
#include <tdict/tdict.h>
#include <tdict/try.h>

/* Makes a sample with `count` token ids. */
static tdict_status make_sample(double first, int64_t count, tdict_tree **out,
                                tdict_error *err) {
  tdict_tensor *ids = NULL;
  tdict_status status = tdict_create(0, NULL, out, err);
  if (status == TDICT_OK)
    status = tdict_tensor_arange(TDICT_I32, first, 1, count, &ids, err);
  if (status == TDICT_OK) status = tdict_set(*out, "ids", ids, err);
  tdict_tensor_release(ids);
  return status;
}

int main(int argc, char **argv) {
  /* so that "auto" finds a device on any machine */
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options options = tdict_context_options_default();
  tdict_join_options ragged = tdict_join_options_default();
  tdict_context *context = NULL;
  tdict_tree *samples[3] = {NULL, NULL, NULL}, *batch = NULL, *moved = NULL,
             *back = NULL, *row = NULL;
  tdict_ragged *ids;
  tdict_error err = {0};
  options.sim = &sim;
  ragged.ragged = true;
  if (argc > 1) TDICT_TRY(tdict_device_parse(argv[1], &options.device, &err));
  TDICT_TRY(tdict_context_create(&options, &context, &err));
  for (int i = 0; i < 3; i++)
    TDICT_TRY(make_sample(100 * i, 2 + 3 * i, &samples[i], &err));
  TDICT_TRY(
      tdict_stack((const tdict_tree *const *)samples, 3, &ragged, NULL, &batch, &err));
  TDICT_TRY(tdict_to_device(context, batch, tdict_context_device(context, NULL), NULL,
                            &moved, &err));
  TDICT_TRY(tdict_print(moved, stdout,
                        /* a kernel gets tdict_ragged_get_info().values
                         * and tdict_ragged_get_info().offsets */
                        &err));
  TDICT_TRY(tdict_to_device(context, moved, tdict_cpu(), NULL, &back, &err));
  TDICT_TRY(tdict_get_ragged(back, "ids", &ids, &err));
  TDICT_TRY(tdict_index_get(NULL, back, TDICT_INDEX(TDICT_AT(1)), NULL, &row, &err));
  printf("row 1 of %lld has %lld ids, the first is %d\n",
         (long long)tdict_ragged_get_info(ids).num_rows,
         (long long)tdict_ragged_row_length(ids, 1),
         ((const int32_t *)tdict_const_data(row, "ids"))[0]);
done:
  tdict_release(row);
  tdict_release(back);
  tdict_release(moved);
  tdict_release(batch);
  for (int i = 0; i < 3; i++) tdict_release(samples[i]);
  tdict_context_destroy(context);
  return err.status != TDICT_OK;
}
