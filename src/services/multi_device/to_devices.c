/* Implements tdict_to_devices_async(): checks the request, and starts one transfer for each device as parts of one
 * promise. The caller owns the results. Thread rule: safe from any thread, as long as no thread changes the tree. */
#include "core/base/error.h"
#include "core/base/options.h"
#include "core/base/thread.h"
#include "core/ops/shape.h"
#include "core/tree/cursor.h"
#include "device/devices.h"
#include "engine/plan/item.h"
#include "services/multi_device/spread.h"
#include "tdict/shape.h"

/* What a split must know of the leaves of a tree. */
typedef struct leaves_of_split {
  /* true: no two tensors share a storage, because one path leads to each tensor, and nothing else refers to the tensor
   * or its storage. The views of a part then do not share storages either, but a transfer could not see it */
  bool are_distinct;
  /* true: there are leaves, and all are distinct and contiguous tensors in host memory, with the rows of the tree */
  bool have_rows;
} leaves_of_split;

static bool has_rows(const tdict_tensor *t, int64_t rows) {
  return t->storage->device.type == TDICT_DEVICE_CPU && !tdict_storage_is_unloaded(t->storage) && t->ndim > 0 &&
         t->dims[0] == rows && tdict_item_is_plain(t);
}

/* The program can have changed the batch size of a child, so each tree and tensor is asked for its rows. */
static leaves_of_split look_at_leaves(const tdict_tree *tree) {
  const int64_t rows = tree->batch_size[0];
  tdict_cursor cursor;
  size_t num_tensors = 0;
  leaves_of_split found = {!tdict_node_shares_leaves(tree), true};
  tdict_cursor_init(&cursor, tree, false);
  for (tdict_leaf leaf; found.are_distinct && (leaf = tdict_cursor_next(&cursor)) != 0;) {
    const tdict_frame *top = &cursor.frames[cursor.depth - 1];
    const tdict_tensor *t = tdict_leaf_tensor(leaf);
    tdict_tree *child = tdict_leaf_tree(leaf);
    tdict_look_ahead(top->node, top->slot, top->node->keys->num_slots);
    if (t) {
      num_tensors++;
      found.are_distinct = tdict_item_is_unshared(t);
      found.have_rows = found.have_rows && has_rows(t, rows);
    } else {
      found.are_distinct = child && tdict_node_is_unshared(child) && tdict_cursor_enter(&cursor, child);
      found.have_rows = found.have_rows && child && child->batch_ndim > 0 && child->batch_size[0] == rows;
    }
  }
  tdict_cursor_reset(&cursor);
  found.have_rows = found.have_rows && found.are_distinct && num_tensors > 0;
  return found;
}

/* Returns true if the options and the devices allow the transfers of parts to cut the rows themselves. A part on the
 * host shares the elements of the source, so it has views. */
static bool may_cut_rows(const tdict_spreading *s) {
  const tdict_transfer_options *o = &s->options;
  bool to_host = false;
  for (size_t i = 0; i < s->num_devices; i++) to_host |= s->devices[i].type == TDICT_DEVICE_CPU;
  return !to_host && !o->num_keep && !o->num_conversions && !o->narrow && !o->check_sources;
}

/* Starts a transfer for each part, which reads the rows from the whole tree. No part is empty. */
static tdict_status split_rows(tdict_spreading *s, const int64_t *sizes, tdict_error *err) {
  tdict_source_rows rows = {.all = s->src->batch_size[0]};
  tdict_status status = TDICT_OK;
  for (size_t i = 0; i < s->num_devices && status == TDICT_OK; i++) {
    rows.count = sizes[i];
    status = tdict_spread_one(s, s->src, &rows, i, err);
    rows.at += sizes[i];
  }
  return status;
}

/* Starts the transfers of consecutive parts of the tree. If the transfers cannot cut the parts, makes views. */
static tdict_status split(tdict_spreading *s, const tdict_spread *spread, tdict_error *err) {
  int64_t sizes[TDICT_MAX_DEVICES];
  tdict_tree *views[TDICT_MAX_DEVICES];
  size_t count = s->num_devices;
  int dim;
  tdict_status status = tdict_dim_find(s->what, spread->dim, s->src->batch_ndim, &dim, err);
  if (status != TDICT_OK) return status;
  if (count == 1 && !spread->counts && s->devices[0].type != TDICT_DEVICE_CPU)
    return tdict_spread_one(s, s->src, NULL, 0, err); /* the only part is the tree */
  const leaves_of_split leaves = look_at_leaves(s->src);
  s->is_distinct = leaves.are_distinct;
  const int64_t whole = s->src->batch_size[dim], each = whole / (int64_t)count, more = whole % (int64_t)count;
  for (size_t i = 0; i < count; i++) sizes[i] = each + ((int64_t)i < more);
  if (leaves.have_rows && dim == 0 && each > 0 && !spread->counts && may_cut_rows(s)) return split_rows(s, sizes, err);
  status = tdict_split(s->src, dim, spread->counts ? spread->counts : sizes, views, &count, err);
  if (status != TDICT_OK) return status;
  for (size_t i = 0; i < count; i++) {
    if (status == TDICT_OK) status = tdict_spread_one(s, views[i], NULL, i, err);
    tdict_release(views[i]);
  }
  return status;
}

/* Copies the devices of the request, replaces TDICT_DEVICE_AUTO, and checks that the devices differ. */
static tdict_status read_devices(tdict_spreading *s, const tdict_spread *spread, tdict_error *err) {
  if (!spread->devices) return tdict_fail(err, TDICT_EINVAL, "%s: devices is NULL", s->what);
  if (spread->num_devices < 1 || spread->num_devices > TDICT_MAX_DEVICES)
    return tdict_fail(err, TDICT_EINVAL, "%s: num_devices is %zu, wanted 1 to %d", s->what, spread->num_devices,
                      TDICT_MAX_DEVICES);
  s->num_devices = spread->num_devices;
  for (size_t i = 0; i < s->num_devices; i++) {
    s->devices[i] = spread->devices[i];
    if (s->devices[i].type == TDICT_DEVICE_AUTO)
      s->devices[i] = tdict_devices_default(tdict_context_devices(s->context), NULL);
    if (s->options.pinned_result && s->devices[i].type == TDICT_DEVICE_CPU) s->pinned = i;
    for (size_t j = 0; j < i; j++)
      if (tdict_device_equal(s->devices[i], s->devices[j]))
        return tdict_fail(err, TDICT_EINVAL, "%s: devices %zu and %zu are both %s, wanted different devices", s->what,
                          j, i, TDICT_DEVICE_TEXT(s->devices[i]));
  }
  return TDICT_OK;
}

static tdict_status check_request(const tdict_spreading *s, const tdict_spread *spread, tdict_error *err) {
  if (!s->context || !s->src) return tdict_fail_null(err, s->what, s->context ? "src" : "context");
  if (spread->kind != TDICT_REPLICATE && spread->kind != TDICT_SPLIT)
    return tdict_fail(err, TDICT_EINVAL, "%s: kind is %d, wanted a tdict_spread_kind", s->what, (int)spread->kind);
  if (s->options.memory && spread->num_devices > 1)
    return tdict_fail(err, TDICT_EINVAL, "%s: memory is set, wanted NULL for several devices", s->what);
  return TDICT_OK;
}

/* Starts all parts. On failure waits until the parts that were started have ended. */
static tdict_status start_parts(tdict_spreading *s, const tdict_spread *spread, tdict_future **out, tdict_error *err) {
  TDICT_UNCANCELLED;
  tdict_error why = {0};
  tdict_status status =
      tdict_promise_create(s->context, s->what, s->num_devices * TDICT_REPLICATE_MAX_PARTS, &s->promise, err);
  if (status != TDICT_OK) return status;
  status = spread->kind == TDICT_SPLIT ? split(s, spread, &why) : tdict_replicate_start(s, &why);
  tdict_promise_close(s->promise, status == TDICT_OK ? NULL : &why);
  if (status == TDICT_OK) {
    *out = &s->promise->future;
    return status;
  }
  tdict_error reported; /* the call returns the error, so the future must not log the error */
  (void)!tdict_future_wait(&s->promise->future, NULL, &reported);
  tdict_future_release(&s->promise->future);
  if (err) *err = why;
  return status;
}

tdict_status tdict_to_devices_async(tdict_context *context, const tdict_tree *src, const tdict_spread *spread,
                                    const tdict_transfer_options *options, tdict_future **out, tdict_error *err) {
  tdict_spreading s = {.what = "to_devices_async", .context = context, .src = src, .pinned = SIZE_MAX};
  tdict_spread own = tdict_spread_replicate(NULL, 0);
  s.options = tdict_transfer_options_default();
  if (!out || !spread) return tdict_fail_null(err, s.what, out ? "spread" : "out");
  tdict_status status = tdict_options_read(&own, sizeof own, spread, "spread", err);
  if (status == TDICT_OK) status = tdict_options_read(&s.options, sizeof s.options, options, "transfer options", err);
  if (status == TDICT_OK) status = check_request(&s, &own, err);
  if (status == TDICT_OK) status = read_devices(&s, &own, err);
  return status == TDICT_OK ? start_parts(&s, &own, out, err) : status;
}
