/* Makes the steps that all calls of communicators share. Thread rule: see call.h. */
#include "services/comm/call.h"

#include "core/base/clock.h"
#include "core/base/device.h"
#include "core/base/error.h"
#include "core/base/options.h"
#include "device/use.h"
#include "tdict/memory.h"

const char *tdict_comm_op_name(int32_t op) {
  static const char *const names[] = {"broadcast",        "broadcast_into", "scatter", "gather", "all_gather",
                                      "all_gather_stack", "all_reduce",     "send",    "receive"};
  const int32_t count = (int32_t)(sizeof names / sizeof *names);
  return op >= 1 && op <= count ? names[op - 1] : "an unknown operation";
}

/* Makes the fence of the work that is queued on the stream `after` now. */
static tdict_status record_after(tdict_comm_call *call, tdict_stream after, tdict_error *err) {
  const char *what = tdict_comm_what(call);
  tdict_gpu *gpu = call->comm->gpu;
  if (!gpu) return TDICT_OK;
  const bool is_given = tdict_has_stream(after);
  if (is_given && !tdict_stream_is_of(after, gpu))
    return tdict_fail(err, TDICT_EWRONGDEVICE, "%s: the stream belongs to %s, wanted a stream of %s", what,
                      TDICT_DEVICE_TEXT(after.device), gpu->name);
  return tdict_use_create(gpu, is_given ? after.handle : NULL, what, &call->after, err);
}

static tdict_status check_memory(const tdict_comm_call *call, tdict_error *err) {
  const tdict_comm *c = call->comm;
  if (!call->memory || (tdict_device_equal(tdict_memory_device(call->memory), c->table.device) &&
                        tdict_devices_own_memory(tdict_context_devices(c->context), call->memory)))
    return TDICT_OK;
  return tdict_fail(err, TDICT_EWRONGDEVICE, "%s: the memory is of %s, but the communicator is on %s",
                    tdict_comm_what(call), TDICT_DEVICE_TEXT(tdict_memory_device(call->memory)),
                    TDICT_DEVICE_TEXT(c->table.device));
}

static tdict_status refuse_unused(const tdict_comm_call *call, const tdict_comm_options *o, tdict_error *err) {
  const bool makes_tree = !call->tree && call->op != TDICT_COMM_SEND;
  const char *unused = !call->has_dim && o->dim                         ? "dim"
                       : call->op != TDICT_COMM_SCATTER && o->counts    ? "counts"
                       : !makes_tree && o->memory                       ? "memory"
                       : !call->comm->gpu && tdict_has_stream(o->after) ? "after"
                                                                        : NULL;
  if (!unused) return TDICT_OK;
  return tdict_fail(err, TDICT_EINVAL, "%s: the option `%s` is set, but %s", tdict_comm_what(call), unused,
                    unused[0] == 'a' ? "the device of the communicator is the cpu" : "this call does not use it");
}

static tdict_status read_options(tdict_comm_call *call, const tdict_comm_options *options, tdict_error *err) {
  tdict_comm_options o = tdict_comm_options_default();
  tdict_status status = tdict_options_read(&o, sizeof o, options, "comm options", err);
  if (status == TDICT_OK) status = tdict_stream_check_device(o.after, tdict_comm_what(call), err);
  if (status != TDICT_OK) return status;
  status = refuse_unused(call, &o, err);
  if (status != TDICT_OK) return status;
  call->dim = o.dim;
  call->counts = o.counts;
  if (o.timeout_ns < 0)
    return tdict_fail(err, TDICT_EINVAL, "%s: timeout_ns is %lld, wanted 0 or more", tdict_comm_what(call),
                      (long long)o.timeout_ns);
  if (o.timeout_ns > 0) call->timeout_ns = o.timeout_ns;
  call->memory = o.memory;
  status = check_memory(call, err);
  return status == TDICT_OK ? record_after(call, o.after, err) : status;
}

tdict_status tdict_comm_prepare(tdict_comm_call *call, const tdict_comm_options *options, tdict_error *err) {
  tdict_comm *c = call->comm;
  tdict_status status = tdict_devices_check_fork(tdict_context_devices(c->context), tdict_comm_what(call), err);
  if (status != TDICT_OK) return status;
  call->timeout_ns = c->timeout_ns;
  TDICT_COMM_ALONE(call, read_options(call, options, &call->local));
  if (call->has_root && (call->root < 0 || call->root >= c->table.world_size))
    TDICT_COMM_ALONE(call, tdict_fail(&call->local, TDICT_EINVAL, "%s: rank %d does not exist, wanted 0 to %d",
                                      tdict_comm_what(call), (int)call->root, (int)c->table.world_size - 1));
  return TDICT_OK;
}

tdict_status tdict_comm_await_stream(tdict_comm_call *call, tdict_error *err) {
  if (!call->after || call->after->ops->wait(call->after, tdict_deadline_ns(call->timeout_ns))) return TDICT_OK;
  return tdict_fail(err, TDICT_ETIMEDOUT, "%s: the work of the stream `after` was not done in time",
                    tdict_comm_what(call));
}
