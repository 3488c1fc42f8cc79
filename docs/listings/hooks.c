#include <stdlib.h>

#include <tdict/hook.h>
#include <tdict/write.h>

#include "batch.h"

/* A struct of the program with one tensor. */
typedef struct sample {
  tdict_tensor *x;
} sample;

static void sample_release(void *self) {
  tdict_tensor_release(((sample *)self)->x);
  free(self);
}

/* Queues work on the stream of `run`: writes 1
 * to each element of a tensor on the device. */
static tdict_status write_ones(tdict_tensor *x, const tdict_run *run,
                               tdict_error *err) {
  tdict_tree *tree = NULL;
  tdict_status status = tdict_create(0, NULL, &tree, err);
  if (status == TDICT_OK) status = tdict_set(tree, "x", x, err);
  if (status == TDICT_OK) status = tdict_fill(tree, "x", 1, run, err);
  tdict_release(tree);
  return status;
}

/* Moves the tensor to the device of the transfer, and then
 * queues work of its own on the stream of the hook. */
static tdict_status sample_to_device(const void *self, const tdict_hook *hook,
                                     void **out, tdict_error *err) {
  tdict_run run = tdict_run_default();
  if (tdict_hook_cancelled(hook)) return TDICT_ECANCELLED;
  sample *moved = calloc(1, sizeof *moved);
  if (!moved) return TDICT_ENOMEM;
  run.stream = hook->stream;
  tdict_status status =
      tdict_hook_move(hook, ((const sample *)self)->x, &moved->x, err);
  if (status == TDICT_OK) status = write_ones(moved->x, &run, err);
  if (status == TDICT_OK)
    *out = moved;
  else
    sample_release(moved);
  return status;
}

/* Pins by hand: allocates pinned memory and copies. tdict_hook_pin() does the same. */
static tdict_status sample_pin(const void *self, const tdict_hook *hook, void **out,
                               tdict_error *err) {
  sample *pinned = calloc(1, sizeof *pinned);
  tdict_status status;
  if (!pinned) return TDICT_ENOMEM;
  status = tdict_tensor_clone(((const sample *)self)->x, hook->memory, &pinned->x, err);
  if (status == TDICT_OK)
    *out = pinned;
  else
    sample_release(pinned);
  return status;
}

static const tdict_type sample_type = {.struct_size = sizeof sample_type,
                                       .name = "sample",
                                       .release = sample_release,
                                       .pin_memory = sample_pin,
                                       .to_device = sample_to_device};

int main(void) {
  tdict_context_options options = tdict_context_options_default();
  tdict_context *context = NULL;
  tdict_tree *batch = make_batch(), *moved = NULL;
  sample *made = calloc(1, sizeof *made);
  void *found;
  tdict_error err = {0};
  options.device = tdict_sim(0);
  if (!made) return 1;
  TDICT_TRY(tdict_context_create(&options, &context, &err));
  TDICT_TRY(tdict_tensor_zeros(TDICT_F32, TDICT_SHAPE(5), NULL, &made->x, &err));
  TDICT_TRY(tdict_set_object(batch, "sample", &sample_type, made, &err));
  made = NULL; /* the tree owns the object */
  TDICT_TRY(tdict_to_device(context, batch, tdict_sim(0), NULL, &moved, &err));
  TDICT_TRY(tdict_get_object(moved, "sample", &sample_type, &found, &err));
  printf("on the device: %d; the type: %s\n",
         tdict_tensor_device(((sample *)found)->x).type == TDICT_DEVICE_SIM,
         tdict_object_type(moved, "sample")->name);
done:
  if (made) sample_release(made);
  tdict_release(moved);
  tdict_release(batch);
  tdict_context_destroy(context);
  return err.status != TDICT_OK;
}
