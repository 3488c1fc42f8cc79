/* Short texts for messages and for print. Functions of their arguments; thread-safe. */
#ifndef TDICT_TREE_TEXT_H
#define TDICT_TREE_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "tree/node.h"

/* Writes "[4, 3]", cut with "...]" where it does not fit, and returns the buffer. `bytes` is at least 8. */
char *tdict_text_shape(int ndim, const int64_t *shape, char *buffer, size_t bytes);
/* Writes what hangs at a slot, "a tensor", "a tree" or "an object of type x", and returns the buffer. */
enum { TDICT_TEXT_LEAF_BYTES = 96 };
char *tdict_text_leaf(tdict_leaf leaf, char buffer[TDICT_TEXT_LEAF_BYTES]);

#endif
