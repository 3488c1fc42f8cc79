/* A tree from a schema whose elements somebody will write: tdict_create_from() without the zeros. */
#ifndef TDICT_TREE_CREATE_FROM_H
#define TDICT_TREE_CREATE_FROM_H

#include "tdict/tree.h"

/* Of batch size [count]; elements are unspecified. Errors as tdict_create_from(). */
tdict_status tdict_create_unset(const tdict_schema *schema, int64_t count, tdict_memory *memory, tdict_tree **out,
                                tdict_error *err);
/* Checks the fields one by one, as tdict_create_unset() would, and makes nothing. */
tdict_status tdict_schema_check(const tdict_schema *schema, int64_t count, tdict_error *err);

#endif
