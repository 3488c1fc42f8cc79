/* Reading option structs that begin with their own size. */
#ifndef TDICT_BASE_OPTIONS_H
#define TDICT_BASE_OPTIONS_H

#include <stddef.h>

#include "tdict/status.h"

/* Copies the caller's struct `given` (NULL: nothing is copied) over `known`, which holds the defaults and is
 * `known_size` bytes as this library has it. A shorter struct leaves the rest at its defaults; of a longer one the
 * unknown bytes must be zero. known->struct_size is restored. `what` names the struct in the message.
 * TDICT_EINVAL: struct_size is smaller than itself or above 4096; TDICT_ENOTSUP: an unknown field is used. */
tdict_status tdict_options_read(void *known, size_t known_size, const void *given, const char *what, tdict_error *err);

#endif
