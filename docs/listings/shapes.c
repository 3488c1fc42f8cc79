#include <tdict/index.h>
#include <tdict/shape.h>

#include "batch.h"

static void show(const char *name, const tdict_tree *tree) {
  printf("%s: [", name);
  for (int i = 0; i < tdict_batch_ndim(tree); i++)
    printf(i ? ", %d" : "%d", (int)tdict_batch_size(tree)[i]);
  printf("]\n");
}

static int change_shape(tdict_tree *batch) { /* batch size [4] */
  tdict_tree *viewed = NULL, *again = NULL, *split = NULL, *turned = NULL,
             *copied = NULL;
  tdict_error err = {0};
  /* [2, 2]; -1 is computed */
  TDICT_TRY(tdict_reshape_view(batch, TDICT_SHAPE(2, -1), &viewed, &err));
  TDICT_TRY(tdict_transpose(viewed, 0, 1, &turned, &err));
  /* no view is possible, so this copies */
  TDICT_TRY(tdict_reshape(turned, TDICT_SHAPE(4), &copied, &err));
  TDICT_TRY(tdict_merge_dims(viewed, 0, 1, &again, &err)); /* back to [4] */
  TDICT_TRY(tdict_split_dim(batch, 0, TDICT_SHAPE(1, 4), &split, &err));
  show("reshape_view", viewed);
  show("split_dim", split);
  printf("reward 1 after transpose: %.0f\n",
         (double)((const float *)tdict_const_data(copied, "reward"))[1]);
done:
  tdict_release(copied);
  tdict_release(turned);
  tdict_release(split);
  tdict_release(again);
  tdict_release(viewed);
  return err.status != TDICT_OK;
}

static int add_dimensions(tdict_tree *batch) { /* batch size [4] */
  const int order[2] = {1, 0};
  tdict_tree *wider = NULL, *repeated = NULL, *turned = NULL, *squeezed = NULL;
  tdict_error err = {0};
  TDICT_TRY(tdict_unsqueeze(batch, 0, &wider, &err)); /* [1, 4] */
  /* [3, 4], the same elements three times */
  TDICT_TRY(tdict_expand(wider, TDICT_SHAPE(3, -1), &repeated, &err));
  TDICT_TRY(tdict_permute(repeated, 2, order, &turned, &err));       /* [4, 3] */
  TDICT_TRY(tdict_squeeze(wider, TDICT_EVERY_DIM, &squeezed, &err)); /* [4] */
  show("expand", repeated);
  show("permute", turned);
  show("squeeze", squeezed);
done:
  tdict_release(squeezed);
  tdict_release(turned);
  tdict_release(repeated);
  tdict_release(wider);
  return err.status != TDICT_OK;
}

static void release_all(tdict_tree **trees, size_t count) {
  for (size_t i = 0; i < count; i++) tdict_release(trees[i]);
}

static int cut_into_pieces(tdict_tree *batch) { /* batch size [4] */
  const int64_t sizes[2] = {3, 1};
  tdict_tree *pieces[4];
  size_t count = 2;
  tdict_error err = {0};
  TDICT_TRY(tdict_split(batch, 0, sizes, pieces, &count, &err));
  printf("split: %d pieces, the first has %d rows\n", (int)count,
         (int)tdict_batch_size(pieces[0])[0]);
  release_all(pieces, count);
  /* how many pieces of 3 rows? */
  TDICT_TRY(tdict_split_every(batch, 0, 3, NULL, &count, &err));
  TDICT_TRY(tdict_split_every(batch, 0, 3, pieces, &count, &err));
  release_all(pieces, count);
  count = 4;
  TDICT_TRY(tdict_unbind(batch, 0, pieces, &count, &err)); /* one tree for each row */
  printf("unbind: %d trees\n", (int)count);
  release_all(pieces, count);
done:
  return err.status != TDICT_OK;
}

static int write_rows(tdict_tree *batch) {
  tdict_tree *row = NULL, *rows = NULL;
  tdict_run run = tdict_run_default();
  const int64_t order[2] = {3, 0};
  tdict_error err = {0};
  TDICT_TRY(tdict_index_get(NULL, batch, TDICT_INDEX(TDICT_AT(3)), NULL, &row, &err));
  TDICT_TRY(tdict_write_rows(batch, 0, row, &err)); /* row 0 becomes a copy of row 3 */
  TDICT_TRY(tdict_index_get(NULL, batch, TDICT_INDEX(TDICT_LIST(order, 2)), &run, &rows,
                            &err));
  TDICT_TRY(tdict_write_rows(batch, 1, rows, &err)); /* rows 1 and 2 */
  TDICT_TRY(tdict_index_into(NULL, rows, batch, TDICT_INDEX(TDICT_LIST(order, 2)), &run,
                             &err));
  TDICT_TRY(tdict_index_set(NULL, batch, TDICT_INDEX(TDICT_LIST(order, 2)), rows, &run,
                            &err));
  printf("reward 1: %.0f\n",
         (double)((const float *)tdict_const_data(batch, "reward"))[1]);
done:
  tdict_release(rows);
  tdict_release(row);
  return err.status != TDICT_OK;
}

int main(void) {
  return run_on_batch(change_shape) + run_on_batch(add_dimensions) +
         run_on_batch(cut_into_pieces) + run_on_batch(write_rows);
}
