/* Device memory as a tdict_memory: see gpu_memory.c. */
#ifndef TDICT_DEVICE_GPU_MEMORY_H
#define TDICT_DEVICE_GPU_MEMORY_H

#include "memory/memory.h"

void tdict_gpu_memory_init(tdict_memory *memory, tdict_device device);

#endif
