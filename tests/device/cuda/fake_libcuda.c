/* A stand-in for libcuda.so.1, for tests of driver_cuda.c on machines without a GPU: one device, whose memory is host
 * memory. Calls do their work at once, and refuse arguments that the driver's manual forbids. The module has the soname
 * of libcuda, so after a test has loaded it, dlopen("libcuda.so.1") returns this module. A second build has no
 * cuGetProcAddress_v2 (FAKE_WITHOUT_LOOKUP). Thread rule: one thread at a time. Each thread has its own stack of
 * contexts. */
#include "device/cuda/fake_libcuda.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cuda_api.h"
#include "device/kernels/host.h"

#define EXPORT __attribute__((visibility("default")))
#define FAKE(field) EXPORT tdict_cuda_##field##_fn

#define DECLARE(field, name, version, symbol, parameters) FAKE(field) symbol;
TDICT_CUDA_ENTRIES(DECLARE)
TDICT_CUDA_LAUNCH_ENTRIES(DECLARE)
#undef DECLARE
EXPORT extern fake_settings fake_libcuda;
fake_settings fake_libcuda = {.version = 12040, .device_count = 1};

enum {
  INVALID = 1,
  NO_MEMORY = 2,
  UNINITIALIZED = 3,
  BAD_DEVICE = 101,
  NO_CONTEXT = 201,
  BAD_HANDLE = 400,
  NOT_FOUND = 500,
  REGISTERED = 712,
  NOT_REGISTERED = 713
};
struct tdict_cu_context {
  int retained;
};
struct tdict_cu_stream {
  unsigned flags;
};
struct tdict_cu_event {
  unsigned flags;
  bool recorded;
};
struct tdict_cu_pool {
  uint64_t threshold, reserved, used;
  int reuse[TDICT_CUDA_POOL_LAST_INT + 1];
  unsigned let_in; /* bit mask of the devices that may access the pool */
};
typedef struct range {
  char *start;
  size_t bytes;
  int type; /* 0: free slot */
  bool registered;
  tdict_cuda_pool pool;
} range;

static bool initialized;
static struct tdict_cu_context primary;
static range ranges[64];
static _Thread_local tdict_cuda_ctx stack[8];
static _Thread_local int depth;
static _Thread_local int mode;

static bool current(void) { return depth > 0 && stack[depth - 1]; }
static char *host_of(tdict_cuda_address address) { return (char *)(uintptr_t)address; }

static range *find(const void *address) {
  for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
    range *r = &ranges[i];
    if (r->type && (const char *)address >= r->start && (const char *)address < r->start + r->bytes) return r;
  }
  return NULL;
}

static range *add(void *start, size_t bytes, int type) {
  for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
    if (ranges[i].type) continue;
    ranges[i] = (range){.start = start, .bytes = bytes, .type = type};
    return &ranges[i];
  }
  abort();
}

static bool on_device(tdict_cuda_address address, size_t bytes) {
  range *r = find(host_of(address));
  return r && r->type == TDICT_CUDA_MEMORY_DEVICE && host_of(address) + bytes <= r->start + r->bytes;
}

tdict_cuda_result cuInit(unsigned flags) {
  if (flags) return INVALID;
  initialized = fake_libcuda.init_result == 0;
  return fake_libcuda.init_result;
}
tdict_cuda_result cuDriverGetVersion(int *version) {
  *version = fake_libcuda.version;
  return fake_libcuda.version_result;
}
tdict_cuda_result cuGetErrorName(tdict_cuda_result result, const char **name) {
  *name = result == 0     ? "CUDA_SUCCESS"
          : result == 2   ? "CUDA_ERROR_OUT_OF_MEMORY"
          : result == 100 ? "CUDA_ERROR_NO_DEVICE"
          : result == 600 ? "CUDA_ERROR_NOT_READY"
                          : NULL;
  return *name ? 0 : INVALID;
}
tdict_cuda_result cuGetErrorString(tdict_cuda_result result, const char **text) {
  tdict_cuda_result answer = cuGetErrorName(result, text);
  if (*text) *text = "a text of the fake driver";
  return answer;
}

tdict_cuda_result cuDeviceGet(tdict_cuda_device *device, int ordinal) {
  if (!initialized) return UNINITIALIZED;
  if (ordinal < 0 || ordinal >= fake_libcuda.device_count) return BAD_DEVICE;
  *device = ordinal;
  return 0;
}
tdict_cuda_result cuDeviceGetCount(int *count) {
  *count = fake_libcuda.device_count;
  return initialized ? 0 : UNINITIALIZED;
}
tdict_cuda_result cuDeviceGetName(char *name, int bytes, tdict_cuda_device device) {
  const char text[] = "fake";
  if (device || bytes < (int)sizeof text) return INVALID;
  memcpy(name, text, sizeof text);
  return 0;
}
tdict_cuda_result cuDeviceGetAttribute(int *value, tdict_cuda_device_attribute attribute, tdict_cuda_device device) {
  *value = attribute;
  return device ? BAD_DEVICE : 0;
}
tdict_cuda_result cuDeviceCanAccessPeer(int *can, tdict_cuda_device device, tdict_cuda_device peer) {
  if (device == peer || device < 0 || peer < 0 || device >= fake_libcuda.device_count ||
      peer >= fake_libcuda.device_count)
    return BAD_DEVICE;
  *can = device == 0;
  return 0;
}

tdict_cuda_result cuCtxEnablePeerAccess(tdict_cuda_ctx peer, unsigned flags) {
  return peer == &primary && flags == 0 ? 0 : INVALID;
}

tdict_cuda_result cuDevicePrimaryCtxRetain(tdict_cuda_ctx *context, tdict_cuda_device device) {
  if (device) return BAD_DEVICE;
  primary.retained++;
  *context = &primary;
  return 0;
}
tdict_cuda_result cuDevicePrimaryCtxRelease_v2(tdict_cuda_device device) {
  if (device || primary.retained < 1) return NO_CONTEXT;
  primary.retained--;
  return 0;
}
tdict_cuda_result cuCtxPushCurrent_v2(tdict_cuda_ctx context) {
  if (context != &primary || primary.retained < 1 || depth == 8) return NO_CONTEXT;
  stack[depth++] = context;
  return 0;
}
tdict_cuda_result cuCtxPopCurrent_v2(tdict_cuda_ctx *context) {
  if (!depth) return NO_CONTEXT;
  *context = stack[--depth];
  return 0;
}
tdict_cuda_result cuCtxGetCurrent(tdict_cuda_ctx *context) {
  *context = current() ? stack[depth - 1] : NULL;
  return 0;
}
tdict_cuda_result cuThreadExchangeStreamCaptureMode(tdict_cuda_capture_mode *m) {
  if (*m < 0 || *m > 2) return INVALID;
  int old = mode;
  mode = *m;
  *m = old;
  return 0;
}

tdict_cuda_result cuMemPoolCreate(tdict_cuda_pool *pool, const struct tdict_cuda_pool_props *p) {
  struct tdict_cuda_pool_props wanted;
  memset(&wanted, 0, sizeof wanted);
  wanted.allocation = TDICT_CUDA_ALLOCATION_PINNED;
  wanted.location.type = TDICT_CUDA_LOCATION_DEVICE;
  if (memcmp(p, &wanted, sizeof wanted) != 0) return INVALID;
  *pool = calloc(1, sizeof **pool);
  for (int i = 1; i <= TDICT_CUDA_POOL_LAST_INT; i++) (*pool)->reuse[i] = 1;
  return 0;
}
tdict_cuda_result cuMemPoolDestroy(tdict_cuda_pool pool) {
  free(pool);
  return 0;
}
tdict_cuda_result cuMemPoolTrimTo(tdict_cuda_pool pool, size_t keep_bytes) {
  uint64_t least = pool->used > keep_bytes ? pool->used : keep_bytes;
  if (pool->reserved > least) pool->reserved = least;
  return 0;
}
tdict_cuda_result cuMemPoolSetAttribute(tdict_cuda_pool pool, tdict_cuda_pool_attribute attribute, void *value) {
  if (attribute >= 1 && attribute <= TDICT_CUDA_POOL_LAST_INT) {
    memcpy(&pool->reuse[attribute], value, sizeof(int));
    return 0;
  }
  if (attribute != 4) return INVALID;
  memcpy(&pool->threshold, value, sizeof pool->threshold);
  return 0;
}
tdict_cuda_result cuMemPoolGetAttribute(tdict_cuda_pool pool, tdict_cuda_pool_attribute attribute, void *value) {
  if (attribute >= 1 && attribute <= TDICT_CUDA_POOL_LAST_INT) {
    memcpy(value, &pool->reuse[attribute], sizeof(int));
    return 0;
  }
  if (attribute != 4 && attribute != 5 && attribute != 7) return INVALID;
  const uint64_t *found = attribute == 4 ? &pool->threshold : attribute == 5 ? &pool->reserved : &pool->used;
  memcpy(value, found, sizeof *found);
  return 0;
}
tdict_cuda_result cuMemPoolSetAccess(tdict_cuda_pool pool, const struct tdict_cuda_access *descriptions, size_t count) {
  if (count != 1 || descriptions->location.type != TDICT_CUDA_LOCATION_DEVICE ||
      descriptions->flags != TDICT_CUDA_ACCESS_READWRITE)
    return INVALID;
  pool->let_in |= 1u << descriptions->location.id;
  return 0;
}
tdict_cuda_result cuMemAllocFromPoolAsync(tdict_cuda_address *address, size_t bytes, tdict_cuda_pool pool,
                                          tdict_cuda_stream stream) {
  (void)stream;
  void *p = bytes && pool ? malloc(bytes) : NULL;
  if (!p) return INVALID;
  add(p, bytes, TDICT_CUDA_MEMORY_DEVICE)->pool = pool;
  pool->used += bytes;
  if (pool->reserved < pool->used) pool->reserved = pool->used;
  *address = (tdict_cuda_address)(uintptr_t)p;
  return 0;
}
tdict_cuda_result cuMemFree_v2(tdict_cuda_address address) {
  range *r = find(host_of(address));
  if (!r || r->start != host_of(address) || r->type != TDICT_CUDA_MEMORY_DEVICE) return INVALID;
  if (r->pool) {
    r->pool->used -= r->bytes;
    if (r->pool->reserved > r->pool->threshold) r->pool->reserved = r->pool->threshold;
  }
  free(r->start);
  *r = (range){0};
  return 0;
}
tdict_cuda_result cuMemFreeAsync(tdict_cuda_address address, tdict_cuda_stream stream) {
  (void)stream;
  return cuMemFree_v2(address);
}
tdict_cuda_result cuMemAlloc_v2(tdict_cuda_address *address, size_t bytes) {
  if (!current()) return NO_CONTEXT;
  void *p = bytes ? malloc(bytes) : NULL;
  if (!p) return bytes ? NO_MEMORY : INVALID;
  add(p, bytes, TDICT_CUDA_MEMORY_DEVICE);
  *address = (tdict_cuda_address)(uintptr_t)p;
  return 0;
}

tdict_cuda_result cuMemHostAlloc(void **host, size_t bytes, unsigned flags) {
  if (!current()) return NO_CONTEXT;
  if (!bytes || flags > 7) return INVALID;
  *host = malloc(bytes);
  add(*host, bytes, TDICT_CUDA_MEMORY_HOST);
  return 0;
}
tdict_cuda_result cuMemFreeHost(void *host) {
  range *r = find(host);
  if (!r || r->start != host || r->type != TDICT_CUDA_MEMORY_HOST || r->registered) return INVALID;
  free(host);
  *r = (range){0};
  return 0;
}
tdict_cuda_result cuMemHostRegister_v2(void *host, size_t bytes, unsigned flags) {
  if (!current()) return NO_CONTEXT;
  if (!bytes || flags > 15) return INVALID;
  if (find(host)) return REGISTERED;
  add(host, bytes, TDICT_CUDA_MEMORY_HOST)->registered = true;
  return 0;
}
tdict_cuda_result cuMemHostUnregister(void *host) {
  range *r = find(host);
  if (!r || r->start != host || !r->registered) return NOT_REGISTERED;
  *r = (range){0};
  return 0;
}
tdict_cuda_result cuPointerGetAttributes(unsigned count, tdict_cuda_pointer_attribute *attributes, void **values,
                                         tdict_cuda_address address) {
  range *r = find(host_of(address));
  int type = r ? r->type : 0, ordinal = r ? 0 : -2;
  tdict_cuda_address start = r ? (tdict_cuda_address)(uintptr_t)r->start : 0;
  size_t bytes = r ? r->bytes : 0;
  for (unsigned i = 0; i < count; i++) {
    if (attributes[i] == TDICT_CUDA_POINTER_MEMORY_TYPE)
      memcpy(values[i], &type, sizeof type);
    else if (attributes[i] == TDICT_CUDA_POINTER_DEVICE_ORDINAL)
      memcpy(values[i], &ordinal, sizeof ordinal);
    else if (attributes[i] == TDICT_CUDA_POINTER_RANGE_START)
      memcpy(values[i], &start, sizeof start);
    else if (attributes[i] == TDICT_CUDA_POINTER_RANGE_SIZE)
      memcpy(values[i], &bytes, sizeof bytes);
    else
      return INVALID;
  }
  return 0;
}

static tdict_cuda_result to_device(tdict_cuda_address dst, const void *src, size_t bytes) {
  if (!current()) return NO_CONTEXT;
  if (!on_device(dst, bytes)) return INVALID;
  memcpy(host_of(dst), src, bytes);
  return 0;
}
static tdict_cuda_result to_host(void *dst, tdict_cuda_address src, size_t bytes) {
  if (!current()) return NO_CONTEXT;
  if (!on_device(src, bytes)) return INVALID;
  memcpy(dst, host_of(src), bytes);
  return 0;
}
tdict_cuda_result cuMemcpyHtoDAsync_v2(tdict_cuda_address dst, const void *src, size_t bytes, tdict_cuda_stream s) {
  (void)s;
  return to_device(dst, src, bytes);
}
tdict_cuda_result cuMemcpyDtoHAsync_v2(void *dst, tdict_cuda_address src, size_t bytes, tdict_cuda_stream s) {
  (void)s;
  return to_host(dst, src, bytes);
}
tdict_cuda_result cuMemcpyAsync(tdict_cuda_address dst, tdict_cuda_address src, size_t bytes, tdict_cuda_stream s) {
  (void)s;
  return on_device(src, bytes) ? to_device(dst, host_of(src), bytes) : INVALID;
}
tdict_cuda_result cuMemcpy2DAsync_v2(const struct tdict_cuda_rect *r, tdict_cuda_stream s) {
  (void)s;
  bool from_host = r->src_type == TDICT_CUDA_MEMORY_HOST, to_host = r->dst_type == TDICT_CUDA_MEMORY_HOST;
  const char *src = from_host ? r->src_host : host_of(r->src_device);
  char *dst = to_host ? r->dst_host : host_of(r->dst_device);
  if (!current()) return NO_CONTEXT;
  if (!src || !dst || r->src_x || r->src_y || r->dst_x || r->dst_y || r->src_array || r->dst_array) return INVALID;
  if (r->src_pitch < r->width || r->dst_pitch < r->width || !r->height) return INVALID;
  if (!from_host && !on_device(r->src_device, (r->height - 1) * r->src_pitch + r->width)) return INVALID;
  if (!to_host && !on_device(r->dst_device, (r->height - 1) * r->dst_pitch + r->width)) return INVALID;
  for (size_t i = 0; i < r->height; i++) memcpy(dst + i * r->dst_pitch, src + i * r->src_pitch, r->width);
  return 0;
}
tdict_cuda_result cuMemcpyPeerAsync(tdict_cuda_address dst, tdict_cuda_ctx to, tdict_cuda_address src,
                                    tdict_cuda_ctx from, size_t bytes, tdict_cuda_stream s) {
  return to == &primary && from == &primary ? cuMemcpyAsync(dst, src, bytes, s) : NO_CONTEXT;
}
tdict_cuda_result cuMemcpy3DPeerAsync(const struct tdict_cuda_peer_rect *r, tdict_cuda_stream s) {
  struct tdict_cuda_peer_rect plain = *r;
  struct tdict_cuda_rect flat = {.src_type = r->src_type,
                                 .src_device = r->src_device,
                                 .src_pitch = r->src_pitch,
                                 .dst_type = r->dst_type,
                                 .dst_device = r->dst_device,
                                 .dst_pitch = r->dst_pitch,
                                 .width = r->width,
                                 .height = r->height};
  if (r->src_context != &primary || r->dst_context != &primary) return NO_CONTEXT;
  if (r->src_type != TDICT_CUDA_MEMORY_DEVICE || r->dst_type != TDICT_CUDA_MEMORY_DEVICE || r->depth != 1 ||
      r->src_height < r->height || r->dst_height < r->height)
    return INVALID;
  plain.src_type = plain.dst_type = 0;
  plain.src_device = plain.dst_device = 0;
  plain.src_context = plain.dst_context = NULL;
  plain.src_pitch = plain.dst_pitch = plain.src_height = plain.dst_height = 0;
  plain.width = plain.height = plain.depth = 0;
  static const struct tdict_cuda_peer_rect nothing;
  return memcmp(&plain, &nothing, sizeof plain) ? INVALID : cuMemcpy2DAsync_v2(&flat, s);
}
tdict_cuda_result cuMemsetD8Async(tdict_cuda_address dst, unsigned char byte, size_t bytes, tdict_cuda_stream s) {
  (void)s;
  if (!current()) return NO_CONTEXT;
  if (!on_device(dst, bytes)) return INVALID;
  memset(host_of(dst), byte, bytes);
  return 0;
}

/* A kernel of the library, which the stand-in runs on the host. The function in the PTX has the same name. */
struct tdict_cu_function {
  const char *name;
};
struct tdict_cu_module {
  const char *image;
  struct tdict_cu_function functions[TDICT_KERNEL_NUM_OPS];
};
static const char *const kernel_names[TDICT_KERNEL_NUM_OPS] = {"tdict_copy",  "tdict_convert", "tdict_fill",
                                                               "tdict_check", "tdict_unpack",  "tdict_window"};
tdict_cuda_result cuModuleLoadData(tdict_cuda_module *module, const void *image) {
  if (!current()) return NO_CONTEXT;
  if (fake_libcuda.load_result) return fake_libcuda.load_result;
  if (!strstr(image, "\n.version 8.0\n.target sm_75\n")) return 200; /* CUDA_ERROR_INVALID_IMAGE */
  *module = calloc(1, sizeof **module);
  (*module)->image = image;
  fake_libcuda.modules++;
  return 0;
}
tdict_cuda_result cuModuleUnload(tdict_cuda_module module) {
  if (!current()) return NO_CONTEXT;
  free(module);
  fake_libcuda.modules--;
  return 0;
}
tdict_cuda_result cuModuleGetFunction(tdict_cuda_function *function, tdict_cuda_module module, const char *name) {
  char entry[64] = ".visible .entry ";
  strcat(strcat(entry, name), "(");
  if (!strstr(module->image, entry)) return NOT_FOUND;
  for (int op = 0; op < TDICT_KERNEL_NUM_OPS; op++)
    if (strcmp(name, kernel_names[op]) == 0) {
      module->functions[op].name = kernel_names[op];
      *function = &module->functions[op];
      return 0;
    }
  return NOT_FOUND;
}
static void *access_range(void *user, uint64_t address, size_t bytes) {
  (void)user;
  range *r = find(host_of(address));
  return r && address % bytes == 0 && host_of(address) + bytes <= r->start + r->bytes ? host_of(address) : NULL;
}
/* the signature of the real driver */
#define LAUNCH_KERNEL                                                                                             \
  tdict_cuda_result cuLaunchKernel(tdict_cuda_function function, unsigned blocks_x, unsigned blocks_y,            \
                                   unsigned blocks_z, unsigned threads_x, unsigned threads_y, unsigned threads_z, \
                                   unsigned shared_bytes, tdict_cuda_stream stream, void **params, void **extra)
LAUNCH_KERNEL {
  const tdict_kernel_access access = {access_range, NULL};
  (void)stream;
  if (!current()) return NO_CONTEXT;
  if (!blocks_x || blocks_y != 1 || blocks_z != 1 || threads_x != TDICT_KERNEL_THREADS || threads_y != 1 ||
      threads_z != 1 || shared_bytes || params)
    return INVALID;
  if ((size_t)extra[0] != TDICT_CUDA_LAUNCH_BUFFER || (size_t)extra[2] != TDICT_CUDA_LAUNCH_BYTES ||
      (size_t)extra[4] != TDICT_CUDA_LAUNCH_END || *(size_t *)extra[3] != sizeof(tdict_kernel_params))
    return INVALID;
  for (int op = 0; op < TDICT_KERNEL_NUM_OPS; op++)
    if (function->name == kernel_names[op])
      return tdict_kernel_run_host((tdict_kernel_op)op, extra[1], blocks_x, &access) ? 0 : 700;
  return BAD_HANDLE;
}

tdict_cuda_result cuStreamCreate(tdict_cuda_stream *stream, unsigned flags) {
  if (!current()) return NO_CONTEXT;
  if (flags > 1) return INVALID;
  *stream = calloc(1, sizeof **stream);
  return 0;
}
tdict_cuda_result cuStreamDestroy_v2(tdict_cuda_stream stream) {
  free(stream);
  return stream ? 0 : BAD_HANDLE;
}
tdict_cuda_result cuStreamQuery(tdict_cuda_stream stream) { return stream ? 0 : BAD_HANDLE; }
tdict_cuda_result cuStreamSynchronize(tdict_cuda_stream stream) {
  (void)stream;
  return 0;
}
tdict_cuda_result cuStreamWaitEvent(tdict_cuda_stream stream, tdict_cuda_event event, unsigned flags) {
  return !stream || !event ? BAD_HANDLE : flags ? INVALID : 0;
}
tdict_cuda_result cuStreamIsCapturing(tdict_cuda_stream stream, tdict_cuda_capture_status *status) {
  *status = 0;
  return stream ? 0 : BAD_HANDLE;
}

tdict_cuda_result cuEventCreate(tdict_cuda_event *event, unsigned flags) {
  if (!current()) return NO_CONTEXT;
  *event = calloc(1, sizeof **event);
  (*event)->flags = flags;
  return 0;
}
tdict_cuda_result cuEventDestroy_v2(tdict_cuda_event event) {
  free(event);
  return event ? 0 : BAD_HANDLE;
}
tdict_cuda_result cuEventRecord(tdict_cuda_event event, tdict_cuda_stream stream) {
  if (!event || !stream) return BAD_HANDLE;
  event->recorded = true;
  return 0;
}
tdict_cuda_result cuEventQuery(tdict_cuda_event event) { return event ? 0 : BAD_HANDLE; }
tdict_cuda_result cuEventSynchronize(tdict_cuda_event event) { return event ? 0 : BAD_HANDLE; }
tdict_cuda_result cuEventElapsedTime(float *milliseconds, tdict_cuda_event from, tdict_cuda_event to) {
  if (!from->recorded || !to->recorded || ((from->flags | to->flags) & 2)) return BAD_HANDLE;
  *milliseconds = 0.5f;
  return 0;
}

#ifndef FAKE_WITHOUT_LOOKUP
EXPORT tdict_cuda_lookup_fn cuGetProcAddress_v2;
tdict_cuda_result cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags,
                                      tdict_cuda_lookup_result *result) {
  fake_libcuda.lookups++;
  *function = NULL;
  *result = TDICT_CUDA_LOOKUP_NOT_FOUND;
  if (flags != TDICT_CUDA_LOOKUP_LEGACY_STREAM) return INVALID;
  if (fake_libcuda.missing && strcmp(name, fake_libcuda.missing) == 0) return NOT_FOUND;
#define ANSWER(field, entry, since, symbol, parameters) \
  if (strcmp(name, #entry) == 0 && version == since) {  \
    tdict_cuda_##field##_fn *found = symbol;            \
    memcpy(function, &found, sizeof found);             \
  }
  TDICT_CUDA_ENTRIES(ANSWER)
  TDICT_CUDA_LAUNCH_ENTRIES(ANSWER)
#undef ANSWER
  if (*function) *result = TDICT_CUDA_LOOKUP_SUCCESS;
  return *function ? 0 : NOT_FOUND;
}
#endif
