/* Makes the text of a message about a missing key, which lists the most similar keys. Only reads the table. Thread
 * rule: many threads may read a table at once, while no thread writes the table. */
#ifndef TDICT_TREE_SUGGEST_H
#define TDICT_TREE_SUGGEST_H

#include <stddef.h>

#include "tree/keys.h"

/* Writes up to five keys of the table, most similar first, and the number of keys that were left out. Returns the
 * buffer. If `name` has a slash, the text first says that paths use dots. */
char *tdict_suggest(const tdict_keys *keys, const tdict_name *name, char *buffer, size_t bytes);

#endif
