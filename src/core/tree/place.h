/* Finds a path's place, which is the deepest existing node with the slot of the last key read, and sets leaves there.
 * The caller owns the place, which borrows its trees. Thread rule: as in tdict/tree.h. */
#ifndef TDICT_CORE_TREE_PLACE_H
#define TDICT_CORE_TREE_PLACE_H

#include "core/tree/node.h"
#include "core/tree/path.h"

typedef struct tdict_place {
  tdict_tree *node; /* the deepest tree on the path that exists */
  int64_t slot;     /* slot of the last key read, in `node`; -1 if the node has no such key */
  tdict_path path;
} tdict_place;

/* Finds the node of the last key of a path, and writes that key to *name. Returns NULL if the node does not exist, or
 * the path has a backslash or an invalid key. The caller then uses the functions below, which also report errors. */
static inline tdict_tree *tdict_place_find_fast(const tdict_tree *td, const char *path, const char *end,
                                                tdict_name *name) {
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

/* Follows a path as far as its trees exist. Returns TDICT_EINVAL for an invalid path, TDICT_ETYPE if the path leads
 * through a tensor or an object, and TDICT_ENOMEM. After success, the caller must call tdict_place_reset(). */
tdict_status tdict_place_find(tdict_place *place, const tdict_tree *td, const char *path, const char *what,
                              tdict_error *err);
/* Finds a place like tdict_place_find(), but returns TDICT_ENOTFOUND if there is no entry at the path. */
tdict_status tdict_place_get(tdict_place *place, const tdict_tree *td, const char *path, const char *what,
                             tdict_error *err);
void tdict_place_reset(tdict_place *place);
/* Returns the leaf at the place, or 0 if there is no leaf. */
static inline tdict_leaf tdict_place_leaf(const tdict_place *place) {
  return place->slot < 0 ? 0 : place->node->leaves[place->slot];
}
/* Returns TDICT_ELOCKED if the node is locked. */
tdict_status tdict_place_check_lock(const tdict_place *place, tdict_error *err);
/* Sets the leaf at the place, retained, and creates missing nodes of the path. *old is the replaced leaf, which the
 * caller owns, or 0. Returns TDICT_ENOMEM; the tree is then unchanged. */
tdict_status tdict_place_put(tdict_place *place, tdict_leaf leaf, tdict_leaf *old, tdict_error *err);
/* Sets the leaf like tdict_place_put(), and at the end releases the old one, whose callback can read the tree. */
tdict_status tdict_place_set(tdict_place *place, tdict_leaf leaf, tdict_error *err);
/* Sets the tensor of a field at a path that no earlier field of the schema uses. The tree adds a reference to the
 * tensor. Does not check that the shape of the tensor begins with the batch size. Returns TDICT_EEXIST if the path
 * holds a tensor, and TDICT_ETYPE if one path leads through the tensor of another path. Also returns the errors of
 * tdict_place_find() and tdict_place_put(). */
tdict_status tdict_place_add(tdict_tree *td, const char *path, tdict_tensor *tensor, const char *what,
                             tdict_error *err);

#endif
