/* Where a path leads, and putting something there. A place is the caller's; the trees in it are borrowed.
 * Thread rule: as in tdict/tree.h. */
#ifndef TDICT_TREE_PLACE_H
#define TDICT_TREE_PLACE_H

#include "tree/node.h"
#include "tree/path.h"

typedef struct tdict_place {
  tdict_tree *node; /* the deepest tree on the way that is there */
  int64_t slot;     /* of the key read last in it; -1: it has no such key */
  uint32_t hash;    /* of that key */
  tdict_path path;
} tdict_place;

/* Goes as far as the path leads. TDICT_EINVAL no path; TDICT_ETYPE it leads through a tensor or an object;
 * TDICT_ENOMEM. The place is to be reset on success only. */
tdict_status tdict_place_find(tdict_place *place, const tdict_tree *td, const char *path, const char *what,
                              tdict_error *err);
/* The same; TDICT_ENOTFOUND when nothing stands there. */
tdict_status tdict_place_get(tdict_place *place, const tdict_tree *td, const char *path, const char *what,
                             tdict_error *err);
void tdict_place_reset(tdict_place *place);
static inline tdict_leaf tdict_place_leaf(const tdict_place *place) {
  return place->slot < 0 ? 0 : place->node->leaves[place->slot];
}
/* TDICT_ELOCKED when the node may not be changed. */
tdict_status tdict_place_check_lock(const tdict_place *place, tdict_error *err);
/* Puts a leaf there, with a reference of the tree's own, and nodes on the way. *old is what stood there (0: nothing),
 * its reference handed over. TDICT_ENOMEM, and nothing has changed. */
tdict_status tdict_place_put(tdict_place *place, tdict_leaf leaf, tdict_leaf *old, tdict_error *err);
/* The same, and releases what stood there, when all is in place: a callback may run then. */
tdict_status tdict_place_set(tdict_place *place, tdict_leaf leaf, tdict_error *err);

#endif
