/* Imports Arrow device arrays, whose buffers are in device memory, pinned memory or ordinary host memory. Before the
 * import, waits for the event of the array. See tdict/arrow.h for ownership and threads. */
#include "core/base/error.h"
#include "device/devices.h"
#include "services/interop/arrow/import.h"

/* Finds the gpu whose memory or event the array uses. *gpu is NULL for ordinary host memory, and for pinned memory
 * without an event. */
static tdict_status find_gpu(const char *what, tdict_devices *devices, const struct ArrowDeviceArray *array,
                             tdict_gpu **gpu, tdict_error *err) {
  tdict_device device = {array->device_type, (int32_t)array->device_id};
  *gpu = NULL;
  if (array->device_type == ARROW_DEVICE_CPU) return TDICT_OK;
  if (array->device_type == ARROW_DEVICE_CUDA_HOST && !array->sync_event) return TDICT_OK;
  if (array->device_type == ARROW_DEVICE_CUDA_HOST) device.type = TDICT_DEVICE_CUDA;
  if (device.type != TDICT_DEVICE_CUDA && device.type != TDICT_DEVICE_SIM)
    return tdict_fail(err, TDICT_ENOTSUP, "%s: the Arrow device type is %d, wanted cpu, cuda, cuda_host or ext_dev",
                      what, (int)array->device_type);
  if (array->device_id != device.index || device.index < 0)
    return tdict_fail(err, TDICT_ENODEVICE, "%s: the device id is %lld", what, (long long)array->device_id);
  return tdict_devices_gpu(devices, device, gpu, err);
}

/* Waits for the event of an array. Arrow's event is a pointer to the handle of the driver's event. */
static tdict_status wait_for_event(tdict_gpu *gpu, void *sync_event, tdict_error *err) {
  tdict_gpu_scope scope;
  if (!gpu || !sync_event) return TDICT_OK;
  tdict_status status = tdict_gpu_enter(gpu, &scope, err);
  if (status == TDICT_OK) status = tdict_gpu_sync_event(gpu, *(tdict_cu_event *)sync_event, err);
  tdict_gpu_leave(gpu, &scope);
  return status;
}

tdict_status tdict_arrow_import_device(tdict_context *context, const struct ArrowSchema *schema,
                                       struct ArrowDeviceArray *array, const tdict_arrow_import_options *options,
                                       tdict_tree **out, tdict_error *err) {
  static const char what[] = "arrow_import_device";
  tdict_arrow_importer m = {.what = what, .device = {TDICT_DEVICE_CPU, 0}, .flags = TDICT_DESC_READ_ONLY};
  tdict_gpu *gpu;
  if (!context || !schema || !array || !out)
    return tdict_fail(err, TDICT_EINVAL, "%s: %s is NULL", what,
                      !context  ? "context"
                      : !schema ? "schema"
                      : array   ? "out"
                                : "array");
  if (!schema->release || !array->array.release)
    return tdict_fail(err, TDICT_EINVAL, "%s: the %s is released", what, schema->release ? "array" : "schema");
  tdict_devices *devices = tdict_context_devices(context);
  tdict_status status = tdict_arrow_read_options(what, options, &m.options, err);
  if (status == TDICT_OK) status = find_gpu(what, devices, array, &gpu, err);
  if (status == TDICT_OK) status = wait_for_event(gpu, array->sync_event, err);
  if (status != TDICT_OK) return status;
  if (array->device_type == ARROW_DEVICE_CUDA_HOST) {
    m.flags |= TDICT_DESC_PINNED;
  } else if (gpu) {
    m.device = gpu->memory.device;
    m.memory = &gpu->memory;
  }
  return tdict_arrow_import_tree(&m, schema, &array->array, out, err);
}
