/* Parts of a tree by paths, for the calls that take paths. Thread rule: as in tdict/tree.h. */
#ifndef TDICT_OPS_SELECT_H
#define TDICT_OPS_SELECT_H

#include "tree/place.h"

/* TDICT_EINVAL: `paths` or an element is NULL. `what` begins the message. */
tdict_status tdict_paths_check(const char *what, const char *const *paths, size_t count, tdict_error *err);
/* Finds the place of a path. The caller resets the place if it has a node. A path that leads nowhere is an error if
 * `strict`, else the place has no node. TDICT_ENOTFOUND, TDICT_ETYPE when strict; TDICT_EINVAL, TDICT_ENOMEM. */
tdict_status tdict_path_resolve(const char *what, const tdict_tree *td, const char *path, bool strict,
                                tdict_place *place, tdict_error *err);

typedef struct tdict_selection {
  const char *const *paths;
  size_t count;
  bool strict; /* a path that leads nowhere is an error */
} tdict_selection;
/* A new tree of the paths, in their order, leaves shared. TDICT_ENOTFOUND, TDICT_ETYPE when strict; TDICT_EINVAL,
 * TDICT_ENOMEM. */
tdict_status tdict_select_paths(const char *what, const tdict_tree *td, const tdict_selection *selection,
                                tdict_tree **out, tdict_error *err);

#endif
