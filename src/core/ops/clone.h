/* Declares the function that makes a new tree consolidated. Thread rule: as in tdict/clone.h. */
#ifndef TDICT_CORE_OPS_CLONE_H
#define TDICT_CORE_OPS_CLONE_H

#include "core/tree/node.h"

/* Makes a new tree consolidated, and locks the tree. The tree must have `num_tensors` tensors, and no objects
 * other than text, numbers and JSON. The tensors must lie in `storage` in tree order, each at the next multiple of 256
 * bytes. tree->consolidated retains `storage`. Returns TDICT_ENOMEM if memory is exhausted; the tree is then
 * unchanged. */
tdict_status tdict_make_consolidated(tdict_tree *tree, size_t num_tensors, tdict_storage *storage, tdict_error *err);

#endif
