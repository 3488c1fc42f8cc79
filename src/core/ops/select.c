/* Selects parts of trees by paths. The caller owns the results, which share leaves with the source. Thread rule: as in
 * tdict/keysets.h. */
#include "core/ops/select.h"

#include <stdlib.h>

#include "core/base/error.h"
#include "core/ops/changes.h"
#include "core/ops/map.h"
#include "tdict/keysets.h"

tdict_status tdict_paths_check(const char *what, const char *const *paths, size_t count, tdict_error *err) {
  if (count && !paths) return tdict_fail(err, TDICT_EINVAL, "%s: paths is NULL", what);
  for (size_t i = 0; i < count; i++)
    if (!paths[i]) return tdict_fail(err, TDICT_EINVAL, "%s: path %zu is NULL", what, i);
  return TDICT_OK;
}

static tdict_status no_memory_to_select(const char *what, tdict_error *err) {
  return tdict_fail(err, TDICT_ENOMEM, "%s: no memory for the tree", what);
}

/* Adds or replaces a key of a node that only this call holds. Takes over the reference to the leaf, also on failure. */
static tdict_status put_selected_leaf(const char *what, tdict_tree *to, const tdict_key *key, int64_t slot,
                                      tdict_leaf leaf, tdict_error *err) {
  if (slot >= 0) {
    if (!tdict_node_own_leaves(to)) {
      tdict_leaf_release(leaf);
      return no_memory_to_select(what, err);
    }
    tdict_leaf_release(to->leaves[slot]);
    to->leaves[slot] = leaf;
    return TDICT_OK;
  }
  if (tdict_node_add(to, key->name, key->length, key->hash, leaf)) return TDICT_OK;
  tdict_leaf_release(leaf);
  return no_memory_to_select(what, err);
}

/* Puts the entry at a path of `td` at the same path of `to`, a tree that only this call holds. The path must exist
 * in `td`. */
static tdict_status copy_path(const char *what, const tdict_tree *td, tdict_tree *to, const char *text,
                              tdict_error *err) {
  tdict_path path;
  tdict_path_init(&path, text, what);
  tdict_status status = tdict_path_next(&path, err);
  while (status == TDICT_OK) {
    int64_t from = tdict_keys_find_name(td->keys, &path.name);
    int64_t slot = tdict_keys_find_name(to->keys, &path.name);
    const tdict_key *key = &td->keys->slots[from];
    tdict_tree *tree = tdict_leaf_tree(td->leaves[from]), *node = NULL;
    /* Copy the nodes of a tree at the end of the path, and share other leaves. */
    if (path.last) {
      tdict_leaf leaf = 0;
      if (tree) status = tdict_map_share(tree, what, &node, err);
      if (status == TDICT_OK) leaf = tree ? tdict_leaf_of_tree(node) : tdict_leaf_retain(td->leaves[from]);
      if (status == TDICT_OK) status = put_selected_leaf(what, to, key, slot, leaf, err);
      break;
    }
    /* Create the child tree, unless an earlier path has created this child tree. */
    if (slot < 0) {
      node = tdict_node_create_under(tree);
      status =
          node ? put_selected_leaf(what, to, key, slot, tdict_leaf_of_tree(node), err) : no_memory_to_select(what, err);
      if (status != TDICT_OK) break;
    } else {
      node = tdict_leaf_tree(to->leaves[slot]);
    }
    td = tree;
    to = node;
    status = tdict_path_next(&path, err);
  }
  tdict_path_reset(&path);
  return status;
}

tdict_status tdict_path_resolve(const char *what, const tdict_tree *td, const char *path, bool strict,
                                tdict_place *place, tdict_error *err) {
  /* If missing paths are ignored, pass NULL for the error: formatting the message would be the main cost. */
  tdict_status status = tdict_place_get(place, td, path, what, strict ? err : NULL);
  const bool is_ignored = !strict && (status == TDICT_ENOTFOUND || status == TDICT_ETYPE);
  /* Report every failure that is not ignored: repeat the search with an error struct. */
  if (!strict && status != TDICT_OK && !is_ignored) status = tdict_place_get(place, td, path, what, err);
  if (status != TDICT_OK) place->node = NULL;
  return is_ignored ? TDICT_OK : status;
}

tdict_status tdict_select_paths(const char *what, const tdict_tree *td, const tdict_selection *selection,
                                tdict_tree **out, tdict_error *err) {
  const char *const *paths = selection->paths;
  const size_t count = selection->count;
  tdict_status status = tdict_paths_check(what, paths, count, err);
  if (status != TDICT_OK) return status;
  tdict_tree *made = tdict_node_create_under(td);
  if (!made) return no_memory_to_select(what, err);
  for (size_t i = 0; i < count && status == TDICT_OK; i++) {
    tdict_place place;
    status = tdict_path_resolve(what, td, paths[i], selection->strict, &place, err);
    if (!place.node) continue;
    tdict_place_reset(&place);
    status = copy_path(what, td, made, paths[i], err);
  }
  if (status != TDICT_OK) {
    tdict_release(made);
    return status;
  }
  *out = made;
  return TDICT_OK;
}

tdict_status tdict_select(const tdict_tree *tree, const char *const *paths, size_t count, bool strict, tdict_tree **out,
                          tdict_error *err) {
  if (!tree || !out) return tdict_fail(err, TDICT_EINVAL, "select: %s is NULL", tree ? "out" : "tree");
  const tdict_selection selection = {paths, count, strict};
  return tdict_select_paths("select", tree, &selection, out, err);
}

/* Puts each key of a path into the replacement of its node. Stops at a tree that is kept whole. The path must exist. */
static tdict_status keep_path(tdict_changes *c, const tdict_pointers *whole_trees, tdict_tree *node, const char *text,
                              tdict_error *err) {
  tdict_path path;
  tdict_path_init(&path, text, c->what);
  tdict_status status = tdict_path_next(&path, err);
  while (status == TDICT_OK) {
    const tdict_leaf leaf = node->leaves[tdict_keys_find_name(node->keys, &path.name)];
    tdict_tree *kept;
    status = tdict_changes_get(c, node, TDICT_CHANGES_EMPTY, &kept, err);
    if (status != TDICT_OK) break;
    if (tdict_keys_find_name(kept->keys, &path.name) < 0) {
      if (!tdict_node_add_name(kept, &path.name, leaf)) {
        status = no_memory_to_select(c->what, err);
        break;
      }
      (void)tdict_leaf_retain(leaf);
    }
    node = tdict_leaf_tree(leaf);
    if (path.last || tdict_pointers_get(whole_trees, node)) break;
    status = tdict_path_next(&path, err);
  }
  tdict_path_reset(&path);
  return status == TDICT_OK ? status : tdict_error_at(err, status, text);
}

/* Sets found[i] for each path that exists, and collects the trees at these paths in `whole_trees`. */
static tdict_status find_paths(const char *what, const tdict_tree *td, const tdict_selection *selection, bool *found,
                               tdict_pointers *whole_trees, tdict_error *err) {
  tdict_status status = TDICT_OK;
  for (size_t i = 0; i < selection->count && status == TDICT_OK; i++) {
    tdict_place place;
    status = tdict_path_resolve(what, td, selection->paths[i], selection->strict, &place, err);
    found[i] = place.node != NULL;
    if (!found[i]) continue;
    tdict_tree *tree = tdict_leaf_tree(tdict_place_leaf(&place));
    if (tree && tdict_pointers_add(whole_trees, tree, tree) < 0) status = no_memory_to_select(what, err);
    tdict_place_reset(&place);
  }
  return status;
}

tdict_status tdict_select_in_place(tdict_tree *tree, const char *const *paths, size_t count, bool strict,
                                   tdict_error *err) {
  static const char what[] = "select_in_place";
  if (!tree) return tdict_fail(err, TDICT_EINVAL, "%s: tree is NULL", what);
  tdict_status status = tdict_paths_check(what, paths, count, err);
  if (status != TDICT_OK) return status;
  const tdict_selection selection = {paths, count, strict};
  tdict_changes changes;
  tdict_pointers whole_trees;
  tdict_tree *root;
  bool *found = calloc(count ? count : 1, sizeof *found);
  if (!found) return no_memory_to_select(what, err);
  tdict_changes_init(&changes, what);
  tdict_pointers_init(&whole_trees);
  /* Find all paths before any key changes, since the tree must not change if a path is missing. */
  status = find_paths(what, tree, &selection, found, &whole_trees, err);
  if (status == TDICT_OK) status = tdict_changes_get(&changes, tree, TDICT_CHANGES_EMPTY, &root, err);
  for (size_t i = 0; i < count && status == TDICT_OK; i++)
    if (found[i]) status = keep_path(&changes, &whole_trees, tree, paths[i], err);
  tdict_pointers_reset(&whole_trees);
  free(found);
  return tdict_changes_end(&changes, status);
}
