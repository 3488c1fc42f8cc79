/* Declares the copy between two trees of views. tdict_cat_into() and the functions that write by an index use this copy
 * for objects of built-in types. Thread rule: as in tdict/write.h. */
#ifndef TDICT_CORE_OPS_WRITE_H
#define TDICT_CORE_OPS_WRITE_H

#include "core/tree/objects.h"

/* Copies the elements of pair->from to the tensors of pair->to with the same paths. If `checks_only` is true, only
 * checks whether the elements can be copied. `path` is the path of both trees, for messages. pair->to may have more
 * keys than pair->from. Returns the errors of tdict_copy(). */
tdict_status tdict_write_pair(const char *what, const tdict_flat_pair *pair, const char *path, bool checks_only,
                              tdict_error *err);

#endif
