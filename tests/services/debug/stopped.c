/* The program that tests/services/debug/gdb.py stops in GDB. */

#include "tdict/nontensor.h"
#include "tdict/sim.h"
#include "tdict/tdict.h"
#include "tdict/try.h"
#include "tdict/view.h"

__attribute__((noinline)) void stop_here(tdict_tree *tree, tdict_tensor *tensor, tdict_future *future,
                                         const tdict_error *error);
void stop_here(tdict_tree *tree, tdict_tensor *tensor, tdict_future *future, const tdict_error *error) {
  tdict_tree *none = NULL;
  tdict_error copy = *error;
  __asm__ volatile("" ::"r"(tree), "r"(tensor), "r"(future), "r"(&copy), "r"(&none) : "memory");
}

static tdict_status set(tdict_tree *tree, const char *path, tdict_dtype dtype, const void *data, tdict_error *err) {
  tdict_tensor *t = NULL;
  tdict_status status = tdict_tensor_from_array(dtype, TDICT_SHAPE(2, 2), data, &t, err);
  if (status == TDICT_OK) status = tdict_set(tree, path, t, err);
  tdict_tensor_release(t);
  return status;
}

int main(void) {
  const float floats[4] = {1.5f, -2, 0.1f, 1e30f};
  const int64_t longs[4] = {INT64_MIN, 0, 1, INT64_MAX};
  const unsigned char bools[4] = {1, 0, 0, 1}, e4m3[4] = {0x38, 0x7f, 0x01, 0xc0}, e5m2[4] = {0x3c, 0, 0xc0, 0x7c};
  const uint16_t halves[4] = {0x3c00, 0xc000, 0, 0x7c00}, brains[4] = {0x3f80, 0xc000, 0, 0x4049};
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options o = tdict_context_options_default();
  tdict_context *context = NULL;
  tdict_tree *tree = NULL, *moved = NULL;
  tdict_tensor *wide = NULL, *slice = NULL, *found = NULL;
  tdict_future *future = NULL;
  tdict_error err, wrong;
  const tdict_tensor_range every_second = {1, 8, 4, -2};
  int code = 1;
  o.sim = &sim;
  o.device = tdict_sim(0);
  TDICT_TRY(tdict_context_create(&o, &context, &err));
  TDICT_TRY(tdict_create(1, (const int64_t[]){2}, &tree, &err));
  TDICT_TRY(set(tree, "obs.state", TDICT_F32, floats, &err));
  TDICT_TRY(set(tree, "obs.id", TDICT_I64, longs, &err));
  TDICT_TRY(set(tree, "done", TDICT_BOOL, bools, &err));
  TDICT_TRY(set(tree, "half", TDICT_F16, halves, &err));
  TDICT_TRY(set(tree, "brain", TDICT_BF16, brains, &err));
  TDICT_TRY(set(tree, "e4m3", TDICT_F8E4M3, e4m3, &err));
  TDICT_TRY(set(tree, "e5m2", TDICT_F8E5M2, e5m2, &err));
  TDICT_TRY(set(tree, "gone", TDICT_BOOL, bools, &err));
  TDICT_TRY(tdict_delete(tree, "gone", &err));
  TDICT_TRY(tdict_tensor_arange(TDICT_I32, 0, 1, 18, &wide, &err));
  TDICT_TRY(tdict_tensor_reshape(wide, TDICT_SHAPE(2, 9), &found, &err));
  TDICT_TRY(tdict_tensor_slice(found, &every_second, &slice, &err));
  TDICT_TRY(tdict_set_text(tree, "note", "hello", &err));
  TDICT_TRY(tdict_to_device_async(context, tree, tdict_sim(0), NULL, &future, &err));
  TDICT_TRY(tdict_future_wait(future, &moved, &err));
  TDICT_TRY(tdict_set_tree(tree, "moved", moved, &err));
  tdict_lock(tree);
  if (tdict_get(tree, "obs.stat", &(tdict_tensor *){NULL}, &wrong) == TDICT_ENOTFOUND) {
    stop_here(tree, slice, future, &wrong);
    code = 0;
  }

done:
  tdict_future_release(future);
  tdict_tensor_release(wide);
  tdict_tensor_release(found);
  tdict_tensor_release(slice);
  tdict_release(moved);
  tdict_release(tree);
  tdict_context_destroy(context);
  return code;
}
