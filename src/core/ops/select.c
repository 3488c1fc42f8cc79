/* Selects parts of trees by paths. The caller owns the results, which share leaves with the source. Thread rule: as in
 * tdict/keysets.h. */
#include "core/ops/select.h"

#include "core/base/error.h"
#include "core/ops/map.h"
#include "tdict/keysets.h"

tdict_status tdict_paths_check(const char *what, const char *const *paths, size_t count, tdict_error *err) {
  if (count && !paths) return tdict_fail_null(err, what, "paths");
  for (size_t i = 0; i < count; i++)
    if (!paths[i]) return tdict_fail(err, TDICT_EINVAL, "%s: path %zu is NULL", what, i);
  return TDICT_OK;
}

tdict_status tdict_put_leaf(const char *what, tdict_tree *to, const tdict_name *name, int64_t slot, tdict_leaf leaf,
                            tdict_error *err) {
  if (slot >= 0) {
    if (!tdict_node_own_leaves(to)) {
      tdict_leaf_release(leaf);
      return tdict_fail_memory(err, what, NULL, "the tree");
    }
    tdict_leaf_release(to->leaves[slot]);
    to->leaves[slot] = leaf;
    return TDICT_OK;
  }
  if (tdict_node_add_name(to, name, leaf)) return TDICT_OK;
  tdict_leaf_release(leaf);
  return tdict_fail_memory(err, what, NULL, "the tree");
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
    tdict_tree *tree = tdict_leaf_tree(td->leaves[from]), *node = NULL;
    /* Copy the nodes of a tree at the end of the path, and share other leaves. */
    if (path.last) {
      tdict_leaf leaf = 0;
      if (tree) status = tdict_map_share(tree, what, &node, err);
      if (status == TDICT_OK) leaf = tree ? tdict_leaf_of_tree(node) : tdict_leaf_retain(td->leaves[from]);
      if (status == TDICT_OK) status = tdict_put_leaf(what, to, &path.name, slot, leaf, err);
      break;
    }
    /* Create the child tree, unless an earlier path has created this child tree. */
    if (slot < 0) {
      node = tdict_node_create_under(tree);
      status = node ? tdict_put_leaf(what, to, &path.name, slot, tdict_leaf_of_tree(node), err)
                    : tdict_fail_memory(err, what, NULL, "the tree");
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
  if (!made) return tdict_fail_memory(err, what, NULL, "the tree");
  for (size_t i = 0; i < count && status == TDICT_OK; i++) {
    tdict_place place;
    status = tdict_path_resolve(what, td, paths[i], selection->strict, &place, err);
    if (!place.node) continue;
    tdict_place_reset(&place);
    status = copy_path(what, td, made, paths[i], err);
  }
  return TDICT_HAND_OVER(status, made, out, tdict_release);
}

tdict_status tdict_select(const tdict_tree *tree, const char *const *paths, size_t count, bool strict, tdict_tree **out,
                          tdict_error *err) {
  if (!tree || !out) return tdict_fail_null(err, "select", tree ? "out" : "tree");
  const tdict_selection selection = {paths, count, strict};
  return tdict_select_paths("select", tree, &selection, out, err);
}
