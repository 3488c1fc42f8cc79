/* Compares the leaves of a tree with the layout of an arena. See block.h for ownership and threads. */
#include "engine/plan/block.h"

#include <stdlib.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/tree/cursor.h"
#include "engine/plan/plan.h"

typedef struct visited {
  tdict_storage *storage; /* borrowed; NULL before the first leaf */
  size_t end;             /* offset of the end of the last leaf */
  size_t num_leaves, num_dims;
} visited;

/* Adds a leaf. Returns false if the leaf does not follow the last leaf in the layout of an arena. */
static bool add_leaf(visited *so_far, const tdict_tensor *t) {
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

/* Visits all leaves, and fills in the record, if any. *fits is false after a leaf that does not fit, or an object. */
static tdict_status visit_leaves(tdict_cursor *cursor, tdict_consolidated *record, visited *found, bool *fits,
                                 tdict_error *err) {
  *found = (visited){0};
  *fits = true;
  for (tdict_leaf leaf; *fits && (leaf = tdict_cursor_next_leaf(cursor)) != 0;) {
    const tdict_tensor *t = tdict_leaf_tensor(leaf);
    *fits = t && add_leaf(found, t);
    if (!*fits || !record) continue;
    const size_t bytes = tdict_tensor_nbytes(t);
    record->layout->leaves[found->num_leaves - 1] = (tdict_leaf_span){found->end - bytes, bytes, t->dtype};
  }
  if (cursor->no_memory) return tdict_fail(err, TDICT_ENOMEM, "transfer: no host memory for its plan");
  /* the storage may end at the last leaf or after its padding */
  const size_t bytes = found->storage ? found->storage->bytes : 0;
  *fits = *fits && found->num_leaves > 1 && found->end <= bytes && bytes - found->end < TDICT_LEAF_ALIGNMENT;
  return TDICT_OK;
}

/* Makes the record of a tree. Writes NULL to *out if the tree is not one block. */
static tdict_status make_record(const tdict_tree *tree, tdict_consolidated **out, tdict_error *err) {
  visited found;
  bool fits = false;
  *out = NULL;
  tdict_cursor cursor;
  tdict_cursor_init(&cursor, tree, false);
  tdict_status status = visit_leaves(&cursor, NULL, &found, &fits, err);
  if (status == TDICT_OK && fits) status = tdict_consolidated_create(found.num_leaves, found.storage, out, err);
  if (*out) {
    tdict_cursor_rewind(&cursor, tree);
    status = visit_leaves(&cursor, *out, &found, &fits, err);
    (*out)->layout->num_dims = found.num_dims;
  }
  tdict_cursor_reset(&cursor);
  return status;
}

/* The record that a locked tree keeps. */
typedef struct block {
  tdict_attachment attachment; /* first member, because detach() receives its address */
  tdict_consolidated *record;  /* retained */
} block;

static void detach_block(tdict_attachment *attachment) {
  block *kept = (block *)attachment;
  tdict_consolidated_release(kept->record);
  free(kept);
}

tdict_status tdict_block_find(const tdict_tree *tree, tdict_consolidated **out, tdict_error *err) {
  *out = tree->consolidated ? tdict_consolidated_retain(tree->consolidated) : NULL;
  if (*out || !tree->locked) return TDICT_OK;
  block *kept = (block *)tdict_node_attachment(tree, TDICT_ATTACHED_BLOCK);
  if (kept) *out = tdict_consolidated_retain(kept->record);
  if (kept) return TDICT_OK;
  tdict_status status = make_record(tree, out, err);
  if (!*out) return status;
  kept = malloc(sizeof *kept);
  if (!kept) return TDICT_OK; /* the record serves this call only */
  *kept = (block){{detach_block}, tdict_consolidated_retain(*out)};
  if (!tdict_node_attach(tree, TDICT_ATTACHED_BLOCK, &kept->attachment)) detach_block(&kept->attachment);
  return TDICT_OK;
}
