#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tdict/tdict.h>
#include <tdict/try.h>

enum { SAMPLES = 10, BATCH = 4, STEPS = 4 };
static const char *const path = "checkpoint.safetensors";

/* Makes the tree that is saved: weights, the number of
 * the step, and the state of the loader as bytes. */
static tdict_status make_state(tdict_tree **out, tdict_error *err) {
  const tdict_field fields[] = {
      TDICT_FIELD("model.weight", TDICT_F32, 3), TDICT_FIELD("step", TDICT_I64),
      TDICT_FIELD("loader", TDICT_U8, sizeof(tdict_loader_state))};
  return tdict_create_from(fields, 3, 0, NULL, NULL, out, err);
}

/* Makes a loader of the numbers 0 to 9. Both runs must use the same settings. */
static tdict_status make_loader(tdict_context *context, tdict_loader **out,
                                tdict_error *err) {
  tdict_loader_options loading = tdict_loader_options_default();
  tdict_dataset *dataset = NULL;
  tdict_tensor *x = NULL;
  tdict_tree *samples = NULL;
  tdict_status status = tdict_create(TDICT_SHAPE(SAMPLES), &samples, err);
  loading.batch_size = BATCH;
  loading.shuffle = true;
  loading.seed = 1;
  if (status == TDICT_OK)
    status = tdict_tensor_arange(TDICT_F32, 0, 1, SAMPLES, &x, err);
  if (status == TDICT_OK) status = tdict_set(samples, "x", x, err);
  if (status == TDICT_OK) status = tdict_dataset_from_tree(samples, &dataset, err);
  if (status == TDICT_OK)
    status = tdict_loader_create(context, dataset, &loading, out, err);
  tdict_dataset_release(dataset);
  tdict_tensor_release(x);
  tdict_release(samples);
  return status;
}

/* Reads the checkpoint into `state`, and moves the loader to its position. */
static tdict_status resume(tdict_context *context, tdict_tree *state,
                           tdict_loader *loader, tdict_error *err) {
  tdict_loader_state position;
  tdict_future *load;
  tdict_status status = tdict_load_into_async(context, state, path, NULL, &load, err);
  if (status == TDICT_OK) status = tdict_future_take(load, NULL, err);
  if (status != TDICT_OK) return status;
  memcpy(&position, tdict_const_data(state, "loader"), sizeof position);
  printf("resumed: epoch %d, %d batches delivered\n", (int)position.epoch,
         (int)position.batch);
  return tdict_loader_set_state(loader, &position, err);
}

/* Starts to save the state. The call returns before the file is written. */
static tdict_status save(tdict_context *context, tdict_tree *state,
                         tdict_loader *loader, tdict_future **out, tdict_error *err) {
  tdict_loader_state position = tdict_loader_state_default();
  tdict_status status = tdict_loader_get_state(loader, &position, err);
  if (status != TDICT_OK) return status;
  memcpy(tdict_data(state, "loader"), &position, sizeof position);
  return tdict_save_async(context, path, state, NULL, out, err);
}

/* Trains STEPS steps, from the checkpoint if there is one, and saves. */
static int run(void) {
  tdict_context_options options = tdict_context_options_default();
  tdict_batch_info info = tdict_batch_info_default();
  tdict_context *context = NULL;
  tdict_tree *state = NULL, *batch = NULL;
  tdict_loader *loader = NULL;
  tdict_future *saving = NULL;
  tdict_error err = {0};
  options.device = tdict_cpu(); /* so that this program can read the batches */
  TDICT_TRY(tdict_context_create(&options, &context, &err));
  TDICT_TRY(make_state(&state, &err));
  TDICT_TRY(make_loader(context, &loader, &err));
  if (access(path, F_OK) == 0) TDICT_TRY(resume(context, state, loader, &err));
  for (int i = 0; i < STEPS;) {
    TDICT_TRY(tdict_loader_next(loader, tdict_no_stream(), &batch, &err));
    if (!batch) continue; /* the end of an epoch */
    TDICT_TRY(tdict_loader_get_batch_info(loader, &info, &err));
    ((float *)tdict_data(state, "model.weight"))[0] +=
        ((const float *)tdict_const_data(batch, "x"))[0];
    printf("step %d: epoch %d, batch %d, weight %.0f\n",
           (int)++*(int64_t *)tdict_data(state, "step"), (int)info.epoch,
           (int)info.batch,
           ((const float *)tdict_const_data(state, "model.weight"))[0]);
    tdict_release(batch);
    i++;
  }
  TDICT_TRY(save(context, state, loader, &saving, &err));
  TDICT_TRY(tdict_future_wait(saving, NULL, &err)); /* returns the error of the save */
done:
  tdict_future_release(saving);
  tdict_loader_destroy(loader);
  tdict_release(state);
  tdict_context_destroy(context);
  return err.status != TDICT_OK;
}

int main(void) {
  for (int i = 0; i < 2; i++) { /* two runs, each in a process of its own */
    int status = 1;
    const pid_t child = fork();
    if (child == 0) exit(run());
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) return 1;
  }
  return remove(path) != 0;
}
