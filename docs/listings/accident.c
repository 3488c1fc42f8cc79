#include <tdict/sim.h>
#include <tdict/tdict.h>
#include <tdict/try.h>

enum { COUNT = 1000 };

static void fill(float *x, float value) {
  for (int i = 0; i < COUNT; i++) x[i] = value;
}

/* Sends a batch of ones to the device, and fills
 * the source with twos while the copy waits. */
static int send_and_reuse(tdict_context *context, tdict_tree *batch,
                          bool by_old_address) {
  tdict_tree *moved = NULL, *back = NULL;
  tdict_future *future = NULL;
  float *old_address = tdict_data(batch, "x");
  tdict_error err = {0};
  fill(old_address, 1);
  TDICT_TRY(tdict_sim_hold(context, &err)); /* the device is busy: no copy runs */
  TDICT_TRY(tdict_to_device_async(context, batch, tdict_sim(0), NULL, &future, &err));
  if (by_old_address) {
    fill(old_address, 2); /* the mistake: the copy has not read the ones */
    TDICT_TRY(tdict_sim_resume(context, &err));
  } else {
    TDICT_TRY(tdict_sim_resume(context, &err));
    /* correct: tdict_data() waits until the copy has read the ones */
    fill(tdict_data(batch, "x"), 2);
  }
  TDICT_TRY(tdict_future_wait(future, &moved, &err));
  TDICT_TRY(tdict_to_device(context, moved, tdict_cpu(), NULL, &back, &err));
  printf("%s: the device has %.0f, wanted 1\n",
         by_old_address ? "old address" : "tdict_data()",
         ((const float *)tdict_const_data(back, "x"))[0]);
done:
  tdict_release(back);
  tdict_release(moved);
  tdict_future_release(future);
  return err.status != TDICT_OK;
}

int main(void) {
  const tdict_field field = TDICT_FIELD("x", TDICT_F32, COUNT);
  tdict_context_options options = tdict_context_options_default();
  tdict_context *context = NULL;
  tdict_tree *batch = NULL;
  int failed = 1;
  tdict_error err = {0};
  options.device = tdict_sim(0);
  TDICT_TRY(tdict_context_create(&options, &context, &err));
  TDICT_TRY(tdict_create_from(&field, 1, 0, NULL, tdict_pinned_memory(context), &batch,
                              &err));
  failed = send_and_reuse(context, batch, true) + send_and_reuse(context, batch, false);
done:
  tdict_release(batch);
  tdict_context_destroy(context);
  return failed;
}
