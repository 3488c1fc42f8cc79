/* Implements the repeats of a transfer's result. See repeats.h for ownership and threads. */
#include "transfer/run/repeats.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "transfer/plan/result.h"

tdict_status tdict_repeats_create(tdict_transfer *t, const tdict_repeat_target *targets, size_t count,
                                  tdict_error *err) {
  tdict_repeats *r = calloc(1, sizeof *r + count * sizeof r->list[0]);
  if (!r) return tdict_fail(err, TDICT_ENOMEM, "transfer: no host memory for its results");
  t->repeats = r;
  tdict_status status = TDICT_OK;
  for (; r->count < count && status == TDICT_OK; r->count++) {
    tdict_repeat *to = &r->list[r->count];
    to->position = targets[r->count].position;
    status = tdict_storage_create(targets[r->count].memory, t->arena->bytes, false, &to->storage, err);
    if (status == TDICT_OK) to->storage->flags |= TDICT_STORAGE_ARENA;
  }
  return status;
}

tdict_status tdict_repeats_build(tdict_transfer *t, tdict_error *err) {
  tdict_status status = TDICT_OK;
  for (size_t i = 0; t->repeats && i < t->repeats->count && status == TDICT_OK; i++) {
    tdict_repeat *to = &t->repeats->list[i];
    status = tdict_result_repeat(&t->plan, t->future.result, t->arena, to->storage, &to->tree, err);
  }
  return status;
}

/* Gives the promise the error with the position of the repeat, before the transfer reports the error with its own. */
static void name_position(const tdict_transfer *t, size_t position, const tdict_error *error) {
  char path[24];
  snprintf(path, sizeof path, "%zu", position);
  tdict_future_fail(atomic_load_explicit(&t->future.part_of, memory_order_acquire), path, error);
}

tdict_status tdict_repeats_queue(const tdict_transfer *t, const tdict_chunk *chunk, tdict_gpu *gpu,
                                 tdict_cu_stream stream, tdict_error *err) {
  const size_t bytes = chunk->end - chunk->begin;
  tdict_status status = TDICT_OK;
  for (size_t i = 0; t->repeats && i < t->repeats->count && status == TDICT_OK; i++) {
    const tdict_storage *to = t->repeats->list[i].storage;
    const tdict_rect line = {(char *)to->data + chunk->begin,
                             (char *)t->arena->data + chunk->begin,
                             (int64_t)bytes,
                             (int64_t)bytes,
                             bytes,
                             1};
    tdict_gpu *owner;
    status = tdict_devices_gpu(t->future.engine->config.devices, to->device, &owner, err);
    if (status == TDICT_OK) status = tdict_gpu_queue_from(owner, gpu, &line, stream, err);
    if (status != TDICT_OK) name_position(t, t->repeats->list[i].position, err);
  }
  return status;
}

void tdict_repeats_lose(const tdict_transfer *t) {
  for (size_t i = 0; t->repeats && i < t->repeats->count; i++) tdict_storage_lose_all(t->repeats->list[i].storage);
}

void tdict_repeats_end(tdict_transfer *t) {
  for (size_t i = 0; t->repeats && i < t->repeats->count; i++) {
    tdict_storage_release(t->repeats->list[i].storage);
    t->repeats->list[i].storage = NULL;
  }
}
