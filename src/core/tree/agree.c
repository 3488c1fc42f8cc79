/* Checks trees against the batch size and device that a node demands, and copies the nodes of a child that does not
 * meet this demand. Only reads the given trees; the caller owns the copies. Thread rule: as in tdict/tree.h. */
#include "core/tree/agree.h"

#include "core/base/error.h"

tdict_demand tdict_demand_of(const tdict_tree *node, const char *what, const char *path) {
  return (tdict_demand){what, node->batch_ndim, node->batch_size, node->has_device ? &node->device : NULL, path};
}

/* Returns true if the dimensions that both batch sizes have are equal. */
static bool batch_sizes_agree(const tdict_demand *demand, int ndim, const int64_t *shape) {
  return tdict_sizes_equal(shape, demand->batch_size, ndim < demand->batch_ndim ? ndim : demand->batch_ndim);
}

static TDICT_COLD tdict_status fail_shape(const tdict_demand *demand, int ndim, const int64_t *shape, const char *which,
                                          tdict_error *err) {
  return tdict_fail(err, TDICT_ESHAPE, "%s: the tree's batch size is %s, %s %s", demand->what,
                    TDICT_SHAPE_TEXT(demand->batch_ndim, demand->batch_size), which, TDICT_SHAPE_TEXT(ndim, shape));
}

static TDICT_COLD tdict_status fail_device(const tdict_demand *demand, tdict_device device, const char *which,
                                           tdict_error *err) {
  return tdict_fail(err, TDICT_EWRONGDEVICE, "%s: the tree's device is %s, %s is on %s", demand->what,
                    TDICT_DEVICE_TEXT(*demand->device), which, TDICT_DEVICE_TEXT(device));
}

/* Returns true if a tensor meets the demand. The message is built only on failure, by fail_tensor(). */
static bool tensor_agrees(const tdict_demand *demand, const tdict_tensor *t) {
  return tdict_tensor_begins_with(t, demand->batch_ndim, demand->batch_size) &&
         (!demand->device || tdict_device_equal(*demand->device, tdict_tensor_device(t)));
}

static TDICT_COLD tdict_status fail_tensor(const tdict_demand *demand, const tdict_tensor *t, tdict_error *err) {
  if (!tdict_tensor_begins_with(t, demand->batch_ndim, demand->batch_size))
    return fail_shape(demand, t->ndim, t->dims, "tensor has shape", err);
  return fail_device(demand, tdict_tensor_device(t), "the tensor", err);
}

tdict_status tdict_batch_mismatch(const char *what, const tdict_tree *td, const tdict_tensor *t, tdict_error *err) {
  const tdict_demand demand = tdict_demand_of(td, what, NULL);
  return fail_shape(&demand, t->ndim, t->dims, "tensor has shape", err);
}

static TDICT_COLD tdict_status fail_box(const tdict_demand *demand, const tdict_box *box, tdict_error *err) {
  const int64_t *sizes = NULL;
  const int ndim = tdict_builtin_of(box->type)->batch(box->self, &sizes);
  return fail_shape(demand, ndim, sizes, "the object has", err);
}

tdict_status tdict_box_mismatch(const char *what, const tdict_tree *td, const tdict_box *box, tdict_error *err) {
  const tdict_demand demand = tdict_demand_of(td, what, NULL);
  return fail_box(&demand, box, err);
}

/* Checks a tensor or object, without a path in the error. */
static tdict_status check_leaf(const tdict_demand *demand, tdict_leaf leaf, tdict_error *err) {
  const tdict_tensor *tensor = tdict_leaf_tensor(leaf);
  const tdict_box *box = tdict_leaf_box(leaf);
  if (tensor && !tensor_agrees(demand, tensor)) return fail_tensor(demand, tensor, err);
  if (box && !tdict_box_begins_with(box, demand->batch_ndim, demand->batch_size)) return fail_box(demand, box, err);
  return TDICT_OK;
}

tdict_status tdict_agree_leaf(const tdict_demand *demand, tdict_leaf leaf, const char *path, tdict_error *err) {
  tdict_status status = check_leaf(demand, leaf, err);
  return status == TDICT_OK ? status : tdict_error_at(err, status, path);
}

tdict_status tdict_agree_tensor(const tdict_demand *demand, const tdict_tensor *tensor, const char *path,
                                tdict_error *err) {
  if (tensor_agrees(demand, tensor)) return TDICT_OK;
  return tdict_error_at(err, fail_tensor(demand, tensor, err), path);
}

static bool has_batch_dims(const tdict_box *box) {
  const int64_t *sizes;
  const tdict_builtin *builtin = tdict_builtin_of(box->type);
  return builtin && builtin->batch(box->self, &sizes) > 0;
}

/* Returns TDICT_ESHAPE if the tree holds a tensor, or an object that has batch dimensions. Called for a tree whose
 * batch size does not meet the demand. A tree without such leaves can take any batch size. */
static tdict_status check_fits_any_batch_size(const tdict_demand *demand, const tdict_tree *node, tdict_error *err) {
  tdict_status status = TDICT_OK;
  tdict_cursor cursor;
  tdict_cursor_init(&cursor, node, true);
  for (tdict_leaf leaf; status == TDICT_OK && (leaf = tdict_cursor_next_leaf(&cursor)) != 0;)
    if (tdict_leaf_tensor(leaf) || has_batch_dims(tdict_leaf_box(leaf)))
      status = fail_shape(demand, node->batch_ndim, node->batch_size, "the tree has", err);
  return tdict_cursor_end(&cursor, demand->what, status, err);
}

/* Returns true if the batch size or device of the node does not meet the demand. */
static bool is_unmet(const tdict_demand *demand, const tdict_tree *node) {
  if (node->batch_ndim < demand->batch_ndim || !batch_sizes_agree(demand, node->batch_ndim, node->batch_size))
    return true;
  return demand->device && (!node->has_device || !tdict_device_equal(node->device, *demand->device));
}

/* Checks one node against the demand. For `in_place`, see tdict_demand_apply_below(). */
static tdict_status check_node(const tdict_demand *demand, const tdict_tree *node, bool in_place, tdict_error *err) {
  /* Without tensors and objects with batch dimensions, the tree's batch size can change, so it passes. */
  if (!batch_sizes_agree(demand, node->batch_ndim, node->batch_size)) {
    tdict_status status = check_fits_any_batch_size(demand, node, err);
    if (status != TDICT_OK) return status;
  }
  if (!in_place && demand->device && node->has_device && !tdict_device_equal(*demand->device, node->device))
    return fail_device(demand, node->device, "the tree put below it", err);
  /* A locked tree is allowed only if the tree already meets the demand. */
  if (in_place && tdict_node_is_locked(node) && is_unmet(demand, node))
    return tdict_fail(err, TDICT_ELOCKED, "%s: a tree below it needs the change and is locked", demand->what);
  return TDICT_OK;
}

/* Checks everything below the tree that the cursor was initialized with. */
static tdict_status check_below(const tdict_demand *demand, tdict_cursor *cursor, bool in_place, tdict_error *err) {
  for (tdict_leaf leaf; (leaf = tdict_cursor_next(cursor)) != 0;) {
    tdict_status status;
    tdict_tree *node = tdict_leaf_tree(leaf);
    status = node ? check_node(demand, node, in_place, err) : check_leaf(demand, leaf, err);
    /* Name the entry that failed. */
    if (status != TDICT_OK) return tdict_cursor_fail(cursor, demand->above, status, err);
    if (node) tdict_cursor_descend(cursor, node, 0);
  }
  return cursor->no_memory ? tdict_error_at(err, tdict_cursor_refuse(demand->what, err), demand->above) : TDICT_OK;
}

/* Sets the leading batch dimensions and the device of a node that was checked. Cannot fail. */
static void apply_demand(const tdict_demand *demand, tdict_tree *node) {
  /* Without leaves with batch dimensions, drop the dimensions of the tree if it differs from the demand. */
  if (node->batch_ndim < demand->batch_ndim || !batch_sizes_agree(demand, node->batch_ndim, node->batch_size))
    node->batch_ndim = demand->batch_ndim;
  for (int i = 0; i < demand->batch_ndim; i++) node->batch_size[i] = demand->batch_size[i];
  if (!demand->device) return;
  node->has_device = true;
  node->device = *demand->device;
}

tdict_status tdict_demand_apply_below(const tdict_demand *demand, const tdict_tree *td, bool in_place,
                                      tdict_error *err) {
  tdict_cursor cursor;
  tdict_cursor_init(&cursor, td, true);
  /* Check everything. */
  tdict_status status = check_below(demand, &cursor, in_place, err);
  if (status == TDICT_OK) {
    /* Apply. Entering a tree cannot fail: the cursor reuses the memory of the first walk. */
    tdict_cursor_rewind(&cursor, td);
    for (tdict_leaf leaf; (leaf = tdict_cursor_next(&cursor)) != 0;) {
      tdict_tree *node = tdict_leaf_tree(leaf);
      if (!node) continue;
      if (is_unmet(demand, node)) apply_demand(demand, node);
      tdict_cursor_descend(&cursor, node, 0);
    }
  }
  tdict_cursor_reset(&cursor);
  return status;
}

/* Copies one node and applies the demand. Shares all leaves, also children. Returns NULL without memory. */
static tdict_tree *copy_node_as_demanded(const tdict_demand *demand, const tdict_tree *node) {
  tdict_tree *copy;
  bool trees;
  if (tdict_node_create_sharing(node, &copy, &trees, NULL) != TDICT_OK) return NULL;
  for (uint32_t i = 0; trees && i < node->keys->num_slots; i++)
    if (tdict_leaf_tree(node->leaves[i])) copy->leaves[i] = tdict_leaf_retain(node->leaves[i]);
  apply_demand(demand, copy);
  return copy;
}

/* Replaces the child trees of `copy` by copies that meet the demand. Pushes each new copy on *list. No other thread may
 * have `copy` yet. Returns false if memory is exhausted. Also copies children that already meet the demand: otherwise a
 * change or a lock of `copy` would also affect the original tree. */
static bool replace_children_by_copies(const tdict_demand *demand, tdict_tree *copy, tdict_pointers *copies,
                                       tdict_tree **list) {
  for (uint32_t i = 0; i < copy->keys->num_slots; i++) {
    tdict_tree *child = tdict_leaf_tree(copy->leaves[i]);
    if (!child) continue;
    /* A node at several places of the original becomes one node of the copy. */
    tdict_tree *made = tdict_pointers_get(copies, child);
    if (made) {
      (void)tdict_retain(made);
    } else {
      made = copy_node_as_demanded(demand, child);
      if (made && tdict_pointers_add(copies, child, made) < 0) {
        tdict_release(made);
        made = NULL;
      }
      if (!made) return false;
      made->pending = *list;
      *list = made;
    }
    copy->leaves[i] = tdict_leaf_of_tree(made);
    tdict_release(child);
  }
  return true;
}

/* Copies `child` and all below it, by a list of nodes: trees can be deep. */
static tdict_tree *copy_tree_as_demanded(const tdict_demand *demand, const tdict_tree *child) {
  tdict_pointers copies;
  tdict_tree *copy = copy_node_as_demanded(demand, child);
  if (!copy) return NULL;
  tdict_pointers_init(&copies);
  copy->pending = NULL;
  bool ok = true;
  /* Copy the children of each copied node until no node with uncopied children is left. */
  for (tdict_tree *list = copy; ok && list;) {
    tdict_tree *node = list;
    list = node->pending;
    ok = replace_children_by_copies(demand, node, &copies, &list);
  }
  tdict_pointers_reset(&copies);
  if (ok) return copy;
  tdict_release(copy);
  return NULL;
}

tdict_status tdict_agree_adopt(const tdict_demand *demand, tdict_tree *child, tdict_tree **out, tdict_error *err) {
  tdict_status status = check_node(demand, child, false, err);
  if (status != TDICT_OK) return tdict_error_at(err, status, demand->above);
  /* The common case: share the child. */
  if (!is_unmet(demand, child)) {
    *out = tdict_retain(child);
    return TDICT_OK;
  }
  tdict_cursor cursor;
  tdict_cursor_init(&cursor, child, true);
  status = check_below(demand, &cursor, false, err);
  tdict_cursor_reset(&cursor);
  if (status != TDICT_OK) return status;
  tdict_tree *copy = copy_tree_as_demanded(demand, child);
  if (!copy) return tdict_fail_at(err, TDICT_ENOMEM, demand->above, "%s: no memory to copy the tree", demand->what);
  *out = copy;
  return TDICT_OK;
}

tdict_status tdict_check_cycle(const tdict_tree *child, const tdict_tree *node, const char *what, const char *path,
                               tdict_error *err) {
  tdict_cursor cursor;
  tdict_cursor_init(&cursor, child, true);
  bool found = child == node;
  for (tdict_leaf leaf; !found && (leaf = tdict_cursor_next(&cursor)) != 0;) {
    tdict_tree *below = tdict_leaf_tree(leaf);
    if (!below) continue;
    found = below == node;
    tdict_cursor_descend(&cursor, below, 0);
  }
  const tdict_status status = tdict_cursor_end(&cursor, what, TDICT_OK, err);
  if (found)
    return tdict_fail_at(err, TDICT_EINVAL, path, "%s: the child is, or contains, the tree that it is set in", what);
  return status == TDICT_OK ? status : tdict_error_at(err, status, path);
}
