/* Changes several nodes together. Each node that must change gets a replacement, and only the replacement is modified.
 * After a success, tdict_changes_end() moves the contents of all replacements into their nodes. This step cannot fail.
 * No tree changes before tdict_changes_end(). The nodes keep their addresses, so pointers to nodes stay valid. The
 * tdict_changes struct owns the replacements, and retains the nodes. Thread rule: as in tdict/tree.h. */
#ifndef TDICT_CORE_OPS_CHANGES_H
#define TDICT_CORE_OPS_CHANGES_H

#include "core/tree/node.h"
#include "core/tree/pointers.h"

typedef struct tdict_changes {
  const char *what;           /* prefix of error messages */
  tdict_pointers replacement; /* maps a node to its replacement */
} tdict_changes;

void tdict_changes_init(tdict_changes *c, const char *what);
/* Gets the replacement of a node, with its keys and leaves, and creates it at the first call. The caller borrows *out.
 * Returns TDICT_ELOCKED if the node is locked, and TDICT_ENOMEM. */
tdict_status tdict_changes_get(tdict_changes *c, tdict_tree *node, tdict_tree **out, tdict_error *err);
/* Ends the changes, which take effect if `status` is TDICT_OK. Releases the replacements and returns `status`. */
tdict_status tdict_changes_end(tdict_changes *c, tdict_status status);

#endif
