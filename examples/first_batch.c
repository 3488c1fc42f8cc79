#include <tdict/tdict.h>
#include <tdict/try.h>

int main(void) {
  const tdict_field fields[] = {TDICT_FIELD("obs.pixels", TDICT_U8, 3, 64, 64), TDICT_FIELD("reward", TDICT_F32, 1)};
  tdict_sim_options sim = tdict_sim_options_default(); /* the default device where there is no GPU */
  tdict_context_options options = tdict_context_options_default();
  tdict_context *context = NULL;
  tdict_tree *batch = NULL, *moved = NULL;
  tdict_error err = {0};
  options.sim = &sim;
  TDICT_TRY(tdict_context_create(&options, &context, &err));
  TDICT_TRY(tdict_create_from(&(tdict_schema){fields, 2}, 1, (int64_t[]){128}, NULL, &batch, &err));
  ((float *)tdict_data(batch, "reward"))[0] = 1.0f;
  TDICT_TRY(tdict_to_device(context, batch, tdict_context_device(context, NULL), NULL, &moved, &err));
  TDICT_TRY(tdict_print(moved, stdout, &err));
done:
  tdict_release(moved);
  tdict_release(batch);
  tdict_context_destroy(context);
  return err.status != TDICT_OK;
}
