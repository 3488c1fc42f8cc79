/* Compares the source of tdict_transfer_into_async() with its destination. A cursor walks the source, and the `mark` of
 * a frame is the destination's node. Thread rule: no thread may change the trees during a call. */
#ifndef TDICT_ENGINE_PLAN_DESTINATION_H
#define TDICT_ENGINE_PLAN_DESTINATION_H

#include "core/tree/cursor.h"

/* Returns TDICT_EDTYPE, _ESHAPE or _EREADONLY if `src`, of `dtype` after its conversion, does not fit `dst`. If the
 * conversion changes the shape, `src` has the new shape. */
tdict_status tdict_destination_check_leaf(const tdict_tensor *src, tdict_dtype dtype, const tdict_tensor *dst,
                                          tdict_error *err);
/* Finds the destination's entry with the key of the cursor's entry. Returns TDICT_ENOTFOUND if there is none. */
tdict_status tdict_destination_find(const tdict_cursor *cursor, tdict_leaf *out, tdict_error *err);
/* Returns TDICT_ENOTFOUND if the destination has more keys than the source. Does not look for keys that the destination
 * lacks, because tdict_destination_find() detects these keys. */
tdict_status tdict_destination_check_keys(tdict_cursor *cursor, const tdict_tree *node, const tdict_tree *other,
                                          tdict_error *err);
/* Returns true if two consolidated trees have the same keys, dtypes and shapes, and each tensor begins at the same
 * offset in both storages. Also returns false if memory for the comparison is exhausted. */
bool tdict_destination_matches(const tdict_tree *dst, const tdict_tree *src);

#endif
