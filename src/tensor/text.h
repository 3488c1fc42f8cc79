/* Short texts for messages. Functions of their arguments; thread-safe. */
#ifndef TDICT_TENSOR_TEXT_H
#define TDICT_TENSOR_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Writes "[4, 3]", cut with "...]" where it does not fit, and returns the buffer. `bytes` is at least 8. */
char *tdict_text_shape(int ndim, const int64_t *shape, char *buffer, size_t bytes);
#endif
