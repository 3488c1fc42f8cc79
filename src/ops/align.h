/* Several trees with the same keys, looked at together: what stands at each path of the first one, in all of them.
 * Owned by one call; trees are borrowed. Thread rule: one thread. */
#ifndef TDICT_OPS_ALIGN_H
#define TDICT_OPS_ALIGN_H

#include "tree/objects.h"

typedef struct tdict_aligned {
  size_t count, num_entries; /* trees; what a walk through the first one shows, trees too */
  bool objects;              /* there are some, of one type in all trees */
  tdict_leaf *leaves;        /* borrowed; that of tree t at entry e is leaves[e * count + t] */
} tdict_aligned;

/* TDICT_EINVAL a NULL among the trees, or none; TDICT_ENOTFOUND a key that not all have; TDICT_ETYPE kinds that differ, or
 * types of objects; TDICT_ESHAPE, with `whole` only, a tensor that does not begin with its tree's batch size; err->path
 * names the key. TDICT_ENOMEM. To be reset on success only. */
tdict_status tdict_align_trees(const char *what, const tdict_tree *const *trees, size_t count, bool whole,
                               tdict_aligned *out, tdict_error *err);
void tdict_aligned_reset(tdict_aligned *aligned);

/* Copies of the trees with their objects opened, which are what is aligned from here on: the list, an array of as many
 * trees as there are, is the caller's. With `whole`, objects and tensors must begin with the batch size of their tree. On
 * failure the trees are aligned as before. Errors of tdict_objects_open(). */
tdict_status tdict_aligned_open(tdict_aligned *aligned, const tdict_opening *opening, bool whole,
                                const tdict_tree *const *trees, tdict_tree ***out, tdict_error *err);
/* Ends that list; NULL is allowed. */
void tdict_aligned_close(tdict_tree **opened, size_t count);

#endif
