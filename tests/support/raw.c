/* Accesses device memory without the library: see raw.h. The test owns each handle. Thread rule: the main thread. */
#include "support/raw.h"

#include <dlfcn.h>

#include "device/devices.h"
#include "support/test.h"

/* libcuda functions, declared independently of tdict, whose declarations could be wrong. */
typedef unsigned long long cu_address;
typedef struct raw_cuda {
  int (*init)(unsigned flags);
  int (*device_get)(int *device, int ordinal);
  int (*retain)(void **context, int device);
  int (*release)(int device);
  int (*push)(void *context);
  int (*pop)(void **context);
  int (*synchronize)(void);
  int (*to_device)(cu_address dst, const void *src, size_t bytes);
  int (*to_host)(void *dst, cu_address src, size_t bytes);
  int (*fill)(cu_address dst, unsigned char byte, size_t bytes);
  int (*to_device_async)(cu_address dst, const void *src, size_t bytes, void *stream);
  int (*to_host_async)(void *dst, cu_address src, size_t bytes, void *stream);
  int (*stream_create)(void **stream, unsigned flags);
  int (*stream_synchronize)(void *stream);
  int (*stream_destroy)(void *stream);
} raw_cuda;

struct raw_memory {
  tdict_device device;
  tdict_context *context;
  tdict_stream stream; /* sim */
  raw_cuda cuda;
  void *primary; /* cuda: the device's primary context */
  int number;    /* cuda: the device's CUdevice */
  void *copying; /* cuda: a stream for copies, created before all blocks: see compute-sanitizer in docs/testing.md */
};

static void cu(int result, const char *call) {
  if (result) fail_msg("raw %s: CUDA error %d", call, result);
}

static void take(void *library, const char *symbol, void *function) {
  void *found = dlsym(library, symbol);
  if (!found) fail_msg("raw: libcuda.so.1 has no %s", symbol);
  memcpy(function, &found, sizeof found);
}

static void open_cuda(raw_memory *raw) {
  raw_cuda *c = &raw->cuda;
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) fail_msg("raw: %s", dlerror());
  take(library, "cuInit", &c->init);
  take(library, "cuDeviceGet", &c->device_get);
  take(library, "cuDevicePrimaryCtxRetain", &c->retain);
  take(library, "cuDevicePrimaryCtxRelease_v2", &c->release);
  take(library, "cuCtxPushCurrent_v2", &c->push);
  take(library, "cuCtxPopCurrent_v2", &c->pop);
  take(library, "cuCtxSynchronize", &c->synchronize);
  take(library, "cuMemcpyHtoD_v2", &c->to_device);
  take(library, "cuMemcpyDtoH_v2", &c->to_host);
  take(library, "cuMemsetD8_v2", &c->fill);
  take(library, "cuMemcpyHtoDAsync_v2", &c->to_device_async);
  take(library, "cuMemcpyDtoHAsync_v2", &c->to_host_async);
  take(library, "cuStreamCreate", &c->stream_create);
  take(library, "cuStreamSynchronize", &c->stream_synchronize);
  take(library, "cuStreamDestroy_v2", &c->stream_destroy);
  cu(c->init(0), "cuInit");
  cu(c->device_get(&raw->number, raw->device.index), "cuDeviceGet");
  cu(c->retain(&raw->primary, raw->number), "cuDevicePrimaryCtxRetain");
  void *popped;
  cu(c->push(raw->primary), "cuCtxPushCurrent");
  cu(c->stream_create(&raw->copying, 1), "cuStreamCreate");
  cu(c->pop(&popped), "cuCtxPopCurrent");
}

raw_memory *raw_open(tdict_context *context, tdict_device device) {
  raw_memory *raw = td_zeros(1, sizeof *raw);
  raw->device = device;
  raw->context = context;
  if (device.type == TDICT_DEVICE_CUDA)
    open_cuda(raw);
  else if (device.type == TDICT_DEVICE_SIM)
    td_ok(tdict_stream_create(context, device, &raw->stream, err));
  else
    assert_int_equal(device.type, TDICT_DEVICE_CPU);
  return raw;
}

static void close_cuda(raw_memory *raw) {
  cu(raw->cuda.stream_destroy(raw->copying), "cuStreamDestroy");
  cu(raw->cuda.release(raw->number), "cuDevicePrimaryCtxRelease");
}

void raw_close(raw_memory *raw) {
  if (!raw) return;
  if (raw->device.type == TDICT_DEVICE_CUDA) close_cuda(raw);
  if (raw->device.type == TDICT_DEVICE_SIM) tdict_stream_destroy(raw->context, raw->stream);
  free(raw);
}

/* Returns the host address of bytes in host memory or on the simulated device. */
static void *host_bytes(raw_memory *raw, const void *address, size_t bytes) {
  if (raw->device.type == TDICT_DEVICE_CPU) return (void *)(uintptr_t)address;
  char *first = tdict_sim_host_pointer(raw->stream, address);
  char *last = tdict_sim_host_pointer(raw->stream, (const char *)address + bytes - 1);
  if (!first || last != first + bytes - 1) fail_msg("raw: %p is not an address of %zu simulated bytes", address, bytes);
  return first;
}

void raw_read(raw_memory *raw, void *host, const void *device_address, size_t bytes) {
  if (!bytes) return;
  if (raw->device.type != TDICT_DEVICE_CUDA) {
    memcpy(host, host_bytes(raw, device_address, bytes), bytes);
    return;
  }
  void *popped;
  cu(raw->cuda.push(raw->primary), "cuCtxPushCurrent");
  cu(raw->cuda.to_host(host, (cu_address)(uintptr_t)device_address, bytes), "cuMemcpyDtoH");
  /* The copy is already complete, but compute-sanitizer --track-stream-ordered-races notices this only after a wait. */
  cu(raw->cuda.stream_synchronize(NULL), "cuStreamSynchronize");
  cu(raw->cuda.pop(&popped), "cuCtxPopCurrent");
}

void raw_write(raw_memory *raw, void *device_address, const void *host, size_t bytes) {
  if (!bytes) return;
  if (raw->device.type != TDICT_DEVICE_CUDA) {
    memcpy(host_bytes(raw, device_address, bytes), host, bytes);
    return;
  }
  void *popped;
  cu(raw->cuda.push(raw->primary), "cuCtxPushCurrent");
  cu(raw->cuda.to_device((cu_address)(uintptr_t)device_address, host, bytes), "cuMemcpyHtoD");
  /* Wait: a copy from pageable memory may return before its last bytes arrive, and a fill before it begins. */
  cu(raw->cuda.synchronize(), "cuCtxSynchronize");
  cu(raw->cuda.pop(&popped), "cuCtxPopCurrent");
}

void raw_fill(raw_memory *raw, void *device_address, unsigned char byte, size_t bytes) {
  if (!bytes) return;
  if (raw->device.type != TDICT_DEVICE_CUDA) {
    memset(host_bytes(raw, device_address, bytes), byte, bytes);
    return;
  }
  void *popped;
  cu(raw->cuda.push(raw->primary), "cuCtxPushCurrent");
  cu(raw->cuda.fill((cu_address)(uintptr_t)device_address, byte, bytes), "cuMemsetD8");
  cu(raw->cuda.synchronize(), "cuCtxSynchronize");
  cu(raw->cuda.pop(&popped), "cuCtxPopCurrent");
}

typedef enum direction { IN, OUT } direction;

static int copy_cuda(raw_memory *raw, direction to, void *dst, const void *src, size_t bytes) {
  const raw_cuda *c = &raw->cuda;
  void *popped;
  cu(c->push(raw->primary), "cuCtxPushCurrent");
  int answer = to == IN ? c->to_device_async((cu_address)(uintptr_t)dst, src, bytes, raw->copying)
                        : c->to_host_async(dst, (cu_address)(uintptr_t)src, bytes, raw->copying);
  cu(c->stream_synchronize(raw->copying), "cuStreamSynchronize");
  cu(c->pop(&popped), "cuCtxPopCurrent");
  return answer;
}

static int copy_sim(raw_memory *raw, direction to, void *dst, const void *src, size_t bytes) {
  tdict_gpu *gpu;
  tdict_gpu_scope scope;
  td_ok(tdict_devices_gpu(tdict_context_devices(raw->context), raw->device, &gpu, err));
  tdict_driver *d = gpu->driver;
  td_ok(tdict_gpu_enter(gpu, &scope, err));
  int answer = to == IN ? d->ops->copy_h2d_async(d, dst, src, bytes, raw->stream.handle)
                        : d->ops->copy_d2h_async(d, dst, src, bytes, raw->stream.handle);
  cu(d->ops->stream_synchronize(d, raw->stream.handle), "stream_synchronize");
  tdict_gpu_leave(gpu, &scope);
  return answer;
}

static int copy_plainly(raw_memory *raw, direction to, void *dst, const void *src, size_t bytes) {
  assert_int_not_equal(raw->device.type, TDICT_DEVICE_CPU);
  return raw->device.type == TDICT_DEVICE_CUDA ? copy_cuda(raw, to, dst, src, bytes)
                                               : copy_sim(raw, to, dst, src, bytes);
}

int raw_copy_in(raw_memory *raw, void *device_address, const void *host, size_t bytes) {
  return copy_plainly(raw, IN, device_address, host, bytes);
}

int raw_copy_out(raw_memory *raw, void *host, const void *device_address, size_t bytes) {
  return copy_plainly(raw, OUT, host, device_address, bytes);
}
