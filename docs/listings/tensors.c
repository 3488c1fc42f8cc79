#include "batch.h"
#include "tdict/view.h"

static int make_tensors(void) {
  const int32_t numbers[2][3] = {{1, 2, 3}, {4, 5, 6}};
  tdict_tensor *empty = NULL, *copied = NULL;
  tdict_error err = {0};
  /* elements are unspecified */
  TDICT_TRY(tdict_tensor_empty(TDICT_I32, TDICT_SHAPE(2, 3), NULL, &empty, &err));
  TDICT_TRY(
      tdict_tensor_from_array(TDICT_I32, TDICT_SHAPE(2, 3), numbers, &copied, &err));
  TDICT_TRY(tdict_tensor_copy(empty, copied, &err));
  printf("element 5: %d\n", ((const int32_t *)tdict_tensor_data(empty))[5]);
done:
  tdict_tensor_release(copied);
  tdict_tensor_release(empty);
  return err.status != TDICT_OK;
}

static void say_released(void *user) { printf("%s\n", (const char *)user); }

static int wrap_memory(void) {
  static float mine[6] = {1, 2, 3, 4, 5, 6};
  static const int64_t shape[2] = {2, 3};
  static char text[] = "the memory is free again";
  tdict_tensor_desc desc = tdict_tensor_desc_default();
  tdict_tensor *tensor = NULL, *also = NULL;
  tdict_error err = {0};
  desc.data = mine;
  desc.dtype = TDICT_F32;
  desc.ndim = 2;
  desc.shape = shape;
  /* copies nothing */
  TDICT_TRY(tdict_tensor_from_data(&desc, say_released, text, &tensor, &err));
  also = tdict_tensor_retain(tensor);
done:
  tdict_tensor_release(tensor);
  tdict_tensor_release(also); /* the last reference: calls say_released() */
  return err.status != TDICT_OK;
}

static int look_at_a_tensor(tdict_tree *batch) {
  tdict_tensor *state;
  tdict_tensor_desc desc = tdict_tensor_desc_default();
  char dtype[TDICT_DTYPE_TEXT_BYTES], device[16];
  tdict_error err = {0};
  TDICT_TRY(tdict_get(batch, "obs.state", &state, &err));
  tdict_dtype_format(tdict_tensor_dtype(state), dtype, sizeof dtype);
  tdict_device_format(tdict_tensor_device(state), device, sizeof device);
  printf("%s on %s, %d dimensions, %d rows, stride %d\n", dtype, device,
         tdict_tensor_ndim(state), (int)tdict_tensor_shape(state)[0],
         (int)tdict_tensor_strides(state)[0]);
  tdict_tensor_get_desc(state, &desc);
  printf("the same address: %d\n", desc.data == tdict_tensor_const_data(state));
done:
  return err.status != TDICT_OK;
}

static int view_and_copy(tdict_tree *batch) {
  static const int64_t shape[1] = {4}, strides[1] = {3};
  const int order[2] = {1, 0};
  tdict_tensor_desc layout = tdict_tensor_desc_default();
  tdict_tensor *state, *turned = NULL, *column = NULL, *copy = NULL;
  tdict_error err = {0};
  TDICT_TRY(tdict_get(batch, "obs.state", &state, &err));
  TDICT_TRY(tdict_tensor_permute(state, 2, order, &turned, &err)); /* [3, 4], a view */
  layout.ndim = 1;
  layout.shape = shape;
  layout.strides = strides;
  /* column 1, a view */
  TDICT_TRY(tdict_tensor_as_strided(state, &layout, 1, &column, &err));
  /* copies, because `turned` has gaps */
  TDICT_TRY(tdict_tensor_contiguous(turned, &copy, &err));
  printf("contiguous: %d, then %d\n", tdict_tensor_is_contiguous(turned),
         tdict_tensor_is_contiguous(copy));
  printf("share bytes: %d, then %d\n", tdict_tensor_shares_storage(state, column),
         tdict_tensor_shares_storage(state, copy));
done:
  tdict_tensor_release(copy);
  tdict_tensor_release(column);
  tdict_tensor_release(turned);
  return err.status != TDICT_OK;
}

static int name_values(void) {
  tdict_device device = tdict_cpu();
  tdict_error err = {0};
  printf("%s has %d bytes\n", tdict_dtype_name(TDICT_BF16),
         (int)tdict_dtype_bytes(TDICT_BF16));
  TDICT_TRY(tdict_device_parse("cuda:1", &device, &err));
  printf("cuda:1: %d, cpu: %d\n", tdict_device_equal(device, tdict_cuda(1)),
         tdict_device_equal(device, tdict_cpu()));
  printf("version 0.2 or later: %d\n", tdict_version() >= 200);
done:
  return err.status != TDICT_OK;
}

int main(void) {
  return make_tensors() + wrap_memory() + run_on_batch(look_at_a_tensor) +
         run_on_batch(view_and_copy) + name_values();
}
