/* Copies chunks to the other targets of a transfer. See targets.h for threads. */
#include "engine/targets.h"

#include <stdio.h>

/* Gives the promise the error with the position of the target, before the transfer reports the error with its own. */
static void name_position(const tdict_transfer *t, size_t position, const tdict_error *error) {
  char path[24];
  snprintf(path, sizeof path, "%zu", position);
  tdict_future_fail(atomic_load_explicit(&t->future.part_of, memory_order_acquire), UINT32_MAX, path, error);
}

tdict_status tdict_targets_add_chunk(const tdict_transfer *t, const tdict_chunk *chunk, tdict_gpu *gpu,
                                     tdict_cu_stream stream, tdict_error *err) {
  const int64_t bytes = (int64_t)(chunk->end - chunk->begin);
  const char *from = t->targets[0].storage->data;
  tdict_status status = TDICT_OK;
  for (size_t i = 1; i < t->num_targets && status == TDICT_OK; i++) {
    const tdict_storage *to = t->targets[i].storage;
    const tdict_rect line = {(char *)to->data + chunk->begin, from + chunk->begin, bytes, bytes, (size_t)bytes, 1};
    tdict_gpu *owner;
    status = tdict_devices_gpu(t->future.engine->config.devices, to->device, &owner, err);
    if (status == TDICT_OK) status = tdict_gpu_queue_from(owner, gpu, &line, stream, err);
    if (status != TDICT_OK) name_position(t, t->targets[i].position, err);
  }
  return status;
}
