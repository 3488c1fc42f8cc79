/* Implements the functions of tdict/memory.h, which return the counts and the device of a memory. Thread-safe. */
#include "core/memory/memory.h"

#include "tdict/memory.h"

#include <string.h>

void tdict_memory_get_counts(const tdict_memory *memory, tdict_memory_counts *out) {
  memset(out, 0, sizeof *out);
  if (memory) memory->ops->counts(memory, out);
}

tdict_device tdict_memory_device(const tdict_memory *memory) { return memory ? memory->device : tdict_cpu(); }
