/* Declares the structs of DLPack 1.3 under other names, with the same layout. The build needs no DLPack header.
 * tests/services/interop/dlpack/check_header.c compares these declarations with DLPack's header. The owner of a managed
 * tensor calls its deleter once. Thread rule: plain data. */
#ifndef TDICT_SERVICES_INTEROP_DLPACK_ABI_H
#define TDICT_SERVICES_INTEROP_DLPACK_ABI_H

#include <stdint.h>

enum { TDICT_DL_MAJOR = 1, TDICT_DL_MINOR = 3 };

enum {
  TDICT_DL_CPU = 1,
  TDICT_DL_CUDA = 2,
  TDICT_DL_CUDA_HOST = 3, /* pinned host memory */
  TDICT_DL_EXT_DEV = 12,
  TDICT_DL_CUDA_MANAGED = 13
};

/* Bits of tdict_dl_versioned.flags. */
#define TDICT_DL_READ_ONLY ((uint64_t)1)

typedef struct tdict_dl_device {
  int32_t type, id;
} tdict_dl_device;

typedef struct tdict_dl_dtype {
  uint8_t code, bits;
  uint16_t lanes;
} tdict_dl_dtype;

typedef struct tdict_dl_tensor {
  void *data;
  tdict_dl_device device;
  int32_t ndim;
  tdict_dl_dtype dtype;
  int64_t *shape;
  int64_t *strides; /* in elements; NULL: C order */
  uint64_t byte_offset;
} tdict_dl_tensor;

/* DLManagedTensor. */
typedef struct tdict_dl_legacy tdict_dl_legacy;
struct tdict_dl_legacy {
  tdict_dl_tensor tensor;
  void *manager_ctx;
  void (*deleter)(tdict_dl_legacy *self); /* may be NULL */
};

/* DLManagedTensorVersioned. If the major version is unknown, only the members up to `deleter` are valid. */
typedef struct tdict_dl_versioned tdict_dl_versioned;
struct tdict_dl_versioned {
  uint32_t major, minor;
  void *manager_ctx;
  void (*deleter)(tdict_dl_versioned *self); /* may be NULL */
  uint64_t flags;
  tdict_dl_tensor tensor;
};

#endif
