/* Declares the table of driver calls through which the library uses a GPU. driver_cuda.c implements the table over
 * libcuda, and src/device/sim implements the table for a simulated GPU. A wrapper may implement the table over another
 * driver.
 *
 * The table uses CUDA's terms, rules and result codes, as in NVIDIA's "CUDA Driver API" manual. Results are CUresult
 * codes: 0 is success. Handles are the driver's own pointers. Device addresses have the type `void *`. Code outside
 * the driver never dereferences a device address.
 *
 * A driver is reference counted. Thread rule: all functions of the table are thread-safe. An entry marked (ctx) needs a
 * current context on the calling thread; without a current context the entry returns TDICT_CU_INVALID_CONTEXT. */
#ifndef TDICT_DEVICE_DRIVER_H
#define TDICT_DEVICE_DRIVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tdict/values.h"

typedef int tdict_cu; /* a CUresult */
enum {
  TDICT_CU_SUCCESS = 0,
  TDICT_CU_INVALID_VALUE = 1,
  TDICT_CU_OUT_OF_MEMORY = 2,
  TDICT_CU_NOT_INITIALIZED = 3,
  TDICT_CU_NO_DEVICE = 100,
  TDICT_CU_INVALID_DEVICE = 101,
  TDICT_CU_INVALID_CONTEXT = 201,
  TDICT_CU_NO_BINARY_FOR_GPU = 209,
  TDICT_CU_INVALID_PTX = 218,
  TDICT_CU_JIT_COMPILER_NOT_FOUND = 221,
  TDICT_CU_UNSUPPORTED_PTX_VERSION = 222,
  TDICT_CU_JIT_COMPILATION_DISABLED = 223,
  TDICT_CU_INVALID_HANDLE = 400,
  TDICT_CU_NOT_FOUND = 500,
  TDICT_CU_NOT_READY = 600,
  TDICT_CU_ILLEGAL_ADDRESS = 700,
  TDICT_CU_PEER_ACCESS_ALREADY_ENABLED = 704,
  TDICT_CU_HOST_MEMORY_ALREADY_REGISTERED = 712,
  TDICT_CU_HOST_MEMORY_NOT_REGISTERED = 713,
  TDICT_CU_NOT_SUPPORTED = 801,
  TDICT_CU_STREAM_CAPTURE_UNSUPPORTED = 900,
  TDICT_CU_UNKNOWN = 999
};

typedef struct tdict_cu_context *tdict_cu_context;         /* CUcontext */
typedef struct tdict_cu_stream *tdict_cu_stream;           /* CUstream; NULL and (void *)1 are the legacy stream */
typedef struct tdict_cu_event *tdict_cu_event;             /* CUevent */
typedef struct tdict_cu_pool *tdict_cu_pool;               /* CUmemoryPool */
typedef struct tdict_cu_module *tdict_cu_module;           /* CUmodule */
typedef const struct tdict_cu_function *tdict_cu_function; /* CUfunction */

/* The next enums repeat constants of cuda.h: the comments name the CUDA enum, or the functions. */
/* CUstream_flags */
enum { TDICT_CU_STREAM_DEFAULT = 0, TDICT_CU_STREAM_NON_BLOCKING = 1 };
/* CUevent_flags */
enum { TDICT_CU_EVENT_DEFAULT = 0, TDICT_CU_EVENT_BLOCKING_SYNC = 1, TDICT_CU_EVENT_DISABLE_TIMING = 2 };
/* flags of cuMemHostAlloc and cuMemHostRegister */
enum { TDICT_CU_HOST_PORTABLE = 1 };
/* CUdevice_attribute */
enum {
  TDICT_CU_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  TDICT_CU_ATTRIBUTE_PCI_BUS_ID = 33,
  TDICT_CU_ATTRIBUTE_PCI_DEVICE_ID = 34,
  TDICT_CU_ATTRIBUTE_ASYNC_ENGINE_COUNT = 40,
  TDICT_CU_ATTRIBUTE_PCI_DOMAIN_ID = 50,
  TDICT_CU_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  TDICT_CU_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  TDICT_CU_ATTRIBUTE_READS_HOST_PAGE_TABLES = 100, /* PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES */
  TDICT_CU_ATTRIBUTE_MEMORY_POOLS_SUPPORTED = 115
};
/* CUmemPool_attribute */
enum {
  TDICT_CU_POOL_REUSE_FOLLOW_EVENT_DEPENDENCIES = 1,
  TDICT_CU_POOL_REUSE_ALLOW_OPPORTUNISTIC = 2,
  TDICT_CU_POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES = 3,
  TDICT_CU_POOL_RELEASE_THRESHOLD = 4,
  TDICT_CU_POOL_RESERVED_MEM_CURRENT = 5,
  TDICT_CU_POOL_USED_MEM_CURRENT = 7
};
/* CUstreamCaptureMode */
enum { TDICT_CU_CAPTURE_GLOBAL = 0, TDICT_CU_CAPTURE_THREAD_LOCAL = 1, TDICT_CU_CAPTURE_RELAXED = 2 };
/* CUstreamCaptureStatus */
enum { TDICT_CU_CAPTURE_STATUS_NONE = 0, TDICT_CU_CAPTURE_STATUS_ACTIVE = 1, TDICT_CU_CAPTURE_STATUS_INVALIDATED = 2 };

/* The properties of an address that the driver reports. */
typedef struct tdict_cu_pointer {
  bool known;      /* false: the driver does not know the address, and the other fields are 0 */
  bool device;     /* true: device memory; false: page-locked host memory */
  int32_t ordinal; /* the device that owns the device memory, or the device whose context was current when the host
                    * memory was pinned */
  void *range;     /* start and bytes of the allocation or registration that contains the address */
  size_t range_bytes;
} tdict_cu_pointer;

typedef enum tdict_cu_kind { TDICT_CU_H2D, TDICT_CU_D2H, TDICT_CU_D2D } tdict_cu_kind;
/* The copy of a rectangle, like CUDA_MEMCPY2D. Pitches and width are bytes. A pitch is at least the width. */
typedef struct tdict_cu_rect {
  tdict_cu_kind kind;
  void *dst;
  const void *src;
  size_t dst_pitch, src_pitch, width, height;
} tdict_cu_rect;

/* One contiguous copy of a batch of copies, between page-locked host memory and a device. */
typedef struct tdict_cu_copy {
  void *dst;
  const void *src;
  size_t bytes;
} tdict_cu_copy;
enum { TDICT_CU_MOST_COPIES = 64 };

/* A launch of a kernel in one dimension, with one parameter, a struct passed by value. */
typedef struct tdict_cu_launch {
  tdict_cu_function function;
  unsigned blocks, threads;
  const void *params; /* copied by the call */
  size_t params_bytes;
} tdict_cu_launch;

typedef struct tdict_driver tdict_driver;
typedef const tdict_driver *(*tdict_stream_owner)(const void *handle, int32_t *ordinal);
typedef struct tdict_driver_ops {
  void (*close)(tdict_driver *d); /* called after the last release; frees d */

  tdict_cu (*error_text)(tdict_driver *d, tdict_cu result, const char **name, const char **text);
  tdict_cu (*device_count)(tdict_driver *d, int *count);
  tdict_cu (*device_name)(tdict_driver *d, int ordinal, char *buffer, int bytes);
  tdict_cu (*device_attribute)(tdict_driver *d, int ordinal, int attribute, int *value);
  tdict_cu (*device_can_reach)(tdict_driver *d, int ordinal, int peer,
                               int *can); /* writes 1 to *can if the device can access the peer's memory, else 0 */

  tdict_cu (*ctx_retain)(tdict_driver *d, int ordinal, tdict_cu_context *out); /* the device's primary context */
  tdict_cu (*ctx_release)(tdict_driver *d, int ordinal);
  tdict_cu (*ctx_push)(tdict_driver *d, tdict_cu_context context);
  tdict_cu (*ctx_pop)(tdict_driver *d, tdict_cu_context *out);        /* (ctx) */
  tdict_cu (*ctx_current)(tdict_driver *d, tdict_cu_context *out);    /* *out is NULL if no context is current */
  tdict_cu (*ctx_allow_peer)(tdict_driver *d, tdict_cu_context peer); /* (ctx) lets the current context access the
                                                                       * memory that mem_alloc() allocates in the
                                                                       * context `peer` */
  tdict_cu (*capture_mode)(tdict_driver *d, int *mode);               /* swaps the thread's capture mode and *mode */

  tdict_cu (*pool_create)(tdict_driver *d, int ordinal, tdict_cu_pool *out);
  tdict_cu (*pool_destroy)(tdict_driver *d, tdict_cu_pool pool);
  tdict_cu (*pool_trim)(tdict_driver *d, tdict_cu_pool pool, size_t keep_bytes);
  tdict_cu (*pool_set)(tdict_driver *d, tdict_cu_pool pool, int attribute, uint64_t value);
  tdict_cu (*pool_get)(tdict_driver *d, tdict_cu_pool pool, int attribute, uint64_t *value);
  tdict_cu (*pool_allow_peer)(tdict_driver *d, tdict_cu_pool pool,
                              int ordinal); /* lets another device access the pool's memory */
  tdict_cu (*mem_alloc_async)(tdict_driver *d, void **out, size_t bytes, tdict_cu_pool pool, tdict_cu_stream stream);
  tdict_cu (*mem_free_async)(tdict_driver *d, void *device, tdict_cu_stream stream);
  tdict_cu (*mem_alloc)(tdict_driver *d, void **out, size_t bytes); /* (ctx) */
  tdict_cu (*mem_free)(tdict_driver *d, void *device);              /* (ctx) first waits for the device */

  tdict_cu (*host_alloc)(tdict_driver *d, void **out, size_t bytes, unsigned flags); /* (ctx) */
  tdict_cu (*host_free)(tdict_driver *d, void *host, size_t bytes); /* (ctx) `bytes` is the allocated size */
  tdict_cu (*host_register)(tdict_driver *d, void *host, size_t bytes, unsigned flags); /* (ctx) */
  tdict_cu (*host_unregister)(tdict_driver *d, void *host, size_t bytes);               /* (ctx) */
  tdict_cu (*pointer)(tdict_driver *d, const void *address, tdict_cu_pointer *out);     /* for an unknown address:
                                                                                         * returns SUCCESS, and
                                                                                         * out->known is false */

  tdict_cu (*copy_h2d_async)(tdict_driver *d, void *device, const void *host, size_t bytes,
                             tdict_cu_stream s); /* (ctx) */
  tdict_cu (*copy_d2h_async)(tdict_driver *d, void *host, const void *device, size_t bytes,
                             tdict_cu_stream s); /* (ctx) */
  /* (ctx) INVALID_VALUE: another device's pool has the memory, and the current device no access to it. */
  tdict_cu (*copy_d2d_async)(tdict_driver *d, void *dst, const void *src, size_t bytes, tdict_cu_stream s);
  /* (ctx) Copies from context `from` to context `to`, also without a direct link. rect->kind is D2D. */
  tdict_cu (*copy_peer_async)(tdict_driver *d, const tdict_cu_rect *rect, tdict_cu_context to, tdict_cu_context from,
                              tdict_cu_stream s);
  tdict_cu (*copy_rect_async)(tdict_driver *d, const tdict_cu_rect *rect, tdict_cu_stream s); /* (ctx) */
  tdict_cu (*fill_async)(tdict_driver *d, void *device, unsigned char byte, size_t bytes,
                         tdict_cu_stream s); /* (ctx) */
  /* (ctx) Queues up to TDICT_CU_MOST_COPIES copies, in any order, not on the legacy stream. After a failure, some may
   * be queued. Returns TDICT_CU_NOT_SUPPORTED if the driver has no such call. */
  tdict_cu (*copy_batch_async)(tdict_driver *d, tdict_cu_kind kind, const tdict_cu_copy *copies, size_t count,
                               tdict_cu_stream s);

  /* module_load loads PTX, which is a text that ends with 0. The driver compiles the text for the current device. These
   * four calls return TDICT_CU_NOT_SUPPORTED if the driver lacks an entry for launches. */
  tdict_cu (*module_load)(tdict_driver *d, const char *image, tdict_cu_module *out); /* (ctx) */
  tdict_cu (*module_unload)(tdict_driver *d, tdict_cu_module module);                /* (ctx) */
  tdict_cu (*module_function)(tdict_driver *d, tdict_cu_module module, const char *name,
                              tdict_cu_function *out);                                   /* (ctx) */
  tdict_cu (*launch)(tdict_driver *d, const tdict_cu_launch *launch, tdict_cu_stream s); /* (ctx) */

  tdict_cu (*stream_create)(tdict_driver *d, tdict_cu_stream *out, unsigned flags); /* (ctx) */
  tdict_cu (*stream_destroy)(tdict_driver *d, tdict_cu_stream s);                   /* queued work still runs */
  /* Returns the driver that created the stream `handle`, and writes the ordinal of the stream's device to *ordinal.
   * Returns NULL if the handle is not a stream. This function has no driver parameter, so that callers can check a
   * stream after its driver is closed. The entry is NULL if the driver itself checks the stream handles in every
   * call. */
  tdict_stream_owner stream_owner;
  tdict_cu (*stream_query)(tdict_driver *d, tdict_cu_stream s); /* SUCCESS, NOT_READY or an error */
  tdict_cu (*stream_synchronize)(tdict_driver *d, tdict_cu_stream s);
  tdict_cu (*stream_wait_event)(tdict_driver *d, tdict_cu_stream s,
                                tdict_cu_event e); /* does nothing if the event was never recorded */
  tdict_cu (*stream_capture_status)(tdict_driver *d, tdict_cu_stream s, int *status);
  tdict_cu (*event_create)(tdict_driver *d, tdict_cu_event *out, unsigned flags); /* (ctx) */
  tdict_cu (*event_destroy)(tdict_driver *d, tdict_cu_event e);
  tdict_cu (*event_record)(tdict_driver *d, tdict_cu_event e, tdict_cu_stream s);
  tdict_cu (*event_query)(tdict_driver *d, tdict_cu_event e); /* returns SUCCESS if the event was never recorded */
  tdict_cu (*event_synchronize)(tdict_driver *d, tdict_cu_event e);
  tdict_cu (*event_elapsed)(tdict_driver *d, float *milliseconds, tdict_cu_event from, tdict_cu_event to);
} tdict_driver_ops;

/* All entries but `close` and `stream_owner`, in groups: a file of a group has a function for each. */
/* clang-format off */
#define TDICT_DRIVER_DEVICE_ENTRIES(X) \
  X(error_text) X(device_count) X(device_name) X(device_attribute) X(device_can_reach)
#define TDICT_DRIVER_CONTEXT_ENTRIES(X) \
  X(ctx_retain) X(ctx_release) X(ctx_push) X(ctx_pop) X(ctx_current) X(ctx_allow_peer) X(capture_mode)
#define TDICT_DRIVER_MEMORY_ENTRIES(X) \
  X(pool_create) X(pool_destroy) X(pool_trim) X(pool_set) X(pool_get) X(pool_allow_peer) \
  X(mem_alloc_async) X(mem_free_async) X(mem_alloc) X(mem_free) \
  X(host_alloc) X(host_free) X(host_register) X(host_unregister) X(pointer)
#define TDICT_DRIVER_COPY_ENTRIES(X) \
  X(copy_h2d_async) X(copy_d2h_async) X(copy_d2d_async) X(copy_peer_async) X(copy_rect_async) X(copy_batch_async) \
  X(fill_async)
#define TDICT_DRIVER_LAUNCH_ENTRIES(X) X(module_load) X(module_unload) X(module_function) X(launch)
#define TDICT_DRIVER_STREAM_ENTRIES(X) \
  X(stream_create) X(stream_destroy) X(stream_query) X(stream_synchronize) X(stream_wait_event) \
  X(stream_capture_status) X(event_create) X(event_destroy) X(event_record) X(event_query) X(event_synchronize) \
  X(event_elapsed)
#define TDICT_DRIVER_ENTRIES(X) \
  TDICT_DRIVER_DEVICE_ENTRIES(X) TDICT_DRIVER_CONTEXT_ENTRIES(X) TDICT_DRIVER_MEMORY_ENTRIES(X) \
  TDICT_DRIVER_COPY_ENTRIES(X) TDICT_DRIVER_LAUNCH_ENTRIES(X) TDICT_DRIVER_STREAM_ENTRIES(X)
/* clang-format on */

struct tdict_driver {
  const tdict_driver_ops *ops;
  int32_t device_type; /* TDICT_DEVICE_CUDA or TDICT_DEVICE_SIM */
  tdict_driver *inner; /* retained, constant; the driver that this wrapper calls; NULL: this driver is not a wrapper */
  _Atomic(int64_t) refs;
  /* The functions of counted.h update these counts, which begin at 0. Relaxed: statistics only. */
  _Atomic(size_t) pinned_bytes, peak_pinned_bytes;
  _Atomic(int64_t) num_streams, num_events;
};
tdict_driver *tdict_driver_retain(tdict_driver *d);
void tdict_driver_release(tdict_driver *d); /* the last release closes the driver; NULL is allowed */
/* Follows `inner` to the driver that is not a wrapper. The caller borrows the driver. */
static inline tdict_driver *tdict_driver_innermost(tdict_driver *d) {
  while (d->inner) d = d->inner;
  return d;
}
/* Returns true if the stream's handle belongs to `driver` and to the device `s.device`. Always returns true for cuda,
 * because the CUDA driver checks handles itself. `driver` may be closed, because only its address is compared. */
bool tdict_driver_owns_stream(const tdict_driver *driver, tdict_stream_owner owner, tdict_stream s);

/* Opens libcuda.so.1, with one reference. Returns TDICT_ENODEVICE, with the reason, if it is missing, older than CUDA
 * 12.0, lacks an entry, cannot be initialized or reports no device, and TDICT_ENOMEM. */
tdict_status tdict_driver_cuda_open(tdict_driver **out, tdict_error *err);

#endif
