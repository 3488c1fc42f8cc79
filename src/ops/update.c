/* Merging one tree into another, whole or not at all: every node that changes gets a stand-in with its new keys and
 * leaves; when all are there, nodes and stand-ins change these, which needs no memory. Stand-ins belong to the call.
 * Thread rule: as in tdict/tree.h. */
#include <stdlib.h>

#include "base/error.h"
#include "ops/map.h"
#include "ops/select.h"
#include "tdict/write.h"

static const char what[] = "update";
enum { PATH_BYTES = sizeof((tdict_error *)NULL)->path };

typedef struct merger {
  tdict_cursor cursor;   /* over the source; a frame's mark is the node that is merged into */
  tdict_pointers stands; /* nodes to their stand-ins */
} merger;

static tdict_status no_memory(tdict_error *err) {
  return tdict_fail(err, TDICT_ENOMEM, "%s: no memory for the tree", what);
}

/* The stand-in of a node, made when there is none yet. */
static tdict_status stand_in(merger *m, tdict_tree *node, tdict_tree **out, tdict_error *err) {
  tdict_tree *stand = tdict_pointers_get(&m->stands, node);
  if (!stand) {
    if (tdict_node_is_locked(node)) return tdict_fail(err, TDICT_ELOCKED, "%s: the tree is locked", what);
    tdict_status status = tdict_node_like(node, &stand, err);
    if (status != TDICT_OK) return status;
    for (uint32_t i = 0; i < node->keys->num_slots; i++) stand->leaves[i] = tdict_leaf_retain(node->leaves[i]);
    if (tdict_pointers_add(&m->stands, node, stand) < 0) {
      tdict_release(stand);
      return no_memory(err);
    }
    (void)tdict_retain(node); /* one that was adopted may be replaced by a later leaf of the source */
  }
  *out = stand;
  return TDICT_OK;
}

/* Puts a leaf of the source into the stand-in. */
static tdict_status put(tdict_tree *stand, const tdict_key *key, int64_t slot, tdict_leaf leaf, tdict_error *err) {
  tdict_leaf held = 0;
  tdict_status status = tdict_map_adopt(stand, leaf, what, &held, err);
  if (status != TDICT_OK) return status;
  if (slot >= 0) {
    tdict_leaf_release(stand->leaves[slot]);
    stand->leaves[slot] = held;
    return TDICT_OK;
  }
  if (tdict_node_add(stand, key->name, key->length, key->hash, held)) return TDICT_OK;
  tdict_leaf_release(held);
  return no_memory(err);
}

/* Merges what the cursor shows; *below is the tree to go on with when both sides have one. */
static tdict_status merge_leaf(merger *m, tdict_leaf leaf, tdict_tree **below, tdict_error *err) {
  const tdict_key *key = tdict_cursor_key(&m->cursor);
  tdict_tree *node = (tdict_tree *)m->cursor.frames[m->cursor.depth - 1].mark;
  tdict_tree *now = tdict_pointers_get(&m->stands, node);
  if (!now) now = node;
  int64_t slot = tdict_keys_find_hashed(now->keys, key->name, key->length, key->hash);
  tdict_leaf there = slot < 0 ? 0 : now->leaves[slot];
  if (tdict_leaf_tree(there) && tdict_leaf_tree(leaf)) {
    *below = tdict_leaf_tree(there);
    return TDICT_OK;
  }
  tdict_status status = stand_in(m, node, &now, err);
  return status == TDICT_OK ? put(now, key, slot, leaf, err) : status;
}

static tdict_status merge(merger *m, tdict_tree *dst, tdict_error *err) {
  tdict_cursor *c = &m->cursor;
  c->frames[0].mark = (size_t)dst;
  for (tdict_leaf leaf; (leaf = tdict_cursor_next(c)) != 0;) {
    tdict_tree *below = NULL;
    tdict_status status = merge_leaf(m, leaf, &below, err);
    if (status != TDICT_OK) {
      char path[PATH_BYTES], deeper[PATH_BYTES];
      tdict_cursor_path(c, NULL, path, sizeof path);
      if (err && err->path[0]) { /* a leaf below one that was adopted */
        snprintf(deeper, sizeof deeper, "%.120s.%.120s", path, err->path);
        return tdict_error_at(err, status, deeper);
      }
      return tdict_error_at(err, status, path);
    }
    if (!below || below == tdict_leaf_tree(leaf)) continue;
    if (!tdict_cursor_enter(c, tdict_leaf_tree(leaf))) return no_memory(err);
    c->frames[c->depth - 1].mark = (size_t)below;
  }
  return TDICT_OK;
}

static void commit(const merger *m, bool good) {
  for (size_t i = 0; i < m->stands.cap; i++) {
    const tdict_pointer_pair *pair = &m->stands.pairs[i];
    if (pair->key && good) tdict_node_swap((tdict_tree *)(uintptr_t)pair->key, pair->value);
  }
  /* Released when all are in place: what was replaced may hold nodes that changed. */
  for (size_t i = 0; i < m->stands.cap; i++) {
    const tdict_pointer_pair *pair = &m->stands.pairs[i];
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
  tdict_pointers_init(&m.stands);
  tdict_status status = merge(&m, dst, err);
  commit(&m, status == TDICT_OK);
  tdict_pointers_reset(&m.stands);
  tdict_cursor_reset(&m.cursor);
  tdict_release(part);
  return status;
}
