#include <tdict/clone.h>
#include <tdict/convert.h>
#include <tdict/debug.h>
#include <tdict/write.h>

#include "batch.h"

static float reward(const tdict_tree *batch, int i) {
  return ((const float *)tdict_const_data(batch, "reward"))[i];
}

static int write_elements(tdict_tree *batch) {
  const float seven = 7;
  tdict_tensor *sevens = NULL, *one = NULL;
  tdict_error err = {0};
  TDICT_TRY(tdict_tensor_full(TDICT_F32, TDICT_SHAPE(4), &seven, &sevens, &err));
  /* all elements of one tensor */
  TDICT_TRY(tdict_write(batch, "reward", NULL, sevens, &err));
  /* one number, everywhere below obs */
  TDICT_TRY(tdict_fill(batch, "obs", 0.5, NULL, &err));
  TDICT_TRY(tdict_tensor_zeros(TDICT_F32, 0, NULL, NULL, &one, &err));
  /* reward[2] = 0 */
  TDICT_TRY(tdict_write(batch, "reward", TDICT_INDEX(TDICT_AT(2)), one, &err));
  printf("rewards: %.0f %.0f %.0f\n", (double)reward(batch, 1),
         (double)reward(batch, 2), (double)reward(batch, 3));
  TDICT_TRY(tdict_fill(batch, NULL, 0, NULL, &err));
  printf("after tdict_fill: %.0f\n", (double)reward(batch, 1));
done:
  tdict_tensor_release(one);
  tdict_tensor_release(sevens);
  return err.status != TDICT_OK;
}

static int update_trees(tdict_tree *batch) {
  const char *const only[] = {"reward"};
  tdict_tree *other = NULL, *keys = NULL;
  tdict_error err = {0};
  TDICT_TRY(tdict_clone_deep(batch, NULL, &other, &err)); /* copies all elements */
  TDICT_TRY(tdict_fill(other, NULL, 9, NULL, &err));
  /* copies the elements of reward */
  TDICT_TRY(tdict_update_in_place(batch, other, only, 1, &err));
  /* copies the elements of all tensors */
  TDICT_TRY(tdict_copy(batch, other, NULL, &err));
  TDICT_TRY(tdict_create(TDICT_SHAPE(4), &keys, &err));
  /* copies no elements: both trees share the tensors */
  TDICT_TRY(tdict_update(keys, batch, NULL, 0, &err));
  printf("reward: %.0f, keys: %d\n", (double)reward(keys, 0),
         (int)tdict_num_keys(keys));
done:
  tdict_release(keys);
  tdict_release(other);
  return err.status != TDICT_OK;
}

static int compare_trees(tdict_tree *batch) {
  tdict_tree *shared = NULL, *copy = NULL;
  tdict_difference difference;
  tdict_error err = {0};
  TDICT_TRY(tdict_clone(batch, &shared, &err)); /* new keys, the same tensors */
  TDICT_TRY(tdict_clone_deep(batch, NULL, &copy, &err));
  ((float *)tdict_data(copy, "reward"))[2] = -1;
  TDICT_TRY(tdict_get_difference(batch, copy, NULL, &difference, &err));
  printf("equal: %d; the copy differs at %s[%d]\n", tdict_equal(batch, shared),
         difference.path, (int)difference.index[0]);
done:
  tdict_release(copy);
  tdict_release(shared);
  return err.status != TDICT_OK;
}

static int put_into_one_block(tdict_tree *batch) {
  tdict_tree *block = NULL, *straight = NULL;
  tdict_tensor *bytes = NULL;
  tdict_error err = {0};
  /* copies only tensors with gaps */
  TDICT_TRY(tdict_contiguous(batch, NULL, &straight, &err));
  TDICT_TRY(tdict_consolidate(straight, NULL, &block, &err));
  /* for example for write() or MPI_Send() */
  TDICT_TRY(tdict_consolidated_bytes(block, &bytes, &err));
  printf("consolidated: %d, %d bytes\n", tdict_is_consolidated(block),
         (int)tdict_tensor_numel(bytes));
done:
  tdict_tensor_release(bytes);
  tdict_release(block);
  tdict_release(straight);
  return err.status != TDICT_OK;
}

static int convert_dtypes(tdict_tree *batch) {
  tdict_tree *halves = NULL;
  tdict_tensor *rewards, *doubles = NULL;
  tdict_error err = {0};
  /* all tensors */
  TDICT_TRY(tdict_to_dtype(batch, TDICT_F16, NULL, NULL, &halves, &err));
  TDICT_TRY(tdict_get(batch, "reward", &rewards, &err));
  /* one tensor, new memory */
  TDICT_TRY(tdict_tensor_to_dtype(rewards, TDICT_F64, NULL, &doubles, &err));
  TDICT_TRY(tdict_convert(rewards, doubles, &err)); /* into existing memory */
  printf("%d bytes became %d\n", (int)tdict_bytes(batch), (int)tdict_bytes(halves));
done:
  tdict_tensor_release(doubles);
  tdict_release(halves);
  return err.status != TDICT_OK;
}

static int summarize(tdict_tree *batch) {
  tdict_tensor_summary summary = tdict_tensor_summary_default();
  tdict_tensor *rewards;
  tdict_error err = {0};
  TDICT_TRY(tdict_get(batch, "reward", &rewards, &err));
  TDICT_TRY(tdict_tensor_get_summary(rewards, &summary, &err));
  printf("minimum %.0f, maximum %.0f, mean %.1f\n", summary.min, summary.max,
         summary.mean);
  /* in GDB: call tdict_describe(batch, 0, 0) */
  TDICT_TRY(tdict_describe(batch, stdout, &err));
done:
  return err.status != TDICT_OK;
}

int main(void) {
  return run_on_batch(write_elements) + run_on_batch(update_trees) +
         run_on_batch(compare_trees) + run_on_batch(put_into_one_block) +
         run_on_batch(convert_dtypes) + run_on_batch(summarize);
}
