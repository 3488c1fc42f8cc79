#include <tdict/index.h>
#include <tdict/tdict.h>
#include <tdict/try.h>

int main(void) {
  const tdict_field fields[] = {TDICT_FIELD("obs.state", TDICT_F32, 3),
                                TDICT_FIELD("reward", TDICT_F32)};
  tdict_tree *batch = NULL, *row = NULL;
  float *reward;
  tdict_error err = {0};
  /* four samples, all elements 0 */
  TDICT_TRY(tdict_create_from(fields, 2, TDICT_SHAPE(4), NULL, &batch, &err));
  /* an ordinary pointer */
  reward = tdict_checked_data(batch, "reward", TDICT_F32, TDICT_SHAPE(4), &err);
  if (!reward) goto done;
  for (int i = 0; i < 4; i++) reward[i] = 0.5f * (float)i;
  TDICT_TRY(tdict_print(batch, stdout, &err));
  /* sample 3: a view, nothing is copied */
  TDICT_TRY(tdict_index_get(NULL, batch, TDICT_INDEX(TDICT_AT(3)), NULL, &row, &err));
  printf("reward of sample 3: %.1f\n", *(const float *)tdict_const_data(row, "reward"));
done:
  tdict_release(row);
  tdict_release(batch);
  return err.status != TDICT_OK;
}
