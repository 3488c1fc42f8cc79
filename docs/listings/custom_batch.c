#include <stdlib.h>

#include <tdict/hook.h>
#include <tdict/sim.h>
#include <tdict/tdict.h>
#include <tdict/try.h>

/* A batch of the program: a struct with two tensors. */
typedef struct pair {
  tdict_tensor *input, *target;
} pair;

static void pair_release(void *self) {
  pair *p = self;
  tdict_tensor_release(p->input);
  tdict_tensor_release(p->target);
  free(p);
}

/* Makes a new pair of the results of `step` for both tensors.
 * `step` is tdict_hook_pin() or tdict_hook_move(). */
static tdict_status pair_map(const pair *from,
                             tdict_status (*step)(const tdict_hook *, tdict_tensor *,
                                                  tdict_tensor **, tdict_error *),
                             const tdict_hook *hook, void **out, tdict_error *err) {
  pair *made = calloc(1, sizeof *made);
  tdict_status status = made ? TDICT_OK : TDICT_ENOMEM;
  if (status == TDICT_OK) status = step(hook, from->input, &made->input, err);
  if (status == TDICT_OK) status = step(hook, from->target, &made->target, err);
  if (status == TDICT_OK)
    *out = made; /* a hook writes its result on success only */
  else if (made)
    pair_release(made);
  return status;
}

static tdict_status pair_pin(const void *self, const tdict_hook *hook, void **out,
                             tdict_error *err) {
  return pair_map(self, tdict_hook_pin, hook, out, err);
}

static tdict_status pair_to_device(const void *self, const tdict_hook *hook, void **out,
                                   tdict_error *err) {
  return pair_map(self, tdict_hook_move, hook, out, err);
}

static bool pair_is_pinned(const void *self) {
  const pair *p = self;
  return tdict_tensor_is_pinned(p->input) && tdict_tensor_is_pinned(p->target);
}

/* A type must outlive its objects, so it is static. */
static const tdict_type pair_type = {.struct_size = sizeof pair_type,
                                     .name = "pair",
                                     .release = pair_release,
                                     .pin_memory = pair_pin,
                                     .to_device = pair_to_device,
                                     .is_pinned = pair_is_pinned};

int main(void) {
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options options = tdict_context_options_default();
  tdict_transfer_options transfer = tdict_transfer_options_default();
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  tdict_context *context = NULL;
  tdict_tree *batch = NULL, *pinned = NULL, *on_device = NULL;
  pair *made = calloc(1, sizeof *made);
  void *found;
  tdict_error err = {0};
  options.sim = &sim; /* without a GPU, the program runs on a simulated device */
  transfer.stats = &stats;
  if (!made) return 1;
  TDICT_TRY(tdict_context_create(&options, &context, &err));
  TDICT_TRY(tdict_tensor_arange(TDICT_F32, 0, 1, 8, &made->input, &err));
  TDICT_TRY(tdict_tensor_arange(TDICT_I64, 0, 1, 8, &made->target, &err));
  TDICT_TRY(tdict_create(TDICT_SHAPE(8), &batch, &err));
  TDICT_TRY(tdict_set_object(batch, "pair", &pair_type, made, &err));
  made = NULL; /* the tree owns the struct */

  TDICT_TRY(tdict_pin_memory(context, batch, NULL, &pinned, &err));
  printf("pinned: batch %d, result %d\n", tdict_is_pinned(batch),
         tdict_is_pinned(pinned));

  TDICT_TRY(tdict_to_device(context, batch, tdict_context_device(context, NULL),
                            &transfer, &on_device, &err));
  TDICT_TRY(tdict_get_object(on_device, "pair", &pair_type, &found, &err));
  printf("on a device: %d\n",
         tdict_tensor_device(((pair *)found)->input).type != TDICT_DEVICE_CPU);
  printf("objects: %d, pinned on the way: %d\n", (int)stats.num_objects,
         (int)stats.num_objects_pinned);
done:
  if (made) pair_release(made);
  tdict_release(on_device);
  tdict_release(pinned);
  tdict_release(batch);
  tdict_context_destroy(context);
  return err.status != TDICT_OK;
}
