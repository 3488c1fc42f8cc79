#include <tdict/tdict.h>
#include <tdict/try.h>

/* A failure that the program expects: no macro, and an error of its own. */
static float reward_or_zero(const tdict_tree *batch) {
  tdict_tensor *reward;
  return tdict_get(batch, "reward", &reward, NULL) == TDICT_OK
             ? *(const float *)tdict_tensor_const_data(reward)
             : 0;
}

int main(void) {
  tdict_tree *batch = NULL;
  tdict_tensor *state = NULL, *found;
  tdict_error err = {0}, expected = {0};
  TDICT_TRY(tdict_create(TDICT_SHAPE(4), &batch, &err));
  TDICT_TRY(tdict_tensor_zeros(TDICT_F32, TDICT_SHAPE(4, 3), NULL, &state, &err));
  TDICT_TRY(tdict_set(batch, "obs.state", state, &err));
  printf("reward: %.1f\n", (double)reward_or_zero(batch));
  if (tdict_get(batch, "obs.stat", &found, &expected) != TDICT_OK)
    tdict_error_print(&expected, stdout);
  if (tdict_set(batch, "obs", NULL, &expected) != TDICT_OK)
    printf("%s: %s\n", tdict_status_name((tdict_status)expected.status),
           expected.message);
done:
  tdict_tensor_release(state);
  tdict_release(batch);
  return err.status != TDICT_OK;
}
