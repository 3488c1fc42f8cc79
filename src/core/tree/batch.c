/* Sets the batch size and the device of a tree and of all trees below this tree. A first walk checks all nodes and
 * leaves. A second walk through the same nodes applies the change. The second walk needs no memory, so the change
 * cannot stop halfway. The functions own nothing. Thread rule: as in tdict/tree.h. */
#include <string.h>

#include "core/base/device.h"
#include "core/base/error.h"
#include "core/tree/agree.h"

int tdict_batch_ndim(const tdict_tree *tree) { return tree->batch_ndim; }
const int64_t *tdict_batch_size(const tdict_tree *tree) { return tree->batch_size; }

bool tdict_get_device(const tdict_tree *tree, tdict_device *out) {
  if (tree->has_device && out) *out = tree->device;
  return tree->has_device;
}

static tdict_status check_root_writable(const tdict_tree *td, const char *what, tdict_error *err) {
  if (!td) return tdict_fail_null(err, what, "tree");
  if (tdict_node_is_locked(td)) return tdict_fail(err, TDICT_ELOCKED, "%s: the tree is locked", what);
  return TDICT_OK;
}

tdict_status tdict_set_batch_size(tdict_tree *tree, int batch_ndim, const int64_t *batch_size, tdict_error *err) {
  static const char what[] = "set_batch_size";
  tdict_status status = check_root_writable(tree, what, err);
  if (status == TDICT_OK) status = tdict_batch_check(what, batch_ndim, batch_size, err);
  if (status != TDICT_OK) return status;
  int64_t wanted[TDICT_MAX_BATCH_NDIM] = {0}; /* a copy: the argument can point into a node that changes */
  for (int i = 0; i < batch_ndim; i++) wanted[i] = batch_size[i];
  const tdict_demand demand = {what, batch_ndim, wanted, NULL, NULL};
  status = tdict_demand_apply_below(&demand, tree, true, err);
  if (status != TDICT_OK) return status;
  /* Change the root last, because from here on nothing can fail. */
  tree->batch_ndim = batch_ndim;
  memcpy(tree->batch_size, wanted, sizeof wanted);
  return TDICT_OK;
}

/* Removes the devices below `td` in the second walk. The first returns TDICT_ELOCKED if a locked tree has one. */
static tdict_status clear_device_below(const tdict_tree *td, tdict_error *err) {
  tdict_cursor cursor;
  tdict_status status = TDICT_OK;
  tdict_cursor_init(&cursor, td, true);
  for (int way = 0; way < 2 && status == TDICT_OK; way++) {
    tdict_cursor_rewind(&cursor, td);
    for (tdict_leaf leaf; status == TDICT_OK && (leaf = tdict_cursor_next(&cursor)) != 0;) {
      tdict_tree *node = tdict_leaf_tree(leaf);
      if (!node) continue;
      /* Clear the device before the check below, so that the check passes in the second walk. */
      if (way == 1) node->has_device = false;
      if (node->has_device && tdict_node_is_locked(node)) {
        tdict_fail(err, TDICT_ELOCKED, "set_device: a tree below it needs the change and is locked");
        status = tdict_cursor_fail(&cursor, NULL, TDICT_ELOCKED, err);
      } else {
        tdict_cursor_descend(&cursor, node, 0);
      }
    }
    if (status == TDICT_OK) status = tdict_cursor_check(&cursor, "set_device", err);
  }
  tdict_cursor_reset(&cursor);
  return status;
}

tdict_status tdict_set_device(tdict_tree *tree, const tdict_device *device, tdict_error *err) {
  tdict_status status = check_root_writable(tree, "set_device", err);
  if (status != TDICT_OK) return status;
  if (device) status = tdict_device_check(*device, "set_device", err);
  if (status != TDICT_OK) return status;
  tdict_device wanted = device ? *device : tdict_cpu();
  const tdict_demand demand = {"set_device", 0, NULL, &wanted, NULL};
  status = device ? tdict_demand_apply_below(&demand, tree, true, err) : clear_device_below(tree, err);
  if (status != TDICT_OK) return status;
  tree->has_device = device != NULL;
  tree->device = wanted;
  return TDICT_OK;
}
