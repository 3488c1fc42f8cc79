#include <tdict/clone.h>
#include <tdict/write.h>

#include "batch.h"

/* Queues copies and fills on the stream of `run`. `moved` is a batch on the device. */
static int queue_writes(tdict_context *context, tdict_tree *moved,
                        const tdict_run *run) {
  tdict_tree *copy = NULL, *straight = NULL, *back = NULL;
  tdict_error err = {0};
  TDICT_TRY(tdict_fill(moved, "reward", 3, run, &err));
  TDICT_TRY(tdict_clone_deep(moved, run, &copy, &err));
  /* in the order of the stream: does not change `copy` */
  TDICT_TRY(tdict_fill(moved, NULL, 4, run, &err));
  TDICT_TRY(tdict_copy(moved, copy, run, &err));
  TDICT_TRY(tdict_contiguous(moved, run, &straight, &err));
  TDICT_TRY(tdict_stream_synchronize(context, run->stream, &err));
  TDICT_TRY(tdict_to_device(context, straight, tdict_cpu(), NULL, &back, &err));
  printf("reward: %.0f\n", (double)*(const float *)tdict_const_data(back, "reward"));
done:
  tdict_release(back);
  tdict_release(straight);
  tdict_release(copy);
  return err.status != TDICT_OK;
}

int main(void) {
  tdict_context_options options = tdict_context_options_default();
  tdict_context *context = NULL;
  tdict_run run = tdict_run_default();
  tdict_tree *batch = make_batch(), *moved = NULL;
  int failed = 1;
  tdict_error err = {0};
  options.device = tdict_sim(0);
  TDICT_TRY(tdict_context_create(&options, &context, &err));
  TDICT_TRY(tdict_stream_create(context, options.device, &run.stream, &err));
  TDICT_TRY(tdict_to_device(context, batch, options.device, NULL, &moved, &err));
  failed = queue_writes(context, moved, &run);
done:
  tdict_release(moved);
  tdict_release(batch);
  if (run.stream.handle) tdict_stream_destroy(context, run.stream);
  tdict_context_destroy(context);
  return failed;
}
