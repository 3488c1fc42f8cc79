/* Removes entries by their paths, splits trees by paths, and replaces the contents of a node. The caller
 * owns the results, which share tensors and objects with the sources. Thread rule: as in tdict/keysets.h. */
#include "tdict/keysets.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/ops/map.h"
#include "core/ops/select.h"
#include "core/tree/agree.h"
#include "core/tree/place.h"

/* Removes the entries at all paths from a tree whose nodes only this call holds. Ignores paths that do not exist. */
static tdict_status exclude_paths(const char *what, tdict_tree *made, const char *const *paths, size_t count,
                                  tdict_error *err) {
  tdict_status status = TDICT_OK;
  for (size_t i = 0; i < count && status == TDICT_OK; i++) {
    tdict_place place;
    status = tdict_path_resolve(what, made, paths[i], false, &place, err);
    if (!place.node) continue;
    if (tdict_node_own(place.node)) {
      const tdict_leaf leaf = tdict_place_leaf(&place);
      tdict_node_remove(place.node, (uint32_t)place.slot);
      tdict_leaf_release(leaf); /* never the last reference to a tensor or object: the source holds them too */
    } else {
      status = tdict_fail_memory(err, what, paths[i], "the tree");
    }
    tdict_place_reset(&place);
  }
  return status;
}

/* Removes all child trees without tensors and objects, children before parents. Only this call holds the tree. */
static tdict_status remove_empty_trees(const char *what, tdict_tree *made, tdict_error *err) {
  tdict_cursor cursor;
  tdict_status status = TDICT_OK;
  tdict_cursor_init(&cursor, made, false);
  while (cursor.depth && status == TDICT_OK) {
    tdict_frame *top = &cursor.frames[cursor.depth - 1];
    tdict_tree *below = NULL;
    while (!below && top->slot < top->node->keys->num_slots) below = tdict_leaf_tree(top->node->leaves[top->slot++]);
    /* Visit the child trees of a node before the node itself. */
    if (below) {
      tdict_cursor_descend(&cursor, below, 0);
      continue;
    }
    tdict_tree *visited = top->node;
    cursor.depth--;
    if (!cursor.depth || visited->keys->num_live) continue;
    top = &cursor.frames[cursor.depth - 1];
    if (!tdict_node_own(top->node)) {
      status = tdict_fail_memory(err, what, NULL, "the tree");
      continue;
    }
    /* Keep the slots in place, since the cursor is in the middle of this node. */
    tdict_keys_delete(top->node->keys, top->slot - 1);
    top->node->leaves[top->slot - 1] = 0;
    tdict_release(visited);
  }
  return tdict_cursor_end(&cursor, what, status, err);
}

tdict_status tdict_exclude(const tdict_tree *tree, const char *const *paths, size_t count, tdict_tree **out,
                           tdict_error *err) {
  tdict_tree *made = NULL;
  if (!tree || !out) return tdict_fail_null(err, "exclude", tree ? "out" : "tree");
  tdict_status status = tdict_paths_check("exclude", paths, count, err);
  if (status == TDICT_OK) status = tdict_map_share(tree, "exclude", &made, err);
  if (status == TDICT_OK) status = exclude_paths("exclude", made, paths, count, err);
  return TDICT_HAND_OVER(status, made, out, tdict_release);
}

tdict_status tdict_split_keys(const tdict_tree *tree, const tdict_key_set *sets, size_t num_sets, tdict_tree **trees,
                              size_t *count, tdict_error *err) {
  static const char what[] = "split_keys";
  const char *missing = !tree ? "tree" : !trees ? "trees" : !count ? "count" : num_sets && !sets ? "sets" : NULL;
  if (missing) return tdict_fail_null(err, what, missing);
  size_t num_trees, bytes;
  tdict_tree **made = NULL;
  if (!tdict_add_size(num_sets, 1, &num_trees) || *count < num_trees)
    return tdict_fail(err, TDICT_EINVAL, "%s: trees has room for %zu trees, wanted one more than %zu sets", what,
                      *count, num_sets);
  if (tdict_mul_size(num_trees, sizeof *made, &bytes)) made = calloc(1, bytes);
  if (!made) return tdict_fail_memory(err, what, NULL, "the tree");
  /* Start with a copy of the whole tree as the last result, and remove the paths of each set from this copy. */
  tdict_status status = tdict_map_share(tree, what, &made[num_sets], err);
  for (size_t i = 0; i < num_sets && status == TDICT_OK; i++) {
    const tdict_selection selection = {sets[i].paths, sets[i].count, true};
    status = tdict_select_paths(what, tree, &selection, &made[i], err);
    if (status == TDICT_OK) status = exclude_paths(what, made[num_sets], sets[i].paths, sets[i].count, err);
  }
  if (status == TDICT_OK) status = remove_empty_trees(what, made[num_sets], err);
  if (status == TDICT_OK) {
    memcpy(trees, made, bytes);
    *count = num_trees;
  } else {
    for (size_t i = 0; i < num_trees; i++) tdict_release(made[i]);
  }
  free(made);
  return status;
}

tdict_status tdict_assign(tdict_tree *tree, const tdict_tree *other, tdict_error *err) {
  static const char what[] = "assign";
  tdict_tree *made = NULL;
  if (!tree || !other) return tdict_fail_null(err, what, tree ? "other" : "tree");
  if (tdict_node_is_locked(tree)) return tdict_fail(err, TDICT_ELOCKED, "%s: the tree is locked", what);
  if (tree == other) return TDICT_OK;
  /* `tree` keeps its batch size and device, since its parents depend on them. */
  const tdict_demand demand = tdict_demand_of(tree, what, NULL);
  tdict_status status = tdict_map_share(other, what, &made, err);
  if (status == TDICT_OK) status = tdict_demand_apply_below(&demand, made, false, err);
  if (status == TDICT_OK) tdict_node_swap(tree, made);
  tdict_release(made); /* release last, since the release can run callbacks */
  return status;
}
