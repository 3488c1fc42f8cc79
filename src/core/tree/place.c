/* Finds the node and slot of a path, and sets leaves there. Borrows the trees. Thread rule: as in tdict/tree.h. */
#include "core/tree/place.h"

#include <stdio.h>

#include "core/base/error.h"
#include "core/tree/suggest.h"
#include "core/tree/text.h"

static tdict_status fail_at_key(const tdict_place *place, tdict_status status, const char *why, tdict_error *err) {
  const tdict_path *path = &place->path;
  const tdict_name *name = &path->name;
  return tdict_fail_at(err, status, path->whole, "%s: '%.*s' %s", path->what,
                       (int)(name->length < 80 ? name->length : 80), name->text, why);
}

static tdict_status fail_through_leaf(const tdict_place *place, tdict_leaf leaf, tdict_error *err) {
  char why[TDICT_TEXT_LEAF_BYTES + 64];
  snprintf(why, sizeof why, "is %s, and the path leads through it: wanted a tree", TDICT_LEAF_TEXT(leaf));
  return fail_at_key(place, TDICT_ETYPE, why, err);
}

/* Returns TDICT_ENOTFOUND. The message lists the keys that are most similar to the missing key. */
static TDICT_COLD tdict_status fail_missing_key(const tdict_place *place, tdict_error *err) {
  char keys[160], why[sizeof keys + 32];
  /* The message has 256 bytes. At most 160 bytes are for the keys, so that the name of the missing key also fits. */
  snprintf(why, sizeof why, "is not a key of the tree%s",
           tdict_suggest(place->node->keys, &place->path.name, keys, sizeof keys));
  return fail_at_key(place, TDICT_ENOTFOUND, why, err);
}

tdict_status tdict_place_find(tdict_place *place, const tdict_tree *td, const char *path, const char *what,
                              tdict_error *err) {
  tdict_status status;
  tdict_path_init(&place->path, path, what);
  place->node = (tdict_tree *)(uintptr_t)td;
  place->slot = -1;
  for (;;) {
    status = tdict_path_next(&place->path, err);
    if (status != TDICT_OK) break;
    place->slot = tdict_keys_find_name(place->node->keys, &place->path.name);
    if (place->path.last) return TDICT_OK;
    tdict_leaf leaf = tdict_place_leaf(place);
    /* There is no tree at this key. Return the error of the rest of the path, or of a tensor or object here. Otherwise
     * the key is missing, and `node` is the deepest node that exists. */
    if (!tdict_leaf_tree(leaf)) {
      status = tdict_path_check_rest(&place->path, err);
      if (status == TDICT_OK && leaf) status = fail_through_leaf(place, leaf, err);
      if (status == TDICT_OK) return TDICT_OK;
      break;
    }
    place->node = tdict_leaf_tree(leaf);
  }
  tdict_path_reset(&place->path);
  return status;
}

tdict_status tdict_place_get(tdict_place *place, const tdict_tree *td, const char *path, const char *what,
                             tdict_error *err) {
  tdict_status status = tdict_place_find(place, td, path, what, err);
  if (status != TDICT_OK || place->slot >= 0) return status;
  /* Finding similar keys takes tens of microseconds, so skip the search if the caller passed no error. */
  status = err ? fail_missing_key(place, err) : TDICT_ENOTFOUND;
  tdict_path_reset(&place->path);
  return status;
}

void tdict_place_reset(tdict_place *place) { tdict_path_reset(&place->path); }

tdict_status tdict_place_check_lock(const tdict_place *place, tdict_error *err) {
  if (!tdict_node_is_locked(place->node)) return TDICT_OK;
  return fail_at_key(place, TDICT_ELOCKED, "cannot be changed: the tree is locked", err);
}

static tdict_status fail_place_memory(const tdict_place *place, tdict_error *err) {
  return tdict_fail_at(err, TDICT_ENOMEM, place->path.whole, "%s: no memory for a key or node", place->path.what);
}

/* Adds the last key to `tail`, with the leaf, or with a new node if keys follow. *below is the new node, or NULL. */
static tdict_status extend_node_chain(tdict_place *place, tdict_tree *tail, tdict_leaf leaf, tdict_tree **below,
                                      tdict_error *err) {
  const tdict_path *path = &place->path;
  tdict_tree *next = path->last ? NULL : tdict_node_create_under(tail);
  if (!path->last && !next) return fail_place_memory(place, err);
  tdict_leaf held = next ? tdict_leaf_of_tree(next) : tdict_leaf_retain(leaf);
  if (!tdict_node_add_name(tail, &path->name, held)) {
    tdict_leaf_release(held);
    return fail_place_memory(place, err);
  }
  *below = next;
  return TDICT_OK;
}

/* Makes a chain of nodes for the keys that follow. The last node holds the leaf. Writes the first node to *out. */
static tdict_status build_node_chain(tdict_place *place, tdict_leaf leaf, tdict_tree **out, tdict_error *err) {
  tdict_tree *top = tdict_node_create_under(place->node);
  if (!top) return fail_place_memory(place, err);
  for (tdict_tree *tail = top; tail;) {
    tdict_status status = tdict_path_next(&place->path, err);
    if (status == TDICT_OK) status = extend_node_chain(place, tail, leaf, &tail, err);
    if (status != TDICT_OK) {
      tdict_release(top);
      return status;
    }
  }
  *out = top;
  return TDICT_OK;
}

tdict_status tdict_place_put(tdict_place *place, tdict_leaf leaf, tdict_leaf *old, tdict_error *err) {
  tdict_tree *node = place->node;
  tdict_path *path = &place->path;
  /* Replace the leaf of an existing key. */
  if (place->slot >= 0) {
    if (!tdict_node_own_leaves(node)) return fail_place_memory(place, err);
    *old = node->leaves[place->slot];
    node->leaves[place->slot] = tdict_leaf_retain(leaf);
    return TDICT_OK;
  }
  /* Make the value of the new key. */
  tdict_leaf held;
  if (path->last) {
    held = tdict_leaf_retain(leaf);
  } else {
    /* Build the whole chain of new nodes before the chain is linked, so that a failure leaves the tree unchanged. */
    tdict_tree *top = NULL;
    const char *begin = path->begin;
    tdict_status status = build_node_chain(place, leaf, &top, err);
    if (status != TDICT_OK) return status;
    held = tdict_leaf_of_tree(top);
    /* Building the chain read the remaining keys. Read the first new key again. */
    path->rest = begin;
    status = tdict_path_next(path, err);
    if (status != TDICT_OK) {
      tdict_leaf_release(held);
      return status;
    }
  }
  /* Link the leaf or the chain. */
  if (!tdict_node_add_name(node, &path->name, held)) {
    tdict_leaf_release(held);
    return fail_place_memory(place, err);
  }
  *old = 0;
  return TDICT_OK;
}

tdict_status tdict_place_set(tdict_place *place, tdict_leaf leaf, tdict_error *err) {
  tdict_leaf old = 0;
  tdict_status status = tdict_place_put(place, leaf, &old, err);
  if (status == TDICT_OK) tdict_leaf_release(old);
  return status;
}

tdict_status tdict_place_add(tdict_tree *td, const char *path, tdict_tensor *tensor, const char *what,
                             tdict_error *err) {
  tdict_place place;
  tdict_leaf old;
  tdict_status status = tdict_place_find(&place, td, path, what, err);
  if (status != TDICT_OK) return status;
  /* A second field with the same path is an error, not a replacement. */
  tdict_leaf there = tdict_place_leaf(&place);
  if (tdict_leaf_tensor(there)) {
    status = tdict_fail_at(err, TDICT_EEXIST, path, "%s: two fields have this path", what);
  } else if (tdict_leaf_tree(there)) {
    status =
        tdict_fail_at(err, TDICT_ETYPE, path, "%s: the path of another field leads through this one's tensor", what);
  } else {
    status = tdict_place_put(&place, tdict_leaf_of_tensor(tensor), &old, err);
  }
  tdict_place_reset(&place);
  return status;
}
