#include <tdict/combine.h>
#include <tdict/ragged.h>

#include "batch.h"

static int join_batches(tdict_tree *batch) {
  const tdict_tree *items[2] = {batch, batch};
  tdict_tree *stacked = NULL, *joined = NULL;
  tdict_error err = {0};
  TDICT_TRY(tdict_stack(items, 2, NULL, NULL, &stacked, &err)); /* [2, 4] */
  TDICT_TRY(tdict_cat(items, 2, NULL, NULL, &joined, &err));    /* [8] */
  printf("stack: %d dimensions, cat: %d rows\n", tdict_batch_ndim(stacked),
         (int)tdict_batch_size(joined)[0]);
  /* again, into the same memory */
  TDICT_TRY(tdict_stack_into(stacked, items, 2, NULL, NULL, &err));
  TDICT_TRY(tdict_cat_into(joined, items, 2, NULL, NULL, &err));
done:
  tdict_release(joined);
  tdict_release(stacked);
  return err.status != TDICT_OK;
}

/* Makes a tree with the batch size [count] and one token id for each element. */
static tdict_status make_sentence(int64_t count, tdict_tree **out, tdict_error *err) {
  tdict_tensor *ids = NULL;
  tdict_status status = tdict_create(TDICT_SHAPE(count), out, err);
  if (status == TDICT_OK)
    status = tdict_tensor_arange(TDICT_I32, 0, 1, count, &ids, err);
  if (status == TDICT_OK) status = tdict_set(*out, "ids", ids, err);
  tdict_tensor_release(ids);
  return status;
}

static int pad_or_pack(void) {
  tdict_tree *sentences[2] = {NULL, NULL}, *padded = NULL, *packed = NULL;
  const tdict_tree *const *items = (const tdict_tree *const *)sentences;
  const tdict_pad_options pad = {sizeof pad, -1, NULL};
  tdict_error err = {0};
  TDICT_TRY(make_sentence(2, &sentences[0], &err));
  TDICT_TRY(make_sentence(5, &sentences[1], &err));
  /* ids is [2, 5], padded with -1 */
  TDICT_TRY(tdict_pad_sequence(items, 2, &pad, NULL, &padded, &err));
  /* ids is [7], and cu_seqlens has the offsets */
  TDICT_TRY(tdict_pack_sequence(items, 2, NULL, NULL, &packed, &err));
  const int32_t *ids = tdict_const_data(padded, "ids"),
                *offsets = tdict_const_data(packed, "cu_seqlens");
  printf("padded: %d\noffsets: %d, %d\n", ids[2], offsets[1], offsets[2]);
done:
  tdict_release(packed);
  tdict_release(padded);
  tdict_release(sentences[1]);
  tdict_release(sentences[0]);
  return err.status != TDICT_OK;
}

/* Makes a ragged leaf of two rows: 0, 1 and 2, 3, 4. */
static tdict_status make_ragged(tdict_ragged **out, tdict_error *err) {
  tdict_tensor *rows[2] = {NULL, NULL};
  tdict_status status = tdict_tensor_arange(TDICT_I32, 0, 1, 2, &rows[0], err);
  if (status == TDICT_OK)
    status = tdict_tensor_arange(TDICT_I32, 2, 1, 3, &rows[1], err);
  if (status == TDICT_OK) status = tdict_ragged_from_rows(rows, 2, NULL, out, err);
  tdict_tensor_release(rows[1]);
  tdict_tensor_release(rows[0]);
  return status;
}

static int make_ragged_leaves(void) {
  tdict_ragged *ragged = NULL, *same = NULL, *mine = NULL, *found;
  tdict_tensor *values = NULL, *offsets = NULL;
  tdict_tree *tree = NULL;
  tdict_error err = {0};
  TDICT_TRY(make_ragged(&ragged, &err));
  values = tdict_tensor_retain(tdict_ragged_get_info(ragged).values);
  offsets = tdict_tensor_retain(tdict_ragged_get_info(ragged).offsets);
  /* shares both tensors */
  TDICT_TRY(tdict_ragged_create(values, offsets, &same, &err));
  TDICT_TRY(tdict_create(TDICT_SHAPE(2), &tree, &err));
  TDICT_TRY(tdict_set_ragged(tree, "ids", ragged, &err));
  TDICT_TRY(tdict_get_ragged(tree, "ids", &found, &err));
  mine = tdict_ragged_retain(found); /* `found` is borrowed from the tree */
  printf("%d rows, longest %d; ragged: %d\n", (int)tdict_ragged_get_info(mine).num_rows,
         (int)tdict_ragged_max_length(mine),
         tdict_object_type(tree, "ids") == tdict_ragged_type());
done:
  tdict_ragged_release(mine);
  tdict_release(tree);
  tdict_ragged_release(same);
  tdict_tensor_release(offsets);
  tdict_tensor_release(values);
  tdict_ragged_release(ragged);
  return err.status != TDICT_OK;
}

static int pad_ragged_leaves(void) {
  const int64_t two_three[2] = {2, 3};
  tdict_ragged *ragged = NULL, *again = NULL;
  tdict_tensor *padded = NULL, *mask = NULL, *lengths = NULL, *row = NULL;
  tdict_error err = {0};
  TDICT_TRY(make_ragged(&ragged, &err));
  /* [2, 3], and a mask of bools */
  TDICT_TRY(tdict_ragged_to_padded(ragged, -1, NULL, &padded, &mask, &err));
  TDICT_TRY(
      tdict_tensor_from_array(TDICT_I64, TDICT_SHAPE(2), two_three, &lengths, &err));
  TDICT_TRY(tdict_ragged_from_padded(padded, lengths, NULL, &again, &err));
  TDICT_TRY(tdict_ragged_get_row(again, 1, &row, &err)); /* a view */
  printf("row 1 has %d elements, row 0 is padded with %d\n",
         (int)tdict_tensor_numel(row),
         ((const int32_t *)tdict_tensor_const_data(padded))[2]);
done:
  tdict_tensor_release(row);
  tdict_tensor_release(lengths);
  tdict_tensor_release(mask);
  tdict_tensor_release(padded);
  tdict_ragged_release(again);
  tdict_ragged_release(ragged);
  return err.status != TDICT_OK;
}

int main(void) {
  return run_on_batch(join_batches) + pad_or_pack() + make_ragged_leaves() +
         pad_ragged_leaves();
}
