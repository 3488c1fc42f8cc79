/* Declares the allocators for the bytes of tensors.
 *
 * A `tdict_memory *` is an allocator. NULL means plain host memory. tdict_pinned_memory() and tdict_device_memory() of
 * tdict/context.h return the allocators of pinned and device memory. The context owns these allocators, and the program
 * borrows the pointers. A storage may outlive the context. Thread rule: any thread may call any function. */
#ifndef TDICT_MEMORY_H
#define TDICT_MEMORY_H

#include "tdict/values.h"

TDICT_BEGIN_DECLS

typedef struct tdict_memory tdict_memory;

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

TDICT_END_DECLS
#endif
