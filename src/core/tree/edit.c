/* Sets, deletes, pops and renames entries of a tree, which owns a reference to each. All that can fail precedes the
 * first change, so a failed call changes nothing. Thread rule: as in tdict/tree.h. */
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/tree/agree.h"
#include "core/tree/place.h"
#include "core/tree/text.h"

/* Adds to the message the name of the function that moves a tensor to the device of the tree. */
static void append_set_to_hint(tdict_error *err) {
  if (!err) return;
  const size_t length = strlen(err->message);
  snprintf(err->message + length, sizeof err->message - length, "; tdict_set_to() moves it");
}

static tdict_status set_tensor_at_place(tdict_place *place, tdict_tensor *tensor, tdict_error *err) {
  tdict_status status = tdict_place_check_lock(place, err);
  if (status != TDICT_OK) return status;
  tdict_demand demand = tdict_demand_of(place->node, place->path.what, place->path.whole);
  status = tdict_agree_tensor(&demand, tensor, place->path.whole, err);
  if (status == TDICT_EWRONGDEVICE) append_set_to_hint(err);
  return status == TDICT_OK ? tdict_place_set(place, tdict_leaf_of_tensor(tensor), err) : status;
}

/* Result of set_tensor_fast(). The tree has changed only if the result is FAST_DONE. */
enum fast_result { FAST_DONE, FAST_NOT_POSSIBLE, FAST_NO_MEMORY };

/* Handles the most common case of tdict_set(): a path without backslashes, on which all trees exist. */
static inline enum fast_result set_tensor_fast(tdict_tree *td, const char *path, tdict_tensor *tensor) {
  /* Find the node. The slow path reports all errors. */
  tdict_name name;
  tdict_tree *node = tdict_place_find_fast(td, path, path + strlen(path), &name);
  if (!node || tdict_node_is_locked(node) || !tdict_node_agrees(node, tensor)) return FAST_NOT_POSSIBLE;
  /* Retain before the stores below: an atomic addition waits until earlier stores have left the store buffer. */
  tdict_leaf leaf = tdict_leaf_retain_inline(tdict_leaf_of_tensor(tensor)), old = 0;
  int64_t slot = tdict_keys_find_name(node->keys, &name);
  bool done = slot < 0 ? tdict_node_add_name(node, &name, leaf) : tdict_node_own_leaves(node);
  if (!done) {
    old = leaf;
  } else if (slot >= 0) {
    old = node->leaves[slot];
    node->leaves[slot] = leaf;
  }
  if (old) tdict_leaf_release(old); /* release last, since the release can run a callback that reads the tree */
  return done ? FAST_DONE : FAST_NO_MEMORY;
}

static TDICT_COLD tdict_status set_tensor_slow(tdict_tree *td, const char *path, tdict_tensor *tensor,
                                               tdict_error *err) {
  if (!td || !path || !tensor) return tdict_fail_null_at(err, "set", path, !td ? "tree" : !path ? "path" : "tensor");
  tdict_place place;
  tdict_status status = tdict_place_find(&place, td, path, "set", err);
  if (status != TDICT_OK) return status;
  status = set_tensor_at_place(&place, tensor, err);
  tdict_place_reset(&place);
  return status;
}

tdict_status tdict_set(tdict_tree *tree, const char *path, tdict_tensor *tensor, tdict_error *err) {
  const enum fast_result result = tree && path && tensor ? set_tensor_fast(tree, path, tensor) : FAST_NOT_POSSIBLE;
  if (result == FAST_DONE) return TDICT_OK;
  if (result == FAST_NOT_POSSIBLE) return set_tensor_slow(tree, path, tensor, err);
  return tdict_fail_at(err, TDICT_ENOMEM, path, "set: no memory for a key");
}

/* Writes to *out a new reference to the tree to store: `child` itself, or a copy of `child` that meets the demand. */
static tdict_status adopt_child(const tdict_place *place, tdict_tree *child, tdict_tree **out, tdict_error *err) {
  const tdict_path *path = &place->path;
  /* Check for a cycle first: a tree that contains itself would never be released. */
  tdict_status status = tdict_check_cycle(child, place->node, path->what, path->whole, err);
  if (status != TDICT_OK) return status;
  tdict_demand demand = tdict_demand_of(place->node, path->what, path->whole);
  return tdict_agree_adopt(&demand, child, out, err);
}

static tdict_status set_child_at_place(tdict_place *place, tdict_tree *child, tdict_error *err) {
  tdict_tree *adopted = NULL;
  tdict_status status = tdict_place_check_lock(place, err);
  if (status == TDICT_OK) status = adopt_child(place, child, &adopted, err);
  if (status != TDICT_OK) return status;
  /* The tree adds a reference, so the reference of this call is dropped below in either case. */
  status = tdict_place_set(place, tdict_leaf_of_tree(adopted), err);
  tdict_release(adopted);
  return status;
}

tdict_status tdict_set_tree(tdict_tree *tree, const char *path, tdict_tree *child, tdict_error *err) {
  if (!tree || !path || !child)
    return tdict_fail_null_at(err, "set_tree", path, !tree ? "tree" : !path ? "path" : "child");
  tdict_place place;
  tdict_status status = tdict_place_find(&place, tree, path, "set_tree", err);
  if (status != TDICT_OK) return status;
  status = set_child_at_place(&place, child, err);
  tdict_place_reset(&place);
  return status;
}

enum { ANY_KIND = -1 };

/* Makes the key table and the leaves of the node private, because the caller is about to change them. */
static tdict_status own_keys_and_leaves(const tdict_place *place, tdict_error *err) {
  if (tdict_node_own(place->node)) return TDICT_OK;
  return tdict_fail_at(err, TDICT_ENOMEM, place->path.whole, "%s: no memory for a table of %zu keys", place->path.what,
                       tdict_num_keys(place->node));
}

/* Removes the leaf at a path, of `kind` unless ANY_KIND. The caller takes over the tree's reference. */
static tdict_status remove_leaf(tdict_tree *td, const char *path, const char *what, int kind, tdict_leaf *out,
                                tdict_error *err) {
  if (!td || !path) return tdict_fail_null(err, what, td ? "path" : "tree");
  tdict_place place;
  tdict_status status = tdict_place_get(&place, td, path, what, err);
  if (status != TDICT_OK) return status;
  if (kind != ANY_KIND) status = tdict_leaf_check(tdict_place_leaf(&place), kind, what, path, err);
  if (status == TDICT_OK) status = tdict_place_check_lock(&place, err);
  if (status == TDICT_OK) status = own_keys_and_leaves(&place, err);
  if (status == TDICT_OK) {
    /* From here on nothing can fail. */
    *out = tdict_place_leaf(&place);
    tdict_node_remove(place.node, (uint32_t)place.slot);
  }
  tdict_place_reset(&place);
  return status;
}

tdict_status tdict_delete(tdict_tree *tree, const char *path, tdict_error *err) {
  tdict_leaf leaf = 0;
  tdict_status status = remove_leaf(tree, path, "delete", ANY_KIND, &leaf, err);
  if (status == TDICT_OK) tdict_leaf_release(leaf);
  return status;
}

tdict_status tdict_pop(tdict_tree *tree, const char *path, tdict_tensor **out, tdict_error *err) {
  tdict_leaf leaf = 0;
  if (!out) return tdict_fail_null(err, "pop", "out");
  tdict_status status = remove_leaf(tree, path, "pop", TDICT_LEAF_TENSOR, &leaf, err);
  if (status == TDICT_OK) *out = tdict_leaf_tensor(leaf);
  return status;
}

tdict_status tdict_pop_tree(tdict_tree *tree, const char *path, tdict_tree **out, tdict_error *err) {
  tdict_leaf leaf = 0;
  if (!out) return tdict_fail_null(err, "pop_tree", "out");
  tdict_status status = remove_leaf(tree, path, "pop_tree", TDICT_LEAF_TREE, &leaf, err);
  if (status == TDICT_OK) *out = tdict_leaf_tree(leaf);
  return status;
}

/* Renames a slot within one node. An entry that has the new name is removed and released. */
static tdict_status rename_slot(const tdict_place *from, const tdict_place *to, tdict_error *err) {
  tdict_tree *node = from->node;
  uint32_t slot = (uint32_t)from->slot;
  tdict_status status = own_keys_and_leaves(from, err);
  if (status != TDICT_OK) return status;
  if (to->slot < 0) {
    if (tdict_keys_rename(node->keys, slot, &to->path.name)) return TDICT_OK;
    return tdict_fail_at(err, TDICT_ENOMEM, to->path.whole, "rename: no memory for a key");
  }
  /* The new name is in use: move the name to `slot`, delete its old slot, and release the entry of the old slot. */
  tdict_leaf old = tdict_place_leaf(to);
  tdict_keys_take_name(node->keys, slot, (uint32_t)to->slot);
  node->leaves[to->slot] = 0;
  tdict_node_compact(node);
  tdict_leaf_release(old);
  return TDICT_OK;
}

/* Moves a leaf to another node. If the leaf is a tree that does not meet the demand of that node, a copy is moved. */
static tdict_status move_leaf_to_node(const tdict_place *from, tdict_place *to, tdict_error *err) {
  tdict_leaf leaf = tdict_place_leaf(from), moved = leaf, old = 0;
  tdict_tree *adopted = NULL;
  const tdict_demand demand = tdict_demand_of(to->node, "rename", to->path.whole);
  tdict_status status = tdict_agree_leaf(&demand, leaf, to->path.whole, err);
  if (tdict_leaf_tree(leaf)) {
    status = adopt_child(to, tdict_leaf_tree(leaf), &adopted, err);
    if (status == TDICT_OK) moved = tdict_leaf_of_tree(adopted);
  }
  /* Prepare the removal before the insertion, so that only the insertion can still fail. */
  if (status == TDICT_OK) status = own_keys_and_leaves(from, err);
  if (status == TDICT_OK) status = tdict_place_put(to, moved, &old, err);
  if (status == TDICT_OK) {
    tdict_node_remove(from->node, (uint32_t)from->slot);
    tdict_leaf_release(leaf);
    tdict_leaf_release(old); /* release last, since `old` can hold the last reference to the source node of the leaf */
  }
  tdict_release(adopted);
  return status;
}

/* True if the path `to` leads through the entry at `from`, which would then be below itself. */
static bool passes_through_entry(const tdict_tree *td, const char *to, const tdict_place *from) {
  tdict_path path;
  bool through = false;
  tdict_path_init(&path, to, "rename");
  while (!through && tdict_path_next(&path, NULL) == TDICT_OK && !path.last) {
    int64_t slot = tdict_keys_find_name(td->keys, &path.name);
    if (slot < 0) break;
    through = td == from->node && slot == from->slot;
    td = tdict_leaf_tree(td->leaves[slot]);
    if (!td) break;
  }
  tdict_path_reset(&path);
  return through;
}

static tdict_status rename_place(const tdict_place *from, tdict_place *to, bool safe, tdict_error *err) {
  tdict_status status = tdict_place_check_lock(from, err);
  if (status == TDICT_OK) status = tdict_place_check_lock(to, err);
  if (status != TDICT_OK) return status;
  /* Renaming to the same path succeeds, even if `safe` is true. */
  bool same_node = from->node == to->node && to->path.last;
  if (same_node && from->slot == to->slot) return TDICT_OK;
  if (safe && to->slot >= 0)
    return tdict_fail_at(err, TDICT_EEXIST, to->path.whole, "rename: the new path is taken, and safe is true");
  return same_node ? rename_slot(from, to, err) : move_leaf_to_node(from, to, err);
}

tdict_status tdict_rename(tdict_tree *tree, const char *from, const char *to, bool safe, tdict_error *err) {
  if (!tree || !from || !to) return tdict_fail_null(err, "rename", !tree ? "tree" : !from ? "from" : "to");
  tdict_place source, target;
  tdict_status status = tdict_place_get(&source, tree, from, "rename", err);
  if (status != TDICT_OK) return status;
  /* Return an error if the entry would be moved below itself. */
  if (passes_through_entry(tree, to, &source)) {
    tdict_place_reset(&source);
    return tdict_fail_at(err, TDICT_EINVAL, to, "rename: the new path is below the old one");
  }
  /* Find the new place, which need not exist yet. */
  status = tdict_place_find(&target, tree, to, "rename", err);
  if (status == TDICT_OK) {
    status = rename_place(&source, &target, safe, err);
    tdict_place_reset(&target);
  }
  tdict_place_reset(&source);
  return status;
}
