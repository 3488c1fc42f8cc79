/* A memory that calls the program's allocator, for tdict_memory_create(). Thread-safe. */
#ifndef TDICT_DEVICE_ALLOCATOR_MEMORY_H
#define TDICT_DEVICE_ALLOCATOR_MEMORY_H

#include "device/gpu.h"
#include "tdict/memory.h"

/* Creates the memory with one reference. Copies `allocator`, which the caller has checked. `gpu` is the gpu of the
 * allocator's device, or NULL for the cpu. Retains the gpu. Returns TDICT_ENOMEM if host memory is exhausted. */
tdict_status tdict_allocator_memory_create(const tdict_allocator *allocator, tdict_gpu *gpu, tdict_memory **out,
                                           tdict_error *err);
/* Returns the gpu of such a memory, which keeps its reference. NULL on the cpu, and for any other memory. */
tdict_gpu *tdict_gpu_of_allocator_memory(tdict_memory *memory);

#endif
