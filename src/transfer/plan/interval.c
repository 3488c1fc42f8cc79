/* Compares the leaves of a tree with the layout of an arena. See interval.h for ownership and threads. */
#include "transfer/plan/interval.h"

#include "base/checked.h"
#include "base/error.h"
#include "transfer/plan/plan.h"
#include "tree/cursor.h"

/* The leaves that were visited so far. */
typedef struct interval {
  tdict_storage *storage; /* borrowed; NULL before the first leaf */
  size_t end;             /* offset of the end of the last leaf */
  size_t num_leaves, num_dims;
} interval;

/* Adds a leaf. Returns false if the leaf does not follow the last leaf in the layout of an arena. */
static bool add_leaf(interval *so_far, const tdict_tensor *t) {
  if (!tdict_plan_gap_is_free(t)) return false;
  if (!so_far->storage) so_far->storage = t->storage;
  const size_t begin = tdict_align(so_far->end, TDICT_LEAF_ALIGNMENT);
  if (t->storage != so_far->storage) return false;
  /* an empty leaf has no bytes, so its address does not matter */
  if (t->numel != 0 && (uintptr_t)t->data - (uintptr_t)t->storage->data != begin) return false;
  so_far->end = begin + tdict_tensor_nbytes(t);
  so_far->num_leaves++;
  so_far->num_dims += (size_t)t->ndim;
  return true;
}

/* Visits all leaves. Sets *fits to false at the first leaf that does not fit, and at the first object. If `record` is
 * not NULL, fills in its spans. */
static tdict_status visit_leaves(tdict_cursor *cursor, tdict_consolidated *record, interval *found, bool *fits,
                                 tdict_error *err) {
  *found = (interval){0};
  *fits = true;
  for (tdict_leaf leaf; *fits && (leaf = tdict_cursor_next(cursor)) != 0;) {
    const tdict_tensor *t = tdict_leaf_tensor(leaf);
    tdict_tree *child = tdict_leaf_tree(leaf);
    if (child && !tdict_cursor_enter(cursor, child))
      return tdict_fail(err, TDICT_ENOMEM, "transfer: no host memory for its plan");
    if (child) continue;
    *fits = t && add_leaf(found, t);
    if (!*fits || !record) continue;
    const size_t bytes = tdict_tensor_nbytes(t);
    record->leaves[found->num_leaves - 1] = (tdict_leaf_span){found->end - bytes, bytes};
  }
  /* the storage may end at the last leaf or after its padding */
  const size_t bytes = found->storage ? found->storage->bytes : 0;
  *fits = *fits && found->num_leaves > 1 && found->end <= bytes && bytes - found->end < TDICT_LEAF_ALIGNMENT;
  return TDICT_OK;
}

tdict_status tdict_interval_find(const tdict_tree *tree, tdict_consolidated **out, tdict_error *err) {
  interval found;
  bool fits = false;
  tdict_consolidated *made = NULL;
  *out = tree->consolidated ? tdict_consolidated_retain(tree->consolidated) : NULL;
  if (*out) return TDICT_OK;
  tdict_cursor cursor;
  tdict_cursor_init(&cursor, tree, false);
  tdict_status status = visit_leaves(&cursor, NULL, &found, &fits, err);
  if (status == TDICT_OK && fits) status = tdict_consolidated_create(found.num_leaves, found.storage, &made, err);
  if (made) {
    tdict_cursor_rewind(&cursor, tree);
    status = visit_leaves(&cursor, made, &found, &fits, err);
    made->num_dims = found.num_dims;
  }
  tdict_cursor_reset(&cursor);
  *out = made;
  return status;
}
