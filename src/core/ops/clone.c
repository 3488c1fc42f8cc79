/* Clones, consolidates and makes trees contiguous. The caller owns the results. Thread rule: as in tdict/clone.h. */
#include "core/ops/clone.h"

#include <string.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/memory/run.h"
#include "core/ops/map.h"
#include "tdict/clone.h"

enum { LEAF_ALIGNMENT = 256 };

tdict_status tdict_clone(const tdict_tree *tree, tdict_tree **out, tdict_error *err) {
  if (!tree || !out) return tdict_fail_null(err, "clone", tree ? "out" : "tree");
  return tdict_map_share(tree, "clone", out, err);
}

static tdict_status fill_clone(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_tensor *made,
                               tdict_error *err) {
  (void)entry;
  return tdict_moves_copy(map->moves, made, from, err);
}

tdict_status tdict_clone_deep(const tdict_tree *tree, const tdict_run *run, tdict_tree **out, tdict_error *err) {
  tdict_run r;
  if (!tree || !out) return tdict_fail_null(err, "clone_deep", tree ? "out" : "tree");
  tdict_status status = tdict_run_read(&r, run, TDICT_USES_STREAM | TDICT_USES_MEMORY, "clone_deep", err);
  if (status != TDICT_OK) return status;
  tdict_moves moves = {.what = "clone_deep", .stream = tdict_run_stream(&r)};
  /* No batch dimension changes, so the tensors of objects need not begin with the batch size. */
  const tdict_map map = {.what = "clone_deep",
                         .drops_locks = true,
                         .memory = r.memory,
                         .describe = tdict_map_describe_new,
                         .fill = fill_clone,
                         .describes_shapes = true,
                         .moves = &moves,
                         .way = TDICT_OBJECT_CLONE};
  return tdict_map_run(&map, tree, out, err);
}

static bool is_not_contiguous(const tdict_map *map, size_t tensor, const tdict_tensor *from) {
  (void)map, (void)tensor;
  return !tdict_tensor_is_contiguous(from);
}

tdict_status tdict_contiguous(const tdict_tree *tree, const tdict_run *run, tdict_tree **out, tdict_error *err) {
  tdict_run r;
  if (!tree || !out) return tdict_fail_null(err, "contiguous", tree ? "out" : "tree");
  tdict_status status = tdict_run_read(&r, run, TDICT_USES_STREAM, "contiguous", err);
  if (status != TDICT_OK) return status;
  tdict_moves moves = {.what = "contiguous", .stream = tdict_run_stream(&r)};
  const tdict_map map = {.what = "contiguous",
                         .drops_locks = true,
                         .changes = is_not_contiguous,
                         .describe = tdict_map_describe_new,
                         .fill = fill_clone,
                         .describes_shapes = true,
                         .moves = &moves,
                         .way = TDICT_OBJECT_ELEMENTS,
                         .keeps_bare = true};
  return tdict_map_run(&map, tree, out, err);
}

/* Copies the elements, and writes zeros after them, so that no padding holds old bytes of the process. */
static tdict_status fill_consolidated(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_tensor *made,
                                      tdict_error *err) {
  (void)entry;
  const size_t bytes = tdict_tensor_nbytes(made), padding = tdict_align(bytes, LEAF_ALIGNMENT) - bytes;
  char *end = (char *)made->data + bytes;
  tdict_memory *memory = made->storage->memory;
  tdict_status status = TDICT_OK;
  if (memory && memory->ops->fill)
    status = padding ? memory->ops->fill(memory, end, 0, padding, err) : TDICT_OK;
  else
    memset(end, 0, padding);
  return status == TDICT_OK ? tdict_moves_copy(map->moves, made, from, err) : status;
}

/* Counts the tensors. Returns TDICT_ENOTSUP, with the path, for an object other than text, numbers and JSON. */
static tdict_status count_tensors(const tdict_tree *tree, size_t *out, tdict_error *err) {
  tdict_cursor cursor;
  tdict_status status = TDICT_OK;
  size_t count = 0;
  tdict_cursor_init(&cursor, tree, false);
  for (tdict_leaf leaf; status == TDICT_OK && (leaf = tdict_cursor_next_leaf(&cursor)) != 0;) {
    const tdict_box *box = tdict_leaf_box(leaf);
    count += !box;
    if (!box || tdict_box_has_fixed_elements(box)) continue;
    status = tdict_fail(err, TDICT_ENOTSUP,
                        "consolidate: an object of type %.60s, wanted tensors, trees, text, numbers and JSON only",
                        box->type->name);
    tdict_cursor_fail(&cursor, NULL, status, err);
  }
  status = tdict_cursor_end(&cursor, "consolidate", status, err);
  if (status == TDICT_OK) *out = count;
  return status;
}

/* Returns a new reference to the one storage of all tensors of a tree, or to a new storage without bytes. */
static tdict_status find_storage(const tdict_tree *tree, tdict_memory *memory, tdict_storage **out, tdict_error *err) {
  tdict_cursor cursor;
  const tdict_tensor *first = NULL;
  tdict_cursor_init(&cursor, tree, false);
  for (tdict_leaf leaf; !first && (leaf = tdict_cursor_next_leaf(&cursor)) != 0;) first = tdict_leaf_tensor(leaf);
  tdict_status status = tdict_cursor_end(&cursor, "consolidate", TDICT_OK, err);
  if (status != TDICT_OK) return status;
  if (!first) return tdict_storage_create(memory, 0, false, out, err);
  *out = tdict_storage_retain(first->storage);
  return TDICT_OK;
}

tdict_status tdict_make_consolidated(tdict_tree *tree, size_t num_tensors, tdict_storage *storage, tdict_error *err) {
  tdict_consolidated *made;
  tdict_status status = tdict_consolidated_create(num_tensors, storage, &made, err);
  if (status != TDICT_OK) return status;
  tdict_cursor cursor;
  tdict_cursor_init(&cursor, tree, false);
  size_t begin = 0, n = 0;
  for (tdict_leaf leaf; (leaf = tdict_cursor_next_leaf(&cursor)) != 0;) {
    tdict_tensor *tensor = tdict_leaf_tensor(leaf);
    if (!tensor) {
      made->layout->has_objects = true;
      continue;
    }
    made->layout->leaves[n++] = (tdict_leaf_span){begin, tdict_tensor_nbytes(tensor), tensor->dtype};
    made->layout->num_dims += (size_t)tensor->ndim;
    begin += tdict_align(tdict_tensor_nbytes(tensor), LEAF_ALIGNMENT);
  }
  status = tdict_cursor_end(&cursor, "consolidate", status, err);
  if (status != TDICT_OK) {
    tdict_consolidated_release(made);
    return status;
  }
  tree->consolidated = made;
  tdict_lock(tree);
  return TDICT_OK;
}

tdict_status tdict_consolidate(const tdict_tree *tree, tdict_memory *memory, tdict_tree **out, tdict_error *err) {
  if (!tree || !out) return tdict_fail_null(err, "consolidate", tree ? "out" : "tree");
  tdict_moves moves = {.what = "consolidate"};
  const tdict_map map = {.what = "consolidate",
                         .drops_locks = true,
                         .memory = memory,
                         .one_memory = true,
                         .describe = tdict_map_describe_new,
                         .fill = fill_consolidated,
                         .describes_shapes = true,
                         .moves = &moves,
                         .way = TDICT_OBJECT_SHARE};
  tdict_tree *made = NULL;
  tdict_storage *storage = NULL;
  size_t num_tensors = 0;
  tdict_status status = count_tensors(tree, &num_tensors, err);
  if (status == TDICT_OK) status = tdict_map_run(&map, tree, &made, err);
  if (status == TDICT_OK) status = find_storage(made, memory, &storage, err);
  if (status == TDICT_OK) status = tdict_make_consolidated(made, num_tensors, storage, err);
  tdict_storage_release(storage);
  return TDICT_HAND_OVER(status, made, out, tdict_release);
}

bool tdict_is_consolidated(const tdict_tree *tree) { return tree && tree->consolidated; }

tdict_status tdict_consolidated_bytes(const tdict_tree *tree, tdict_tensor **out, tdict_error *err) {
  if (!tree || !out) return tdict_fail_null(err, "consolidated_bytes", tree ? "out" : "tree");
  if (!tree->consolidated)
    return tdict_fail(err, TDICT_EINVAL,
                      "consolidated_bytes: the tree is not consolidated: call tdict_consolidate() first");
  *out = tdict_tensor_retain(tree->consolidated->bytes);
  return TDICT_OK;
}
