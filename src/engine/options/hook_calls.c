/* Implements the public calls for hooks, which pin or move a tensor. The argument of a hook belongs to the transfer
 * that runs the hook. Thread rule: only the thread that runs the hook may call these functions. */
#include "core/base/error.h"
#include "engine/options/hooks.h"
#include "engine/start.h"
#include "tdict/transfer.h"

bool tdict_hook_cancelled(const tdict_hook *hook) { return tdict_future_has_failed(&hook->call->transfer->future); }

tdict_status tdict_hook_pin(const tdict_hook *hook, tdict_tensor *tensor, tdict_tensor **out, tdict_error *err) {
  if (!tensor || !out) return tdict_fail(err, TDICT_EINVAL, "hook_pin: %s is NULL", tensor ? "out" : "tensor");
  char name[32];
  const bool is_on_device = tdict_tensor_device(tensor).type != TDICT_DEVICE_CPU;
  const bool is_moved_next = hook->call->pins && hook->call->gpu; /* then only host tensors need pinned memory */
  if (is_on_device && !is_moved_next)
    return tdict_fail(err, TDICT_EWRONGDEVICE, "hook_pin: the tensor is on %s, wanted one on the cpu",
                      tdict_device_format(tdict_tensor_device(tensor), name, sizeof name));
  if (is_on_device || tdict_tensor_is_pinned(tensor)) {
    *out = tdict_tensor_retain(tensor);
    return TDICT_OK;
  }
  return tdict_tensor_clone(tensor, tdict_devices_pinned(hook->call->transfer->future.engine->config.devices), out,
                            err);
}

tdict_status tdict_hook_move(const tdict_hook *hook, tdict_tensor *tensor, tdict_tensor **out, tdict_error *err) {
  if (!tensor || !out) return tdict_fail(err, TDICT_EINVAL, "hook_move: %s is NULL", tensor ? "out" : "tensor");
  tdict_transfer_options options = tdict_transfer_options_default();
  /* The hook may run on the last free pool thread, so the hook must not wait for another pool thread. */
  options.num_threads = 0;
  return tdict_move_tensor(hook->context, tensor, hook->device, &options, out, err);
}
