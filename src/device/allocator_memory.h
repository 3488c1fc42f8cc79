/* Memory from a program's own allocator: see tdict_memory_create(). */
#ifndef TDICT_DEVICE_ALLOCATOR_MEMORY_H
#define TDICT_DEVICE_ALLOCATOR_MEMORY_H

#include "device/gpu.h"
#include "tdict/context.h"

/* The allocator is complete and checked. `gpu`: that of the allocator's device, retained; NULL: the cpu. TDICT_ENOMEM. */
tdict_status tdict_allocator_memory_create(const tdict_allocator *allocator, tdict_gpu *gpu, tdict_memory **out,
                                           tdict_error *err);
/* The gpu of such a memory; NULL for any other. */
tdict_gpu *tdict_gpu_of_allocator_memory(tdict_memory *memory);

#endif
