/* Where the bytes of a tensor come from.
 *
 * A `tdict_memory *` is an allocator: NULL means plain host memory (malloc); tdict_pinned_memory() and
 * tdict_device_memory() of tdict/context.h give the others. It is borrowed: the context owns it, and storage made from
 * it keeps alive what it needs. Thread rule: safe from any thread. */
#ifndef TDICT_MEMORY_H
#define TDICT_MEMORY_H

#include "tdict/values.h"

TDICT_BEGIN_DECLS

typedef struct tdict_memory tdict_memory;

/** Byte counts of one memory, all in bytes. A block's bytes are what was asked for, rounded up to 4096 for pinned
 *  memory and to 256 for device memory; never to a power of two. A block of device memory that was kept may be up to an
 *  eighth larger than asked for, and counts as it is. */
typedef struct tdict_memory_counts {
  size_t live_bytes;       /**< in storages that are alive */
  size_t cached_bytes;     /**< freed and kept for the next allocation */
  size_t peak_bytes;       /**< the most that live and cached bytes were together */
  int64_t num_allocations; /**< allocations answered so far */
  int64_t num_reused;      /**< of those, answered from the cache */
} tdict_memory_counts;

/** @brief Reads the counts of @p memory; all zero for NULL (plain host memory is not counted). */
TDICT_API void tdict_memory_get_counts(const tdict_memory *memory, tdict_memory_counts *out);
/** @brief Where memory from @p memory is: the cpu for plain and pinned memory. */
TDICT_API tdict_device tdict_memory_device(const tdict_memory *memory);

TDICT_END_DECLS
#endif
