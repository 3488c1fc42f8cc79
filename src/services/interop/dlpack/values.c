/* Converts devices and dtypes to and from DLPack's codes. See values.h for the thread rule. */
#include "services/interop/dlpack/values.h"

#include "core/base/error.h"

/* Names of DLPack's type codes and device types, for messages. */
static const char *const dtype_names[] = {"int",
                                          "uint",
                                          "float",
                                          "opaque handle",
                                          "bfloat",
                                          "complex",
                                          "bool",
                                          "float8_e3m4",
                                          "float8_e4m3",
                                          "float8_e4m3b11fnuz",
                                          "float8_e4m3fn",
                                          "float8_e4m3fnuz",
                                          "float8_e5m2",
                                          "float8_e5m2fnuz",
                                          "float8_e8m0fnu",
                                          "float6_e2m3fn",
                                          "float6_e3m2fn",
                                          "float4_e2m1fn"};
static const char *const device_names[] = {
    NULL,   "cpu",       "cuda",    "cuda_host",    "opencl", NULL,     NULL,      "vulkan", "metal", "vpi",
    "rocm", "rocm_host", "ext_dev", "cuda_managed", "oneapi", "webgpu", "hexagon", "maia",   "trn"};
#define COUNT_OF(array) ((int32_t)(sizeof(array) / sizeof *(array)))

static tdict_status refuse_dtype(tdict_dl_dtype dtype, tdict_error *err) {
  const char *name = dtype.code < COUNT_OF(dtype_names) ? dtype_names[dtype.code] : "unknown";
  return tdict_fail(
      err, TDICT_EDTYPE,
      "dlpack: the dtype is %s (code %d, %d bits, %d lanes), wanted a dtype of tdict/values.h and one lane", name,
      dtype.code, dtype.bits, dtype.lanes);
}

static tdict_status refuse_device(tdict_dl_device device, tdict_error *err) {
  const char *name = device.type >= 0 && device.type < COUNT_OF(device_names) ? device_names[device.type] : NULL;
  return tdict_fail(err, TDICT_ENOTSUP,
                    "dlpack: the device is %s:%d (type %d), wanted cpu, cuda, cuda_host, cuda_managed or ext_dev",
                    name ? name : "unknown", (int)device.id, (int)device.type);
}

tdict_status tdict_dlpack_describe(const tdict_tensor *t, bool pinned_as_cpu, tdict_dl_tensor *out, tdict_error *err) {
  const tdict_dl_dtype dtype = {(uint8_t)(t->dtype & 0xff), (uint8_t)(t->dtype >> 8 & 0xff),
                                (uint16_t)(t->dtype >> 16)};
  tdict_dl_device device = {t->storage->device.type, t->storage->device.index};
  if (dtype.lanes != 1) return refuse_dtype(dtype, err);
  if (device.type != TDICT_DL_CPU && device.type != TDICT_DL_CUDA && device.type != TDICT_DL_EXT_DEV)
    return refuse_device(device, err);
  if (tdict_tensor_is_pinned(t) && !pinned_as_cpu) device.type = TDICT_DL_CUDA_HOST;
  out->data = t->numel ? t->data : NULL; /* consumers expect NULL if there are no elements */
  out->device = device;
  out->ndim = t->ndim;
  out->dtype = dtype;
  out->byte_offset = 0;
  return TDICT_OK;
}

/* Reads the device. Ignores the index of host memory, because the cpu has no index in tdict. */
static tdict_status read_device(tdict_dl_device from, tdict_tensor_desc *out, tdict_error *err) {
  switch (from.type) {
  case TDICT_DL_CUDA_HOST:
    out->flags |= TDICT_DESC_PINNED;
    out->device = tdict_cpu();
    return TDICT_OK;
  case TDICT_DL_CPU:
    out->device = tdict_cpu();
    return TDICT_OK;
  case TDICT_DL_CUDA:
  case TDICT_DL_CUDA_MANAGED:
    out->device = tdict_cuda(from.id);
    return TDICT_OK;
  case TDICT_DL_EXT_DEV:
    out->device = tdict_sim(from.id);
    return TDICT_OK;
  default:
    return refuse_device(from, err);
  }
}

tdict_status tdict_dlpack_read(const tdict_dl_tensor *from, bool read_only, tdict_tensor_desc *out, tdict_error *err) {
  const uintptr_t data = (uintptr_t)from->data;
  const tdict_dl_dtype dtype = from->dtype;
  *out = tdict_tensor_desc_default();
  out->dtype = TDICT_DTYPE(dtype.code, dtype.bits, dtype.lanes);
  if (dtype.lanes != 1 || tdict_dtype_bytes(out->dtype) == 0) return refuse_dtype(dtype, err);
  if (from->ndim < 0 || from->ndim > TDICT_MAX_NDIM)
    return tdict_fail(err, TDICT_EINVAL, "dlpack: the tensor has %d dimensions, wanted 0 to %d", (int)from->ndim,
                      TDICT_MAX_NDIM);
  if (from->ndim > 0 && !from->shape)
    return tdict_fail(err, TDICT_EINVAL, "dlpack: shape is NULL, and the tensor has %d dimensions", (int)from->ndim);
  if (from->byte_offset > UINTPTR_MAX - data)
    return tdict_fail(err, TDICT_EINVAL, "dlpack: byte_offset is %llu, which leads outside of the address space",
                      (unsigned long long)from->byte_offset);
  /* A producer may pass NULL data with an offset if there are no elements. */
  out->data = data ? (void *)(data + (uintptr_t)from->byte_offset) : NULL;
  out->ndim = from->ndim;
  out->shape = from->shape;
  out->strides = from->strides;
  if (read_only) out->flags |= TDICT_DESC_READ_ONLY;
  return read_device(from->device, out, err);
}
