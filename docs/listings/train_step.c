#include <tdict/sim.h>
#include <tdict/tdict.h>
#include <tdict/try.h>

enum { STEPS = 3, SAMPLES = 256 };

/* The code of the program: it reads samples, and runs
 * a kernel, here one of the simulated device. */
static void read_samples(uint8_t *pixels, float *rewards) {
  for (int i = 0; pixels && i < SAMPLES * 3 * 84 * 84; i++) pixels[i] = (uint8_t)i;
  for (int i = 0; rewards && i < SAMPLES; i++) rewards[i] = (float)i;
}

static struct step {
  tdict_stream stream;
  const float *rewards;
  double sum;
} steps[STEPS];

static void sum_rewards(void *user) {
  struct step *step = user;
  const float *rewards = tdict_sim_host_pointer(step->stream, step->rewards);
  for (int i = 0; rewards && i < SAMPLES; i++) step->sum += (double)rewards[i];
}

static tdict_status launch(tdict_stream stream, const tdict_tree *batch,
                           tdict_error *err) {
  static int count = 0;
  struct step *step = &steps[count++];
  *step = (struct step){stream, tdict_const_data(batch, "reward"), 0};
  return tdict_sim_launch(stream, sum_rewards, step, err);
}

static int train_step(tdict_context *context, tdict_stream stream) {
  const tdict_field fields[] = {TDICT_FIELD("obs.pixels", TDICT_U8, 3, 84, 84),
                                TDICT_FIELD("reward", TDICT_F32)};
  tdict_tree *batch = NULL, *moved = NULL;
  tdict_future *future = NULL;
  tdict_error err = {0};
  TDICT_TRY(tdict_create_from(fields, 2, TDICT_SHAPE(256), NULL, &batch, &err));
  read_samples(tdict_data(batch, "obs.pixels"), tdict_data(batch, "reward"));
  TDICT_TRY(tdict_to_device_async(context, batch, stream.device, NULL, &future, &err));
  /* the GPU waits, not this thread */
  TDICT_TRY(tdict_future_wait_on_stream(future, stream, &moved, &err));
  TDICT_TRY(launch(stream, moved, &err));              /* your kernel */
  TDICT_TRY(tdict_record_stream(moved, stream, &err)); /* the kernel uses `moved` */
done:
  tdict_future_release(future);
  tdict_release(moved); /* released now, but freed after the kernel */
  tdict_release(batch); /* released now, but freed after the copies */
  return err.status != TDICT_OK;
}

int main(void) {
  tdict_context_options options = tdict_context_options_default();
  tdict_context *context = NULL;
  tdict_stream stream = {{0, 0}, NULL};
  tdict_error err = {0};
  int failed = 0;
  /* for the first GPU: tdict_cuda(0), and {tdict_cuda(0), your cudaStream_t} */
  options.device = tdict_sim(0);
  TDICT_TRY(tdict_context_create(&options, &context, &err));
  TDICT_TRY(tdict_stream_create(context, options.device, &stream, &err));
  for (int i = 0; i < STEPS && !failed; i++) failed = train_step(context, stream);
  TDICT_TRY(tdict_stream_synchronize(context, stream, &err));
  for (int i = 0; i < STEPS; i++)
    printf("step %d: the kernel's sum is %.0f\n", i, steps[i].sum);
done:
  if (stream.handle) tdict_stream_destroy(context, stream);
  tdict_context_destroy(context);
  return failed || err.status != TDICT_OK;
}
