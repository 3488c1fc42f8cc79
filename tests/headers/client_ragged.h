/* The part of client.c that uses ragged leaves. */
#include "client_debug.h"

static void use_ragged(void) {
  const int64_t offsets[3] = {0, 2, 3};
  const int64_t two = 2;
  tdict_ragged_options options = tdict_ragged_options_default();
  tdict_tensor *values = NULL, *at = NULL, *row = NULL, *padded = NULL, *mask = NULL;
  tdict_ragged *ragged = NULL, *rows = NULL, *again = NULL, *found = NULL;
  tdict_tree *tree = NULL;
  options.offsets_dtype = TDICT_I32;
  OK(tdict_tensor_arange(TDICT_F32, 0, 1, 3, &values, &last_error));
  OK(tdict_tensor_from_array(TDICT_I64, TDICT_SHAPE(3), offsets, &at, &last_error));
  OK(tdict_ragged_create(values, at, &ragged, &last_error));
  OK(tdict_ragged_from_rows(&values, 1, &options, &rows, &last_error));
  OK(tdict_ragged_to_padded(ragged, 0, NULL, &padded, &mask, &last_error));
  OK(tdict_ragged_from_padded(padded, mask, NULL, &again, &last_error));
  OK(tdict_ragged_get_row(again, 1, &row, &last_error));
  TRUE(tdict_ragged_get_info(ragged).values == values && tdict_ragged_get_info(ragged).offsets == at);
  TRUE(tdict_ragged_get_info(ragged).num_rows == 2 && tdict_ragged_row_length(ragged, 1) == 1);
  TRUE(tdict_ragged_max_length(rows) == 3);
  OK(tdict_create(1, &two, &tree, &last_error));
  OK(tdict_set_ragged(tree, "x", ragged, &last_error));
  OK(tdict_get_ragged(tree, "x", &found, &last_error));
  TRUE(found == ragged && tdict_object_type(tree, "x") == tdict_ragged_type());
  tdict_release(tree);
  tdict_ragged_release(tdict_ragged_retain(ragged));
  tdict_ragged_release(ragged);
  tdict_ragged_release(rows);
  tdict_ragged_release(again);
  tdict_tensor_release(values);
  tdict_tensor_release(at);
  tdict_tensor_release(row);
  tdict_tensor_release(padded);
  tdict_tensor_release(mask);
  use_records();
  use_debug();
}
