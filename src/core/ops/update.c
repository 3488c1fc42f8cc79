/* Merges one tree into another tree. If the merge fails, no tree changes. Each node that changes gets a replacement
 * with its new keys and leaves. After all replacements are complete, they are swapped with their nodes. Swapping cannot
 * fail. tdict_update() owns the replacements. Thread rule: as in tdict/tree.h. */
#include <stdlib.h>

#include "core/base/error.h"
#include "core/ops/map.h"
#include "core/ops/select.h"
#include "tdict/write.h"

static const char what[] = "update";
enum { PATH_BYTES = sizeof((tdict_error *)NULL)->path };

typedef struct merger {
  tdict_cursor cursor;         /* walks the source; a frame's mark is the node of the destination at the same path */
  tdict_pointers replacements; /* maps nodes to their replacements; owns references to both */
} merger;

static tdict_status no_memory_to_update(tdict_error *err) {
  return tdict_fail(err, TDICT_ENOMEM, "%s: no memory for the tree", what);
}

/* Gets the replacement of a node. The first call for a node creates the replacement. Returns TDICT_ELOCKED if the node
 * is locked, and TDICT_ENOMEM if memory is exhausted. */
static tdict_status get_replacement(merger *m, tdict_tree *node, tdict_tree **out, tdict_error *err) {
  tdict_tree *replacement = tdict_pointers_get(&m->replacements, node);
  if (!replacement) {
    if (tdict_node_is_locked(node)) return tdict_fail(err, TDICT_ELOCKED, "%s: the tree is locked", what);
    tdict_status status = tdict_node_create_like(node, &replacement, err);
    if (status != TDICT_OK) return status;
    for (uint32_t i = 0; i < node->keys->num_slots; i++) replacement->leaves[i] = tdict_leaf_retain(node->leaves[i]);
    if (tdict_pointers_add(&m->replacements, node, replacement) < 0) {
      tdict_release(replacement);
      return no_memory_to_update(err);
    }
    (void)tdict_retain(node); /* A later leaf of the source can replace the last other reference to this node. */
  }
  *out = replacement;
  return TDICT_OK;
}

/* Adds or replaces a key of a replacement with a leaf of the source. */
static tdict_status put_merged_leaf(tdict_tree *replacement, const tdict_key *key, int64_t slot, tdict_leaf leaf,
                                    tdict_error *err) {
  tdict_leaf held = 0;
  tdict_status status = tdict_map_adopt(replacement, leaf, what, &held, err);
  if (status != TDICT_OK) return status;
  if (slot >= 0) {
    tdict_leaf_release(replacement->leaves[slot]);
    replacement->leaves[slot] = held;
    return TDICT_OK;
  }
  if (tdict_node_add(replacement, key->name, key->length, key->hash, held)) return TDICT_OK;
  tdict_leaf_release(held);
  return no_memory_to_update(err);
}

/* Merges the entry at the cursor. If both trees have a tree at this path, only sets *below to the tree of the
 * destination. */
static tdict_status merge_leaf(merger *m, tdict_leaf leaf, tdict_tree **below, tdict_error *err) {
  const tdict_key *key = tdict_cursor_key(&m->cursor);
  tdict_tree *node = (tdict_tree *)m->cursor.frames[m->cursor.depth - 1].mark;
  tdict_tree *current = tdict_pointers_get(&m->replacements, node);
  if (!current) current = node;
  int64_t slot = tdict_keys_find_hashed(current->keys, key->name, key->length, key->hash);
  tdict_leaf dst_leaf = slot < 0 ? 0 : current->leaves[slot];
  if (tdict_leaf_tree(dst_leaf) && tdict_leaf_tree(leaf)) {
    *below = tdict_leaf_tree(dst_leaf);
    return TDICT_OK;
  }
  tdict_status status = get_replacement(m, node, &current, err);
  return status == TDICT_OK ? put_merged_leaf(current, key, slot, leaf, err) : status;
}

/* Walks through the source and merges each entry into the replacements of the destination's nodes. */
static tdict_status merge_trees(merger *m, tdict_tree *dst, tdict_error *err) {
  tdict_cursor *c = &m->cursor;
  c->frames[0].mark = (size_t)dst;
  for (tdict_leaf leaf; (leaf = tdict_cursor_next(c)) != 0;) {
    tdict_tree *below = NULL;
    tdict_status status = merge_leaf(m, leaf, &below, err);
    if (status != TDICT_OK) {
      char path[PATH_BYTES], full_path[PATH_BYTES];
      tdict_cursor_path(c, NULL, path, sizeof path);
      /* If the error has a path, this path begins in the tree `leaf`. Put the path of this tree before the path of the
       * error. */
      if (err && err->path[0]) {
        snprintf(full_path, sizeof full_path, "%.120s.%.120s", path, err->path);
        return tdict_error_at(err, status, full_path);
      }
      return tdict_error_at(err, status, path);
    }
    if (!below || below == tdict_leaf_tree(leaf)) continue;
    if (!tdict_cursor_enter(c, tdict_leaf_tree(leaf))) return no_memory_to_update(err);
    c->frames[c->depth - 1].mark = (size_t)below;
  }
  return TDICT_OK;
}

/* Swaps the replacements with their nodes if the merge succeeded. Then releases the replacements and the nodes. */
static void finish_update(const merger *m, bool succeeded) {
  for (size_t i = 0; i < m->replacements.cap; i++) {
    const tdict_pointer_pair *pair = &m->replacements.pairs[i];
    if (pair->key && succeeded) tdict_node_swap((tdict_tree *)(uintptr_t)pair->key, pair->value);
  }
  /* Release after all swaps, since the replaced leaves can hold the last references to changed nodes. */
  for (size_t i = 0; i < m->replacements.cap; i++) {
    const tdict_pointer_pair *pair = &m->replacements.pairs[i];
    if (!pair->key) continue;
    tdict_release(pair->value);
    tdict_release((tdict_tree *)(uintptr_t)pair->key);
  }
}

tdict_status tdict_update(tdict_tree *dst, const tdict_tree *src, const char *const *paths, size_t num_paths,
                          tdict_error *err) {
  merger m;
  tdict_tree *part = NULL;
  if (!dst || !src) return tdict_fail(err, TDICT_EINVAL, "%s: %s is NULL", what, dst ? "src" : "dst");
  if (dst == src) return TDICT_OK;
  if (paths) {
    const tdict_selection selection = {paths, num_paths, true};
    tdict_status status = tdict_select_paths(what, src, &selection, &part, err);
    if (status != TDICT_OK) return status;
  }
  tdict_cursor_init(&m.cursor, part ? part : src, false);
  tdict_pointers_init(&m.replacements);
  tdict_status status = merge_trees(&m, dst, err);
  finish_update(&m, status == TDICT_OK);
  tdict_pointers_reset(&m.replacements);
  tdict_cursor_reset(&m.cursor);
  tdict_release(part);
  return status;
}
