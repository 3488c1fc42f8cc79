/* Matches trees that must have the same keys: a table of the entries at each path of the first tree. The caller owns
 * it, and the trees are borrowed. Thread rule: one thread at a time uses a table. */
#ifndef TDICT_CORE_OPS_ALIGN_H
#define TDICT_CORE_OPS_ALIGN_H

#include "core/tree/objects.h"

typedef struct tdict_aligned {
  size_t count;       /* number of trees */
  size_t num_entries; /* number of tensors, objects and child trees in the first tree */
  bool has_objects;   /* true if there are objects; the objects at one path have the same type in all trees */
  tdict_leaf *leaves; /* borrowed; in cursor order: entry e of tree t is leaves[e * count + t] */
} tdict_aligned;

/* Matches the entries of all trees. If `checks_batch_size` is true, each tensor must begin with the batch size of its
 * tree. Reset the table with tdict_aligned_reset() if the call succeeds. Returns TDICT_EINVAL if there are no trees or
 * a tree is NULL, and TDICT_ENOTFOUND if a tree lacks a key that another tree has. Returns TDICT_ETYPE if the entries
 * at a path differ in kind or in the type of the object. Returns TDICT_ESHAPE if the check of the batch size fails, and
 * TDICT_ENOMEM if memory is exhausted. If the error belongs to a key, err->path is the path of the key. */
tdict_status tdict_align_trees(const char *what, const tdict_tree *const *trees, size_t count, bool checks_batch_size,
                               tdict_aligned *out, tdict_error *err);
void tdict_aligned_reset(tdict_aligned *aligned);

/* Copies the trees, flattens the objects in the copies as `opening` says, and replaces the table by one of the copies.
 * *out is the array of the copies, which the caller frees with tdict_aligned_close(). With `checks_batch_size`, tensors
 * of objects must begin with the batch size of their tree. On failure `aligned` is unchanged. Returns the errors of
 * tdict_objects_flatten() and tdict_align_trees(). */
tdict_status tdict_aligned_open(tdict_aligned *aligned, const tdict_flatten_rule *opening, bool checks_batch_size,
                                const tdict_tree *const *trees, tdict_tree ***out, tdict_error *err);
/* Releases the trees and frees the array of tdict_aligned_open(). NULL is allowed. */
void tdict_aligned_close(tdict_tree **opened, size_t count);

#endif
