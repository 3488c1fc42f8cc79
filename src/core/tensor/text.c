/* Makes short texts for messages. Pure functions; thread-safe. */
#include "core/tensor/text.h"

#include <stdio.h>
#include <string.h>

char *tdict_text_shape(int ndim, const int64_t *shape, char *buffer, size_t bytes) {
  static const char cut[] = "...]";
  size_t length = 0, room = bytes - sizeof cut; /* the remaining bytes are for "...]" */
  buffer[length++] = '[';
  for (int i = 0; i < ndim; i++) {
    char count[32];
    int n = snprintf(count, sizeof count, "%s%lld", i ? ", " : "", (long long)shape[i]);
    if (length + (size_t)n > room) {
      memcpy(buffer + length, cut, sizeof cut);
      return buffer;
    }
    memcpy(buffer + length, count, (size_t)n);
    length += (size_t)n;
  }
  buffer[length++] = ']';
  buffer[length] = 0;
  return buffer;
}
