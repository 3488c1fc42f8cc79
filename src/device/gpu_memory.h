/* Declares the implementation of tdict_memory for a gpu. gpu_memory.c also defines the functions of gpu.h that queue
 * copies. */
#ifndef TDICT_DEVICE_GPU_MEMORY_H
#define TDICT_DEVICE_GPU_MEMORY_H

#include "core/memory/memory.h"

/* Sets the operations and the device of a gpu's memory. Thread rule: call before other threads can access the gpu. */
void tdict_gpu_memory_init(tdict_memory *memory, tdict_device device);

#endif
