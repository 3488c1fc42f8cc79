/* Variants of tdict_create_from() that leave the elements uninitialized or only check the fields, the check of one
 * field, and a tree of trees. The caller owns the tree. Thread-safe. */
#ifndef TDICT_CORE_TREE_CREATE_FROM_H
#define TDICT_CORE_TREE_CREATE_FROM_H

#include "tdict/tree.h"

/* The length of the array `shape` of a field. */
enum { TDICT_FIELD_NDIM = 6 };

typedef struct tdict_fields {
  const tdict_field *fields; /* borrowed */
  size_t count;
} tdict_fields;

/* Checks the path, ndim and unused sizes of a field. `caller` begins the messages. Returns TDICT_OK or TDICT_EINVAL. */
tdict_status tdict_field_check(const char *caller, const char *path, int ndim, const int64_t *shape, tdict_error *err);
/* Makes a tree with uninitialized elements. Returns the errors of tdict_create_from(). */
tdict_status tdict_create_unset(const tdict_fields *list, int batch_ndim, const int64_t *batch_size,
                                tdict_memory *memory, tdict_tree **out, tdict_error *err);
/* Checks the dtype of each field, and the shape of its tensor in a tree of batch size [count]. Does not check that the
 * paths are valid and different. Allocates nothing. Returns TDICT_EINVAL, TDICT_EDTYPE or TDICT_EOVERFLOW. */
tdict_status tdict_fields_check(const tdict_fields *list, int64_t count, tdict_error *err);
/* Makes a tree without batch dimensions. Its children "0", "1" and so on are the trees themselves, not copies. Returns
 * TDICT_ENOMEM. */
tdict_status tdict_create_numbered(const char *what, tdict_tree *const *trees, size_t count, tdict_tree **out,
                                   tdict_error *err);

#endif
