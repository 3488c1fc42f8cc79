/* A tdict_memory that calls the program's allocator: see tdict_memory_create(). Thread rule: safe from any thread. */
#ifndef TDICT_DEVICE_ALLOCATOR_MEMORY_H
#define TDICT_DEVICE_ALLOCATOR_MEMORY_H

#include "device/gpu.h"
#include "tdict/context.h"

/* Creates the memory with one reference. `allocator` is checked by the caller and copied. `gpu` is the gpu of the
 * allocator's device and is retained; NULL means the cpu. TDICT_ENOMEM. */
tdict_status tdict_allocator_memory_create(const tdict_allocator *allocator, tdict_gpu *gpu, tdict_memory **out,
                                           tdict_error *err);
/* Returns the gpu of a memory that calls the program's allocator, borrowed. Returns NULL if that memory is on the cpu,
 * and also NULL for every other kind of memory. */
tdict_gpu *tdict_gpu_of_allocator_memory(tdict_memory *memory);

#endif
