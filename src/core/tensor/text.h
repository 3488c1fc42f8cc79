/* Makes short texts for messages. Pure functions; thread-safe. */
#ifndef TDICT_CORE_TENSOR_TEXT_H
#define TDICT_CORE_TENSOR_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Writes a shape such as "[4, 3]" and returns the buffer. Cuts a long shape with "...]". `bytes` is at least 8. */
char *tdict_text_shape(int ndim, const int64_t *shape, char *buffer, size_t bytes);
#endif
