/* Sets the buffers of an exported array, and remembers whether all of them are pinned. The array owns its buffers.
 * Thread rule: as in export.h. */
#include "core/base/error.h"
#include "core/memory/pinned_pool.h"
#include "core/tensor/tensor.h"
#include "device/gpu.h"
#include "services/interop/arrow/export.h"

tdict_status tdict_arrow_make_bits(int64_t count, tdict_tensor **out, tdict_error *err) {
  const int64_t bytes = count / 8 + (count % 8 != 0);
  return tdict_tensor_zeros(TDICT_U8, 1, &bytes, NULL, out, err);
}

/* Returns true if the tensor is in the pinned pool of a context that has a cuda device. */
static bool is_pinned_for_cuda(const tdict_tensor *t) {
  const tdict_storage *s = t->storage;
  if (!(s->flags & TDICT_STORAGE_PINNED) || !s->memory) return false;
  const tdict_gpu *gpu = tdict_pinned_pool_pinner_self(s->memory);
  return gpu && gpu->driver->device_type == TDICT_DEVICE_CUDA;
}

void tdict_arrow_export_buffer(tdict_arrow_exporter *e, const tdict_arrow_node *node, int buffer,
                               tdict_tensor *tensor) {
  e->is_pinned = e->is_pinned && is_pinned_for_cuda(tensor);
  e->has_buffers = true;
  tdict_arrow_node_set_buffer(node, buffer, tensor);
}

tdict_status tdict_arrow_export_place(tdict_arrow_exporter *e, const tdict_arrow_node *node, int buffer,
                                      tdict_tensor *host, tdict_error *err) {
  tdict_tensor *placed = host;
  if (e->found && e->device.type != TDICT_DEVICE_CPU) {
    tdict_status status = TDICT_OK;
    if (!e->memory)
      status = tdict_fail(err, TDICT_EWRONGDEVICE,
                          "%s: the leaf needs a copy, but the device memory belongs to the program", e->what);
    if (status == TDICT_OK) status = tdict_tensor_clone(host, e->memory, &placed, err);
    tdict_tensor_release(host);
    if (status != TDICT_OK) return status;
  }
  tdict_arrow_export_buffer(e, node, buffer, placed);
  return TDICT_OK;
}
