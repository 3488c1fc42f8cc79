/* Changes of several nodes that take effect together: each node that is to change has a replacement, which is worked on,
 * and one call that cannot fail gives every node what its replacement holds. Until then no tree has changed. Nodes stay
 * the same nodes, so handles of them stay valid. Owned by one call; the nodes are borrowed. Thread rule: as in
 * tdict/tree.h. */
#ifndef TDICT_OPS_CHANGES_H
#define TDICT_OPS_CHANGES_H

#include "tree/node.h"
#include "tree/pointers.h"

typedef struct tdict_changes {
  const char *what;           /* begins messages */
  tdict_pointers replacement; /* of a node; a new node is its own */
} tdict_changes;

/* What a replacement begins with. */
enum tdict_changes_from { TDICT_CHANGES_EMPTY, TDICT_CHANGES_COPY };

void tdict_changes_init(tdict_changes *c, const char *what);
/* The replacement of a node, made when it has none. TDICT_ELOCKED the node is locked; TDICT_ENOMEM. */
tdict_status tdict_changes_of(tdict_changes *c, tdict_tree *node, enum tdict_changes_from from, tdict_tree **out,
                              tdict_error *err);
/* A new node under a replacement, for the leaf of a key: its reference is the caller's. It can be changed as it is. NULL
 * without memory. */
tdict_tree *tdict_changes_new(tdict_changes *c, const tdict_tree *under);
/* TDICT_EINVAL when `tree`, put into `under`, would hold itself once the changes have taken effect; TDICT_ENOMEM. */
tdict_status tdict_changes_check_cycle(const tdict_changes *c, tdict_tree *tree, const tdict_tree *under,
                                       tdict_error *err);
/* Ends the changes: when `status` is TDICT_OK they take effect, else no tree has changed. Answers `status`. */
tdict_status tdict_changes_end(tdict_changes *c, tdict_status status);

#endif
