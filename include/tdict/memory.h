/* Declares allocators of the program, and counts of memory. Programs that only use a context's memories do not need
 * this header. A `tdict_memory *` is an allocator; NULL means plain host memory. Errors of all functions:
 * #TDICT_EINVAL, #TDICT_ENOMEM, and for a device as in tdict/context.h. Thread rule: all functions are thread-safe. */
#ifndef TDICT_MEMORY_H
#define TDICT_MEMORY_H

#include "tdict/values.h"

TDICT_BEGIN_DECLS

/** Statistics of one memory. The counts are of blocks, not of tensors. Pinned blocks are multiples of 4096 bytes, and
 *  device blocks of 256 bytes. Blocks of a memory that tdict_memory_create() returned have the requested size. A reused
 *  device block may be up to an eighth larger than requested, and counts with its full size. */
typedef struct tdict_memory_counts {
  size_t live_bytes;       /**< bytes of blocks that storages use */
  size_t cached_bytes;     /**< bytes of freed blocks that are kept for reuse */
  size_t peak_bytes;       /**< largest sum of `live_bytes` and `cached_bytes` so far */
  int64_t num_allocations; /**< number of successful allocations */
  int64_t num_reused;      /**< number of allocations that reused a cached block */
} tdict_memory_counts;

/** @brief Copies the counts of @p memory to @p out. Plain host memory (NULL) is not counted: all are 0. */
TDICT_API void tdict_memory_get_counts(const tdict_memory *memory, tdict_memory_counts *out);
/** @brief Returns the device of @p memory. Plain and pinned host memory belong to the cpu. */
TDICT_API tdict_device tdict_memory_device(const tdict_memory *memory);

/** The program's allocator, which the program passes to tdict_memory_create(). */
typedef struct tdict_allocator {
  size_t struct_size;
  tdict_device device; /**< the cpu or a device of the context; "auto": the default device */
  bool pinned;         /**< true: the memory is page-locked for the context's devices; allowed only for the cpu */
  /** Returns a block of @p bytes bytes, aligned to 256 bytes, or NULL if out of memory. Called on any thread, without a
   *  lock of the library. */
  void *(*allocate)(void *user, size_t bytes);
  /** Frees the block @p data of @p bytes bytes, after all copies and recorded uses of it. Called as `allocate` is, but
   *  not for device memory in a forked process. */
  void (*release)(void *user, void *data, size_t bytes);
  void *user; /**< passed to both functions */
} tdict_allocator;
static inline tdict_allocator tdict_allocator_default(void) {
  tdict_allocator a;
  tdict_init_struct_(a);
  return a;
}
/** @brief Creates a memory that calls the program's allocator, for every function and option that takes a tdict_memory.
 *  @param[in]  allocator  Copied. Its functions and `user` must live as long as the memory.
 *  @param[out] out        New memory, released with tdict_memory_release(). Storages in it keep it alive. */
TDICT_API TDICT_NODISCARD tdict_status tdict_memory_create(tdict_context *context, const tdict_allocator *allocator,
                                                           tdict_memory **out, tdict_error *err);
/** @brief Drops the program's reference to a memory that tdict_memory_create() returned. NULL is allowed. */
TDICT_API void tdict_memory_release(tdict_memory *memory);

/** Driver resources of a context. All but `device_bytes` are sums over all CUDA devices, or all simulated devices. */
typedef struct tdict_device_counts {
  size_t pinned_bytes, peak_pinned_bytes; /**< bytes of pinned memory now, and the maximum so far */
  size_t device_bytes;                    /**< bytes of device memory that storages use; freed blocks do not count */
  int64_t num_streams, num_events;        /**< streams and events that the library has created and not destroyed */
} tdict_device_counts;
/** @brief Reads how many driver resources a context holds on a device that is not the cpu. */
TDICT_API TDICT_NODISCARD tdict_status tdict_context_get_counts(tdict_context *context, tdict_device device,
                                                                tdict_device_counts *out, tdict_error *err);
/** @brief Frees memory of a device that is kept for reuse, down to @p keep_bytes bytes. Ignores an absent device.
 *  tdict_cpu() means pinned memory, where a block also stays if it was registered together with a block in use. For
 *  another device, the call waits for work that still uses freed blocks. */
TDICT_API void tdict_context_trim(tdict_context *context, tdict_device device, size_t keep_bytes);

TDICT_END_DECLS
#endif
