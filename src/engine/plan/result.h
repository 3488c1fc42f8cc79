/* Builds the tree that a transfer returns, and finds the paths of leaves. The caller owns the trees.
 * Thread rule: no thread may change the plan or the tree during a call. */
#ifndef TDICT_ENGINE_PLAN_RESULT_H
#define TDICT_ENGINE_PLAN_RESULT_H

#include "engine/plan/plan.h"

/* Builds a tree with the keys and locks of `src`. The result shares the leaves of `src` that are not copied. For each
 * copied tensor, the result has a new tensor in `arena`. All trees of the result have the device `device`, except trees
 * that hold a kept tensor on another device. If `device` is NULL, the trees have the devices of `src`. Returns
 * TDICT_ENOMEM, TDICT_EOVERFLOW or an error of the hook `unflatten`. */
tdict_status tdict_result_build(const tdict_collected *collected, const tdict_tree *src, tdict_storage *arena,
                                const tdict_device *device, tdict_tree **out, tdict_error *err);
/* Builds a result like `result`, for another device: with the same keys, locks and objects. `like` is the storage of
 * all tensors of `result`, which was built from the plan. The new tensors have the same offsets in `arena`, which must
 * have the size of `like`. All trees of the new result have the device of `arena`. Returns TDICT_ENOMEM or
 * TDICT_EOVERFLOW. */
tdict_status tdict_result_for_target(const tdict_collected *collected, const tdict_tree *result,
                                     const tdict_storage *like, tdict_storage *arena, tdict_tree **out,
                                     tdict_error *err);
/* Builds a tree with the nodes and leaves of `src`, in which flattened objects are trees. Paths can be looked up in
 * this tree while other threads change `src`. Errors: TDICT_ENOMEM. */
tdict_status tdict_result_mirror(const tdict_plan *plan, const tdict_tree *src, tdict_tree **out, tdict_error *err);
/* Writes the path of leaf number `n` of a tree to `buffer`. Only tensors count as leaves. A long path is shortened like
 * the path of an error. Writes an empty string if the tree has fewer leaves or host memory is exhausted. */
void tdict_leaf_path(const tdict_tree *tree, uint32_t n, char *buffer, size_t bytes);

#endif
