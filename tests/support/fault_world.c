/* Runs operations in a fault world: see fault_world.h. */
#include "support/fault_world.h"

#include "context.h"
#include "support/test.h"

const fw_variant fw_variants[FW_NUM_VARIANTS] = {{"auto", TDICT_MODE_AUTO, -1},
                                                 {"pin2", TDICT_MODE_NON_BLOCKING_PIN, 2},
                                                 {"pin0", TDICT_MODE_NON_BLOCKING_PIN, 0},
                                                 {"pin1", TDICT_MODE_NON_BLOCKING_PIN, 1},
                                                 {"blocking", TDICT_MODE_BLOCKING, -1},
                                                 {"queue", TDICT_MODE_NON_BLOCKING, -1},
                                                 {"queue0", TDICT_MODE_NON_BLOCKING, 0}};

const char *fw_op_name(fw_op op) {
  static const char *const names[FW_NUM_OPS] = {
      "to_device",       "to_device_async", "wire",       "to_host", "to_host_async", "into_device",
      "into_host_async", "into_within",     "pin_memory", "tensors", "context"};
  return names[op];
}

static tdict_context_options options_of(const fw_world *w) {
  tdict_context_options o = td_with(tdict_context_options, device = w->device, num_threads = w->num_threads);
  o.staging_bytes = (size_t)2 << 20; /* a smaller ring is allocated by the driver, not registered */
  return o;
}

tdict_context *fw_context(fw_world *w) {
  tdict_context_options o = options_of(w);
  return td_made(context, tdict_context_create_over(&o, w->driver, &made, err));
}

void fw_prepare(fw_world *w, fw_run *run) {
  run->status = TDICT_OK;
  run->begun = run->done = false;
  run->result = NULL;
  memset(&run->err, 0, sizeof run->err);
  if (run->op == FW_INTO_DEVICE || run->op == FW_INTO_WITHIN) fw_spoil(w, w->dst_device);
  if (run->op == FW_INTO_HOST_ASYNC) fw_spoil(w, w->dst_host);
  if (run->op == FW_TO_DEVICE_ASYNC && !run->stream.handle)
    td_ok(tdict_stream_create(run->context, w->device, &run->stream, err));
}

/* Returns whether the call succeeded. Stores the first failure in the run. */
static bool note(fw_run *run, tdict_status status, const tdict_error *err) {
  if (status == TDICT_OK) return true;
  if (run->status == TDICT_OK) {
    run->status = status;
    run->err = *err;
  }
  return false;
}

/* Waits for the future, and stores its tree or its error in the run. */
static void end_future(fw_run *run, tdict_future *f) {
  tdict_error err = {0};
  tdict_tree *made = NULL;
  if (note(run, tdict_future_wait(f, &made, &err), &err)) {
    run->result = made;
    run->done = true;
  } else {
    run->begun = true;
  }
  tdict_future_release(f);
}

static void move(fw_world *w, fw_run *run, tdict_device to, const tdict_transfer_options *o) {
  tdict_error err = {0};
  run->done = note(run, tdict_to_device(run->context, fw_source(w, run->op), to, o, &run->result, &err), &err);
}

static void narrow_and_convert(fw_world *w, fw_run *run, tdict_transfer_options *o) {
  tdict_conversion wide = tdict_conversion_default();
  wide.pattern = "n.wide";
  wide.dtype = TDICT_I32;
  o->narrow = 1;
  o->conversions = &wide;
  o->num_conversions = 1;
  move(w, run, w->device, o);
}

static void to_device_async(fw_world *w, fw_run *run, tdict_transfer_options *o) {
  tdict_error err = {0};
  tdict_future *f;
  tdict_tree *early = NULL;
  o->after = run->stream;
  if (!note(run, tdict_to_device_async(run->context, w->host, w->device, o, &f, &err), &err)) return;
  if (note(run, tdict_future_wait_on_stream(f, run->stream, &early, &err), &err) && early) {
    note(run, tdict_record_stream(early, run->stream, &err), &err);
    tdict_release(early);
  }
  end_future(run, f);
}

static void to_host_async(fw_world *w, fw_run *run, tdict_transfer_options *o) {
  tdict_error err = {0};
  tdict_future *f;
  o->pinned_result = true;
  if (note(run, tdict_to_device_async(run->context, w->device_tree, tdict_cpu(), o, &f, &err), &err))
    end_future(run, f);
}

static void transfer_into(fw_world *w, fw_run *run, tdict_tree *dst, const tdict_transfer_options *o) {
  tdict_error err = {0};
  run->done = note(run, tdict_transfer_into(run->context, dst, fw_source(w, run->op), o, &err), &err);
  run->begun = !run->done;
  if (run->done) run->result = tdict_retain(dst);
}

static void into_host_async(fw_world *w, fw_run *run, const tdict_transfer_options *o) {
  tdict_error err = {0};
  tdict_future *f;
  if (note(run, tdict_transfer_into_async(run->context, w->dst_host, w->device_into, o, &f, &err), &err))
    end_future(run, f);
}

static void pin_memory(fw_world *w, fw_run *run) {
  tdict_error err = {0};
  tdict_pin_options o = td_with(tdict_pin_options, num_threads = run->variant->num_threads);
  run->done = note(run, tdict_pin_memory(run->context, w->host, &o, &run->result, &err), &err);
}

/* Copies a tensor to the device and back with the functions for single tensors. */
static void tensors(fw_world *w, fw_run *run) {
  tdict_error err = {0};
  tdict_tensor *host, *there = NULL, *back = NULL;
  tdict_memory *memory = tdict_device_memory(run->context, w->device);
  if (!note(run, tdict_get(w->one, "t", &host, &err), &err)) return;
  tdict_status status = tdict_tensor_zeros(tdict_tensor_dtype(host), tdict_tensor_ndim(host), tdict_tensor_shape(host),
                                           memory, &there, &err);
  if (status == TDICT_OK) status = tdict_tensor_copy(there, host, &err);
  if (status == TDICT_OK) status = tdict_tensor_clone(there, NULL, &back, &err);
  if (status == TDICT_OK) status = tdict_create(0, NULL, &run->result, &err);
  if (status == TDICT_OK) status = tdict_set(run->result, "t", back, &err);
  run->done = note(run, status, &err);
  td_release(there, back);
}

static void context(fw_world *w, fw_run *run) {
  tdict_error err = {0};
  tdict_context_options o = options_of(w);
  scoped_context made = NULL;
  scoped_tree there = NULL;
  if (!note(run, tdict_context_create_over(&o, w->driver, &made, &err), &err)) return;
  tdict_status status = tdict_to_device(made, w->one, w->device, NULL, &there, &err);
  if (status == TDICT_OK) status = tdict_to_device(made, there, tdict_cpu(), NULL, &run->result, &err);
  run->done = note(run, status, &err);
}

void fw_do(fw_world *w, fw_run *run) {
  tdict_transfer_options o =
      td_with(tdict_transfer_options, mode = run->variant->mode, num_threads = run->variant->num_threads);
  switch (run->op) {
  case FW_TO_DEVICE:
    move(w, run, w->device, &o);
    break;
  case FW_TO_DEVICE_ASYNC:
    to_device_async(w, run, &o);
    break;
  case FW_WIRE:
    narrow_and_convert(w, run, &o);
    break;
  case FW_TO_HOST:
    move(w, run, tdict_cpu(), &o);
    break;
  case FW_TO_HOST_ASYNC:
    to_host_async(w, run, &o);
    break;
  case FW_INTO_DEVICE:
  case FW_INTO_WITHIN:
    transfer_into(w, run, w->dst_device, &o);
    break;
  case FW_INTO_HOST_ASYNC:
    into_host_async(w, run, &o);
    break;
  case FW_PIN_MEMORY:
    pin_memory(w, run);
    break;
  case FW_TENSORS:
    tensors(w, run);
    break;
  case FW_CONTEXT:
    context(w, run);
    break;
  default:
    break;
  }
}

void fw_let_go(fw_run *run) {
  tdict_release(run->result);
  run->result = NULL;
}
