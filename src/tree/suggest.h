/* What a message says about a key that is not there. Reads the table only. Thread rule: a table is read by many threads
 * or written by one. */
#ifndef TDICT_TREE_SUGGEST_H
#define TDICT_TREE_SUGGEST_H

#include <stddef.h>

#include "tree/keys.h"

/* Writes what helps to find the key that was meant, and returns the buffer: the table's keys, nearest first, up to as
 * many as fit, then how many were left out; before them, for a name with a slash, that paths use dots. */
char *tdict_suggest(const tdict_keys *keys, const tdict_name *name, char *buffer, size_t bytes);

#endif
