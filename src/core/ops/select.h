/* Selects parts of a tree by paths, for the functions that take paths. Selections and paths are borrowed for the
 * call.
 * Thread rule: as in tdict/tree.h. */
#ifndef TDICT_CORE_OPS_SELECT_H
#define TDICT_CORE_OPS_SELECT_H

#include "core/tree/place.h"

/* Returns TDICT_EINVAL if `paths` is NULL and `count` is not 0, or if a path in this array is NULL. `what` is the
 * prefix of the message. */
tdict_status tdict_paths_check(const char *what, const char *const *paths, size_t count, tdict_error *err);
/* Finds the place of a path. The caller resets the place if place->node is not NULL. If the path does not exist and
 * `strict` is true, returns TDICT_ENOTFOUND or TDICT_ETYPE. If the path does not exist and `strict` is false, returns
 * TDICT_OK with place->node NULL. Returns TDICT_EINVAL for an invalid path, and TDICT_ENOMEM if memory is exhausted. */
tdict_status tdict_path_resolve(const char *what, const tdict_tree *td, const char *path, bool strict,
                                tdict_place *place, tdict_error *err);

typedef struct tdict_selection {
  const char *const *paths;
  size_t count;
  bool strict; /* if true, a path that does not exist is an error */
} tdict_selection;
/* Makes a new tree of the entries at the paths, in the order of the paths. Leaves are shared. If a path does not exist
 * and `strict` is true, returns TDICT_ENOTFOUND or TDICT_ETYPE. Returns TDICT_EINVAL for an invalid path or a NULL
 * pointer, and TDICT_ENOMEM if memory is exhausted. */
tdict_status tdict_select_paths(const char *what, const tdict_tree *td, const tdict_selection *selection,
                                tdict_tree **out, tdict_error *err);
/* Adds or replaces a key of a node that only the caller holds. `slot` is the slot of the key; -1: the key is new. Takes
 * over the reference to the leaf, also on failure. Returns TDICT_ENOMEM if memory is exhausted. */
tdict_status tdict_put_leaf(const char *what, tdict_tree *to, const tdict_name *name, int64_t slot, tdict_leaf leaf,
                            tdict_error *err);

#endif
