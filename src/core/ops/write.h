/* The write from leaves of one tree to those of another, for copies, updates and indices. Threads: tdict/write.h. */
#ifndef TDICT_CORE_OPS_WRITE_H
#define TDICT_CORE_OPS_WRITE_H

#include "core/ops/device/moves.h"
#include "core/tree/objects.h"

typedef struct tdict_tree_write tdict_tree_write;
struct tdict_tree_write {
  const tdict_tree *to, *from;
  const char *to_name, *from_name; /* the names of the trees in messages, such as "the source" */
  bool needs_same_keys;            /* true: both trees must have the same keys; false: `to` may have more */
  tdict_pairing objects;           /* `what` is the name of the call; the walk adds the path of each object */
  tdict_moves *moves;              /* collects copies on devices; NULL: all copies are made at once */
  /* Writes the tensor `from` to `to`, or with `checks_only` checks that it can. NULL: copies the elements. */
  tdict_status (*tensor)(const tdict_tree_write *w, tdict_tensor *to, const tdict_tensor *from, bool checks_only,
                         tdict_error *err);
  void *user;
  tdict_flat_pairs pairs; /* of the objects, in the order of the walk; initialize all members to 0 */
};
/* Checks all leaves, writes them, runs the moves, and resets moves and pairs. Returns TDICT_ENOTFOUND for a key that
 * `to` lacks, TDICT_ETYPE for entries of different kinds, and the errors of w->tensor and of the moves. */
tdict_status tdict_tree_write_run(tdict_tree_write *w, tdict_error *err);

/* Copies the elements of pair->from to the same paths of pair->to, which may have more keys, or with `checks_only`
 * checks that it can. `path` is for messages. The pair may be empty. `moves` collects copies on devices; NULL: all are
 * made at once. Returns the errors of tdict_copy(). */
tdict_status tdict_write_pair(const char *what, tdict_moves *moves, const tdict_flat_pair *pair, const char *path,
                              bool checks_only, tdict_error *err);

#endif
