/* Flattens objects for a plan. The caller owns the trees. Thread rule: no thread may change the objects during a
 * call. */
#ifndef TDICT_ENGINE_PLAN_FLATTEN_H
#define TDICT_ENGINE_PLAN_FLATTEN_H

#include "core/tree/box.h"
#include "core/tree/node.h"

/* Writes to *out the tree that the hook `flatten` returns. The type must have this hook. Returns the error of the hook,
 * or TDICT_EHOOK if it returned no tree. */
tdict_status tdict_flatten_object(const tdict_box *box, tdict_tree **out, tdict_error *err);
/* Calls the hook `unflatten`, which the type must have, with the tensors of `tree`. *out is a box with the new object,
 * owned by the caller. Returns the error of the hook, TDICT_EHOOK if it returned no object, or TDICT_ENOMEM. */
tdict_status tdict_unflatten_object(tdict_box *box, const tdict_tree *tree, tdict_box **out, tdict_error *err);
/* Returns TDICT_ETYPE unless `other`, an object's counterpart, is of the same type. */
tdict_status tdict_flatten_check_pair(const tdict_box *box, tdict_leaf other, tdict_error *err);
/* Flattens an object to *flat, and its counterpart `other` in the destination to *other_flat. For an object of a
 * built-in type with the function `pair`, both trees have only the tensors that a write may change. Returns TDICT_ETYPE
 * if the counterpart does not have the type of the object. Other errors: those of tdict_flatten_object() or `pair`. On
 * failure *flat may be set; the caller releases *flat. */
tdict_status tdict_flatten_pair(const tdict_box *box, tdict_leaf other, tdict_tree **flat, tdict_tree **other_flat,
                                tdict_error *err);

#endif
