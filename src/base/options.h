/* Reads and writes public structs that begin with their own size. Pure functions; thread-safe. */
#ifndef TDICT_BASE_OPTIONS_H
#define TDICT_BASE_OPTIONS_H

#include <stddef.h>

#include "tdict/status.h"

/* Copies the caller's struct `given` over the struct `known`, which the caller has filled with defaults. If `given` is
 * NULL, nothing is copied. `known_size` is the size of the struct in this library. A shorter struct leaves later fields
 * at their defaults. In a longer struct the unknown bytes must be zero. Afterwards known->struct_size is `known_size`.
 * `what` names the struct in the message. Returns the errors of tdict_options_check_size(). Returns TDICT_ENOTSUP if an
 * unknown byte is not zero. */
tdict_status tdict_options_read(void *known, size_t known_size, const void *given, const char *what, tdict_error *err);
/* Checks given->struct_size. Returns TDICT_EINVAL if given->struct_size is smaller than the size field itself or larger
 * than 4096. Such a size shows that the caller did not initialize the struct. */
tdict_status tdict_options_check_size(const void *given, size_t known_size, const char *what, tdict_error *err);
/* Copies `known` to the caller's struct `given`, at most given->struct_size bytes. The struct of an older program is
 * shorter, so only the fields of that struct are written. In the struct of a newer program the unknown fields keep
 * their values. given->struct_size is not changed. Returns the errors of tdict_options_check_size(). */
tdict_status tdict_options_write(void *given, const void *known, size_t known_size, const char *what, tdict_error *err);

#endif
