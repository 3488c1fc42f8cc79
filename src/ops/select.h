/* Parts of a tree by paths, for the calls that take them. Thread rule: as in tdict/tree.h. */
#ifndef TDICT_OPS_SELECT_H
#define TDICT_OPS_SELECT_H

#include "tree/node.h"

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
