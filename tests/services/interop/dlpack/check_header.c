/* Compares the library's declarations of DLPack with DLPack's own header, at compile time. tests/gates/dlpack_header.py
 * compiles this file as C and C++, with DLPACK_HEADER as the header. DLPACK_ORDER is 1 if it is included before tdict's
 * header, and 2 if after it. Versions of DLPack differ in the names of types, so members are compared by offset and
 * size. */
#if DLPACK_ORDER == 1
#include DLPACK_HEADER
#endif
#include "tdict/dlpack.h"
#if DLPACK_ORDER == 2
#include DLPACK_HEADER
#endif
#include <stddef.h>

#ifdef __cplusplus
#define CHECK(what) static_assert(what, #what)
#else
#define CHECK(what) _Static_assert(what, #what)
#endif
#include "services/interop/dlpack/abi.h"

#define SAME_MEMBER(ours, our_member, theirs, their_member)            \
  CHECK(offsetof(ours, our_member) == offsetof(theirs, their_member)); \
  CHECK(sizeof(((ours *)0)->our_member) == sizeof(((theirs *)0)->their_member))

CHECK(sizeof(tdict_dl_tensor) == sizeof(DLTensor));
SAME_MEMBER(tdict_dl_tensor, data, DLTensor, data);
SAME_MEMBER(tdict_dl_tensor, ndim, DLTensor, ndim);
SAME_MEMBER(tdict_dl_tensor, dtype, DLTensor, dtype);
SAME_MEMBER(tdict_dl_tensor, shape, DLTensor, shape);
SAME_MEMBER(tdict_dl_tensor, strides, DLTensor, strides);
SAME_MEMBER(tdict_dl_tensor, byte_offset, DLTensor, byte_offset);
CHECK(sizeof(tdict_dl_dtype) == sizeof(DLDataType));
SAME_MEMBER(tdict_dl_dtype, code, DLDataType, code);
SAME_MEMBER(tdict_dl_dtype, bits, DLDataType, bits);
SAME_MEMBER(tdict_dl_dtype, lanes, DLDataType, lanes);
CHECK(sizeof(tdict_dl_legacy) == sizeof(DLManagedTensor));
SAME_MEMBER(tdict_dl_legacy, tensor, DLManagedTensor, dl_tensor);
SAME_MEMBER(tdict_dl_legacy, manager_ctx, DLManagedTensor, manager_ctx);
SAME_MEMBER(tdict_dl_legacy, deleter, DLManagedTensor, deleter);
CHECK((int)TDICT_DL_CPU == (int)kDLCPU);
/* The names of CUDA's devices changed in version 0.5, and the version macros in 1.0. */
#if defined(DLPACK_MAJOR_VERSION) || defined(DLPACK_VERSION)
SAME_MEMBER(tdict_dl_tensor, device, DLTensor, device);
CHECK(sizeof(tdict_dl_device) == sizeof(DLDevice));
SAME_MEMBER(tdict_dl_device, type, DLDevice, device_type);
SAME_MEMBER(tdict_dl_device, id, DLDevice, device_id);
CHECK((int)TDICT_DL_CUDA == (int)kDLCUDA && (int)TDICT_DL_CUDA_HOST == (int)kDLCUDAHost);
CHECK((int)TDICT_DL_EXT_DEV == (int)kDLExtDev && (int)TDICT_DL_CUDA_MANAGED == (int)kDLCUDAManaged);
#endif
/* The lowest 8 bits of a dtype are DLPack's code. */
#define CODE(dtype, code) CHECK(((dtype)&0xff) == (code))
CODE(TDICT_I8, kDLInt);
CODE(TDICT_U8, kDLUInt);
CODE(TDICT_F32, kDLFloat);
CODE(TDICT_BF16, kDLBfloat);

#if defined(DLPACK_MAJOR_VERSION)
typedef struct DLManagedTensorVersioned their_versioned;
CHECK(sizeof(tdict_dl_versioned) == sizeof(their_versioned));
CHECK(offsetof(tdict_dl_versioned, major) == offsetof(their_versioned, version) + offsetof(DLPackVersion, major));
CHECK(offsetof(tdict_dl_versioned, minor) == offsetof(their_versioned, version) + offsetof(DLPackVersion, minor));
SAME_MEMBER(tdict_dl_versioned, manager_ctx, their_versioned, manager_ctx);
SAME_MEMBER(tdict_dl_versioned, deleter, their_versioned, deleter);
SAME_MEMBER(tdict_dl_versioned, flags, their_versioned, flags);
SAME_MEMBER(tdict_dl_versioned, tensor, their_versioned, dl_tensor);
CHECK(TDICT_DL_READ_ONLY == DLPACK_FLAG_BITMASK_READ_ONLY);
CHECK(TDICT_DL_MAJOR == DLPACK_MAJOR_VERSION);
CODE(TDICT_C64, kDLComplex);
CODE(TDICT_BOOL, kDLBool);
#if DLPACK_MINOR_VERSION >= 1
CODE(TDICT_F8E4M3, kDLFloat8_e4m3fn);
CODE(TDICT_F8E5M2, kDLFloat8_e5m2);
#endif

/* A consumer passes the structs of its header to the library without casts. */
tdict_status use_versioned(DLManagedTensorVersioned *managed, tdict_tensor **out);
tdict_status use_versioned(DLManagedTensorVersioned *managed, tdict_tensor **out) {
  tdict_dlpack_entry entry = tdict_dlpack_entry_default();
  entry.versioned = managed;
  return tdict_dlpack_import(NULL, &entry, NULL, out, NULL);
}
#endif
tdict_status use_legacy(DLManagedTensor *managed, tdict_tensor **out);
tdict_status use_legacy(DLManagedTensor *managed, tdict_tensor **out) {
  tdict_dlpack_entry entry = tdict_dlpack_entry_default();
  entry.legacy = managed;
  return tdict_dlpack_import(NULL, &entry, NULL, out, NULL);
}
