/* The demand: leading dimensions and device that a node requires of everything below. Checks trees against it, and
 * copies those that do not meet it, for the caller. Thread rule: as in tdict/tree.h. */
#ifndef TDICT_CORE_TREE_AGREE_H
#define TDICT_CORE_TREE_AGREE_H

#include "core/tensor/layout.h"
#include "core/tree/cursor.h"

/* The batch size with which every tensor below the node begins, and its device. Pointers are borrowed. */
typedef struct tdict_demand {
  const char *what; /* name of the public call, for messages */
  int batch_ndim;
  const int64_t *batch_size;
  const tdict_device *device; /* NULL: any device */
  const char *above;          /* path of the tree that is checked, for messages; NULL: the tree of the call */
} tdict_demand;

/* Returns the demand of `node` on an entry that is set at `path`. */
tdict_demand tdict_demand_of(const tdict_tree *node, const char *what, const char *path);
/* Returns true if the shape of a tensor begins with a batch size. */
static inline bool tdict_tensor_begins_with(const tdict_tensor *t, int batch_ndim, const int64_t *batch_size) {
  return t->ndim >= batch_ndim && tdict_sizes_equal(t->dims, batch_size, batch_ndim);
}
/* Returns true if a tensor has the leading dimensions of the node, and its device, if any. */
static inline bool tdict_node_agrees(const tdict_tree *node, const tdict_tensor *t) {
  return tdict_tensor_begins_with(t, node->batch_ndim, node->batch_size) &&
         (!node->has_device || tdict_device_equal(node->device, t->storage->device));
}
/* Returns true if whatever fits `node` also fits `above`, so that its tensors need no check against `above`. */
static inline bool tdict_node_covers(const tdict_tree *node, const tdict_tree *above) {
  if (node->batch_ndim < above->batch_ndim) return false;
  if (!tdict_sizes_equal(node->batch_size, above->batch_size, above->batch_ndim)) return false;
  return !above->has_device || (node->has_device && tdict_device_equal(node->device, above->device));
}
/* Returns TDICT_ESHAPE. The message has the shape of the tensor and the batch size of `td`, which do not match. */
tdict_status tdict_batch_mismatch(const char *what, const tdict_tree *td, const tdict_tensor *t, tdict_error *err);
/* Checks one tensor. Returns TDICT_OK, TDICT_ESHAPE or TDICT_EWRONGDEVICE. On failure, err->path is `path`. */
tdict_status tdict_agree_tensor(const tdict_demand *demand, const tdict_tensor *tensor, const char *path,
                                tdict_error *err);
/* Checks a tensor as tdict_agree_tensor() does. Returns TDICT_ESHAPE for an object that does not fit the batch size,
 * see tdict_box_begins_with(). Trees always pass. */
tdict_status tdict_agree_leaf(const tdict_demand *demand, tdict_leaf leaf, const char *path, tdict_error *err);
/* Returns TDICT_ESHAPE. The message has the batch sizes of the object and of `td`, which do not match. */
tdict_status tdict_box_mismatch(const char *what, const tdict_tree *td, const tdict_box *box, tdict_error *err);
/* Checks all trees and leaves below `td`, and then applies the demand to these trees. `td` itself is unchanged. On
 * failure, no tree has changed. Leaves are checked as in tdict_agree_leaf(). Returns TDICT_ESHAPE if a tree and the
 * demand differ in a dimension that both have, and the tree holds a tensor or an object with batch dimensions. If
 * `in_place` is false, returns TDICT_EWRONGDEVICE for a tree with another device. If `in_place` is true, returns
 * TDICT_ELOCKED for a locked tree that does not meet the demand. Returns TDICT_ENOMEM if memory is exhausted. */
tdict_status tdict_demand_apply_below(const tdict_demand *demand, const tdict_tree *td, bool in_place,
                                      tdict_error *err);
/* Writes to *out the tree to store for `child`. If `child` meets the demand, sets *out to `child` and adds a reference.
 * If not, copies all nodes of `child`, applies the demand to the copies, and sets *out to the copy of `child`. The
 * copies share all tensors and objects. Returns TDICT_ESHAPE, TDICT_EWRONGDEVICE or TDICT_ENOMEM. */
tdict_status tdict_agree_adopt(const tdict_demand *demand, tdict_tree *child, tdict_tree **out, tdict_error *err);
/* Returns TDICT_EINVAL if `node` is `child` or is below `child`, and TDICT_ENOMEM if memory is exhausted. */
tdict_status tdict_check_cycle(const tdict_tree *child, const tdict_tree *node, const char *what, const char *path,
                               tdict_error *err);

#endif
