/* Implements plain driver calls, see raw.h. Does not use tdict, because it is used to verify tdict. A raw_driver owns
 * its stream and a reference to the primary context. Thread rule: see raw.h. */
#include "raw.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int cu_result;
typedef int cu_device;
typedef void *cu_context;
typedef void *cu_stream;
typedef void *cu_module;
typedef void *cu_function;
/* Has the layout of CUlaunchConfig in NVIDIA's manual. */
typedef struct cu_launch {
  unsigned grid[3], block[3], shared_bytes;
  cu_stream stream;
  void *attributes;
  unsigned num_attributes;
} cu_launch;

/* The driver functions: member of raw_driver, name in the library, parameters. */
#define CALLS(CALL)                                                                                                   \
  CALL(init, "cuInit", (unsigned flags))                                                                              \
  CALL(driver_version, "cuDriverGetVersion", (int *version))                                                          \
  CALL(device_get, "cuDeviceGet", (cu_device * device, int ordinal))                                                  \
  CALL(device_name, "cuDeviceGetName", (char *name, int bytes, cu_device device))                                     \
  CALL(ctx_retain, "cuDevicePrimaryCtxRetain", (cu_context * context, cu_device device))                              \
  CALL(ctx_release, "cuDevicePrimaryCtxRelease_v2", (cu_device device))                                               \
  CALL(ctx_push, "cuCtxPushCurrent_v2", (cu_context context))                                                         \
  CALL(ctx_pop, "cuCtxPopCurrent_v2", (cu_context * context))                                                         \
  CALL(mem_alloc, "cuMemAlloc_v2", (raw_address * out, size_t bytes))                                                 \
  CALL(mem_free, "cuMemFree_v2", (raw_address device))                                                                \
  CALL(host_alloc, "cuMemHostAlloc", (void **out, size_t bytes, unsigned flags))                                      \
  CALL(host_free, "cuMemFreeHost", (void *host))                                                                      \
  CALL(copy_in, "cuMemcpyHtoD_v2", (raw_address device, const void *host, size_t bytes))                              \
  CALL(copy_out, "cuMemcpyDtoH_v2", (void *host, raw_address device, size_t bytes))                                   \
  CALL(copy_in_async, "cuMemcpyHtoDAsync_v2", (raw_address device, const void *host, size_t bytes, cu_stream stream)) \
  CALL(copy_out_async, "cuMemcpyDtoHAsync_v2", (void *host, raw_address device, size_t bytes, cu_stream stream))      \
  CALL(fill, "cuMemsetD8_v2", (raw_address device, unsigned char byte, size_t bytes))                                 \
  CALL(stream_create, "cuStreamCreate", (cu_stream * out, unsigned flags))                                            \
  CALL(stream_destroy, "cuStreamDestroy_v2", (cu_stream stream))                                                      \
  CALL(stream_synchronize, "cuStreamSynchronize", (cu_stream stream))                                                 \
  CALL(stream_query, "cuStreamQuery", (cu_stream stream))                                                             \
  CALL(error_name, "cuGetErrorName", (cu_result result, const char **name))                                           \
  CALL(device_count, "cuDeviceGetCount", (int *count))                                                                \
  CALL(device_memory, "cuDeviceTotalMem_v2", (size_t * bytes, cu_device device))                                      \
  CALL(device_attribute, "cuDeviceGetAttribute", (int *value, int attribute, cu_device device))                       \
  CALL(device_bus, "cuDeviceGetPCIBusId", (char *text, int bytes, cu_device device))                                  \
  CALL(module_load, "cuModuleLoadData", (cu_module * out, const void *image))                                         \
  CALL(module_unload, "cuModuleUnload", (cu_module module))                                                           \
  CALL(module_function, "cuModuleGetFunction", (cu_function * out, cu_module module, const char *name))               \
  CALL(launch, "cuLaunchKernelEx", (const cu_launch *how, cu_function function, void **parameters, void **extra))
#define MEMBER(name, entry, parameters) cu_result(*name) parameters;
struct raw_driver {
  void *library;
  CALLS(MEMBER)
  cu_device device;
  cu_context context; /* NULL until it is retained and pushed */
  cu_stream stream;
  cu_module module; /* contains the kernel; loaded at the first launch */
  cu_function kernel;
  int version;
  char name[128], why[256];
};

enum { stream_non_blocking = 1 };
/* Values of CUdevice_attribute from NVIDIA's "CUDA Driver API" manual. */
enum { attribute_engines = 40, attribute_major = 75, attribute_minor = 76 };

#define ENTRY(name, entry, parameters) {entry, offsetof(raw_driver, name)},
static const struct {
  const char *name;
  size_t offset;
} entries[] = {CALLS(ENTRY)};
#define NUMBER(name, entry, parameters) entry_##name,
enum { CALLS(NUMBER) num_entries };

/* Returns whether `result` is 0. Otherwise, sets the message of raw_why() to the name of the call and the error. */
static bool has_worked(raw_driver *r, int entry, cu_result result) {
  if (result == 0) return true;
  const char *name = NULL, *call = entries[entry].name;
  if (r->error_name(result, &name) != 0 || !name) name = "no name";
  snprintf(r->why, sizeof r->why, "%.*s returned %d (%s)", (int)strcspn(call, "_"), call, result, name);
  return false;
}
#define CALL(function, ...) has_worked(r, entry_##function, r->function(__VA_ARGS__))

static bool load_entries(raw_driver *r) {
  r->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!r->library) {
    snprintf(r->why, sizeof r->why, "cannot open libcuda.so.1: %s", dlerror());
    return false;
  }
  for (size_t i = 0; i < num_entries; i++) {
    void *entry = dlsym(r->library, entries[i].name);
    if (!entry) {
      snprintf(r->why, sizeof r->why, "libcuda.so.1 has no %s", entries[i].name);
      return false;
    }
    /* C does not define casts of object pointers to function pointers. POSIX guarantees the same representation. */
    memcpy((char *)r + entries[i].offset, &entry, sizeof entry);
  }
  return true;
}

static bool push_context(raw_driver *r, int ordinal) {
  cu_context context = NULL;
  if (!CALL(init, 0) || !CALL(driver_version, &r->version) || !CALL(device_get, &r->device, ordinal) ||
      !CALL(device_name, r->name, (int)sizeof r->name, r->device) || !CALL(ctx_retain, &context, r->device))
    return false;
  if (!CALL(ctx_push, context)) {
    (void)r->ctx_release(r->device);
    return false;
  }
  r->context = context;
  return CALL(stream_create, &r->stream, stream_non_blocking);
}

raw_driver *raw_open(int ordinal, char *why, size_t why_bytes) {
  raw_driver *r = calloc(1, sizeof *r);
  if (!r) {
    snprintf(why, why_bytes, "out of memory");
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
  /* libcuda is not closed, because threads of the driver may still run its code. */
  free(r);
}

const char *raw_why(const raw_driver *r) { return r->why; }
const char *raw_device_name(const raw_driver *r) { return r->name; }
int raw_driver_version(const raw_driver *r) { return r->version; }

bool raw_alloc(raw_driver *r, size_t bytes, raw_address *out) { return CALL(mem_alloc, out, bytes); }

bool raw_free(raw_driver *r, raw_address device) { return CALL(mem_free, device); }

bool raw_host_alloc(raw_driver *r, size_t bytes, void **out) { return CALL(host_alloc, out, bytes, 0); }

bool raw_host_free(raw_driver *r, void *host) { return CALL(host_free, host); }

bool raw_copy_in(raw_driver *r, raw_address device, const void *host, size_t bytes) {
  return CALL(copy_in, device, host, bytes);
}

bool raw_copy_out(raw_driver *r, void *host, raw_address device, size_t bytes) {
  return CALL(copy_out, host, device, bytes);
}

bool raw_read_back(raw_driver *r, void *host, raw_address device, size_t bytes) {
  cu_context top;
  if (!CALL(ctx_push, r->context)) return false;
  const bool good = CALL(copy_out, host, device, bytes);
  (void)r->ctx_pop(&top);
  return good;
}

bool raw_copy_in_async(raw_driver *r, raw_address device, const void *host, size_t bytes) {
  return CALL(copy_in_async, device, host, bytes, r->stream);
}

bool raw_copy_out_async(raw_driver *r, void *host, raw_address device, size_t bytes) {
  return CALL(copy_out_async, host, device, bytes, r->stream);
}

bool raw_finish_own(raw_driver *r) { return CALL(stream_synchronize, r->stream); }

bool raw_own_is_idle(raw_driver *r) {
  const cu_result not_ready = 600;
  return r->stream_query(r->stream) != not_ready;
}

void *raw_stream(const raw_driver *r) { return r->stream; }

bool raw_finish(raw_driver *r) { return CALL(stream_synchronize, r->stream) && CALL(stream_synchronize, NULL); }

bool raw_fill(raw_driver *r, raw_address device, unsigned char byte, size_t bytes) {
  return CALL(fill, device, byte, bytes) && raw_finish(r);
}

/* The kernel in PTX. The driver compiles it, so no CUDA toolkit is needed. The kernel reads the device's nanosecond
 * clock until the requested time has passed. */
static const char spin_text[] = ".version 6.3\n"
                                ".target sm_75\n"
                                ".address_size 64\n"
                                ".visible .entry tdict_bench_spin(.param .u64 nanoseconds)\n"
                                "{\n"
                                "  .reg .pred %p;\n"
                                "  .reg .b64 %rd<5>;\n"
                                "  ld.param.u64 %rd1, [nanoseconds];\n"
                                "  mov.u64 %rd2, %globaltimer;\n"
                                "again:\n"
                                "  mov.u64 %rd3, %globaltimer;\n"
                                "  sub.s64 %rd4, %rd3, %rd2;\n"
                                "  setp.lt.u64 %p, %rd4, %rd1;\n"
                                "  @%p bra again;\n"
                                "  ret;\n"
                                "}\n";

static bool load_kernel(raw_driver *r) {
  if (r->kernel) return true;
  if (!r->module && !CALL(module_load, &r->module, spin_text)) return false;
  return CALL(module_function, &r->kernel, r->module, "tdict_bench_spin");
}

bool raw_spin(raw_driver *r, uint64_t nanoseconds) {
  void *parameters[1] = {&nanoseconds};
  const cu_launch how = {{1, 1, 1}, {1, 1, 1}, 0, r->stream, NULL, 0};
  return load_kernel(r) && CALL(launch, &how, r->kernel, parameters, NULL);
}

int raw_device_count(raw_driver *r) {
  int count = 0;
  return CALL(device_count, &count) ? count : -1;
}

bool raw_device_describe(raw_driver *r, int ordinal, raw_device_info *out) {
  cu_device d;
  memset(out, 0, sizeof *out);
  return CALL(device_get, &d, ordinal) && CALL(device_name, out->name, (int)sizeof out->name, d) &&
         CALL(device_bus, out->bus, (int)sizeof out->bus, d) && CALL(device_memory, &out->memory_bytes, d) &&
         CALL(device_attribute, &out->compute_major, attribute_major, d) &&
         CALL(device_attribute, &out->compute_minor, attribute_minor, d) &&
         CALL(device_attribute, &out->copy_engines, attribute_engines, d);
}
