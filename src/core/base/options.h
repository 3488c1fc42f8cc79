/* Reads and writes public structs that begin with their own size. The functions keep no state. Thread-safe. */
#ifndef TDICT_CORE_BASE_OPTIONS_H
#define TDICT_CORE_BASE_OPTIONS_H

#include <stddef.h>

#include "tdict/status.h"

/* Copies the program's struct `given` over the struct `known`, which holds the defaults. If `given` is NULL, changes
 * nothing. `known_size` is the size of the struct in this library. If `given` is shorter, the fields of `known` after
 * the end of `given` keep their defaults. If `given` is longer, its bytes from `known_size` on must be zero. Sets
 * known->struct_size to `known_size`. `what` names the struct in the message. Returns the errors of
 * tdict_options_check_size(). Returns TDICT_ENOTSUP if a byte of `given` from `known_size` on is not zero. */
tdict_status tdict_options_read(void *known, size_t known_size, const void *given, const char *what, tdict_error *err);
/* Copies the struct `given` to `known`. A program may have saved it to a file that is damaged, so a struct of another
 * size is not read beyond its size: returns TDICT_EINVAL. */
tdict_status tdict_options_read_saved(void *known, size_t known_size, const void *given, const char *what,
                                      tdict_error *err);
/* Returns TDICT_EINVAL for a struct_size below its own size or above 4096: the struct was not initialized. */
tdict_status tdict_options_check_size(const void *given, size_t known_size, const char *what, tdict_error *err);
/* Copies `known` to the program's struct, but at most given->struct_size bytes, and not the size itself. Later bytes
 * keep their values. Returns the errors of tdict_options_check_size(). */
tdict_status tdict_options_write(void *given, const void *known, size_t known_size, const char *what, tdict_error *err);

#endif
