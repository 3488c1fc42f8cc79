/* Reading option structs that begin with their own size. */
#include "base/options.h"

#include <string.h>

#include "base/error.h"

enum { MAX_BYTES = 4096 };

tdict_status tdict_options_read(void *known, size_t known_size, const void *given, const char *what, tdict_error *err) {
  if (!given) return TDICT_OK;
  size_t size;
  memcpy(&size, given, sizeof size);
  if (size < sizeof size || size > MAX_BYTES) /* an unfilled struct holds anything */
    return tdict_fail(err, TDICT_EINVAL, "%s: struct_size is %zu, wanted %zu: fill it by its default function", what,
                      size, known_size);
  const unsigned char *bytes = given;
  for (size_t i = known_size; i < size; i++)
    if (bytes[i])
      return tdict_fail(err, TDICT_ENOTSUP, "%s: struct_size is %zu and byte %zu is used; this library knows %zu bytes",
                        what, size, i, known_size);
  memcpy(known, given, size < known_size ? size : known_size);
  memcpy(known, &known_size, sizeof known_size);
  return TDICT_OK;
}
