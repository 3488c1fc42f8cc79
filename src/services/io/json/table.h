/* Finds members of an object by their keys, in logarithmic time. Thread rule: several threads may read a table. */
#ifndef TDICT_SERVICES_IO_JSON_TABLE_H
#define TDICT_SERVICES_IO_JSON_TABLE_H

#include "services/io/json/document.h"

typedef struct tdict_json_member {
  tdict_json key, value;
} tdict_json_member;
/* The members of an object, sorted by key. Of an array: its strings, each as key and as value. */
typedef struct tdict_json_table {
  tdict_json_member *members; /* owned */
  size_t count;
} tdict_json_table;
/* Makes the table of an array or object; other values have no members. Returns TDICT_ENOMEM, else the caller frees
 * the members. Fills no tdict_error. */
tdict_status tdict_json_table_make(tdict_json value, tdict_json_table *out);
/* Returns the value of a key, or an absent value. */
tdict_json tdict_json_table_find(const tdict_json_table *table, const char *key);

#endif
