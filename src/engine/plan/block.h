/* Finds trees whose tensors fill one storage, as tdict_create_from() makes them. Such a tree is copied as one block.
 * Thread rule: no thread may change the tree during a call. */
#ifndef TDICT_ENGINE_PLAN_BLOCK_H
#define TDICT_ENGINE_PLAN_BLOCK_H

#include "core/tensor/consolidated.h"
#include "core/tree/node.h"

/* If the tree is one block, writes a new reference to the record of its leaves to *out, else NULL. A consolidated tree
 * is one block. Another tree is one block if the tree itself is locked and has at least two leaves, which are tensors
 * of slabs over one arena. Each leaf must begin at the next multiple of 256 bytes, in tree order from the start of the
 * storage, and the last leaf must end the storage. The tree keeps a record that was made until the tree is unlocked.
 * Returns TDICT_ENOMEM if host memory is exhausted. */
tdict_status tdict_block_find(const tdict_tree *tree, tdict_consolidated **out, tdict_error *err);

#endif
