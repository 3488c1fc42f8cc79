/* The CPU as a device: its memory is plain host memory. Thread rule: safe from any thread. */
#ifndef TDICT_DEVICE_HOST_H
#define TDICT_DEVICE_HOST_H

#include "memory/memory.h"

/* Plain host memory, aligned to 64 bytes, as a tdict_memory that never ends. */
tdict_memory *tdict_host_memory(void);
/* A memory whose every allocation fails with `reason`; one reference. NULL without memory for it. */
tdict_memory *tdict_absent_memory_create(tdict_device device, const tdict_error *reason);
/* The same for when there is no memory even for that; never ends. */
tdict_memory *tdict_no_memory(void);

#endif
