/* Implements plain driver calls, see raw.h. Uses nothing of tdict, so that it can verify tdict. The raw_driver owns
 * its context reference and stream. Thread rule: see raw.h. */
#include "raw.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raw_private.h"

enum { stream_non_blocking = 1 };

/* The name of a driver function, and the offset of its pointer in raw_driver. */
static const struct {
  const char *name;
  size_t offset;
} entries[] = {
    {"cuInit", offsetof(raw_driver, init)},
    {"cuDriverGetVersion", offsetof(raw_driver, driver_version)},
    {"cuDeviceGet", offsetof(raw_driver, device_get)},
    {"cuDeviceGetName", offsetof(raw_driver, device_name)},
    {"cuDevicePrimaryCtxRetain", offsetof(raw_driver, ctx_retain)},
    {"cuDevicePrimaryCtxRelease_v2", offsetof(raw_driver, ctx_release)},
    {"cuCtxPushCurrent_v2", offsetof(raw_driver, ctx_push)},
    {"cuCtxPopCurrent_v2", offsetof(raw_driver, ctx_pop)},
    {"cuMemAlloc_v2", offsetof(raw_driver, mem_alloc)},
    {"cuMemFree_v2", offsetof(raw_driver, mem_free)},
    {"cuMemHostAlloc", offsetof(raw_driver, host_alloc)},
    {"cuMemFreeHost", offsetof(raw_driver, host_free)},
    {"cuMemcpyHtoD_v2", offsetof(raw_driver, copy_in)},
    {"cuMemcpyDtoH_v2", offsetof(raw_driver, copy_out)},
    {"cuMemcpyHtoDAsync_v2", offsetof(raw_driver, copy_in_async)},
    {"cuMemcpyDtoHAsync_v2", offsetof(raw_driver, copy_out_async)},
    {"cuMemsetD8_v2", offsetof(raw_driver, fill)},
    {"cuStreamCreate", offsetof(raw_driver, stream_create)},
    {"cuStreamDestroy_v2", offsetof(raw_driver, stream_destroy)},
    {"cuStreamSynchronize", offsetof(raw_driver, stream_synchronize)},
    {"cuStreamQuery", offsetof(raw_driver, stream_query)},
    {"cuGetErrorName", offsetof(raw_driver, error_name)},
    {"cuDeviceGetCount", offsetof(raw_driver, device_count)},
    {"cuDeviceTotalMem_v2", offsetof(raw_driver, device_memory)},
    {"cuDeviceGetAttribute", offsetof(raw_driver, device_attribute)},
    {"cuDeviceGetPCIBusId", offsetof(raw_driver, device_bus)},
    {"cuModuleLoadData", offsetof(raw_driver, module_load)},
    {"cuModuleUnload", offsetof(raw_driver, module_unload)},
    {"cuModuleGetFunction", offsetof(raw_driver, module_function)},
    {"cuLaunchKernelEx", offsetof(raw_driver, launch)},
};

bool raw_answered(raw_driver *r, const char *call, cu_result result) {
  if (result == 0) return true;
  const char *name = NULL;
  if (r->error_name(result, &name) != 0 || !name) name = "no name";
  snprintf(r->why, sizeof r->why, "%s returned %d (%s)", call, result, name);
  return false;
}

static bool load_entries(raw_driver *r) {
  r->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!r->library) {
    snprintf(r->why, sizeof r->why, "cannot open libcuda.so.1: %s", dlerror());
    return false;
  }
  for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
    void *entry = dlsym(r->library, entries[i].name);
    if (!entry) {
      snprintf(r->why, sizeof r->why, "libcuda.so.1 has no %s", entries[i].name);
      return false;
    }
    /* C has no cast from an object pointer to a function pointer. POSIX guarantees that their bytes are equal. */
    memcpy((char *)r + entries[i].offset, &entry, sizeof entry);
  }
  return true;
}

static bool push_context(raw_driver *r, int ordinal) {
  cu_context context = NULL;
  if (!raw_answered(r, "cuInit", r->init(0)) ||
      !raw_answered(r, "cuDriverGetVersion", r->driver_version(&r->version)) ||
      !raw_answered(r, "cuDeviceGet", r->device_get(&r->device, ordinal)) ||
      !raw_answered(r, "cuDeviceGetName", r->device_name(r->name, (int)sizeof r->name, r->device)) ||
      !raw_answered(r, "cuDevicePrimaryCtxRetain", r->ctx_retain(&context, r->device)))
    return false;
  if (!raw_answered(r, "cuCtxPushCurrent", r->ctx_push(context))) {
    (void)r->ctx_release(r->device);
    return false;
  }
  r->context = context;
  return raw_answered(r, "cuStreamCreate", r->stream_create(&r->stream, stream_non_blocking));
}

raw_driver *raw_open(int ordinal, char *why, size_t why_bytes) {
  raw_driver *r = calloc(1, sizeof *r);
  if (!r) {
    snprintf(why, why_bytes, "no memory");
    return NULL;
  }
  if (load_entries(r) && push_context(r, ordinal)) return r;
  snprintf(why, why_bytes, "%s", r->why);
  raw_close(r);
  return NULL;
}

void raw_close(raw_driver *r) {
  if (!r) return;
  if (r->module) (void)r->module_unload(r->module);
  if (r->stream) (void)r->stream_destroy(r->stream);
  if (r->context) {
    cu_context top;
    (void)r->ctx_pop(&top);
    (void)r->ctx_release(r->device);
  }
  /* Keep the library open: the driver has threads that run its code. */
  free(r);
}

const char *raw_why(const raw_driver *r) { return r->why; }
const char *raw_device_name(const raw_driver *r) { return r->name; }
int raw_driver_version(const raw_driver *r) { return r->version; }

bool raw_alloc(raw_driver *r, size_t bytes, raw_address *out) {
  return raw_answered(r, "cuMemAlloc", r->mem_alloc(out, bytes));
}

bool raw_free(raw_driver *r, raw_address device) { return raw_answered(r, "cuMemFree", r->mem_free(device)); }

bool raw_host_alloc(raw_driver *r, size_t bytes, void **out) {
  return raw_answered(r, "cuMemHostAlloc", r->host_alloc(out, bytes, 0));
}

bool raw_host_free(raw_driver *r, void *host) { return raw_answered(r, "cuMemFreeHost", r->host_free(host)); }

bool raw_copy_in(raw_driver *r, raw_address device, const void *host, size_t bytes) {
  return raw_answered(r, "cuMemcpyHtoD", r->copy_in(device, host, bytes));
}

bool raw_copy_out(raw_driver *r, void *host, raw_address device, size_t bytes) {
  return raw_answered(r, "cuMemcpyDtoH", r->copy_out(host, device, bytes));
}

bool raw_copy_in_async(raw_driver *r, raw_address device, const void *host, size_t bytes) {
  return raw_answered(r, "cuMemcpyHtoDAsync", r->copy_in_async(device, host, bytes, r->stream));
}

bool raw_copy_out_async(raw_driver *r, void *host, raw_address device, size_t bytes) {
  return raw_answered(r, "cuMemcpyDtoHAsync", r->copy_out_async(host, device, bytes, r->stream));
}

bool raw_finish_own(raw_driver *r) { return raw_answered(r, "cuStreamSynchronize", r->stream_synchronize(r->stream)); }

bool raw_own_is_idle(raw_driver *r) {
  const cu_result not_ready = 600;
  return r->stream_query(r->stream) != not_ready;
}

void *raw_stream(const raw_driver *r) { return r->stream; }

bool raw_finish(raw_driver *r) {
  return raw_answered(r, "cuStreamSynchronize", r->stream_synchronize(r->stream)) &&
         raw_answered(r, "cuStreamSynchronize", r->stream_synchronize(NULL));
}

bool raw_fill(raw_driver *r, raw_address device, unsigned char byte, size_t bytes) {
  return raw_answered(r, "cuMemsetD8", r->fill(device, byte, bytes)) && raw_finish(r);
}
