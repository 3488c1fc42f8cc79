/* Reads and writes public structs that begin with their own size. See options.h. Thread-safe. */
#include "core/base/options.h"

#include <string.h>

#include "core/base/error.h"

enum { MAX_BYTES = 4096 };

tdict_status tdict_options_check_size(const void *given, size_t known_size, const char *what, tdict_error *err) {
  size_t size;
  memcpy(&size, given, sizeof size);
  /* A struct that was never initialized usually has a size outside of these limits. */
  if (size >= sizeof size && size <= MAX_BYTES) return TDICT_OK;
  return tdict_fail(err, TDICT_EINVAL, "%s: struct_size is %zu, wanted %zu: fill it by its default function", what,
                    size, known_size);
}

tdict_status tdict_options_read(void *known, size_t known_size, const void *given, const char *what, tdict_error *err) {
  if (!given) return TDICT_OK;
  tdict_status status = tdict_options_check_size(given, known_size, what, err);
  if (status != TDICT_OK) return status;
  size_t size;
  memcpy(&size, given, sizeof size);
  const unsigned char *bytes = given;
  /* A newer program can pass fields that this library does not know. Only a field that is zero can be ignored. */
  for (size_t i = known_size; i < size; i++)
    if (bytes[i])
      return tdict_fail(err, TDICT_ENOTSUP, "%s: struct_size is %zu and byte %zu is used; this library knows %zu bytes",
                        what, size, i, known_size);
  memcpy(known, given, size < known_size ? size : known_size);
  memcpy(known, &known_size, sizeof known_size);
  return TDICT_OK;
}

tdict_status tdict_options_read_saved(void *known, size_t known_size, const void *given, const char *what,
                                      tdict_error *err) {
  size_t size;
  memcpy(&size, given, sizeof size);
  if (size != known_size)
    return tdict_fail(err, TDICT_EINVAL,
                      "%s: struct_size is %zu, wanted %zu: another version of the library saved it, or it is damaged",
                      what, size, known_size);
  memcpy(known, given, known_size);
  return TDICT_OK;
}

tdict_status tdict_options_write(void *given, const void *known, size_t known_size, const char *what,
                                 tdict_error *err) {
  tdict_status status = tdict_options_check_size(given, known_size, what, err);
  if (status != TDICT_OK) return status;
  size_t size;
  memcpy(&size, given, sizeof size);
  memcpy(given, known, size < known_size ? size : known_size);
  memcpy(given, &size, sizeof size);
  return TDICT_OK;
}
