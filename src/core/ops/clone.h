/* Declares the function that makes a new tree consolidated. Thread rule: as in tdict/clone.h. */
#ifndef TDICT_CORE_OPS_CLONE_H
#define TDICT_CORE_OPS_CLONE_H

#include "core/tree/node.h"

/* Makes a new tree consolidated and locked, and retains `storage`. The tree must have `num_tensors` tensors, in tree
 * order in `storage`, each at the next multiple of 256 bytes, and no objects but text, numbers and JSON. Returns
 * TDICT_ENOMEM; the tree is then unchanged. */
tdict_status tdict_make_consolidated(tdict_tree *tree, size_t num_tensors, tdict_storage *storage, tdict_error *err);

#endif
