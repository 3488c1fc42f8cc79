/* Declares the memories that need no driver: ordinary host memory, and the memory of an absent device. Thread rule:
 * safe from any thread. */
#ifndef TDICT_DEVICE_HOST_H
#define TDICT_DEVICE_HOST_H

#include "core/memory/memory.h"

/* Returns the ordinary host memory, whose blocks are aligned to 64 bytes. The tdict_memory is static: references are
 * not counted. */
tdict_memory *tdict_host_memory(void);
/* Creates a memory from which every allocation fails with a copy of `reason`. The caller owns the one reference.
 * Returns NULL if host memory is exhausted. */
tdict_memory *tdict_absent_memory_create(tdict_device device, const tdict_error *reason);
/* Returns a static memory from which every allocation fails with TDICT_ENOMEM. Callers use this memory in a forked
 * child, or if tdict_absent_memory_create() fails. */
tdict_memory *tdict_no_memory(void);

#endif
