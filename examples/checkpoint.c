/* checkpoint: saves the state of a training loop in the background, and resumes from
 * the file bit for bit.
 *
 *   checkpoint [DEVICE]     auto (default), cpu, sim, cuda:N
 *
 * The program trains 40 steps and saves the state after step 20, without waiting for
 * the file. It then loads the file, repeats steps 21 to 40, and compares both results.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <tdict/io.h>
#include <tdict/sim.h>
#include <tdict/tdict.h>
#include <tdict/try.h>

enum { SIZE = 100000, STEPS = 40, SAVED_STEP = 20 };

/* One step of the optimizer, on a state in host
 * memory. Random numbers are part of the state. */
static void step(tdict_tree *state) {
  float *weight = tdict_data(state, "model.weight"),
        *momentum = tdict_data(state, "optimizer.momentum");
  uint32_t *random = tdict_data(state, "random");
  for (int i = 0; i < SIZE; i++) {
    *random = *random * 1664525u + 1013904223u;
    const float gradient = weight[i] + (float)(*random >> 8) / 16777216.0f;
    momentum[i] = 0.9f * momentum[i] + gradient;
    weight[i] -= 0.01f * momentum[i];
  }
  ++*(int64_t *)tdict_data(state, "step");
}

/* Trains until STEPS. The host computes, and the device has a copy that other programs
 * could use. After SAVED_STEP, saves the copy on the device. */
static int train(tdict_context *context, tdict_tree *state, const char *path) {
  tdict_tree *on_device = NULL;
  tdict_future *saving = NULL;
  tdict_error err = {0};
  int code = 1;
  TDICT_TRY(tdict_to_device(context, state, tdict_context_device(context, NULL), NULL,
                            &on_device, &err));
  while (*(const int64_t *)tdict_const_data(state, "step") < STEPS) {
    step(state);
    /* This transfer waits for the snapshot, but not for the file. */
    if (on_device != state)
      TDICT_TRY(tdict_transfer_into(context, on_device, state, NULL, &err));
    if (!path || *(const int64_t *)tdict_const_data(state, "step") != SAVED_STEP)
      continue;
    TDICT_TRY(tdict_save_async(context, path, on_device, NULL, &saving, &err));
    printf("step %d: the save has begun\n", SAVED_STEP);
  }
  /* errors of the save come out here */
  if (saving) TDICT_TRY(tdict_future_wait(saving, NULL, &err));
  code = 0;
done:
  tdict_future_release(saving);
  tdict_release(on_device);
  return code;
}

static int train_and_resume(tdict_context *context, const char *path) {
  static const tdict_field fields[] = {
      TDICT_FIELD("model.weight", TDICT_F32, SIZE),
      TDICT_FIELD("optimizer.momentum", TDICT_F32, SIZE),
      TDICT_FIELD("random", TDICT_U32), TDICT_FIELD("step", TDICT_I64)};
  tdict_tree *state = NULL, *resumed = NULL;
  tdict_error err = {0};
  int code = 1;
  TDICT_TRY(tdict_create_from(fields, 4, 0, NULL, NULL, &state, &err));
  if (train(context, state, path) != 0) goto done;
  TDICT_TRY(tdict_load(context, path, tdict_cpu(), NULL, &resumed, &err));
  printf("resumed after step %lld\n",
         (long long)*(const int64_t *)tdict_const_data(resumed, "step"));
  if (train(context, resumed, NULL) != 0) goto done;
  code = memcmp(tdict_const_data(state, "model.weight"),
                tdict_const_data(resumed, "model.weight"), SIZE * 4) != 0;
  printf("after step %d, the weights are %s\n", STEPS,
         code ? "different" : "the same, bit for bit");
done:
  tdict_release(resumed);
  tdict_release(state);
  return code;
}

int main(int argc, char **argv) {
  char path[64];
  tdict_context *context = NULL;
  tdict_error err = {0};
  int code = 1;
  /* so that "auto" finds a device on any machine */
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options options = tdict_context_options_default();
  options.sim = &sim;
  snprintf(path, sizeof path, "/tmp/checkpoint.%ld.safetensors", (long)getpid());
  TDICT_TRY(tdict_device_parse(argc > 1 ? argv[1] : "auto", &options.device, &err));
  TDICT_TRY(tdict_context_create(&options, &context, &err));
  code = train_and_resume(context, path);
  unlink(path);
done:
  tdict_context_destroy(context);
  return code;
}
