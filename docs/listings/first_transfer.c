#include <tdict/clone.h>
#include <tdict/sim.h>
#include <tdict/tdict.h>
#include <tdict/try.h>

int main(void) {
  const tdict_field fields[] = {TDICT_FIELD("obs.state", TDICT_F32, 3),
                                TDICT_FIELD("reward", TDICT_F32)};
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options options = tdict_context_options_default();
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  tdict_context *context = NULL;
  tdict_tree *batch = NULL, *on_device = NULL, *back = NULL;
  tdict_future *future = NULL;
  tdict_error err = {0};
  options.sim = &sim; /* without a GPU, the default device is a simulated device */
  TDICT_TRY(tdict_context_create(&options, &context, &err));
  TDICT_TRY(tdict_create_from(fields, 2, TDICT_SHAPE(128), NULL, &batch, &err));
  ((float *)tdict_data(batch, "reward"))[7] = 1.5f;

  TDICT_TRY(tdict_to_device_async(context, batch, tdict_context_device(context, NULL),
                                  NULL, &future, &err));
  /* the call before has returned at once; now wait */
  TDICT_TRY(tdict_future_wait(future, &on_device, &err));
  TDICT_TRY(tdict_future_get_stats(future, &stats, &err));
  printf("%d tensors, %d bytes copied\n", (int)stats.num_leaves,
         (int)stats.total_bytes);

  TDICT_TRY(tdict_to_device(context, on_device, tdict_cpu(), NULL, &back, &err));
  printf("reward 7 came back: %.1f\n",
         ((const float *)tdict_const_data(back, "reward"))[7]);
  printf("equal: %s\n", tdict_equal(batch, back) ? "yes" : "no");
done:
  tdict_future_release(future);
  tdict_release(back);
  tdict_release(on_device);
  tdict_release(batch);
  tdict_context_destroy(context);
  return err.status != TDICT_OK;
}
