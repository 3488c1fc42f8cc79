/* Making a tree with the keys of another one, its tensors made of that one's: views, or copies in new memory. Key
 * tables are shared, all tensors lie in one slab, all new elements of one memory in one storage. Trees are read only.
 * Thread rule: as in tdict/tree.h. */
#ifndef TDICT_OPS_MAP_H
#define TDICT_OPS_MAP_H

#include "tensor/affine.h"
#include "tree/cursor.h"
#include "tree/objects.h"

typedef struct tdict_map tdict_map;
struct tdict_map {
  const char *what; /* begins messages */
  /* batch_out counts take the place of the first batch_in of each node's batch size. */
  int batch_in, batch_out;
  const int64_t *batch_size;
  int more_dims;        /* the most dimensions that a tensor gains */
  bool unlocked;        /* locks are not taken over */
  tdict_memory *memory; /* of new elements; NULL: the source's on a device, else plain host memory */
  /* What tensor `from` becomes; `entry` counts what a walk shows, trees too. Called twice for each where fill is set. */
  tdict_status (*describe)(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_made *made,
                           tdict_error *err);
  /* Writes the elements of a tensor that was to be fresh; NULL: none is. */
  tdict_status (*fill)(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_tensor *made,
                       tdict_error *err);
  void *user;
  /* How objects take part: `object` makes the result's of one that takes this way itself, all others are gone through as
   * their tensors, which `describe` is shown. `opened`: the caller has done that, and closes them in the result. */
  tdict_way way;
  tdict_status (*object)(const tdict_map *map, size_t entry, tdict_box *from, tdict_box **out, tdict_error *err);
  bool opened;
};
/* The result is locked where the source is, unless `unlocked`. TDICT_ENOMEM; TDICT_ESHAPE a node would have too many batch
 * dimensions, or a tensor does not begin with the first batch_in counts of the source's batch size; what the functions answer, err->path being the leaf's where they left it empty; TDICT_ENOTSUP an object
 * that cannot take part, and errors of hooks. */
tdict_status tdict_map_run(const tdict_map *map, const tdict_tree *td, tdict_tree **out, tdict_error *err);
/* A tree with new nodes that share key tables and leaves; not locked. TDICT_ENOMEM. */
tdict_status tdict_map_share(const tdict_tree *td, const char *what, tdict_tree **out, tdict_error *err);
/* What a leaf of one tree becomes below a node of another, with a reference of the caller's: a tree as a copy, so that no
 * node hangs in both. Errors of tdict_agree_tensor() and tdict_agree_below(); TDICT_ENOMEM. */
tdict_status tdict_map_adopt(const tdict_tree *under, tdict_leaf leaf, const char *what, tdict_leaf *out,
                             tdict_error *err);

#endif
