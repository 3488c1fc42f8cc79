/* Matches the entries of borrowed trees with the same keys. The caller owns the table. Thread rule: see align.h. */
#include "core/ops/align.h"

#include <stdlib.h>

#include "core/base/array.h"
#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/tree/agree.h"
#include "core/tree/text.h"

enum { PATH_BYTES = sizeof((tdict_error *)NULL)->path };

typedef struct aligner {
  const char *what;
  const tdict_tree *const *trees;
  bool checks_batch_size; /* true: tensors must begin with the batch size of their tree */
  tdict_aligned *aligned;
  size_t cap; /* capacity of aligned->leaves, in entries */
  /* walks trees[0]; a frame's mark is 0 for the root, else 1 + the entry number of the frame's node */
  tdict_cursor cursor;
} aligner;

/* Returns the node of tree number `tree` for the mark of a frame, see aligner.cursor. */
static const tdict_tree *get_node_of_tree(const aligner *a, size_t mark, size_t tree) {
  return mark ? tdict_leaf_tree(a->aligned->leaves[(mark - 1) * a->aligned->count + tree]) : a->trees[tree];
}

/* Puts the cursor's path into the error. If `key` is not NULL, appends the key. */
static tdict_status fail_at_key(const aligner *a, const tdict_key *key, tdict_status status, tdict_error *err) {
  char path[PATH_BYTES];
  tdict_cursor_path(&a->cursor, NULL, path, sizeof path);
  if (key) tdict_node_path(path, key, path, sizeof path);
  return tdict_error_at(err, status, path);
}

/* Returns TDICT_ENOTFOUND if a node at `mark` has a key that the first tree lacks. Searches only nodes with more keys,
 * because add_entry() finds keys that a later tree lacks. */
static tdict_status check_no_extra_keys(const aligner *a, size_t mark, tdict_error *err) {
  const tdict_tree *first = get_node_of_tree(a, mark, 0);
  for (size_t t = 1; t < a->aligned->count; t++) {
    const tdict_key *key = tdict_keys_find_extra(get_node_of_tree(a, mark, t)->keys, first->keys);
    if (!key) continue;
    tdict_fail(err, TDICT_ENOTFOUND, "%s: tree %zu has a key that tree 0 lacks", a->what, t);
    return fail_at_key(a, key, TDICT_ENOTFOUND, err);
  }
  return TDICT_OK;
}

/* Checks that the tensors of one entry begin with the batch sizes of their trees. */
static tdict_status check_shapes(const aligner *a, const tdict_leaf *row, tdict_error *err) {
  for (size_t t = 0; t < a->aligned->count; t++) {
    const tdict_tree *td = a->trees[t];
    const tdict_tensor *tensor = tdict_leaf_tensor(row[t]);
    if (tdict_tensor_begins_with(tensor, td->batch_ndim, td->batch_size)) continue;
    tdict_fail(err, TDICT_ESHAPE, "%s: the batch size of tree %zu is %s, tensor has shape %s", a->what, t,
               TDICT_SHAPE_TEXT(td->batch_ndim, td->batch_size), TDICT_SHAPE_TEXT(tensor->ndim, tensor->dims));
    return fail_at_key(a, NULL, TDICT_ESHAPE, err);
  }
  return TDICT_OK;
}

/* Reserves space for one more entry. Returns false if out of memory. */
static bool reserve_entry(aligner *a) {
  if (a->aligned->num_entries < a->cap) return true;
  size_t bytes;
  return tdict_mul_size(a->aligned->count, sizeof(tdict_leaf), &bytes) &&
         tdict_array_grow(&a->aligned->leaves, &a->cap, a->aligned->num_entries + 1, bytes);
}

/* Adds the entries of all trees at the cursor's key. `leaf` is the entry of the first tree. */
static tdict_status add_entry(aligner *a, tdict_leaf leaf, tdict_error *err) {
  const tdict_frame *top = &a->cursor.frames[a->cursor.depth - 1];
  const tdict_key *key = tdict_cursor_key(&a->cursor);
  if (!reserve_entry(a)) return tdict_fail(err, TDICT_ENOMEM, "%s: no memory to look through the trees", a->what);
  tdict_leaf *row = a->aligned->leaves + a->aligned->num_entries * a->aligned->count;
  row[0] = leaf;
  for (size_t t = 1; t < a->aligned->count; t++) {
    const tdict_tree *node = get_node_of_tree(a, top->mark, t);
    int64_t slot = top->slot - 1;
    /* Trees that share a key table have the same slots, so no search is needed. */
    if (node->keys != top->node->keys) slot = tdict_keys_find_near(node->keys, key, slot);
    if (slot < 0) {
      tdict_fail(err, TDICT_ENOTFOUND, "%s: tree %zu lacks a key that tree 0 has", a->what, t);
      return fail_at_key(a, NULL, TDICT_ENOTFOUND, err);
    }
    row[t] = node->leaves[slot];
    if (tdict_leaf_kind(row[t]) == tdict_leaf_kind(leaf)) continue;
    tdict_fail(err, TDICT_ETYPE, "%s: the key holds %s in tree %zu, but %s in tree 0", a->what, TDICT_LEAF_TEXT(row[t]),
               t, TDICT_LEAF_TEXT(leaf));
    return fail_at_key(a, NULL, TDICT_ETYPE, err);
  }
  if (tdict_leaf_box(leaf)) {
    a->aligned->has_objects = true;
    tdict_status status = tdict_objects_check_types(a->what, row, a->aligned->count, err);
    if (status != TDICT_OK) return fail_at_key(a, NULL, status, err);
  }
  a->aligned->num_entries++;
  return a->checks_batch_size && tdict_leaf_tensor(leaf) ? check_shapes(a, row, err) : TDICT_OK;
}

/* Walks through the first tree and adds an entry for each tensor, object and child tree. */
static tdict_status align_entries(aligner *a, tdict_error *err) {
  tdict_status status = check_no_extra_keys(a, 0, err);
  for (tdict_leaf leaf; status == TDICT_OK && (leaf = tdict_cursor_next(&a->cursor)) != 0;) {
    tdict_tree *tree = tdict_leaf_tree(leaf);
    status = add_entry(a, leaf, err);
    if (status != TDICT_OK || !tree) continue;
    status = check_no_extra_keys(a, a->aligned->num_entries, err);
    tdict_cursor_descend(&a->cursor, tree, a->aligned->num_entries);
  }
  return status;
}

tdict_status tdict_align_trees(const char *what, const tdict_tree *const *trees, size_t count, bool checks_batch_size,
                               tdict_aligned *out, tdict_error *err) {
  if (!trees || count == 0) return tdict_fail(err, TDICT_EINVAL, "%s: no trees", what);
  for (size_t i = 0; i < count; i++)
    if (!trees[i]) return tdict_fail(err, TDICT_EINVAL, "%s: tree %zu is NULL", what, i);
  tdict_aligned made = {count, 0, false, NULL};
  aligner a = {.what = what, .trees = trees, .checks_batch_size = checks_batch_size, .aligned = &made, .cap = 0};
  tdict_cursor_init(&a.cursor, trees[0], false);
  tdict_status status = tdict_cursor_end(&a.cursor, what, align_entries(&a, err), err);
  if (status != TDICT_OK) {
    free(made.leaves);
    return status;
  }
  *out = made;
  return TDICT_OK;
}

void tdict_aligned_reset(tdict_aligned *aligned) {
  free(aligned->leaves);
  aligned->leaves = NULL;
}

tdict_status tdict_aligned_open(tdict_aligned *aligned, const tdict_flatten_rule *opening, bool checks_batch_size,
                                const tdict_tree *const *trees, tdict_tree ***out, tdict_error *err) {
  const size_t count = aligned->count;
  tdict_flatten_rule one_opening = *opening;
  tdict_tree **opened = calloc(count, sizeof(tdict_tree *));
  tdict_status status = TDICT_OK;
  if (!opened) return tdict_fail(err, TDICT_ENOMEM, "%s: no memory for a list of %zu trees", one_opening.what, count);
  for (size_t t = 0; t < count && status == TDICT_OK; t++) {
    one_opening.batch_ndim = checks_batch_size ? trees[t]->batch_ndim : 0;
    one_opening.batch_size = trees[t]->batch_size;
    status = tdict_objects_flatten(&one_opening, trees[t], &opened[t], err);
  }
  /* Match the copies into a second table, so that the first table is unchanged if the match fails. */
  tdict_aligned realigned = {0, 0, false, NULL};
  if (status == TDICT_OK)
    status = tdict_align_trees(one_opening.what, (const tdict_tree *const *)opened, count, checks_batch_size,
                               &realigned, err);
  if (status != TDICT_OK) {
    tdict_aligned_close(opened, count);
    return status;
  }
  tdict_aligned_reset(aligned);
  *aligned = realigned;
  *out = opened;
  return TDICT_OK;
}

void tdict_aligned_close(tdict_tree **opened, size_t count) {
  for (size_t t = 0; opened && t < count; t++) tdict_release(opened[t]);
  free(opened);
}
