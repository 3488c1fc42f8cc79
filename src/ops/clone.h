/* Declares the function that makes a new tree consolidated. Thread rule: as in tdict/clone.h. */
#ifndef TDICT_OPS_CLONE_H
#define TDICT_OPS_CLONE_H

#include "tree/node.h"

/* Makes a new tree consolidated, and locks the tree. The tree has `num_tensors` tensors and no objects. The tensors lie
 * in `storage` in tree order, each at the next multiple of 256 bytes. The record of the tree retains `storage`. On
 * failure the tree is unchanged. Returns TDICT_ENOMEM. */
tdict_status tdict_make_consolidated(tdict_tree *tree, size_t num_tensors, tdict_storage *storage, tdict_error *err);

#endif
