/* What a node demands of all that hangs below it: leading dimensions and a device. Reads trees, and makes copies of
 * nodes; changes none. Thread rule: as in tdict/tree.h. */
#ifndef TDICT_TREE_AGREE_H
#define TDICT_TREE_AGREE_H

#include "tree/cursor.h"

/* The demand. Pointers are borrowed. */
typedef struct tdict_demand {
  const char *what; /* begins messages */
  int batch_ndim;
  const int64_t *batch_size;
  const tdict_device *device; /* NULL: any */
  const char *above;          /* the path of what is looked at, NULL: the tree that the caller has */
} tdict_demand;

/* The demand of a node on what is put at a path below it. */
tdict_demand tdict_demand_of(const tdict_tree *node, const char *what, const char *path);
/* True when the shape of a tensor begins with a batch size. */
static inline bool tdict_tensor_begins_with(const tdict_tensor *t, int batch_ndim, const int64_t *batch_size) {
  if (t->ndim < batch_ndim) return false;
  for (int i = 0; i < batch_ndim; i++)
    if (t->dims[i] != batch_size[i]) return false;
  return true;
}
/* True when a tensor is as the node demands. */
static inline bool tdict_node_agrees(const tdict_tree *node, const tdict_tensor *t) {
  return tdict_tensor_begins_with(t, node->batch_ndim, node->batch_size) &&
         (!node->has_device || tdict_device_equal(node->device, t->storage->device));
}
/* True when all that `node` takes is as `above` demands, too: a node's own tensors always agree with the node. */
static inline bool tdict_node_covers(const tdict_tree *node, const tdict_tree *above) {
  if (node->batch_ndim < above->batch_ndim) return false;
  for (int i = 0; i < above->batch_ndim; i++)
    if (node->batch_size[i] != above->batch_size[i]) return false;
  return !above->has_device || (node->has_device && tdict_device_equal(node->device, above->device));
}
/* TDICT_ESHAPE with both shapes in the message, for a tensor that does not begin with a tree's batch size. */
tdict_status tdict_batch_mismatch(const char *what, const tdict_tree *td, const tdict_tensor *t, tdict_error *err);
/* TDICT_ESHAPE, TDICT_EWRONGDEVICE; err->path is `path`. */
tdict_status tdict_agree_tensor(const tdict_demand *demand, const tdict_tensor *tensor, const char *path,
                                tdict_error *err);
/* Looks at all below the cursor's tree, which is at its beginning: tensors as above; objects always agree; trees agree
 * as far as both batch sizes go, or hold no tensor, and have no other device. With `in_place` trees may have another
 * device, which their caller will change, and one that would have to be changed and is locked is TDICT_ELOCKED.
 * TDICT_ENOMEM. */
tdict_status tdict_agree_below(const tdict_demand *demand, tdict_cursor *cursor, bool in_place, tdict_error *err);
/* True when the node's own batch size and device are not as demanded. */
bool tdict_demand_changes(const tdict_demand *demand, const tdict_tree *node);
/* Gives the node the demanded leading dimensions, only these when its own disagree, and the device. Not atomic: its
 * caller has checked. */
void tdict_demand_apply(const tdict_demand *demand, tdict_tree *node);
/* In *out a reference to `child` when it is as demanded, else to a copy of all of its nodes that is, tensors shared,
 * after a look at its contents: errors of tdict_agree_below(). */
tdict_status tdict_agree_adopt(const tdict_demand *demand, tdict_tree *child, tdict_tree **out, tdict_error *err);
/* TDICT_EINVAL when `node` is, or hangs below, `child`; TDICT_ENOMEM. */
tdict_status tdict_check_cycle(const tdict_tree *child, const tdict_tree *node, const char *what, const char *path,
                               tdict_error *err);

#endif
