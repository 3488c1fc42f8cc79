/* A tdict_memory over the program's own allocator: see tdict_memory_create(). Thread rule: safe from any thread. */
#ifndef TDICT_DEVICE_ALLOCATOR_MEMORY_H
#define TDICT_DEVICE_ALLOCATOR_MEMORY_H

#include "device/gpu.h"
#include "tdict/context.h"

/* Creates the memory with one reference. `allocator` is checked by the caller and copied. `gpu` is the gpu of the
 * allocator's device and is retained; NULL means the cpu. TDICT_ENOMEM. */
tdict_status tdict_allocator_memory_create(const tdict_allocator *allocator, tdict_gpu *gpu, tdict_memory **out,
                                           tdict_error *err);
/* Returns the gpu of such a memory, borrowed; NULL for the cpu and for every other memory. */
tdict_gpu *tdict_gpu_of_allocator_memory(tdict_memory *memory);

#endif
