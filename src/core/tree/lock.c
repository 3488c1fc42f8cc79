/* Implements the locks of trees. A node is locked if tdict_lock() has locked the node itself or a node above it.
 * `locks_above` counts the slots of locked nodes that hold the node, so a node at several places is counted once per
 * place. The count changes only when a node above becomes locked or unlocked, or is freed. Thread rule: tdict_lock()
 * and tdict_unlock() write the tree. The last release of a locked node, on any thread, lowers the counts of the nodes
 * below this node. */
#include "core/base/error.h"
#include "core/tree/node.h"

void tdict_lock(tdict_tree *tree) {
  if (!tree) return;
  bool was_locked = tdict_node_is_locked(tree);
  tree->locked = true;
  /* If the node was locked before, the nodes below already count its lock. */
  if (was_locked) return;
  tree->pending = NULL;
  /* Count the lock in all children, and go deeper only below nodes that were not locked before. */
  for (tdict_tree *list = tree; list;) {
    tdict_tree *node = list;
    list = node->pending;
    for (uint32_t i = 0; i < node->keys->num_slots; i++) {
      tdict_tree *child = tdict_leaf_tree(node->leaves[i]);
      if (!child) continue;
      bool is_newly_locked =
          atomic_fetch_add_explicit(&child->locks_above, 1, memory_order_relaxed) == 0 && !child->locked;
      if (!is_newly_locked) continue;
      child->pending = list;
      list = child;
    }
  }
}

tdict_status tdict_unlock(tdict_tree *tree, tdict_error *err) {
  if (!tree) return tdict_fail_null(err, "unlock", "tree");
  int32_t above = atomic_load_explicit(&tree->locks_above, memory_order_relaxed);
  if (above > 0)
    return tdict_fail(err, TDICT_ELOCKED,
                      "unlock: the tree is below a locked tree (in %d places); unlock that tree first", (int)above);
  if (!tree->locked) return TDICT_OK;
  tdict_node_clear_lock(tree);
  /* Clear the locks of all trees below too, except trees that another locked tree holds. */
  tdict_node_uncount_lock(tree, true);
  return TDICT_OK;
}

bool tdict_is_locked(const tdict_tree *tree) { return tree && tdict_node_is_locked(tree); }
