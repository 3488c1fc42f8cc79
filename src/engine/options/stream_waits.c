/* Records the work on streams that the copies of a transfer wait for. See stream_waits.h for ownership and threads. */
#include "engine/options/stream_waits.h"

#include <stdlib.h>

#include "core/base/assert.h"
#include "core/base/device.h"
#include "core/base/error.h"

/* The most uses that a transfer can have: one for each device of the context. */
static int count_devices(const tdict_transfer *t) { return t->future.streams.num_cuda + t->future.streams.num_sim; }

/* Returns the stream waits of the transfer, which the first call creates. Returns NULL if host memory is exhausted. */
static tdict_stream_waits *waits_of(tdict_transfer *t) {
  if (!t->stream_waits)
    t->stream_waits = calloc(1, sizeof *t->stream_waits + (size_t)count_devices(t) * sizeof t->stream_waits->uses[0]);
  return t->stream_waits;
}

/* Makes the copies wait for the work that is queued on `stream` now. One use for each device is sufficient. */
static tdict_status add_use(tdict_transfer *t, tdict_gpu *gpu, tdict_cu_stream stream, tdict_error *err) {
  tdict_stream_waits *w = waits_of(t);
  if (!w) return tdict_fail(err, TDICT_ENOMEM, "transfer: no host memory to wait for streams");
  for (int i = 0; i < w->num_uses; i++)
    if (w->uses[i].gpu == gpu) return TDICT_OK;
  TDICT_ASSERT(w->num_uses < count_devices(t));
  tdict_status status = tdict_use_init(&w->uses[w->num_uses], gpu, stream, NULL, err);
  w->num_uses += status == TDICT_OK;
  return status;
}

tdict_status tdict_stream_waits_record(tdict_transfer *t, tdict_stream after, bool is_new, tdict_error *err) {
  tdict_devices *devices = t->future.engine->config.devices;
  tdict_gpu *gpu;
  tdict_status status = TDICT_OK;
  if (tdict_has_stream(after)) {
    status = tdict_devices_gpu(devices, after.device, &gpu, err);
    return status == TDICT_OK ? add_use(t, gpu, after.handle, err) : status;
  }
  const tdict_gpu *last = NULL;
  for (uint32_t i = 0; i < t->plan.num_items && !is_new && status == TDICT_OK; i++) {
    const tdict_item *item = &t->plan.items[i];
    if (item->gpu && item->gpu != last) status = add_use(t, item->gpu, NULL, err);
    last = item->gpu;
    if (status != TDICT_OK || item->way == TDICT_WAY_HOST || item->kind != TDICT_CU_D2D) continue;
    status = tdict_devices_gpu(devices, item->src->storage->device, &gpu, err);
    if (status == TDICT_OK) status = add_use(t, gpu, NULL, err);
  }
  return status;
}

bool tdict_stream_waits_add(tdict_transfer *t, tdict_fence *fence) {
  tdict_stream_waits *w = waits_of(t);
  if (w) tdict_fences_add(&w->recorded, fence);
  return w && !w->recorded.no_memory;
}

tdict_status tdict_stream_waits_queue(tdict_stream_waits *w, tdict_gpu *gpu, tdict_cu_stream stream, tdict_error *err) {
  tdict_status status = TDICT_OK;
  for (int i = 0; i < w->num_uses && status == TDICT_OK; i++)
    status = w->uses[i].fence.ops->wait_on_stream(&w->uses[i].fence, gpu, stream, err);
  return status == TDICT_OK ? tdict_fences_wait_on_stream(&w->recorded, "transfer", gpu, stream, err) : status;
}

void tdict_stream_waits_free(tdict_stream_waits *w) {
  for (int i = 0; i < w->num_uses; i++) tdict_use_reset(&w->uses[i]);
  tdict_fences_reset(&w->recorded);
  free(w);
}
