/* Says what kind of numbers a dtype has. Keeps no state. Thread-safe. */
#ifndef TDICT_CORE_BASE_DTYPE_H
#define TDICT_CORE_BASE_DTYPE_H

#include <stdbool.h>

#include "tdict/values.h"

/* Returns true for signed and unsigned integers with any number of lanes, but not for bools. */
static inline bool tdict_dtype_is_integer(tdict_dtype dtype) { return (dtype & 0xffu) <= 1; }

#endif
