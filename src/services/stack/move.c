/* Moves the items of a lazy stack in one transfer, as children of a temporary tree. Threads: tdict/lazy_stack.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/tree/create_from.h"
#include "services/stack/lazy_stack.h"

tdict_status tdict_lazy_stack_to_device_async(tdict_context *context, const tdict_lazy_stack *stack,
                                              tdict_device device, const tdict_transfer_options *options,
                                              tdict_future **out, tdict_error *err) {
  static const char what[] = "lazy_stack_to_device_async";
  tdict_tree *parent;
  tdict_status status = tdict_lazy_stack_check(what, stack, out, err);
  if (status == TDICT_OK) status = tdict_create_numbered(what, stack->items, stack->count, &parent, err);
  if (status != TDICT_OK) return status;
  status = tdict_to_device_async(context, parent, device, options, out, err);
  tdict_release(parent);
  return status;
}

/* Finds the child at the key with index `i`. The key must be the number `i` as decimal text. */
static tdict_status get_child(const char *what, const tdict_tree *tree, size_t i, tdict_tree **out, tdict_error *err) {
  char key[24];
  const tdict_entry entry = tdict_get_entry_at(tree, i);
  snprintf(key, sizeof key, "%zu", i);
  if (strcmp(entry.key, key) != 0)
    return tdict_fail(err, TDICT_ENOTFOUND, "%s: key %zu is '%.80s', wanted '%s'", what, i, entry.key, key);
  if (!entry.tree)
    return tdict_fail_at(err, TDICT_ETYPE, key, "%s: the entry is %s, wanted a tree", what,
                         entry.tensor ? "a tensor" : "an object");
  *out = entry.tree;
  return TDICT_OK;
}

tdict_status tdict_lazy_stack_from_tree(const tdict_tree *tree, tdict_lazy_stack **out, tdict_error *err) {
  static const char what[] = "lazy_stack_from_tree";
  if (!tree || !out) return tdict_fail_null(err, what, tree ? "out" : "tree");
  const size_t count = tdict_num_keys(tree);
  if (count == 0) return tdict_fail(err, TDICT_EINVAL, "%s: the tree has no keys", what);
  tdict_tree **items = malloc(count * sizeof *items);
  if (!items) return tdict_fail_memory(err, what, NULL, "%zu items", count);
  tdict_status status = TDICT_OK;
  for (size_t i = 0; i < count && status == TDICT_OK; i++) status = get_child(what, tree, i, &items[i], err);
  if (status == TDICT_OK) status = tdict_lazy_stack_create(items, count, out, err);
  free(items);
  return status;
}
