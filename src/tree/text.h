/* Makes short texts for messages and for print. Writes to buffers of the caller. Thread-safe. */
#ifndef TDICT_TREE_TEXT_H
#define TDICT_TREE_TEXT_H

#include "tensor/text.h"
#include "tree/node.h"

/* Writes "a tensor", "a tree" or "an object of type x", and returns the buffer. */
enum { TDICT_TEXT_LEAF_BYTES = 96 };
char *tdict_text_leaf(tdict_leaf leaf, char buffer[TDICT_TEXT_LEAF_BYTES]);

#endif
