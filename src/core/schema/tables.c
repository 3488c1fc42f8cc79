/* Releases the key tables of a schema. Thread rule: see tables.h. */
#include "core/schema/tables.h"

#include <stdlib.h>

void tdict_schema_tables_free(tdict_schema_tables *tables) {
  for (size_t i = 0; tables && i < tables->count; i++) tdict_keys_release(tables->tables[i]);
  free(tables);
}
