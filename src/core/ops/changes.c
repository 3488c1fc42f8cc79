/* Changes several nodes together, or none. tdict_changes owns the replacements. Thread rule: see changes.h. */
#include "core/ops/changes.h"

#include "core/base/error.h"

void tdict_changes_init(tdict_changes *c, const char *what) {
  c->what = what;
  tdict_pointers_init(&c->replacement);
}

tdict_status tdict_changes_get(tdict_changes *c, tdict_tree *node, tdict_tree **out, tdict_error *err) {
  tdict_tree *made = tdict_pointers_get(&c->replacement, node);
  if (!made) {
    if (tdict_node_is_locked(node))
      return tdict_fail(err, TDICT_ELOCKED, "%s: a tree that must change is locked", c->what);
    /* The leaves are copied and not shared, because most callers change several of them. */
    if (tdict_node_create_like(node, &made, NULL) != TDICT_OK)
      return tdict_fail_memory(err, c->what, NULL, "the changed trees");
    for (uint32_t i = 0; i < node->keys->num_slots; i++) made->leaves[i] = tdict_leaf_retain_inline(node->leaves[i]);
    if (tdict_pointers_add(&c->replacement, node, made) < 0) {
      tdict_release(made);
      return tdict_fail_memory(err, c->what, NULL, "the changed trees");
    }
    (void)tdict_retain(node); /* a later change can replace the last other reference to this node */
  }
  *out = made;
  return TDICT_OK;
}

tdict_status tdict_changes_end(tdict_changes *c, tdict_status status) {
  const tdict_pointer_pair *pairs = c->replacement.pairs;
  for (size_t i = 0; status == TDICT_OK && i < c->replacement.cap; i++)
    if (pairs[i].key) tdict_node_swap((tdict_tree *)(uintptr_t)pairs[i].key, pairs[i].value);
  /* Release after all swaps: a release can run callbacks, which must see the changed trees. */
  for (size_t i = 0; i < c->replacement.cap; i++) {
    if (!pairs[i].key) continue;
    tdict_release(pairs[i].value);
    tdict_release((tdict_tree *)(uintptr_t)pairs[i].key);
  }
  tdict_pointers_reset(&c->replacement);
  return status;
}
