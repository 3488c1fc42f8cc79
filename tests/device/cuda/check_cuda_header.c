/* Compares each declaration of device/cuda/cuda_api.h and each constant of device/driver.h with cuda.h. This file is
 * only compiled (gcc -fsyntax-only). A wrong name, version, signature, layout or number is a compile error. */
#include <cuda.h>
#include <cudaTypedefs.h>

#define TDICT_CUDA_HEADER_CHECK 1
#include "device/cuda/cuda_api.h"
#include "device/driver.h"

#define SAME_TYPE(a, b) __builtin_types_compatible_p(a, b)
#define CHECK(condition, text) _Static_assert(condition, text)

/* Checks that each entry has the type of its symbol, and of the typedef with its name and version. */
#define CHECK_ENTRY(field, name, version, symbol, parameters)                                      \
  CHECK(SAME_TYPE(tdict_cuda_##field##_fn *, __typeof__(&symbol)), #symbol ": another signature"); \
  CHECK(SAME_TYPE(tdict_cuda_##field##_fn *, PFN_##name##_v##version), #name ": no such signature in " #version);
TDICT_CUDA_ENTRIES(CHECK_ENTRY)
TDICT_CUDA_LAUNCH_ENTRIES(CHECK_ENTRY)
CHECK(SAME_TYPE(tdict_cuda_lookup_fn *, __typeof__(&cuGetProcAddress_v2)), "cuGetProcAddress_v2");
CHECK(SAME_TYPE(tdict_cuda_lookup_fn *, PFN_cuGetProcAddress_v12000), "cuGetProcAddress 12000");

/* The library declares the enums as int. This is compatible for callers if the sizes and alignments are equal. */
#define CHECK_INT(type) CHECK(sizeof(type) == sizeof(int) && _Alignof(type) == _Alignof(int), #type " is no int")
CHECK_INT(CUresult);
CHECK_INT(CUdevice_attribute);
CHECK_INT(CUmemPool_attribute);
CHECK_INT(CUpointer_attribute);
CHECK_INT(CUstreamCaptureMode);
CHECK_INT(CUstreamCaptureStatus);
CHECK_INT(CUdriverProcAddressQueryResult);
CHECK_INT(CUmemorytype);
CHECK_INT(CUmemLocationType);
CHECK_INT(CUmemAllocationType);
CHECK_INT(CUmemAllocationHandleType);
CHECK_INT(CUmemAccess_flags);

#if CUDA_VERSION >= 13000
TDICT_CUDA_NEWER_ENTRIES(CHECK_ENTRY)
CHECK_INT(CUmemcpySrcAccessOrder);
CHECK((int)TDICT_CUDA_ORDER_STREAM == (int)CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, "CUmemcpySrcAccessOrder");
CHECK(sizeof(struct tdict_cuda_copy_hints) == sizeof(CUmemcpyAttributes), "CUmemcpyAttributes: another size");
CHECK(offsetof(struct tdict_cuda_copy_hints, flags) == offsetof(CUmemcpyAttributes, flags), "CUmemcpyAttributes.flags");
CHECK(offsetof(struct tdict_cuda_copy_hints, dst) == offsetof(CUmemcpyAttributes, dstLocHint),
      "CUmemcpyAttributes.dst");
#endif

CHECK(SAME_TYPE(tdict_cuda_device, CUdevice), "CUdevice");
CHECK(SAME_TYPE(tdict_cuda_address, CUdeviceptr), "CUdeviceptr");
CHECK(sizeof(tdict_cuda_address) == sizeof(void *), "a device address fits a pointer");
CHECK(SAME_TYPE(tdict_cuda_ctx, CUcontext), "CUcontext");
CHECK(SAME_TYPE(tdict_cuda_stream, CUstream), "CUstream");
CHECK(SAME_TYPE(tdict_cuda_event, CUevent), "CUevent");
CHECK(SAME_TYPE(tdict_cuda_pool, CUmemoryPool), "CUmemoryPool");
CHECK(SAME_TYPE(tdict_cuda_array, CUarray), "CUarray");
CHECK(SAME_TYPE(tdict_cuda_module, CUmodule), "CUmodule");
CHECK(SAME_TYPE(tdict_cuda_function, CUfunction), "CUfunction");

#define CHECK_MEMBER_AT(ours, our_member, theirs, their_member) \
  CHECK(offsetof(ours, our_member) == offsetof(theirs, their_member), #theirs "." #their_member ": another offset")
#define CHECK_MEMBER(ours, our_member, theirs, their_member)                                     \
  CHECK_MEMBER_AT(ours, our_member, theirs, their_member);                                       \
  CHECK(SAME_TYPE(__typeof__(((ours *)0)->our_member), __typeof__(((theirs *)0)->their_member)), \
        #theirs "." #their_member ": another type")

#define LOCATION(ours, theirs) CHECK_MEMBER(struct tdict_cuda_location, ours, CUmemLocation, theirs)
CHECK(sizeof(struct tdict_cuda_location) == sizeof(CUmemLocation), "CUmemLocation: another size");
LOCATION(type, type);
LOCATION(id, id);

#define PROPS(ours, theirs) CHECK_MEMBER(struct tdict_cuda_pool_props, ours, CUmemPoolProps, theirs)
CHECK(sizeof(struct tdict_cuda_pool_props) == sizeof(CUmemPoolProps), "CUmemPoolProps: another size");
PROPS(allocation, allocType);
PROPS(handles, handleTypes);
CHECK_MEMBER_AT(struct tdict_cuda_pool_props, location, CUmemPoolProps, location);
CHECK(sizeof(((CUmemPoolProps *)0)->location) == sizeof(struct tdict_cuda_location), "CUmemPoolProps.location");
PROPS(windows_security, win32SecurityAttributes);
CHECK(offsetof(CUmemPoolProps, reserved) >= offsetof(struct tdict_cuda_pool_props, reserved),
      "CUmemPoolProps.reserved");

#define RECT(ours, theirs) CHECK_MEMBER(struct tdict_cuda_rect, ours, CUDA_MEMCPY2D, theirs)
CHECK(sizeof(struct tdict_cuda_rect) == sizeof(CUDA_MEMCPY2D), "CUDA_MEMCPY2D: another size");
RECT(src_x, srcXInBytes);
RECT(src_y, srcY);
RECT(src_type, srcMemoryType);
RECT(src_host, srcHost);
RECT(src_device, srcDevice);
RECT(src_array, srcArray);
RECT(src_pitch, srcPitch);
RECT(dst_x, dstXInBytes);
RECT(dst_y, dstY);
RECT(dst_type, dstMemoryType);
RECT(dst_host, dstHost);
RECT(dst_device, dstDevice);
RECT(dst_array, dstArray);
RECT(dst_pitch, dstPitch);
RECT(width, WidthInBytes);
RECT(height, Height);

#define ACCESS(ours, theirs) CHECK_MEMBER_AT(struct tdict_cuda_access, ours, CUmemAccessDesc, theirs)
CHECK(sizeof(struct tdict_cuda_access) == sizeof(CUmemAccessDesc), "CUmemAccessDesc: another size");
ACCESS(location, location);
ACCESS(flags, flags);

#define PEER(ours, theirs) CHECK_MEMBER(struct tdict_cuda_peer_rect, ours, CUDA_MEMCPY3D_PEER, theirs)
CHECK(sizeof(struct tdict_cuda_peer_rect) == sizeof(CUDA_MEMCPY3D_PEER), "CUDA_MEMCPY3D_PEER: another size");
PEER(src_x, srcXInBytes);
PEER(src_y, srcY);
PEER(src_z, srcZ);
PEER(src_lod, srcLOD);
PEER(src_type, srcMemoryType);
PEER(src_host, srcHost);
PEER(src_device, srcDevice);
PEER(src_array, srcArray);
PEER(src_context, srcContext);
PEER(src_pitch, srcPitch);
PEER(src_height, srcHeight);
PEER(dst_x, dstXInBytes);
PEER(dst_y, dstY);
PEER(dst_z, dstZ);
PEER(dst_lod, dstLOD);
PEER(dst_type, dstMemoryType);
PEER(dst_host, dstHost);
PEER(dst_device, dstDevice);
PEER(dst_array, dstArray);
PEER(dst_context, dstContext);
PEER(dst_pitch, dstPitch);
PEER(dst_height, dstHeight);
PEER(width, WidthInBytes);
PEER(height, Height);
PEER(depth, Depth);

#define EQUAL(ours, theirs) CHECK((long long)(ours) == (long long)(theirs), #ours " is not " #theirs)
/* device/cuda/cuda_api.h */
EQUAL(TDICT_CUDA_LOOKUP_LEGACY_STREAM, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
EQUAL(TDICT_CUDA_LOOKUP_SUCCESS, CU_GET_PROC_ADDRESS_SUCCESS);
EQUAL(TDICT_CUDA_LOOKUP_NOT_FOUND, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
EQUAL(TDICT_CUDA_LOOKUP_TOO_OLD, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
EQUAL(TDICT_CUDA_MEMORY_HOST, CU_MEMORYTYPE_HOST);
EQUAL(TDICT_CUDA_MEMORY_DEVICE, CU_MEMORYTYPE_DEVICE);
EQUAL(TDICT_CUDA_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
EQUAL(TDICT_CUDA_ALLOCATION_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
EQUAL(TDICT_CUDA_HANDLE_NONE, CU_MEM_HANDLE_TYPE_NONE);
EQUAL(TDICT_CUDA_ACCESS_READWRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
EQUAL(TDICT_CUDA_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
EQUAL(TDICT_CUDA_POINTER_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
EQUAL(TDICT_CUDA_POINTER_RANGE_START, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
EQUAL(TDICT_CUDA_POINTER_RANGE_SIZE, CU_POINTER_ATTRIBUTE_RANGE_SIZE);
EQUAL(TDICT_CUDA_POOL_LAST_INT, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES);
EQUAL(TDICT_CUDA_POOL_LAST_INT + 1, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);
EQUAL(TDICT_CUDA_LAUNCH_END, CU_LAUNCH_PARAM_END_AS_INT);
EQUAL(TDICT_CUDA_LAUNCH_BUFFER, CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT);
EQUAL(TDICT_CUDA_LAUNCH_BYTES, CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT);

/* device/driver.h */
EQUAL(TDICT_CU_SUCCESS, CUDA_SUCCESS);
EQUAL(TDICT_CU_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
EQUAL(TDICT_CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
EQUAL(TDICT_CU_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED);
EQUAL(TDICT_CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
EQUAL(TDICT_CU_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE);
EQUAL(TDICT_CU_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT);
EQUAL(TDICT_CU_NO_BINARY_FOR_GPU, CUDA_ERROR_NO_BINARY_FOR_GPU);
EQUAL(TDICT_CU_INVALID_PTX, CUDA_ERROR_INVALID_PTX);
EQUAL(TDICT_CU_JIT_COMPILER_NOT_FOUND, CUDA_ERROR_JIT_COMPILER_NOT_FOUND);
EQUAL(TDICT_CU_UNSUPPORTED_PTX_VERSION, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
EQUAL(TDICT_CU_JIT_COMPILATION_DISABLED, CUDA_ERROR_JIT_COMPILATION_DISABLED);
EQUAL(TDICT_CU_INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE);
EQUAL(TDICT_CU_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
EQUAL(TDICT_CU_NOT_READY, CUDA_ERROR_NOT_READY);
EQUAL(TDICT_CU_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS);
EQUAL(TDICT_CU_PEER_ACCESS_ALREADY_ENABLED, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
EQUAL(TDICT_CU_HOST_MEMORY_ALREADY_REGISTERED, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
EQUAL(TDICT_CU_HOST_MEMORY_NOT_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
EQUAL(TDICT_CU_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
EQUAL(TDICT_CU_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
EQUAL(TDICT_CU_UNKNOWN, CUDA_ERROR_UNKNOWN);
EQUAL(TDICT_CU_STREAM_DEFAULT, CU_STREAM_DEFAULT);
EQUAL(TDICT_CU_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
EQUAL(TDICT_CU_EVENT_DEFAULT, CU_EVENT_DEFAULT);
EQUAL(TDICT_CU_EVENT_BLOCKING_SYNC, CU_EVENT_BLOCKING_SYNC);
EQUAL(TDICT_CU_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING);
EQUAL(TDICT_CU_HOST_PORTABLE, CU_MEMHOSTALLOC_PORTABLE);
EQUAL(TDICT_CU_HOST_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE);
EQUAL(TDICT_CU_ATTRIBUTE_MULTIPROCESSOR_COUNT, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
EQUAL(TDICT_CU_ATTRIBUTE_PCI_BUS_ID, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
EQUAL(TDICT_CU_ATTRIBUTE_PCI_DEVICE_ID, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
EQUAL(TDICT_CU_ATTRIBUTE_ASYNC_ENGINE_COUNT, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT);
EQUAL(TDICT_CU_ATTRIBUTE_PCI_DOMAIN_ID, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
EQUAL(TDICT_CU_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
EQUAL(TDICT_CU_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
EQUAL(TDICT_CU_ATTRIBUTE_READS_HOST_PAGE_TABLES, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES);
EQUAL(TDICT_CU_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
EQUAL(TDICT_CU_POOL_REUSE_FOLLOW_EVENT_DEPENDENCIES, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES);
EQUAL(TDICT_CU_POOL_REUSE_ALLOW_OPPORTUNISTIC, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC);
EQUAL(TDICT_CU_POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES);
EQUAL(TDICT_CU_POOL_RELEASE_THRESHOLD, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);
EQUAL(TDICT_CU_POOL_RESERVED_MEM_CURRENT, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
EQUAL(TDICT_CU_POOL_USED_MEM_CURRENT, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
EQUAL(TDICT_CU_CAPTURE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL);
EQUAL(TDICT_CU_CAPTURE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
EQUAL(TDICT_CU_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
EQUAL(TDICT_CU_CAPTURE_STATUS_NONE, CU_STREAM_CAPTURE_STATUS_NONE);
EQUAL(TDICT_CU_CAPTURE_STATUS_ACTIVE, CU_STREAM_CAPTURE_STATUS_ACTIVE);
EQUAL(TDICT_CU_CAPTURE_STATUS_INVALIDATED, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
