/* Several trees with the same keys. The list of what stands where is the call's. Thread rule: see align.h. */
#include "ops/align.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "tree/agree.h"
#include "tree/text.h"

enum { PATH_BYTES = sizeof((tdict_error *)NULL)->path };

typedef struct aligner {
  const char *what;
  const tdict_tree *const *trees;
  bool whole; /* tensors must begin with the batch size of their tree */
  tdict_aligned *to;
  size_t cap;          /* entries */
  tdict_cursor cursor; /* a frame's mark is the entry of its node, counted from 1; 0: the trees themselves */
} aligner;

static const tdict_tree *node_of(const aligner *a, size_t mark, size_t tree) {
  return mark ? tdict_leaf_tree(a->to->leaves[(mark - 1) * a->to->count + tree]) : a->trees[tree];
}

static tdict_status at_key(const aligner *a, const tdict_key *key, tdict_status status, tdict_error *err) {
  char path[PATH_BYTES];
  tdict_cursor_path(&a->cursor, NULL, path, sizeof path);
  if (key) tdict_node_path(path, key, path, sizeof path);
  return tdict_error_at(err, status, path);
}

/* One node in all trees: each has as many keys as the first. `at` is where the cursor stands: the key of the node. */
static tdict_status check_keys(const aligner *a, size_t mark, tdict_error *err) {
  const tdict_tree *first = node_of(a, mark, 0);
  for (size_t t = 1; t < a->to->count; t++) {
    const tdict_keys *keys = node_of(a, mark, t)->keys;
    if (keys == first->keys || keys->num_live <= first->keys->num_live) continue;
    for (uint32_t i = 0; i < keys->num_slots; i++) {
      const tdict_key *key = &keys->slots[i];
      if (!key->name || tdict_keys_find_hashed(first->keys, key->name, key->length, key->hash) >= 0) continue;
      tdict_fail(err, TDICT_ENOTFOUND, "%s: tree %zu has a key that tree 0 has not", a->what, t);
      return at_key(a, key, TDICT_ENOTFOUND, err);
    }
  }
  return TDICT_OK;
}

/* What stands in the trees at one key, all of them tensors, begins with their batch sizes. */
static tdict_status check_shapes(const aligner *a, const tdict_leaf *row, tdict_error *err) {
  for (size_t t = 0; t < a->to->count; t++) {
    const tdict_tree *td = a->trees[t];
    const tdict_tensor *tensor = tdict_leaf_tensor(row[t]);
    if (tdict_tensor_begins_with(tensor, td->batch_ndim, td->batch_size)) continue;
    char wanted[96], found[96];
    tdict_fail(err, TDICT_ESHAPE, "%s: the batch size of tree %zu is %s, tensor has shape %s", a->what, t,
               tdict_text_shape(td->batch_ndim, td->batch_size, wanted, sizeof wanted),
               tdict_text_shape(tensor->ndim, tensor->dims, found, sizeof found));
    return at_key(a, NULL, TDICT_ESHAPE, err);
  }
  return TDICT_OK;
}

static bool reserve(aligner *a) {
  if (a->to->num_entries < a->cap) return true;
  size_t cap = a->cap ? a->cap * 2 : 16, leaves, bytes;
  if (!tdict_mul_size(cap, a->to->count, &leaves) || !tdict_mul_size(leaves, sizeof(tdict_leaf), &bytes)) return false;
  tdict_leaf *grown = realloc(a->to->leaves, bytes);
  if (!grown) return false;
  a->to->leaves = grown;
  a->cap = cap;
  return true;
}

/* What stands in all trees where the cursor stands in the first one. */
static tdict_status add_entry(aligner *a, tdict_leaf leaf, tdict_error *err) {
  const tdict_frame *top = &a->cursor.frames[a->cursor.depth - 1];
  const tdict_key *key = tdict_cursor_key(&a->cursor);
  if (!reserve(a)) return tdict_fail(err, TDICT_ENOMEM, "%s: no memory to look through the trees", a->what);
  tdict_leaf *row = a->to->leaves + a->to->num_entries * a->to->count;
  row[0] = leaf;
  for (size_t t = 1; t < a->to->count; t++) {
    const tdict_tree *node = node_of(a, top->mark, t);
    int64_t slot = top->slot - 1;
    if (node->keys != top->node->keys) slot = tdict_keys_find_hashed(node->keys, key->name, key->length, key->hash);
    if (slot < 0) {
      tdict_fail(err, TDICT_ENOTFOUND, "%s: tree %zu lacks a key that tree 0 has", a->what, t);
      return at_key(a, NULL, TDICT_ENOTFOUND, err);
    }
    row[t] = node->leaves[slot];
    if (tdict_leaf_kind(row[t]) == tdict_leaf_kind(leaf)) continue;
    char one[TDICT_TEXT_LEAF_BYTES], other[TDICT_TEXT_LEAF_BYTES];
    tdict_fail(err, TDICT_ETYPE, "%s: %s stands there in tree %zu, and %s in tree 0", a->what,
               tdict_text_leaf(row[t], other), t, tdict_text_leaf(leaf, one));
    return at_key(a, NULL, TDICT_ETYPE, err);
  }
  if (tdict_leaf_box(leaf)) {
    a->to->objects = true;
    tdict_status status = tdict_objects_check_types(a->what, row, a->to->count, err);
    if (status != TDICT_OK) return at_key(a, NULL, status, err);
  }
  a->to->num_entries++;
  return a->whole && tdict_leaf_tensor(leaf) ? check_shapes(a, row, err) : TDICT_OK;
}

static tdict_status align(aligner *a, tdict_error *err) {
  tdict_status status = check_keys(a, 0, err);
  for (tdict_leaf leaf; status == TDICT_OK && (leaf = tdict_cursor_next(&a->cursor)) != 0;) {
    tdict_tree *tree = tdict_leaf_tree(leaf);
    status = add_entry(a, leaf, err);
    if (status != TDICT_OK || !tree) continue;
    status = check_keys(a, a->to->num_entries, err);
    if (status != TDICT_OK) break;
    if (!tdict_cursor_enter(&a->cursor, tree))
      return tdict_fail(err, TDICT_ENOMEM, "%s: no memory to look through the trees", a->what);
    a->cursor.frames[a->cursor.depth - 1].mark = a->to->num_entries;
  }
  return status;
}

tdict_status tdict_align_trees(const char *what, const tdict_tree *const *trees, size_t count, bool whole,
                               tdict_aligned *out, tdict_error *err) {
  if (!trees || count == 0) return tdict_fail(err, TDICT_EINVAL, "%s: no trees", what);
  for (size_t i = 0; i < count; i++)
    if (!trees[i]) return tdict_fail(err, TDICT_EINVAL, "%s: tree %zu is NULL", what, i);
  tdict_aligned made = {count, 0, false, NULL};
  aligner a = {.what = what, .trees = trees, .whole = whole, .to = &made, .cap = 0};
  tdict_cursor_init(&a.cursor, trees[0], false);
  tdict_status status = align(&a, err);
  tdict_cursor_reset(&a.cursor);
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

tdict_status tdict_aligned_open(tdict_aligned *aligned, const tdict_opening *opening, bool whole,
                                const tdict_tree *const *trees, tdict_tree ***out, tdict_error *err) {
  const size_t count = aligned->count;
  tdict_opening own = *opening;
  tdict_tree **opened = calloc(count, sizeof(tdict_tree *));
  tdict_status status = TDICT_OK;
  if (!opened) return tdict_fail(err, TDICT_ENOMEM, "%s: no memory for a list of %zu trees", own.what, count);
  for (size_t t = 0; t < count && status == TDICT_OK; t++) {
    own.batch_ndim = whole ? trees[t]->batch_ndim : 0;
    own.batch_size = trees[t]->batch_size;
    status = tdict_objects_open(&own, trees[t], &opened[t], err);
  }
  tdict_aligned again = {0, 0, false, NULL};
  if (status == TDICT_OK)
    status = tdict_align_trees(own.what, (const tdict_tree *const *)opened, count, whole, &again, err);
  if (status != TDICT_OK) {
    tdict_aligned_close(opened, count);
    return status;
  }
  tdict_aligned_reset(aligned);
  *aligned = again;
  *out = opened;
  return TDICT_OK;
}

void tdict_aligned_close(tdict_tree **opened, size_t count) {
  for (size_t t = 0; opened && t < count; t++) tdict_release(opened[t]);
  free(opened);
}
