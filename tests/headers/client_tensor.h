/* The part of client.c that uses tensors. */
#include "client_dlpack.h"

static int released;
static void release_nothing(void *user) {
  (void)user;
  released++;
}

static void use_tensor_makers(void) {
  static float numbers[6] = {1, 2, 3, 4, 5, 6};
  const int64_t shape[2] = {2, 3};
  const float one = 1;
  tdict_tensor *t[7] = {NULL, NULL, NULL, NULL, NULL, NULL, NULL};
  tdict_tensor_desc view = tdict_tensor_desc_default();
  int i;
  view.data = numbers;
  view.dtype = TDICT_F32;
  view.ndim = 2;
  view.shape = shape;
  view.flags = TDICT_DESC_READ_ONLY | (TDICT_DESC_PINNED & 0u);
  TRUE(TDICT_MAX_NDIM >= 2);
  OK(tdict_tensor_empty(TDICT_F32, 2, shape, NULL, &t[0], &last_error));
  OK(tdict_tensor_zeros(TDICT_F32, 2, shape, NULL, &t[1], &last_error));
  OK(tdict_tensor_full(TDICT_F32, 2, shape, &one, &t[2], &last_error));
  OK(tdict_tensor_arange(TDICT_I64, 0, 1, 6, &t[3], &last_error));
  OK(tdict_tensor_from_data(&view, release_nothing, NULL, &t[4], &last_error));
  OK(tdict_tensor_from_array(TDICT_F32, TDICT_SHAPE(1, 1), &one, &t[5], &last_error));
  OK(tdict_tensor_reshape(t[0], TDICT_SHAPE(3, -1), &t[6], &last_error));
  for (i = 0; i < 7; i++) {
    tdict_tensor_release(tdict_tensor_retain(t[i]));
    tdict_tensor_release(t[i]);
  }
  TRUE(released == 1);
}

static void use_tensor(void) {
  const int order[2] = {1, 0};
  const int64_t shape[2] = {4, 6};
  tdict_tensor *t = NULL, *made[5] = {NULL, NULL, NULL, NULL, NULL};
  tdict_tensor_desc view = tdict_tensor_desc_default();
  tdict_tensor_range range;
  int i;
  range.dim = 1;
  range.start = 5;
  range.count = 3;
  range.step = -2;
  OK(tdict_tensor_zeros(TDICT_I32, 2, shape, NULL, &t, &last_error));
  TRUE(tdict_tensor_dtype(t) == TDICT_I32 && tdict_device_equal(tdict_tensor_device(t), tdict_cpu()));
  TRUE(tdict_tensor_ndim(t) == 2 && tdict_tensor_shape(t)[1] == 6 && tdict_tensor_strides(t)[0] == 6);
  TRUE(tdict_tensor_numel(t) == 24 && tdict_tensor_bytes(t) == 96);
  TRUE(tdict_tensor_is_contiguous(t) && !tdict_tensor_is_pinned(t));
  TRUE(tdict_tensor_data(t) == tdict_tensor_const_data(t));
  tdict_tensor_get_desc(t, &view);
  OK(tdict_tensor_as_strided(t, &view, 0, &made[0], &last_error));
  OK(tdict_tensor_slice(t, &range, &made[1], &last_error));
  OK(tdict_tensor_permute(t, 2, order, &made[2], &last_error));
  OK(tdict_tensor_clone(t, NULL, &made[3], &last_error));
  OK(tdict_tensor_contiguous(made[2], &made[4], &last_error));
  TRUE(tdict_tensor_shares_storage(t, made[1]) && !tdict_tensor_shares_storage(t, made[4]));
  OK(tdict_tensor_copy(t, made[3], &last_error));
  use_dlpack(t);
  for (i = 0; i < 5; i++) tdict_tensor_release(made[i]);
  tdict_tensor_release(t);
}

static void *give_place(void *user, size_t bytes) {
  char *place = (char *)user;
  return bytes <= 256 ? place + (256 - (size_t)place % 256) % 256 : NULL;
}
static void take_place(void *user, void *data, size_t bytes) {
  (void)user, (void)data, (void)bytes;
  released++;
}

static void use_own_memory(tdict_context *context) {
  static char place[512];
  const int64_t shape[1] = {8};
  tdict_allocator allocator = tdict_allocator_default();
  tdict_memory *memory = NULL;
  tdict_tensor *tensor = NULL;
  allocator.device = tdict_cpu();
  allocator.allocate = give_place;
  allocator.release = take_place;
  allocator.user = place;
  released = 0;
  OK(tdict_memory_create(context, &allocator, &memory, &last_error));
  OK(tdict_tensor_zeros(TDICT_F32, 1, shape, memory, &tensor, &last_error));
  tdict_memory_release(memory);
  tdict_tensor_release(tensor);
  TRUE(released == 1);
}
