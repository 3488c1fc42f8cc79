/* Makes the part of an error message that lists the keys most similar to a missing key. Only reads the table. Thread
 * rule: many threads may read a table at once, while no thread writes the table. */
#ifndef TDICT_CORE_TREE_SUGGEST_H
#define TDICT_CORE_TREE_SUGGEST_H

#include <stddef.h>

#include "core/tree/keys.h"

/* Writes up to five of the first 1024 keys, most similar first, as far as the buffer has room, and how many are left
 * out. For a `name` with a slash, first says that paths use dots. Returns the buffer. */
char *tdict_suggest(const tdict_keys *keys, const tdict_name *name, char *buffer, size_t bytes);

#endif
