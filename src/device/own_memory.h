/* Memory from a program's own allocator: see tdict_memory_create(). */
#ifndef TDICT_DEVICE_OWN_MEMORY_H
#define TDICT_DEVICE_OWN_MEMORY_H

#include "device/gpu.h"

/* The gpu of such a memory; NULL for any other. */
tdict_gpu *tdict_gpu_of_own_memory(tdict_memory *memory);

#endif
