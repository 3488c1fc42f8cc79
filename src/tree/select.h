/* Parts of a tree by paths, for the calls that take them. Thread rule: as in tdict/tree.h. */
#ifndef TDICT_TREE_SELECT_H
#define TDICT_TREE_SELECT_H

#include "tree/node.h"

/* A new tree of the paths, in their order, leaves shared. `strict`: a missing one is TDICT_ENOTFOUND. TDICT_EINVAL,
 * TDICT_ENOMEM. */
tdict_status tdict_select_paths(const char *what, const tdict_tree *td, const char *const *paths, size_t count,
                                bool strict, tdict_tree **out, tdict_error *err);

#endif
