/* Flattens the objects of a source and of its destination. See flatten.h for ownership and threads. */
#include "engine/plan/flatten.h"

#include "core/base/error.h"

tdict_status tdict_flatten_object(const tdict_box *box, tdict_tree **out, tdict_error *err) {
  tdict_tree *flat = NULL;
  tdict_error hook_error = {0};
  /* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): the step was planned for a hook that the type has */
  tdict_status status = TDICT_HOOK_OF(box->type, flatten)(box->self, &flat, &hook_error);
  status = tdict_hook_finish(box->type, "flatten", status, flat, &hook_error, err);
  if (status == TDICT_OK) *out = flat;
  return status;
}

tdict_status tdict_unflatten_object(tdict_box *box, const tdict_tree *tree, tdict_box **out, tdict_error *err) {
  void *returned = NULL;
  tdict_error hook_error = {0};
  /* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): a type with flatten has unflatten, too */
  tdict_status status = TDICT_HOOK_OF(box->type, unflatten)(box->self, tree, &returned, &hook_error);
  status = tdict_hook_finish(box->type, "unflatten", status, returned, &hook_error, err);
  return status == TDICT_OK ? tdict_box_of(box, returned, out, err) : status;
}

tdict_status tdict_flatten_check_pair(const tdict_box *box, tdict_leaf other, tdict_error *err) {
  const tdict_box *matching = tdict_leaf_box(other);
  if (matching && matching->type == box->type) return TDICT_OK;
  return tdict_fail(err, TDICT_ETYPE,
                    "transfer_into: an object of type %.60s in the source, %s%.60s in the destination", box->type->name,
                    matching ? "one of type " : "none", matching ? matching->type->name : "");
}

tdict_status tdict_flatten_pair(const tdict_box *box, tdict_leaf other, tdict_tree **flat, tdict_tree **other_flat,
                                tdict_error *err) {
  const tdict_builtin *builtin = tdict_builtin_of(box->type);
  const tdict_box *matching = tdict_leaf_box(other);
  tdict_tree *trees[2] = {NULL, NULL};
  if (!builtin || !builtin->pair || !matching || matching->type != box->type) {
    tdict_status status = tdict_flatten_object(box, flat, err);
    if (status == TDICT_OK) status = tdict_flatten_check_pair(box, other, err);
    return status == TDICT_OK ? tdict_flatten_object(matching, other_flat, err) : status;
  }
  tdict_status status = builtin->pair(matching->self, NULL, tdict_leaf_of_box((tdict_box *)(uintptr_t)box), trees, err);
  if (status != TDICT_OK) return status;
  *other_flat = trees[0];
  *flat = trees[1];
  return TDICT_OK;
}
