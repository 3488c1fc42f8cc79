/* Reading and writing public structs that begin with their own size. */
#ifndef TDICT_BASE_OPTIONS_H
#define TDICT_BASE_OPTIONS_H

#include <stddef.h>

#include "tdict/status.h"

/* Copies the caller's struct `given` (NULL: nothing is copied) over `known`, which holds the defaults and is
 * `known_size` bytes as this library has it. A shorter struct leaves the rest at its defaults; of a longer one the
 * unknown bytes must be zero. known->struct_size is restored. `what` names the struct in the message.
 * TDICT_EINVAL: struct_size is smaller than itself or above 4096; TDICT_ENOTSUP: an unknown field is used. */
tdict_status tdict_options_read(void *known, size_t known_size, const void *given, const char *what, tdict_error *err);
/* TDICT_EINVAL: given->struct_size is smaller than itself or above 4096, so the caller did not fill the struct. */
tdict_status tdict_options_check_size(const void *given, size_t known_size, const char *what, tdict_error *err);
/* Copies `known` (`known_size` bytes) to the caller's struct `given`, up to given->struct_size. The struct of an older
 * program is shorter and gets only its own bytes; of a newer one the unknown bytes are left as they are.
 * given->struct_size is not changed. Errors as tdict_options_check_size(). */
tdict_status tdict_options_write(void *given, const void *known, size_t known_size, const char *what, tdict_error *err);

#endif
