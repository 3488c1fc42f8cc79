/* Copies of trees. Results belong to the caller. Thread rule: as in tdict/clone.h. */
#include "tdict/clone.h"

#include "base/error.h"
#include "ops/map.h"

tdict_status tdict_clone(const tdict_tree *td, tdict_tree **out, tdict_error *err) {
  if (!td || !out) return tdict_fail(err, TDICT_EINVAL, "clone: %s is NULL", td ? "out" : "td");
  return tdict_map_share(td, "clone", out, err);
}

static tdict_status describe(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_made *made,
                             tdict_error *err) {
  (void)map, (void)entry, (void)err;
  tdict_made_of(from, made);
  made->fresh = true;
  return TDICT_OK;
}

static tdict_status fill(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_tensor *made,
                         tdict_error *err) {
  (void)map, (void)entry;
  return tdict_tensor_copy(made, from, err);
}

static tdict_status clone_object(const tdict_map *map, size_t entry, tdict_box *from, tdict_box **out,
                                 tdict_error *err) {
  (void)map, (void)entry;
  return tdict_box_clone(from, out, err);
}

tdict_status tdict_clone_deep(const tdict_tree *td, tdict_memory *memory, tdict_tree **out, tdict_error *err) {
  if (!td || !out) return tdict_fail(err, TDICT_EINVAL, "clone_deep: %s is NULL", td ? "out" : "td");
  /* No batch dimension changes, so none is asked of objects. */
  const tdict_map map = {.what = "clone_deep",
                         .unlocked = true,
                         .memory = memory,
                         .describe = describe,
                         .fill = fill,
                         .way = TDICT_WAY_CLONE,
                         .object = clone_object};
  return tdict_map_run(&map, td, out, err);
}
