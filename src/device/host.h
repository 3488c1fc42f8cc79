/* The memories that need no driver: ordinary host memory, and that of an absent device. Thread-safe. */
#ifndef TDICT_DEVICE_HOST_H
#define TDICT_DEVICE_HOST_H

#include "core/memory/memory.h"

/* Returns ordinary host memory, aligned to 64 bytes. It is static, without a count of references. */
tdict_memory *tdict_host_memory(void);
/* Creates a memory whose allocations fail with a copy of `reason`. The caller owns it. NULL: no host memory. */
tdict_memory *tdict_absent_memory_create(tdict_device device, const tdict_error *reason);
/* Returns a static memory whose allocations fail with TDICT_ENOMEM, for forked children and as a last resort. */
tdict_memory *tdict_no_memory(void);

#endif
