#include <tdict/sim.h>
#include <tdict/tdict.h>
#include <tdict/try.h>

/* Shows that an asynchronous copy has not finished when the call returns. No time is
 * measured: the simulated device stands still until the program lets its queues run. */
int main(void) {
  tdict_context_options options = tdict_context_options_default();
  tdict_context *context = NULL;
  tdict_tensor *x = NULL;
  tdict_tree *batch = NULL, *moved = NULL;
  tdict_future *future = NULL;
  tdict_error err = {0};
  options.device = tdict_sim(0);
  TDICT_TRY(tdict_context_create(&options, &context, &err));
  TDICT_TRY(tdict_create(0, NULL, &batch, &err));
  TDICT_TRY(tdict_tensor_zeros(TDICT_F32, TDICT_SHAPE(1000),
                               tdict_pinned_memory(context), &x, &err));
  TDICT_TRY(tdict_set(batch, "x", x, &err));
  TDICT_TRY(tdict_sim_hold(context, &err));
  TDICT_TRY(tdict_to_device_async(context, batch, tdict_sim(0), NULL, &future, &err));
  printf("held: ready %d\n", (int)tdict_future_is_ready(future));
  TDICT_TRY(tdict_sim_resume(context, &err));
  TDICT_TRY(tdict_future_wait(future, &moved, &err));
  printf("resumed: ready %d\n", (int)tdict_future_is_ready(future));
done:
  tdict_future_release(future);
  tdict_release(moved);
  tdict_release(batch);
  tdict_tensor_release(x);
  tdict_context_destroy(context);
  return err.status != TDICT_OK;
}
