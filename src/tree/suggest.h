/* Text for messages about a missing key: the keys that are most similar. Reads the table only.
 * Thread rule: many threads may read a table, or one may write it. */
#ifndef TDICT_TREE_SUGGEST_H
#define TDICT_TREE_SUGGEST_H

#include <stddef.h>

#include "tree/keys.h"

/* Writes the keys of the table, most similar first, and how many were left out. Returns the buffer. If `name` has a
 * slash, the text first says that paths use dots. */
char *tdict_suggest(const tdict_keys *keys, const tdict_name *name, char *buffer, size_t bytes);

#endif
