/* The tree that a transfer gives: the source's nodes with leaves of its own, made at once from one slab. */
#include "base/error.h"
#include "transfer/plan.h"
#include "tree/cursor.h"

/* What a build works with; lives for one call. */
typedef struct builder {
  const tdict_plan *plan; /* NULL: every leaf is the source's */
  tdict_slab *slab;
  const tdict_device *device;
  uint32_t leaf;
} builder;

static tdict_status no_memory(tdict_error *err) {
  return tdict_fail(err, TDICT_ENOMEM, "transfer: no host memory for its result");
}

static tdict_tensor *make_leaf(builder *b, tdict_tensor *src) {
  uint32_t place = b->plan ? b->plan->item_of_leaf[b->leaf++] : TDICT_SHARED;
  if (place == TDICT_SHARED) return tdict_tensor_retain(src);
  return tdict_slab_add(b->slab, src->dtype, src->ndim, src->dims, b->plan->items[place].offset);
}

static tdict_status make_node(const builder *b, const tdict_tree *like, tdict_tree **out, tdict_error *err) {
  tdict_status status = tdict_node_like(like, out, err);
  if (status == TDICT_OK && b->device) {
    (*out)->has_device = true;
    (*out)->device = *b->device;
  }
  return status;
}

static tdict_status fill(builder *b, const tdict_tree *src, tdict_tree *result, tdict_error *err) {
  tdict_cursor cursor;
  tdict_cursor_init(&cursor, src, false);
  cursor.frames[0].mark = (size_t)(uintptr_t)result;
  tdict_status status = TDICT_OK;
  tdict_leaf leaf;
  while (status == TDICT_OK && (leaf = tdict_cursor_next(&cursor)) != 0) {
    const tdict_frame *top = &cursor.frames[cursor.depth - 1];
    tdict_leaf *place = &((tdict_tree *)top->mark)->leaves[top->slot - 1];
    tdict_tensor *t = tdict_leaf_tensor(leaf);
    if (t) {
      *place = tdict_leaf_of_tensor(make_leaf(b, t));
      continue;
    }
    tdict_tree *child;
    status = make_node(b, tdict_leaf_tree(leaf), &child, err);
    if (status != TDICT_OK) break;
    *place = tdict_leaf_of_tree(child);
    if (!tdict_cursor_enter(&cursor, tdict_leaf_tree(leaf))) status = no_memory(err);
    else cursor.frames[cursor.depth - 1].mark = (size_t)(uintptr_t)child;
  }
  tdict_cursor_reset(&cursor);
  return status;
}

/* Locks the nodes of the result whose originals are locked by a call of their own. */
static tdict_status lock_like(const tdict_tree *src, tdict_tree *result, tdict_error *err) {
  if (tdict_node_is_locked(src)) {
    tdict_lock(result);
    return TDICT_OK;
  }
  tdict_cursor cursor;
  tdict_cursor_init(&cursor, src, false);
  cursor.frames[0].mark = (size_t)(uintptr_t)result;
  tdict_status status = TDICT_OK;
  tdict_leaf leaf;
  while (status == TDICT_OK && (leaf = tdict_cursor_next(&cursor)) != 0) {
    tdict_tree *child = tdict_leaf_tree(leaf);
    if (!child) continue;
    const tdict_frame *top = &cursor.frames[cursor.depth - 1];
    tdict_tree *other = tdict_leaf_tree(((tdict_tree *)top->mark)->leaves[top->slot - 1]);
    if (tdict_node_is_locked(child)) tdict_lock(other);
    else if (!tdict_cursor_enter(&cursor, child)) status = no_memory(err);
    else cursor.frames[cursor.depth - 1].mark = (size_t)(uintptr_t)other;
  }
  tdict_cursor_reset(&cursor);
  return status;
}

static tdict_status make_slab(builder *b, const tdict_tree *src, tdict_storage *arena, tdict_error *err) {
  size_t num_tensors = 0, num_dims = 0;
  uint32_t n = 0;
  tdict_cursor cursor;
  tdict_cursor_init(&cursor, src, false);
  tdict_leaf leaf;
  bool ok = true;
  while (ok && (leaf = tdict_cursor_next(&cursor)) != 0) {
    const tdict_tensor *t = tdict_leaf_tensor(leaf);
    if (!t) {
      ok = tdict_cursor_enter(&cursor, tdict_leaf_tree(leaf));
    } else if (b->plan->item_of_leaf[n++] != TDICT_SHARED) {
      num_tensors++;
      num_dims += (size_t)t->ndim;
    }
  }
  tdict_cursor_reset(&cursor);
  if (!ok) return no_memory(err);
  return num_tensors ? tdict_slab_create(num_tensors, num_dims, arena, &b->slab, err) : TDICT_OK;
}

static tdict_status build(builder *b, const tdict_tree *src, tdict_tree **out, tdict_error *err) {
  tdict_tree *result;
  tdict_status status = make_node(b, src, &result, err);
  if (status != TDICT_OK) return status;
  status = fill(b, src, result, err);
  if (status == TDICT_OK && b->plan) status = lock_like(src, result, err);
  if (status != TDICT_OK) {
    tdict_release(result);
    return status;
  }
  *out = result;
  return TDICT_OK;
}

tdict_status tdict_result_build(const tdict_plan *plan, const tdict_tree *src, tdict_storage *arena,
                                const tdict_device *device, tdict_tree **out, tdict_error *err) {
  builder b = {.plan = plan, .device = device};
  tdict_status status = make_slab(&b, src, arena, err);
  if (status != TDICT_OK) return status;
  status = build(&b, src, out, err);
  if (b.slab) tdict_slab_release(b.slab, 1);
  return status;
}

tdict_status tdict_result_mirror(const tdict_tree *src, tdict_tree **out, tdict_error *err) {
  builder b = {0};
  return build(&b, src, out, err);
}

void tdict_leaf_path(const tdict_tree *tree, uint32_t n, char *buffer, size_t bytes) {
  tdict_cursor cursor;
  tdict_cursor_init(&cursor, tree, false);
  buffer[0] = 0;
  tdict_leaf leaf;
  while ((leaf = tdict_cursor_next(&cursor)) != 0) {
    if (!tdict_leaf_tensor(leaf)) {
      if (!tdict_cursor_enter(&cursor, tdict_leaf_tree(leaf))) break;
    } else if (n-- == 0) {
      tdict_cursor_path(&cursor, NULL, buffer, bytes);
      break;
    }
  }
  tdict_cursor_reset(&cursor);
}
