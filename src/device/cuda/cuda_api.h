/* Declares the part of the CUDA driver API that driver_cuda.c uses, so that building needs no CUDA toolkit. The file
 * declares the handles, struct layouts and constants. For each function of the driver, the file lists the name,
 * version, symbol and signature. The source is NVIDIA's "CUDA Driver API" manual. tests/device/cuda/check_cuda_header.c
 * compares every declaration with cuda.h.
 *
 * This file declares the driver's enums as int, which has the size and the calling convention of an enum. If
 * TDICT_CUDA_HEADER_CHECK is defined, this file uses the enum types of cuda.h, so that the comparison of signatures
 * is exact. The including file must then include cuda.h first. Thread rule: none, because the file only contains
 * declarations. */
#ifndef TDICT_DEVICE_CUDA_CUDA_API_H
#define TDICT_DEVICE_CUDA_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

/* The oldest supported driver, in the format of cuDriverGetVersion: 1000 * major + 10 * minor. */
enum { TDICT_CUDA_OLDEST_DRIVER = 12000 };

/* Declares a type as the type of cuda.h, and without cuda.h as a type of this library. The structs of both are compared
 * member by member. The handles of the table are the driver's own pointers. */
#ifdef TDICT_CUDA_HEADER_CHECK
#define TDICT_CUDA_TYPE_(name, cuda_type, own_type) typedef cuda_type name
#else
#include "device/driver.h"
#define TDICT_CUDA_TYPE_(name, cuda_type, own_type) typedef own_type name
#endif
TDICT_CUDA_TYPE_(tdict_cuda_result, CUresult, int);
TDICT_CUDA_TYPE_(tdict_cuda_device_attribute, CUdevice_attribute, int);
TDICT_CUDA_TYPE_(tdict_cuda_pool_attribute, CUmemPool_attribute, int);
TDICT_CUDA_TYPE_(tdict_cuda_pointer_attribute, CUpointer_attribute, int);
TDICT_CUDA_TYPE_(tdict_cuda_capture_mode, CUstreamCaptureMode, int);
TDICT_CUDA_TYPE_(tdict_cuda_capture_status, CUstreamCaptureStatus, int);
TDICT_CUDA_TYPE_(tdict_cuda_lookup_result, CUdriverProcAddressQueryResult, int);
TDICT_CUDA_TYPE_(tdict_cuda_memory_type, CUmemorytype, int);
TDICT_CUDA_TYPE_(tdict_cuda_location_type, CUmemLocationType, int);
TDICT_CUDA_TYPE_(tdict_cuda_allocation_type, CUmemAllocationType, int);
TDICT_CUDA_TYPE_(tdict_cuda_handle_type, CUmemAllocationHandleType, int);
TDICT_CUDA_TYPE_(tdict_cuda_access_flags, CUmemAccess_flags, int);
TDICT_CUDA_TYPE_(tdict_cuda_rect_arg, CUDA_MEMCPY2D, struct tdict_cuda_rect);
TDICT_CUDA_TYPE_(tdict_cuda_peer_rect_arg, CUDA_MEMCPY3D_PEER, struct tdict_cuda_peer_rect);
TDICT_CUDA_TYPE_(tdict_cuda_pool_props_arg, CUmemPoolProps, struct tdict_cuda_pool_props);
TDICT_CUDA_TYPE_(tdict_cuda_access_arg, CUmemAccessDesc, struct tdict_cuda_access);
TDICT_CUDA_TYPE_(tdict_cuda_ctx, CUcontext, tdict_cu_context);
TDICT_CUDA_TYPE_(tdict_cuda_stream, CUstream, tdict_cu_stream);
TDICT_CUDA_TYPE_(tdict_cuda_event, CUevent, tdict_cu_event);
TDICT_CUDA_TYPE_(tdict_cuda_pool, CUmemoryPool, tdict_cu_pool);
TDICT_CUDA_TYPE_(tdict_cuda_module, CUmodule, tdict_cu_module);
TDICT_CUDA_TYPE_(tdict_cuda_function, CUfunction, tdict_cu_function);
#if defined TDICT_CUDA_HEADER_CHECK && CUDA_VERSION >= 13000
typedef CUmemcpySrcAccessOrder tdict_cuda_access_order;
typedef CUmemcpyAttributes tdict_cuda_copy_hints_arg;
#else
typedef int tdict_cuda_access_order;
typedef struct tdict_cuda_copy_hints tdict_cuda_copy_hints_arg;
#endif
#undef TDICT_CUDA_TYPE_

typedef int tdict_cuda_device;                 /* CUdevice */
typedef unsigned long long tdict_cuda_address; /* CUdeviceptr */
typedef struct CUarray_st *tdict_cuda_array;

enum { TDICT_CUDA_LOOKUP_LEGACY_STREAM = 1 }; /* CUdriverProcAddress_flags: NULL is the legacy stream */
enum { TDICT_CUDA_LOOKUP_SUCCESS = 0, TDICT_CUDA_LOOKUP_NOT_FOUND = 1, TDICT_CUDA_LOOKUP_TOO_OLD = 2 };
enum { TDICT_CUDA_MEMORY_HOST = 1, TDICT_CUDA_MEMORY_DEVICE = 2 }; /* CUmemorytype */
enum { TDICT_CUDA_LOCATION_DEVICE = 1 };                           /* CUmemLocationType */
enum { TDICT_CUDA_ALLOCATION_PINNED = 1 };                         /* CUmemAllocationType */
enum { TDICT_CUDA_HANDLE_NONE = 0 };                               /* CUmemAllocationHandleType */
enum { TDICT_CUDA_ACCESS_READWRITE = 3 };                          /* CUmemAccess_flags */
enum {                                                             /* CUpointer_attribute */
       TDICT_CUDA_POINTER_MEMORY_TYPE = 2,
       TDICT_CUDA_POINTER_DEVICE_ORDINAL = 9,
       TDICT_CUDA_POINTER_RANGE_START = 11,
       TDICT_CUDA_POINTER_RANGE_SIZE = 12
};
/* CUmemPool_attribute: attributes up to this value are 32-bit ints, and higher attributes are 64-bit. */
enum { TDICT_CUDA_POOL_LAST_INT = 3 };

/* CUmemLocation */
struct tdict_cuda_location {
  tdict_cuda_location_type type;
  int id; /* ordinal of a device */
};

/* CUmemPoolProps. In later versions, parts of `reserved` have names (maximum size, usage), and the default 0. */
struct tdict_cuda_pool_props {
  tdict_cuda_allocation_type allocation;
  tdict_cuda_handle_type handles;
  struct tdict_cuda_location location;
  void *windows_security;
  unsigned char reserved[64];
};

/* CUmemAccessDesc */
struct tdict_cuda_access {
  struct tdict_cuda_location location;
  tdict_cuda_access_flags flags;
};

/* CUDA_MEMCPY2D of version 3020; pitches, offsets and width are bytes */
struct tdict_cuda_rect {
  size_t src_x, src_y;
  tdict_cuda_memory_type src_type;
  const void *src_host;
  tdict_cuda_address src_device;
  tdict_cuda_array src_array;
  size_t src_pitch;
  size_t dst_x, dst_y;
  tdict_cuda_memory_type dst_type;
  void *dst_host;
  tdict_cuda_address dst_device;
  tdict_cuda_array dst_array;
  size_t dst_pitch;
  size_t width, height;
};

/* CUDA_MEMCPY3D_PEER, which has a context for the source and a context for the destination. */
struct tdict_cuda_peer_rect {
  size_t src_x, src_y, src_z, src_lod;
  tdict_cuda_memory_type src_type;
  const void *src_host;
  tdict_cuda_address src_device;
  tdict_cuda_array src_array;
  tdict_cuda_ctx src_context;
  size_t src_pitch, src_height;
  size_t dst_x, dst_y, dst_z, dst_lod;
  tdict_cuda_memory_type dst_type;
  void *dst_host;
  tdict_cuda_address dst_device;
  tdict_cuda_array dst_array;
  tdict_cuda_ctx dst_context;
  size_t dst_pitch, dst_height;
  size_t width, height, depth;
};

enum { TDICT_CUDA_ORDER_STREAM = 1 }; /* CUmemcpySrcAccessOrder: the source is read in the stream's order */
/* CUmemcpyAttributes. `src` and `dst` are hints for managed memory. */
struct tdict_cuda_copy_hints {
  tdict_cuda_access_order order;
  struct tdict_cuda_location src, dst;
  unsigned flags;
};

/* The parameter `extra` of cuLaunchKernel is a list of these keys, each with its value, and ends with END. */
enum { TDICT_CUDA_LAUNCH_END = 0, TDICT_CUDA_LAUNCH_BUFFER = 1, TDICT_CUDA_LAUNCH_BYTES = 2 };

/* cuGetProcAddress, which looks up all other entries. The symbol of cuGetProcAddress is cuGetProcAddress_v2. */
typedef tdict_cuda_result tdict_cuda_lookup_fn(const char *name, void **function, int version, uint64_t flags,
                                               tdict_cuda_lookup_result *result);

/* Lists every entry as X(field, name, version, symbol, parameters). `version` is the CUDA version that introduced this
 * form of the call: 3020 means 3.2. cuGetProcAddress looks up this version. `symbol` is the name under which libcuda
 * exports this form. clang-format is off because clang-format would format the pointers as products. */
/* clang-format off */
#define TDICT_CUDA_ENTRIES(X)                                                                                 \
  X(init, cuInit, 2000, cuInit, (unsigned flags))                                                             \
  X(driver_version, cuDriverGetVersion, 2020, cuDriverGetVersion, (int *version))                             \
  X(error_name, cuGetErrorName, 6000, cuGetErrorName, (tdict_cuda_result result, const char **name))          \
  X(error_string, cuGetErrorString, 6000, cuGetErrorString, (tdict_cuda_result result, const char **text))    \
  X(device_get, cuDeviceGet, 2000, cuDeviceGet, (tdict_cuda_device *device, int ordinal))                     \
  X(device_count, cuDeviceGetCount, 2000, cuDeviceGetCount, (int *count))                                     \
  X(device_name, cuDeviceGetName, 2000, cuDeviceGetName, (char *name, int bytes, tdict_cuda_device device))   \
  X(device_attribute, cuDeviceGetAttribute, 2000, cuDeviceGetAttribute,                                       \
    (int *value, tdict_cuda_device_attribute attribute, tdict_cuda_device device))                            \
  X(device_can_reach, cuDeviceCanAccessPeer, 4000, cuDeviceCanAccessPeer,                                     \
    (int *can, tdict_cuda_device device, tdict_cuda_device peer))                                             \
  X(ctx_retain, cuDevicePrimaryCtxRetain, 7000, cuDevicePrimaryCtxRetain,                                     \
    (tdict_cuda_ctx *context, tdict_cuda_device device))                                                      \
  X(ctx_release, cuDevicePrimaryCtxRelease, 11000, cuDevicePrimaryCtxRelease_v2, (tdict_cuda_device device))  \
  X(ctx_push, cuCtxPushCurrent, 4000, cuCtxPushCurrent_v2, (tdict_cuda_ctx context))                          \
  X(ctx_pop, cuCtxPopCurrent, 4000, cuCtxPopCurrent_v2, (tdict_cuda_ctx *context))                            \
  X(ctx_current, cuCtxGetCurrent, 4000, cuCtxGetCurrent, (tdict_cuda_ctx *context))                           \
  X(ctx_allow_peer, cuCtxEnablePeerAccess, 4000, cuCtxEnablePeerAccess,                                       \
    (tdict_cuda_ctx peer, unsigned flags))                                                                    \
  X(capture_mode, cuThreadExchangeStreamCaptureMode, 10010, cuThreadExchangeStreamCaptureMode,                \
    (tdict_cuda_capture_mode *mode))                                                                          \
  X(pool_create, cuMemPoolCreate, 11020, cuMemPoolCreate,                                                     \
    (tdict_cuda_pool *pool, const tdict_cuda_pool_props_arg *props))                                          \
  X(pool_destroy, cuMemPoolDestroy, 11020, cuMemPoolDestroy, (tdict_cuda_pool pool))                          \
  X(pool_trim, cuMemPoolTrimTo, 11020, cuMemPoolTrimTo, (tdict_cuda_pool pool, size_t keep_bytes))            \
  X(pool_set, cuMemPoolSetAttribute, 11020, cuMemPoolSetAttribute,                                            \
    (tdict_cuda_pool pool, tdict_cuda_pool_attribute attribute, void *value))                                 \
  X(pool_get, cuMemPoolGetAttribute, 11020, cuMemPoolGetAttribute,                                            \
    (tdict_cuda_pool pool, tdict_cuda_pool_attribute attribute, void *value))                                 \
  X(pool_set_access, cuMemPoolSetAccess, 11020, cuMemPoolSetAccess,                                           \
    (tdict_cuda_pool pool, const tdict_cuda_access_arg *descriptions, size_t count))                          \
  X(alloc_async, cuMemAllocFromPoolAsync, 11020, cuMemAllocFromPoolAsync,                                     \
    (tdict_cuda_address *address, size_t bytes, tdict_cuda_pool pool, tdict_cuda_stream stream))              \
  X(free_async, cuMemFreeAsync, 11020, cuMemFreeAsync, (tdict_cuda_address address, tdict_cuda_stream stream))\
  X(alloc, cuMemAlloc, 3020, cuMemAlloc_v2, (tdict_cuda_address *address, size_t bytes))                      \
  X(free, cuMemFree, 3020, cuMemFree_v2, (tdict_cuda_address address))                                        \
  X(host_alloc, cuMemHostAlloc, 2020, cuMemHostAlloc, (void **host, size_t bytes, unsigned flags))            \
  X(host_free, cuMemFreeHost, 2000, cuMemFreeHost, (void *host))                                              \
  X(host_register, cuMemHostRegister, 6050, cuMemHostRegister_v2, (void *host, size_t bytes, unsigned flags)) \
  X(host_unregister, cuMemHostUnregister, 4000, cuMemHostUnregister, (void *host))                            \
  X(pointer, cuPointerGetAttributes, 7000, cuPointerGetAttributes,                                            \
    (unsigned count, tdict_cuda_pointer_attribute *attributes, void **values, tdict_cuda_address address))    \
  X(h2d_async, cuMemcpyHtoDAsync, 3020, cuMemcpyHtoDAsync_v2,                                                 \
    (tdict_cuda_address dst, const void *src, size_t bytes, tdict_cuda_stream stream))                        \
  X(d2h_async, cuMemcpyDtoHAsync, 3020, cuMemcpyDtoHAsync_v2,                                                 \
    (void *dst, tdict_cuda_address src, size_t bytes, tdict_cuda_stream stream))                              \
  X(copy_async, cuMemcpyAsync, 4000, cuMemcpyAsync,                                                           \
    (tdict_cuda_address dst, tdict_cuda_address src, size_t bytes, tdict_cuda_stream stream))                 \
  X(peer_async, cuMemcpyPeerAsync, 4000, cuMemcpyPeerAsync,                                                   \
    (tdict_cuda_address dst, tdict_cuda_ctx dst_context, tdict_cuda_address src, tdict_cuda_ctx src_context,  \
     size_t bytes, tdict_cuda_stream stream))                                                                 \
  X(peer_rect_async, cuMemcpy3DPeerAsync, 4000, cuMemcpy3DPeerAsync,                                          \
    (const tdict_cuda_peer_rect_arg *rect, tdict_cuda_stream stream))                                         \
  X(rect_async, cuMemcpy2DAsync, 3020, cuMemcpy2DAsync_v2,                                                    \
    (const tdict_cuda_rect_arg *rect, tdict_cuda_stream stream))                                              \
  X(fill_async, cuMemsetD8Async, 3020, cuMemsetD8Async,                                                       \
    (tdict_cuda_address dst, unsigned char byte, size_t bytes, tdict_cuda_stream stream))                     \
  X(stream_create, cuStreamCreate, 2000, cuStreamCreate, (tdict_cuda_stream *stream, unsigned flags))         \
  X(stream_destroy, cuStreamDestroy, 4000, cuStreamDestroy_v2, (tdict_cuda_stream stream))                    \
  X(stream_query, cuStreamQuery, 2000, cuStreamQuery, (tdict_cuda_stream stream))                             \
  X(stream_synchronize, cuStreamSynchronize, 2000, cuStreamSynchronize, (tdict_cuda_stream stream))           \
  X(stream_wait_event, cuStreamWaitEvent, 3020, cuStreamWaitEvent,                                            \
    (tdict_cuda_stream stream, tdict_cuda_event event, unsigned flags))                                       \
  X(stream_is_capturing, cuStreamIsCapturing, 10000, cuStreamIsCapturing,                                     \
    (tdict_cuda_stream stream, tdict_cuda_capture_status *status))                                            \
  X(event_create, cuEventCreate, 2000, cuEventCreate, (tdict_cuda_event *event, unsigned flags))              \
  X(event_destroy, cuEventDestroy, 4000, cuEventDestroy_v2, (tdict_cuda_event event))                         \
  X(event_record, cuEventRecord, 2000, cuEventRecord, (tdict_cuda_event event, tdict_cuda_stream stream))     \
  X(event_query, cuEventQuery, 2000, cuEventQuery, (tdict_cuda_event event))                                  \
  X(event_synchronize, cuEventSynchronize, 2000, cuEventSynchronize, (tdict_cuda_event event))                \
  X(event_elapsed, cuEventElapsedTime, 2000, cuEventElapsedTime,                                              \
    (float *milliseconds, tdict_cuda_event from, tdict_cuda_event to))
/* Lists entries without which only launches fail. Their pointers can be NULL. */
#define TDICT_CUDA_LAUNCH_ENTRIES(X)                                                                          \
  X(module_load, cuModuleLoadData, 2000, cuModuleLoadData, (tdict_cuda_module *module, const void *image))    \
  X(module_unload, cuModuleUnload, 2000, cuModuleUnload, (tdict_cuda_module module))                          \
  X(module_function, cuModuleGetFunction, 2000, cuModuleGetFunction,                                          \
    (tdict_cuda_function *function, tdict_cuda_module module, const char *name))                              \
  X(launch, cuLaunchKernel, 4000, cuLaunchKernel,                                                             \
    (tdict_cuda_function function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z,                   \
     unsigned threads_x, unsigned threads_y, unsigned threads_z, unsigned shared_bytes,                       \
     tdict_cuda_stream stream, void **params, void **extra))
/* Entries of newer drivers, NULL on older ones. cuMemcpyBatchAsync of CUDA 12.8 has another signature. */
#define TDICT_CUDA_NEWER_ENTRIES(X)                                                                           \
  X(batch_async, cuMemcpyBatchAsync, 13000, cuMemcpyBatchAsync_v2,                                            \
    (tdict_cuda_address *dsts, tdict_cuda_address *srcs, size_t *sizes, size_t count,                         \
     tdict_cuda_copy_hints_arg *hints, size_t *first_with, size_t num_hints, tdict_cuda_stream stream))
/* clang-format on */

#define TDICT_CUDA_DECLARE_(field, name, version, symbol, parameters) \
  typedef tdict_cuda_result tdict_cuda_##field##_fn parameters;
TDICT_CUDA_ENTRIES(TDICT_CUDA_DECLARE_)
TDICT_CUDA_LAUNCH_ENTRIES(TDICT_CUDA_DECLARE_)
TDICT_CUDA_NEWER_ENTRIES(TDICT_CUDA_DECLARE_)
#undef TDICT_CUDA_DECLARE_

/* The driver's functions. Only the functions of TDICT_CUDA_LAUNCH_ENTRIES and TDICT_CUDA_NEWER_ENTRIES may be NULL. */
typedef struct tdict_cuda_api {
#define TDICT_CUDA_MEMBER_(field, name, version, symbol, parameters) tdict_cuda_##field##_fn *field;
  TDICT_CUDA_ENTRIES(TDICT_CUDA_MEMBER_)
  TDICT_CUDA_LAUNCH_ENTRIES(TDICT_CUDA_MEMBER_)
  TDICT_CUDA_NEWER_ENTRIES(TDICT_CUDA_MEMBER_)
#undef TDICT_CUDA_MEMBER_
} tdict_cuda_api;

#endif
