/* Clones trees, with shared or copied elements. Results are owned by the caller.
 * Thread rule: as in tdict/clone.h. */
#include "tdict/clone.h"

#include "base/error.h"
#include "ops/map.h"

tdict_status tdict_clone(const tdict_tree *tree, tdict_tree **out, tdict_error *err) {
  if (!tree || !out) return tdict_fail(err, TDICT_EINVAL, "clone: %s is NULL", tree ? "out" : "tree");
  return tdict_map_share(tree, "clone", out, err);
}

/* Describes a new tensor of the same shape. tdict_map_run() calls this function for every tensor. */
static tdict_status describe_clone(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_made *made,
                                   tdict_error *err) {
  (void)map, (void)entry, (void)err;
  tdict_made_of(from, made);
  made->fresh = true;
  return TDICT_OK;
}

static tdict_status fill_clone(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_tensor *made,
                               tdict_error *err) {
  (void)map, (void)entry;
  return tdict_tensor_copy(made, from, err);
}

static tdict_status clone_object(const tdict_map *map, size_t entry, tdict_box *from, tdict_box **out,
                                 tdict_error *err) {
  (void)map, (void)entry;
  return tdict_box_clone(from, out, err);
}

tdict_status tdict_clone_deep(const tdict_tree *tree, tdict_memory *memory, tdict_tree **out, tdict_error *err) {
  if (!tree || !out) return tdict_fail(err, TDICT_EINVAL, "clone_deep: %s is NULL", tree ? "out" : "tree");
  /* batch_in and batch_out are 0: no batch dimension changes, so the tensors of objects need not begin with the batch
   * size. */
  const tdict_map map = {.what = "clone_deep",
                         .drops_locks = true,
                         .memory = memory,
                         .describe = describe_clone,
                         .fill = fill_clone,
                         .way = TDICT_OBJECT_CLONE,
                         .object = clone_object};
  return tdict_map_run(&map, tree, out, err);
}
