/* Collects the fences that launches wait for, and checks lists of positions on devices. See moves.h for ownership and
 * threads. */
#include <stdlib.h>

#include "core/base/error.h"
#include "core/kernel/work.h"
#include "core/ops/device/moves.h"

/* Runs a work of the memory of `t` after the work that writes `t`. On a stream, waits for all work on the stream. */
static tdict_status run_after(const tdict_moves *moves, const tdict_tensor *t, tdict_kernel_work *work,
                              tdict_error *err) {
  tdict_memory *memory = t->storage->memory;
  if (!moves->stream) {
    tdict_tensor_await(t, false);
    return memory->ops->run(memory, work, NULL, err);
  }
  tdict_fences before = {0};
  tdict_storage_each_before(t->storage, false, tdict_fences_add, &before);
  tdict_run_order order = {.what = moves->what, .stream = *moves->stream, .after = &before};
  tdict_status status = memory->ops->run(memory, work, &order, err);
  if (status == TDICT_OK) {
    order.use->ops->wait(order.use, INT64_MAX);
    order.use->ops->release(order.use);
  }
  tdict_fences_reset(&before);
  return status;
}

tdict_status tdict_moves_await_source(const tdict_moves *moves, const tdict_tensor *t, tdict_error *err) {
  const tdict_memory *memory = t->storage->memory;
  tdict_kernel_work nothing;
  if (!moves->stream || !memory || !memory->ops->run || !tdict_device_equal(memory->device, moves->stream->device)) {
    tdict_tensor_await(t, false);
    return TDICT_OK;
  }
  tdict_kernel_work_init(&nothing, TDICT_KERNEL_COPY);
  tdict_status status = run_after(moves, t, &nothing, err);
  tdict_kernel_work_reset(&nothing);
  return status;
}

bool tdict_moves_take_list(const tdict_tensor *list) {
  const tdict_memory *memory = list->storage->memory;
  return memory && memory->ops->run && tdict_tensor_is_contiguous(list) && (uintptr_t)list->data % sizeof(int64_t) == 0;
}

tdict_status tdict_moves_check_list(const tdict_moves *moves, const tdict_tensor *list, int64_t size, int64_t *bad,
                                    tdict_error *err) {
  tdict_kernel_work work;
  tdict_kernel_work_init(&work, TDICT_KERNEL_CHECK);
  tdict_status status = tdict_kernel_add_check(&work, tdict_kernel_positions_at(list->data), list->numel, size, err);
  if (status == TDICT_OK) status = run_after(moves, list, &work, err);
  if (status == TDICT_OK) *bad = work.results[0] == TDICT_KERNEL_NO_RESULT ? -1 : (int64_t)work.results[0];
  tdict_kernel_work_reset(&work);
  return status;
}
