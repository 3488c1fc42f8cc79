/* Changes several nodes together, or none of them. The tdict_changes struct owns the replacements. Thread rule: see
 * changes.h. */
#include "core/ops/changes.h"

#include "core/base/error.h"
#include "core/tree/cursor.h"

static tdict_status no_memory_for_changes(const tdict_changes *c, tdict_error *err) {
  return tdict_fail(err, TDICT_ENOMEM, "%s: no memory for the changed trees", c->what);
}

void tdict_changes_init(tdict_changes *c, const char *what) {
  c->what = what;
  tdict_pointers_init(&c->replacement);
}

/* Copies one node with references to all of its leaves and children. Returns NULL if out of memory. */
static tdict_tree *copy_node_with_leaves(const tdict_tree *node) {
  tdict_tree *copy;
  bool trees;
  if (tdict_node_create_sharing(node, &copy, &trees, NULL) != TDICT_OK) return NULL;
  for (uint32_t i = 0; trees && i < node->keys->num_slots; i++)
    if (tdict_leaf_tree(node->leaves[i])) copy->leaves[i] = tdict_leaf_retain(node->leaves[i]);
  return copy;
}

tdict_status tdict_changes_get(tdict_changes *c, tdict_tree *node, enum tdict_changes_from from, tdict_tree **out,
                               tdict_error *err) {
  tdict_tree *made = tdict_pointers_get(&c->replacement, node);
  if (!made) {
    if (tdict_node_is_locked(node))
      return tdict_fail(err, TDICT_ELOCKED, "%s: a tree that must change is locked", c->what);
    made = from == TDICT_CHANGES_COPY ? copy_node_with_leaves(node) : tdict_node_create_under(node);
    if (!made || tdict_pointers_add(&c->replacement, node, made) < 0) {
      tdict_release(made);
      return no_memory_for_changes(c, err);
    }
  }
  *out = made;
  return TDICT_OK;
}

tdict_tree *tdict_changes_add_node(tdict_changes *c, const tdict_tree *under) {
  tdict_tree *made = tdict_node_create_under(under);
  if (made && tdict_pointers_add(&c->replacement, made, made) >= 0) return made;
  tdict_release(made);
  return NULL;
}

/* Returns the replacement of `node`, or `node` itself if the node has no replacement. */
static tdict_tree *get_replacement_or_self(const tdict_changes *c, tdict_tree *node) {
  tdict_tree *made = tdict_pointers_get(&c->replacement, node);
  return made ? made : node;
}

tdict_status tdict_changes_check_cycle(const tdict_changes *c, tdict_tree *tree, const tdict_tree *under,
                                       tdict_error *err) {
  tdict_cursor cursor;
  /* The cursor cannot skip visited nodes here, because the cursor recognizes only nodes with several references, and a
   * replacement has one reference. So list the visited nodes. */
  tdict_pointers seen;
  tdict_cursor_init(&cursor, get_replacement_or_self(c, tree), false);
  tdict_pointers_init(&seen);
  bool found = get_replacement_or_self(c, tree) == under, ok = true;
  for (tdict_leaf leaf; ok && !found && (leaf = tdict_cursor_next(&cursor)) != 0;) {
    tdict_tree *below = tdict_leaf_tree(leaf);
    if (!below) continue;
    below = get_replacement_or_self(c, below);
    found = below == under;
    int added = tdict_pointers_add(&seen, below, below);
    ok = added == 0 || (added > 0 && tdict_cursor_enter(&cursor, below));
  }
  tdict_cursor_reset(&cursor);
  tdict_pointers_reset(&seen);
  if (!ok) return no_memory_for_changes(c, err);
  if (found) return tdict_fail(err, TDICT_EINVAL, "%s: a tree would contain itself", c->what);
  return TDICT_OK;
}

tdict_status tdict_changes_end(tdict_changes *c, tdict_status status) {
  const tdict_pointer_pair *pairs = c->replacement.pairs;
  for (size_t i = 0; status == TDICT_OK && i < c->replacement.cap; i++)
    if (pairs[i].key && pairs[i].key != pairs[i].value)
      tdict_node_swap((tdict_tree *)(uintptr_t)pairs[i].key, pairs[i].value);
  /* Release only after all swaps: a release can free nodes and run callbacks, and callbacks must see the changed
   * trees. */
  for (size_t i = 0; i < c->replacement.cap; i++)
    if (pairs[i].key && pairs[i].key != pairs[i].value) tdict_release(pairs[i].value);
  tdict_pointers_reset(&c->replacement);
  return status;
}
