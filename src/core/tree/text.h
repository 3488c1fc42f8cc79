/* Makes short texts about leaves for messages. Writes to buffers of the caller. Thread-safe. */
#ifndef TDICT_CORE_TREE_TEXT_H
#define TDICT_CORE_TREE_TEXT_H

#include "core/tensor/layout.h"
#include "core/tree/node.h"

enum { TDICT_TEXT_LEAF_BYTES = 96 }; /* size of the buffer of tdict_text_leaf() */
/* Writes "a tensor", "a tree" or "an object of type x", and returns the buffer. */
char *tdict_text_leaf(tdict_leaf leaf, char buffer[TDICT_TEXT_LEAF_BYTES]);
/* Evaluates to this text, for the arguments of a message. The text is in a buffer of the enclosing block. */
#define TDICT_LEAF_TEXT(leaf) tdict_text_leaf((leaf), (char[TDICT_TEXT_LEAF_BYTES]){0})
/* Returns TDICT_ETYPE, with the path, unless the leaf is of `kind`: TDICT_LEAF_TENSOR or TDICT_LEAF_TREE. */
tdict_status tdict_leaf_check(tdict_leaf leaf, int kind, const char *what, const char *path, tdict_error *err);

#endif
