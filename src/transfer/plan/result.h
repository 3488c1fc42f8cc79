/* The tree that a transfer returns, and the paths of its leaves. Results belong to the caller.
 * Thread rule: a plan and a tree that nobody changes during the call. */
#ifndef TDICT_TRANSFER_PLAN_RESULT_H
#define TDICT_TRANSFER_PLAN_RESULT_H

#include "transfer/plan/plan.h"

/* A tree like `src`, its locks too, whose leaves are the plan's: shared ones are those of `src`, the others lie in
 * `arena`. device: the result's; NULL: as src has it. TDICT_ENOMEM. */
tdict_status tdict_result_build(const tdict_plan *plan, const tdict_tree *src, tdict_storage *arena,
                                const tdict_device *device, tdict_tree **out, tdict_error *err);
/* A tree with the nodes and leaves of `src`, flattened objects as trees, to find paths in while others may change `src`.
 * TDICT_ENOMEM. */
tdict_status tdict_result_mirror(const tdict_plan *plan, const tdict_tree *src, tdict_tree **out, tdict_error *err);
/* The path of the n-th leaf of a tree, cut as errors' paths are. */
void tdict_leaf_path(const tdict_tree *tree, uint32_t n, char *buffer, size_t bytes);

#endif
