#include <tdict/tdict.h>
#include <tdict/try.h>

enum { ENVS = 8, STEPS = 16, MINIBATCH = 32 };

/* Writes step `t` of all environments to buffer[:, t]. `step` is one tree that the program fills again and again. */
static tdict_status act(tdict_tree *buffer, tdict_tree *step, int t, tdict_error *err) {
  float *reward = tdict_data(step, "reward");
  for (int e = 0; e < ENVS; e++) reward[e] = (float)(100 * e + t);
  return tdict_index_set(buffer, TDICT_INDEX(TDICT_ALL, TDICT_AT(t)), step, err);
}

/* Gathers rows of `flat` into the pinned tree `rows`, and copies the rows to the same device tree each time. */
static tdict_status send(tdict_context *context, const tdict_tree *flat, const int64_t *order, tdict_tree *rows,
                         tdict_tree *on_device, tdict_error *err) {
  tdict_status status = tdict_index_into(rows, flat, TDICT_INDEX(TDICT_LIST(order, MINIBATCH)), err);
  return status == TDICT_OK ? tdict_transfer_into(context, on_device, rows, NULL, err) : status;
}

int main(void) {
  const tdict_field fields[] = {TDICT_FIELD("obs", TDICT_F32, 17), TDICT_FIELD("reward", TDICT_F32)};
  const tdict_schema schema = {fields, 2};
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options options = tdict_context_options_default();
  tdict_context *context = NULL;
  tdict_tree *buffer = NULL, *step = NULL, *flat = NULL, *rows = NULL, *on_device = NULL;
  int64_t order[ENVS * STEPS];
  tdict_error err = {0};
  options.sim = &sim;
  TDICT_TRY(tdict_context_create(&options, &context, &err));
  TDICT_TRY(tdict_create_from(&schema, TDICT_SHAPE(ENVS, STEPS), NULL, &buffer, &err));
  TDICT_TRY(tdict_create_from(&schema, TDICT_SHAPE(ENVS), NULL, &step, &err));
  TDICT_TRY(tdict_create_from(&schema, TDICT_SHAPE(MINIBATCH), tdict_pinned_memory(context), &rows, &err));
  TDICT_TRY(tdict_to_device(context, rows, tdict_context_device(context, NULL), NULL, &on_device, &err));
  for (int t = 0; t < STEPS; t++) TDICT_TRY(act(buffer, step, t, &err));
  TDICT_TRY(tdict_flatten(buffer, 0, 1, &flat, &err));                         /* [8, 16] becomes [128]; a view */
  for (int i = 0; i < ENVS * STEPS; i++) order[i] = (i * 37) % (ENVS * STEPS); /* any permutation of the rows */
  for (int first = 0; first < ENVS * STEPS; first += MINIBATCH) {
    TDICT_TRY(send(context, flat, order + first, rows, on_device, &err)); /* then update the policy on the device */
    printf("rows %d to %d: first reward %.0f\n", first, first + MINIBATCH - 1,
           ((const float *)tdict_const_data(rows, "reward"))[0]);
  }
done:
  tdict_release(on_device);
  tdict_release(rows);
  tdict_release(flat);
  tdict_release(step);
  tdict_release(buffer);
  tdict_context_destroy(context);
  return err.status != TDICT_OK;
}
