#include <tdict/nontensor.h>
#include <tdict/unbatched.h>

#include "batch.h"

static int set_values(tdict_tree *batch) {
  const tdict_value seed = {.kind = TDICT_VALUE_INTEGER, .integer = 42};
  tdict_value scores[4], found;
  const char *goal;
  size_t length;
  tdict_error err = {0};
  for (int i = 0; i < 4; i++)
    scores[i] = (tdict_value){.kind = TDICT_VALUE_REAL, .real = 0.5 * i};
  /* one text for the whole batch */
  TDICT_TRY(tdict_set_text(batch, "goal", "reach the door", &err));
  TDICT_TRY(tdict_set_values(batch, "seed", &seed, TDICT_WHOLE_TREE, &err));
  /* one value for each sample */
  TDICT_TRY(tdict_set_values(batch, "score", scores, 4, &err));
  TDICT_TRY(tdict_get_text(batch, "goal", -1, &goal, &length, &err));
  TDICT_TRY(tdict_get_value(batch, "seed", -1, &found, &err));
  printf("%s (%d bytes), seed %d\n", goal, (int)length, (int)found.integer);
  TDICT_TRY(tdict_get_value(batch, "score", 3, &found, &err));
  printf("score 3: %.1f\n", found.real);
done:
  return err.status != TDICT_OK;
}

static int read_a_column(tdict_tree *batch) {
  static const char *const names[] = {"a", "b", "c", "d"};
  const int64_t *shape;
  void *column;
  int ndim;
  tdict_value value;
  tdict_error err = {0};
  TDICT_TRY(tdict_set_texts(batch, "name", names, 4, &err));
  if (tdict_object_type(batch, "name") != tdict_nontensor_type()) return 1;
  TDICT_TRY(tdict_get_object(batch, "name", tdict_nontensor_type(), &column, &err));
  TDICT_TRY(tdict_nontensor_get(column, 2, &value, &err));
  ndim = tdict_nontensor_shape(column, &shape);
  printf("%d dimension of %d names, name 2: %s\n", ndim, (int)shape[0], value.text);
done:
  return err.status != TDICT_OK;
}

static int set_a_tensor_for_all_samples(tdict_tree *batch) {
  tdict_tensor *weights = NULL, *found;
  tdict_error err = {0};
  TDICT_TRY(tdict_tensor_zeros(TDICT_F32, TDICT_SHAPE(7), NULL, &weights, &err));
  /* [7] does not begin with the batch size [4] */
  TDICT_TRY(tdict_set_unbatched(batch, "weights", weights, &err));
  TDICT_TRY(tdict_get_unbatched(batch, "weights", &found, &err));
  printf("%d elements; unbatched: %d\n", (int)tdict_tensor_numel(found),
         tdict_object_type(batch, "weights") == tdict_unbatched_type());
done:
  tdict_tensor_release(weights);
  return err.status != TDICT_OK;
}

int main(void) {
  return run_on_batch(set_values) + run_on_batch(read_a_column) +
         run_on_batch(set_a_tensor_for_all_samples);
}
