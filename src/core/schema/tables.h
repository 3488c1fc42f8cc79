/* Declares the key tables that the trees of a schema share. The schema owns the tables. Thread rule: the tables do not
 * change after the schema has them. */
#ifndef TDICT_CORE_SCHEMA_TABLES_H
#define TDICT_CORE_SCHEMA_TABLES_H

#include "core/tree/keys.h"

typedef struct tdict_schema_tables {
  size_t count;
  tdict_keys *tables[]; /* retained: the root, then all trees in the order of the entries */
} tdict_schema_tables;

/* Releases the key tables. NULL is allowed. */
void tdict_schema_tables_free(tdict_schema_tables *tables);

#endif
