/* Declares two internal variants of tdict_create_from(). One variant leaves the elements uninitialized, and the other
 * variant only checks the schema. The caller owns the tree. Thread rule: thread-safe. */
#ifndef TDICT_TREE_CREATE_FROM_H
#define TDICT_TREE_CREATE_FROM_H

#include "tdict/tree.h"

/* Makes a tree with uninitialized elements. Returns the errors of tdict_create_from(). */
tdict_status tdict_create_unset(const tdict_schema *schema, int batch_ndim, const int64_t *batch_size,
                                tdict_memory *memory, tdict_tree **out, tdict_error *err);
/* Checks the fields like tdict_create_unset() with the batch size [count], and allocates nothing. */
tdict_status tdict_schema_check(const tdict_schema *schema, int64_t count, tdict_error *err);

#endif
