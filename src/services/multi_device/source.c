/* Reads the source of a replication and creates its results. See source.h for ownership and threads. */
#include "services/multi_device/source.h"

#include <stdlib.h>

#include "core/base/array.h"
#include "core/base/error.h"

static tdict_status fail_read_memory(tdict_error *err) {
  return tdict_fail(err, TDICT_ENOMEM, "to_devices: no host memory to read the tree");
}

/* Reserves space for more leaves. */
static bool reserve_leaves(tdict_source *s, uint32_t more) {
  if (more > UINT32_MAX / 2 || s->num_leaves > UINT32_MAX / 2 - more) return false;
  return TDICT_RESERVE(s->leaves, s->cap_leaves, (size_t)s->num_leaves + more);
}

/* Adds the leaves from slot top->slot up to the first leaf that is not a tensor, and moves the frame to that leaf. */
static bool add_leaves(tdict_source *s, tdict_frame *top) {
  const tdict_leaf *leaves = top->node->leaves;
  const uint32_t end = top->node->keys->num_slots;
  uint32_t i = top->slot, n = s->num_leaves;
  size_t bytes = 0;
  bool is_suitable = true;
  if (!reserve_leaves(s, end - i)) return false;
  for (; i < end && (!leaves[i] || tdict_leaf_kind(leaves[i]) == TDICT_LEAF_TENSOR); i++) {
    tdict_tensor *t = tdict_leaf_tensor(leaves[i]);
    if (!t) continue;
    is_suitable &= t->storage->device.type == TDICT_DEVICE_CPU && !tdict_storage_is_unloaded(t->storage);
    s->leaves[n++] = t;
    bytes += tdict_tensor_nbytes(t);
  }
  s->num_leaves = n;
  s->bytes += bytes;
  s->is_suitable &= is_suitable;
  top->slot = i;
  return true;
}

tdict_status tdict_source_read(tdict_source *source, const tdict_tree *tree, tdict_error *err) {
  tdict_cursor cursor;
  *source = (tdict_source){.is_suitable = true};
  tdict_cursor_init(&cursor, tree, false);
  bool has_memory = add_leaves(source, &cursor.frames[0]);
  for (tdict_leaf leaf; has_memory && (leaf = tdict_cursor_next(&cursor)) != 0;) {
    tdict_tree *child = tdict_leaf_tree(leaf);
    if (child)
      has_memory = tdict_cursor_enter(&cursor, child);
    else if (tdict_leaf_tensor(leaf))
      cursor.frames[cursor.depth - 1].slot--; /* add_leaves() also reads this leaf */
    else
      source->is_suitable &= tdict_box_has_fixed_elements(tdict_leaf_box(leaf));
    if (has_memory) has_memory = add_leaves(source, &cursor.frames[cursor.depth - 1]);
  }
  tdict_cursor_reset(&cursor);
  source->is_suitable &= source->bytes > 0;
  if (has_memory) return TDICT_OK;
  tdict_source_reset(source);
  return fail_read_memory(err);
}

void tdict_source_reset(tdict_source *source) {
  free(source->leaves);
  source->leaves = NULL;
}

static tdict_status describe(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_made *made,
                             tdict_error *err) {
  (void)map, (void)entry, (void)err;
  tdict_made_of(from, made);
  made->fresh = true;
  return TDICT_OK;
}

tdict_status tdict_leave_unset(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_tensor *made,
                               tdict_error *err) {
  (void)map, (void)entry, (void)from, (void)made, (void)err;
  return TDICT_OK;
}

tdict_status tdict_set_all_devices(tdict_tree *tree, tdict_device device, tdict_error *err) {
  tdict_cursor cursor;
  bool has_memory = true;
  tree->has_device = true;
  tree->device = device;
  tdict_cursor_init(&cursor, tree, false);
  for (tdict_leaf leaf; has_memory && (leaf = tdict_cursor_next(&cursor)) != 0;) {
    tdict_tree *child = tdict_leaf_tree(leaf);
    if (!child) continue;
    child->has_device = true;
    child->device = device;
    has_memory = tdict_cursor_enter(&cursor, child);
  }
  tdict_cursor_reset(&cursor);
  return has_memory ? TDICT_OK : fail_read_memory(err);
}

/* Describes a result, in which some leaf is not empty. Retains the tree. */
static tdict_status describe_replica(tdict_replica *replica, tdict_tree *tree, tdict_error *err) {
  tdict_source leaves;
  tdict_status status = tdict_source_read(&leaves, tree, err);
  if (status != TDICT_OK) return status;
  *replica = (tdict_replica){.tree = tdict_retain(tree), .leaves = leaves.leaves};
  for (uint32_t i = 0; i < leaves.num_leaves && !replica->storage; i++)
    if (leaves.leaves[i]->numel) replica->storage = leaves.leaves[i]->storage;
  return TDICT_OK;
}

tdict_status tdict_replica_create(tdict_replica *replica, const char *what, const tdict_tree *tree,
                                  tdict_memory *memory, tdict_error *err) {
  const tdict_map map = {.what = what,
                         .memory = memory,
                         .describe = describe,
                         .fill = tdict_leave_unset,
                         .describes_shapes = true,
                         .way = TDICT_OBJECT_SHARE};
  tdict_tree *made;
  *replica = (tdict_replica){0};
  tdict_status status = tdict_map_run(&map, tree, &made, err);
  if (status != TDICT_OK) return status;
  status = tdict_set_all_devices(made, memory->device, err);
  if (status == TDICT_OK) status = describe_replica(replica, made, err);
  tdict_release(made);
  return status;
}

void tdict_replica_reset(tdict_replica *replica) {
  if (replica->tree) tdict_release(replica->tree);
  free(replica->leaves);
  *replica = (tdict_replica){0};
}

size_t tdict_replica_offset(const tdict_replica *replica, uint32_t leaf) {
  return (size_t)((uintptr_t)replica->leaves[leaf]->data - (uintptr_t)replica->storage->data);
}

tdict_status tdict_bytes_view(tdict_storage *storage, const void *data, size_t bytes, tdict_tensor **out,
                              tdict_error *err) {
  const int64_t shape[1] = {(int64_t)bytes};
  const tdict_tensor_desc view = {.data = (void *)(uintptr_t)data, .dtype = TDICT_U8, .ndim = 1, .shape = shape};
  return tdict_tensor_over(storage, &view, out, err);
}
