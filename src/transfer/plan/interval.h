/* Finds trees whose tensors fill one storage, as tdict_create_from() makes them. Such a tree is copied as one block.
 * Thread rule: no thread may change the tree during a call. */
#ifndef TDICT_TRANSFER_PLAN_INTERVAL_H
#define TDICT_TRANSFER_PLAN_INTERVAL_H

#include "tensor/consolidated.h"
#include "tree/node.h"

/* If the tree is one interval of memory, writes a new reference to the record of its leaves to *out. A consolidated
 * tree is one interval. Other trees are one interval if they have at least two leaves, which are tensors of slabs over
 * one arena. Each leaf must begin at the next multiple of 256 bytes, in tree order from the start of the storage, and
 * the last leaf must end the storage. Otherwise writes NULL. Returns TDICT_ENOMEM if host memory is exhausted. */
tdict_status tdict_interval_find(const tdict_tree *tree, tdict_consolidated **out, tdict_error *err);

#endif
