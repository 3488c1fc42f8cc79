/* Implements the public calls that move or pin trees, objects and tensors, also inside a hook. Arguments are borrowed
 * for the call. The caller owns the results, and the transfer that runs a hook owns the hook's argument. Thread rule:
 * safe from any thread, as long as no thread changes the trees. A tdict_hook is for the thread that runs the hook. */
#include <stdio.h>

#include "core/base/error.h"
#include "core/base/options.h"
#include "core/base/thread.h"
#include "core/tree/box.h"
#include "core/tree/cursor.h"
#include "core/tree/place.h"
#include "device/devices.h"
#include "engine/options/hooks.h"
#include "engine/start.h"
#include "tdict/hook.h"

tdict_status tdict_start_wait(tdict_future *future, tdict_transfer_stats *stats, tdict_tree **out, tdict_error *err) {
  TDICT_UNCANCELLED; /* the future would not be released */
  tdict_status status = tdict_future_wait(future, out, err);
  if (status == TDICT_OK && stats) status = tdict_future_get_stats(future, stats, err);
  tdict_future_release(future);
  return status;
}

static tdict_status check_stats(const tdict_transfer_stats *stats, const char *what, tdict_error *err) {
  char text[64];
  snprintf(text, sizeof text, "%s: stats", what);
  return tdict_options_check_size(stats, sizeof *stats, text, err);
}

tdict_status tdict_start_call(tdict_context *c, tdict_start *start, const tdict_transfer_options *o, tdict_future **out,
                              tdict_error *err) {
  start->options = tdict_transfer_options_default();
  tdict_status status = tdict_options_read(&start->options, sizeof start->options, o, "transfer options", err);
  if (status == TDICT_OK && start->options.stats) status = check_stats(start->options.stats, start->what, err);
  return status == TDICT_OK ? tdict_start_transfer(c, start, out, err) : status;
}

tdict_status tdict_to_device(tdict_context *context, const tdict_tree *src, tdict_device device,
                             const tdict_transfer_options *options, tdict_tree **out, tdict_error *err) {
  if (!out) return tdict_fail(err, TDICT_EINVAL, "to_device: out is NULL");
  tdict_start start = {.what = "to_device", .src = src, .device = device, .caller_waits = true};
  tdict_future *future;
  tdict_status status = tdict_start_call(context, &start, options, &future, err);
  return status == TDICT_OK ? tdict_start_wait(future, start.options.stats, out, err) : status;
}

tdict_status tdict_to_device_async(tdict_context *context, const tdict_tree *src, tdict_device device,
                                   const tdict_transfer_options *options, tdict_future **out, tdict_error *err) {
  tdict_start start = {.what = "to_device_async", .src = src, .device = device};
  return tdict_start_call(context, &start, options, out, err);
}

tdict_status tdict_transfer_into(tdict_context *context, tdict_tree *dst, const tdict_tree *src,
                                 const tdict_transfer_options *options, tdict_error *err) {
  if (!dst) return tdict_fail(err, TDICT_EINVAL, "transfer_into: dst is NULL");
  tdict_start start = {.what = "transfer_into", .src = src, .dst = dst, .caller_waits = true};
  tdict_future *future;
  tdict_status status = tdict_start_call(context, &start, options, &future, err);
  return status == TDICT_OK ? tdict_start_wait(future, start.options.stats, NULL, err) : status;
}

tdict_status tdict_transfer_into_async(tdict_context *context, tdict_tree *dst, const tdict_tree *src,
                                       const tdict_transfer_options *options, tdict_future **out, tdict_error *err) {
  if (!dst) return tdict_fail(err, TDICT_EINVAL, "transfer_into_async: dst is NULL");
  tdict_start start = {.what = "transfer_into_async", .src = src, .dst = dst};
  return tdict_start_call(context, &start, options, out, err);
}

tdict_status tdict_pin_memory(tdict_context *context, const tdict_tree *src, const tdict_pin_options *options,
                              tdict_tree **out, tdict_error *err) {
  if (!out) return tdict_fail(err, TDICT_EINVAL, "pin_memory: out is NULL");
  tdict_pin_options pin = tdict_pin_options_default();
  tdict_status status = tdict_options_read(&pin, sizeof pin, options, "pin options", err);
  if (status == TDICT_OK && pin.stats) status = check_stats(pin.stats, "pin_memory", err);
  if (status != TDICT_OK) return status;
  tdict_start start = {.what = "pin_memory", .src = src, .device = tdict_cpu(), .caller_waits = true, .pin = true};
  start.options = tdict_transfer_options_default();
  start.options.num_threads = pin.num_threads;
  start.options.pinned_result = true;
  start.options.stats = pin.stats;
  start.options.keep = pin.keep;
  start.options.num_keep = pin.num_keep;
  tdict_future *future;
  status = tdict_start_transfer(context, &start, &future, err);
  return status == TDICT_OK ? tdict_start_wait(future, pin.stats, out, err) : status;
}

/* Pins the object in a temporary tree, so that the rules of tdict_pin_memory() apply. */
static tdict_status pin_in_tree(tdict_context *c, tdict_tree *wrapper, tdict_box *box, const tdict_pin_options *o,
                                void **out, tdict_error *err) {
  tdict_tree *pinned;
  const tdict_name name = tdict_name_of("object", 6);
  tdict_status status = tdict_node_add_name(wrapper, &name, tdict_leaf_of_box(box))
                            ? TDICT_OK
                            : tdict_fail_memory(err, "pin_object", NULL, "a tree");
  if (status != TDICT_OK) return status;
  tdict_box_retain(box);
  status = tdict_pin_memory(c, wrapper, o, &pinned, err);
  if (status != TDICT_OK) return status;
  int64_t slot = tdict_keys_find(pinned->keys, "object", 6);
  tdict_box *pinned_box = tdict_leaf_box(pinned->leaves[slot]);
  *out = pinned_box->self;
  pinned_box->kept = true; /* the caller owns the struct now, so the box must not free the struct */
  tdict_release(pinned);
  return TDICT_OK;
}

tdict_status tdict_pin_object(tdict_context *context, const tdict_type *type, void *self,
                              const tdict_pin_options *options, void **out, tdict_error *err) {
  if (!type || !self || !out) return tdict_fail_null(err, "pin_object", !type ? "type" : !self ? "self" : "out");
  tdict_status status = tdict_type_check("pin_object", type, err);
  if (status != TDICT_OK) return status;
  tdict_tree *wrapper;
  tdict_box *box;
  status = tdict_create(0, NULL, &wrapper, err);
  if (status != TDICT_OK) return status;
  status = tdict_box_create(type, self, &box, err);
  if (status == TDICT_OK) {
    /* The box must not free `self`, because the caller owns `self`. */
    box->kept = true;
    status = pin_in_tree(context, wrapper, box, options, out, err);
    tdict_box_release(box);
  }
  tdict_release(wrapper);
  return status;
}

static bool is_leaf_pinned(tdict_leaf leaf) {
  const tdict_box *box = tdict_leaf_box(leaf);
  bool (*is_pinned)(const void *self) = box ? TDICT_HOOK_OF(box->type, is_pinned) : NULL;
  if (box) return !is_pinned || is_pinned(box->self);
  const tdict_tensor *tensor = tdict_leaf_tensor(leaf);
  return tdict_tensor_device(tensor).type != TDICT_DEVICE_CPU || tdict_tensor_is_pinned(tensor);
}

/* Recurses only if memory for a deeper cursor is exhausted, because tdict_is_pinned() cannot return an error. */
static bool are_leaves_pinned(const tdict_tree *td) {
  bool are_pinned = true;
  tdict_cursor cursor;
  tdict_cursor_init(&cursor, td, false);
  for (tdict_leaf leaf; are_pinned && (leaf = tdict_cursor_next(&cursor)) != 0;) {
    tdict_tree *tree = tdict_leaf_tree(leaf);
    if (!tree)
      are_pinned = is_leaf_pinned(leaf);
    else if (!tdict_cursor_enter(&cursor, tree))
      are_pinned = are_leaves_pinned(tree);
  }
  tdict_cursor_reset(&cursor);
  return are_pinned;
}

bool tdict_is_pinned(const tdict_tree *tree) { return tree && are_leaves_pinned(tree); }

/* Moves a tensor as the only leaf of a tree. */
static tdict_status move_tensor(tdict_context *c, tdict_tensor *tensor, tdict_device device,
                                const tdict_transfer_options *options, tdict_tensor **out, tdict_error *err) {
  tdict_tree *wrapper = NULL, *moved = NULL;
  tdict_status status = tdict_create(0, NULL, &wrapper, err);
  if (status != TDICT_OK) return status;
  status = tdict_set(wrapper, "tensor", tensor, err);
  if (status == TDICT_OK) status = tdict_to_device(c, wrapper, device, options, &moved, err);
  if (status == TDICT_OK) status = tdict_pop(moved, "tensor", out, err);
  tdict_release(moved);
  tdict_release(wrapper);
  return status;
}

tdict_status tdict_set_to(tdict_context *context, tdict_tree *tree, const char *path, tdict_tensor *tensor,
                          tdict_error *err) {
  tdict_place place;
  tdict_tensor *moved = NULL;
  if (!context || !tree || !path || !tensor)
    return tdict_fail_null(err, "set_to", !context ? "context" : !tree ? "tree" : !path ? "path" : "tensor");
  tdict_status status = tdict_place_find(&place, tree, path, "set_to", err);
  if (status != TDICT_OK) return status;
  /* A simulated device of another context may have the same name, so the storage must be this context's. */
  const bool moves =
      place.node->has_device && (!tdict_device_equal(place.node->device, tdict_tensor_device(tensor)) ||
                                 !tdict_devices_own_storage(tdict_context_devices(context), tensor->storage));
  const tdict_device device = place.node->device;
  if (moves) status = tdict_place_check_lock(&place, err); /* if the tree is locked, fail before any bytes are copied */
  tdict_place_reset(&place);
  if (status != TDICT_OK) return status;
  if (!moves) return tdict_set(tree, path, tensor, err);
  status = move_tensor(context, tensor, device, NULL, &moved, err);
  if (status != TDICT_OK) return tdict_error_at(err, status, path);
  status = tdict_set(tree, path, moved, err);
  tdict_tensor_release(moved);
  return status;
}

bool tdict_hook_cancelled(const tdict_hook *hook) { return tdict_future_has_failed(&hook->call->transfer->future); }

tdict_status tdict_hook_pin(const tdict_hook *hook, tdict_tensor *tensor, tdict_tensor **out, tdict_error *err) {
  if (!tensor || !out) return tdict_fail_null(err, "hook_pin", tensor ? "out" : "tensor");
  const bool is_on_device = tdict_tensor_device(tensor).type != TDICT_DEVICE_CPU;
  const bool is_moved_next = hook->call->pins && hook->call->gpu; /* then only host tensors need pinned memory */
  if (is_on_device && !is_moved_next)
    return tdict_fail(err, TDICT_EWRONGDEVICE, "hook_pin: the tensor is on %s, wanted one on the cpu",
                      TDICT_DEVICE_TEXT(tdict_tensor_device(tensor)));
  if (is_on_device || tdict_tensor_is_pinned(tensor)) {
    *out = tdict_tensor_retain(tensor);
    return TDICT_OK;
  }
  return tdict_tensor_clone(tensor, tdict_devices_pinned(hook->call->transfer->future.engine->config.devices), out,
                            err);
}

tdict_status tdict_hook_move(const tdict_hook *hook, tdict_tensor *tensor, tdict_tensor **out, tdict_error *err) {
  if (!tensor || !out) return tdict_fail_null(err, "hook_move", tensor ? "out" : "tensor");
  tdict_transfer_options options = tdict_transfer_options_default();
  /* The hook may run on the last free pool thread, so the hook must not wait for another pool thread. */
  options.num_threads = 0;
  return move_tensor(hook->context, tensor, hook->device, &options, out, err);
}
