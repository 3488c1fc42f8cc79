/* Device memory as a tdict_memory: see gpu_memory.c. */
#ifndef TDICT_DEVICE_GPU_MEMORY_H
#define TDICT_DEVICE_GPU_MEMORY_H

#include "memory/memory.h"

/* The pinned buffer through which single tensors come to the host. */
#define TDICT_GPU_BOUNCE_BYTES ((size_t)1 << 20)
void tdict_gpu_memory_init(tdict_memory *memory, tdict_device device);

#endif
