/* Where a path leads, and putting something there. A place is the caller's; the trees in it are borrowed.
 * Thread rule: as in tdict/tree.h. */
#ifndef TDICT_TREE_PLACE_H
#define TDICT_TREE_PLACE_H

#include "tree/node.h"
#include "tree/path.h"

typedef struct tdict_place {
  tdict_tree *node; /* the deepest tree on the way that is there */
  int64_t slot;     /* of the key read last in it; -1: it has no such key */
  tdict_path path;
} tdict_place;

/* The quick way for paths without backslashes: the node that the last key, which is *name, belongs in. NULL when that
 * node is not there or the path is to be read with more care; what is wrong with it, the functions below say. */
static inline tdict_tree *tdict_place_plain(const tdict_tree *td, const char *path, const char *end, tdict_name *name) {
  while (tdict_name_read(name, path, end)) {
    path += name->length;
    if (path == end) return (tdict_tree *)(uintptr_t)td;
    int64_t slot = tdict_keys_find_name(td->keys, name);
    td = slot < 0 ? NULL : tdict_leaf_tree(td->leaves[slot]);
    if (!td) return NULL;
    path++;
  }
  return NULL;
}

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
