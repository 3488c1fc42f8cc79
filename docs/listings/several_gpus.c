#include <tdict/devices.h>
#include <tdict/sim.h>
#include <tdict/tdict.h>
#include <tdict/try.h>

enum { NUM_DEVICES = 2 };

/* Takes the trees of both devices, and joins them in ordinary host memory. */
static tdict_status join_parts(tdict_context *context, tdict_future *parts,
                               tdict_tree **out, tdict_error *err) {
  tdict_tree *both = NULL, *trees[NUM_DEVICES] = {NULL, NULL};
  tdict_future *joining;
  /* both->"0" is on the first device */
  tdict_status status = tdict_future_take(parts, &both, err);
  if (status == TDICT_OK) status = tdict_get_tree(both, "0", &trees[0], err);
  if (status == TDICT_OK) status = tdict_get_tree(both, "1", &trees[1], err);
  if (status == TDICT_OK)
    status = tdict_gather_devices_async(context, (const tdict_tree *const *)trees,
                                        NUM_DEVICES, NULL, &joining, err);
  if (status == TDICT_OK) status = tdict_future_take(joining, out, err);
  tdict_release(both);
  return status;
}

int main(void) {
  tdict_context_options options = tdict_context_options_default();
  tdict_sim_options sim = tdict_sim_options_default();
  /* with GPUs: tdict_cuda(i) */
  tdict_device devices[NUM_DEVICES] = {{TDICT_DEVICE_SIM, 0}, {TDICT_DEVICE_SIM, 1}};
  tdict_context *context = NULL;
  tdict_tensor *x = NULL;
  tdict_tree *batch = NULL, *joined = NULL;
  tdict_future *copies = NULL, *parts = NULL;
  tdict_spread each = tdict_spread_replicate(devices, NUM_DEVICES),
               rows = tdict_spread_split(devices, NUM_DEVICES, 0);
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  tdict_error err = {0};
  sim.num_devices = NUM_DEVICES;
  options.device = devices[0];
  options.sim = &sim;
  TDICT_TRY(tdict_context_create(&options, &context, &err));
  TDICT_TRY(tdict_create(TDICT_SHAPE(5), &batch, &err));
  TDICT_TRY(tdict_tensor_arange(TDICT_F32, 0, 1, 5, &x, &err));
  TDICT_TRY(tdict_set(batch, "x", x, &err));
  /* the weights of a model */
  TDICT_TRY(tdict_to_devices_async(context, batch, &each, NULL, &copies, &err));
  TDICT_TRY(tdict_future_wait(copies, NULL, &err));
  TDICT_TRY(tdict_future_get_stats(copies, &stats, &err));
  printf("from the host: %d bytes, between devices: %d bytes\n",
         (int)stats.staged_bytes, (int)stats.peer_bytes);
  /* rows 0 to 2, and rows 3 and 4 */
  TDICT_TRY(tdict_to_devices_async(context, batch, &rows, NULL, &parts, &err));
  TDICT_TRY(join_parts(context, parts, &joined, &err)); /* releases `parts` */
  printf("joined: %d rows, the last is %.0f\n", (int)tdict_batch_size(joined)[0],
         (double)((const float *)tdict_const_data(joined, "x"))[4]);
done:
  tdict_future_release(copies);
  tdict_release(joined);
  tdict_tensor_release(x);
  tdict_release(batch);
  tdict_context_destroy(context);
  return err.status != TDICT_OK;
}
