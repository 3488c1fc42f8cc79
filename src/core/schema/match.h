/* Compares a tree with a schema. Thread rule: as in tdict/tree.h for a function that reads a tree. */
#ifndef TDICT_CORE_SCHEMA_MATCH_H
#define TDICT_CORE_SCHEMA_MATCH_H

#include "tdict/schema.h"

/* Returns true if tdict_schema_from_tree() would make a schema that is equal to `schema`. Returns false also if
 * memory for the walk is exhausted, which only a tree of more than 24 levels needs. */
bool tdict_schema_matches(const tdict_schema *schema, const tdict_tree *tree);

#endif
