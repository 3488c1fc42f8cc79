/* Changes several nodes together, or none of them. The tdict_changes struct owns the replacements. Thread rule: see
 * changes.h. */
#include "core/ops/changes.h"

#include "core/base/error.h"

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

tdict_status tdict_changes_get(tdict_changes *c, tdict_tree *node, tdict_tree **out, tdict_error *err) {
  tdict_tree *made = tdict_pointers_get(&c->replacement, node);
  if (!made) {
    if (tdict_node_is_locked(node))
      return tdict_fail(err, TDICT_ELOCKED, "%s: a tree that must change is locked", c->what);
    made = copy_node_with_leaves(node);
    if (!made || tdict_pointers_add(&c->replacement, node, made) < 0) {
      tdict_release(made);
      return no_memory_for_changes(c, err);
    }
  }
  *out = made;
  return TDICT_OK;
}

tdict_status tdict_changes_end(tdict_changes *c, tdict_status status) {
  const tdict_pointer_pair *pairs = c->replacement.pairs;
  for (size_t i = 0; status == TDICT_OK && i < c->replacement.cap; i++)
    if (pairs[i].key) tdict_node_swap((tdict_tree *)(uintptr_t)pairs[i].key, pairs[i].value);
  /* Release only after all swaps: a release can free nodes and run callbacks, and callbacks must see the changed
   * trees. */
  for (size_t i = 0; i < c->replacement.cap; i++)
    if (pairs[i].key) tdict_release(pairs[i].value);
  tdict_pointers_reset(&c->replacement);
  return status;
}
