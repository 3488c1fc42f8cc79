/* Lists the tensors of a tree with their paths, for exports. For an object, the list has the tensors that the object's
 * `flatten` returns. The caller owns the list. Thread rule: used by one thread at a time. */
#ifndef TDICT_SERVICES_INTEROP_DLPACK_LEAVES_H
#define TDICT_SERVICES_INTEROP_DLPACK_LEAVES_H

#include "core/tree/node.h"

typedef struct tdict_dlpack_leaf {
  const tdict_tensor *tensor; /* borrowed from the tree, or from a tree in `flattened` */
  size_t name;                /* offset of the tensor's path in `names` */
} tdict_dlpack_leaf;

typedef struct tdict_dlpack_leaves {
  tdict_dlpack_leaf *leaves;
  size_t count, cap;
  char *names; /* paths, each ended by 0 */
  size_t name_bytes, cap_names;
  char *path; /* path of the node or object that is visited */
  size_t cap_path;
  tdict_tree **flattened; /* owned; the trees of the objects */
  size_t num_flattened;
} tdict_dlpack_leaves;

/* Adds all tensors of a tree. Before the first call, fill the list with zeros. Reset the list also after a failure.
 * Returns TDICT_ENOMEM and the errors of tdict_box_flatten(), with the path of the object. */
tdict_status tdict_dlpack_leaves_add(tdict_dlpack_leaves *list, const tdict_tree *tree, tdict_error *err);
void tdict_dlpack_leaves_reset(tdict_dlpack_leaves *list);

#endif
