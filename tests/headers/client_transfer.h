/* The part of client.c that uses the context: tdict/context.h, tdict/transfer.h, tdict/hook.h and tdict/sim.h. */
static void launched(void *user) { ++*(int *)user; }

static void use_sim(tdict_context *context, tdict_stream stream, const void *address) {
  int runs = 0;
  OK(tdict_sim_hold(context, &last_error));
  OK(tdict_sim_launch(stream, launched, &runs, &last_error));
  TRUE(runs == 0);
  OK(tdict_sim_step(context, 1, &last_error));
  OK(tdict_sim_resume(context, &last_error));
  TRUE(tdict_sim_host_pointer(stream, address) != NULL);
  TRUE(runs == 1);
}

static void use_context(tdict_context *context, const tdict_tree *on_device) {
  tdict_memory *memories[2];
  tdict_memory_counts counts;
  tdict_device_counts device_counts;
  tdict_stream stream;
  memset(&counts, 0, sizeof counts);
  memories[0] = tdict_pinned_memory(context);
  memories[1] = tdict_device_memory(context, tdict_sim(0));
  tdict_memory_get_counts(memories[0], &counts);
  TRUE(tdict_device_equal(tdict_memory_device(memories[1]), tdict_sim(0)));
  TRUE(tdict_device_equal(tdict_context_device(context, &last_error), tdict_sim(0)));
  TRUE(tdict_context_num_threads(context) == 2);
  OK(tdict_context_get_counts(context, tdict_sim(0), &device_counts, &last_error));
  OK(tdict_stream_create(context, tdict_sim(0), &stream, &last_error));
  use_sim(context, stream, tdict_const_data(on_device, "obs"));
  OK(tdict_stream_synchronize(context, stream, &last_error));
  tdict_stream_destroy(context, stream);
  tdict_context_trim(context, tdict_cpu(), 0);
}

static void use_futures(tdict_context *context, const tdict_tree *host, tdict_tree *device) {
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  tdict_future *moved = NULL, *copied = NULL;
  tdict_future_phase state;
  tdict_tree *td = NULL;
  OK(tdict_to_device_async(context, host, tdict_sim(0), NULL, &moved, &last_error));
  OK(tdict_transfer_into(context, device, host, NULL, &last_error));
  OK(tdict_transfer_into_async(context, device, host, NULL, &copied, &last_error));
  OK(tdict_future_wait(copied, NULL, &last_error));
  tdict_future_release(tdict_future_retain(moved));
  OK(tdict_future_wait_for(moved, (int64_t)60 * 1000000000, &td, &last_error));
  OK(tdict_future_get_stats(moved, &stats, &last_error));
  state = tdict_future_state(moved);
  TRUE(tdict_future_is_ready(moved) && state == TDICT_FUTURE_DONE && state != TDICT_FUTURE_PENDING &&
       state != TDICT_FUTURE_FAILED);
  tdict_release(td);
  tdict_future_release(moved);
  tdict_future_release(copied);
}

/* An object with one tensor, and hooks that move it. */
typedef struct holder {
  tdict_tensor *tensor;
} holder;

static void end_holder(void *self) {
  tdict_tensor_release(((holder *)self)->tensor);
  free(self);
}

static tdict_status make_holder(tdict_tensor *tensor, void **out) {
  holder *made = (holder *)malloc(sizeof *made);
  if (!made) return TDICT_ENOMEM;
  made->tensor = tensor;
  *out = made;
  return TDICT_OK;
}

static tdict_status pin_holder(const void *self, const tdict_hook *hook, void **out, tdict_error *err) {
  tdict_tensor *pinned = NULL;
  tdict_status status = tdict_hook_pin(hook, ((const holder *)self)->tensor, &pinned, err);
  TRUE(hook->context != NULL && hook->device.type == TDICT_DEVICE_CPU);
  TRUE(hook->memory != NULL && !tdict_hook_cancelled(hook));
  return status == TDICT_OK ? make_holder(pinned, out) : status;
}

static tdict_status move_holder(const void *self, const tdict_hook *hook, void **out, tdict_error *err) {
  tdict_tensor *moved = NULL;
  tdict_status status = tdict_hook_move(hook, ((const holder *)self)->tensor, &moved, err);
  TRUE(tdict_device_equal(hook->device, tdict_sim(0)));
  TRUE(tdict_device_equal(hook->stream.device, tdict_sim(0)));
  return status == TDICT_OK ? make_holder(moved, out) : status;
}

static void use_hooks(tdict_context *context) {
  const tdict_hook none = tdict_hook_default(); /* a program uses this to test the hooks of its types */
  const int64_t shape[1] = {8};
  tdict_type type = tdict_type_default();
  tdict_tree *td = NULL, *moved = NULL;
  tdict_tensor *tensor = NULL;
  void *object = NULL, *got = NULL;
  type.name = "holder";
  type.release = end_holder;
  type.pin_memory = pin_holder;
  type.to_device = move_holder;
  TRUE(none.struct_size == sizeof none && !none.context && !none.stream.handle);
  OK(tdict_tensor_zeros(TDICT_F32, 1, shape, NULL, &tensor, &last_error));
  OK(make_holder(tensor, &object));
  OK(tdict_pin_object(context, &type, object, NULL, &got, &last_error));
  TRUE(got != object && tdict_tensor_is_pinned(((holder *)got)->tensor));
  end_holder(got);
  OK(tdict_create(1, shape, &td, &last_error));
  OK(tdict_set_object(td, "object", &type, object, &last_error));
  OK(tdict_to_device(context, td, tdict_sim(0), NULL, &moved, &last_error));
  OK(tdict_set_to(context, moved, "moved", ((holder *)object)->tensor, &last_error));
  OK(tdict_get_object(moved, "object", &type, &got, &last_error));
  TRUE(tdict_device_equal(tdict_tensor_device(((holder *)got)->tensor), tdict_sim(0)));
  tdict_release(moved);
  tdict_release(td);
}

static void use_order(tdict_context *context, const tdict_tree *host) {
  tdict_future *future = NULL;
  tdict_tree *device = NULL;
  tdict_stream stream;
  OK(tdict_stream_create(context, tdict_sim(0), &stream, &last_error));
  OK(tdict_to_device_async(context, host, tdict_sim(0), NULL, &future, &last_error));
  OK(tdict_future_wait_on_stream(future, stream, &device, &last_error));
  OK(tdict_record_stream(device, stream, &last_error));
  OK(tdict_future_wait_source(future, &last_error));
  OK(tdict_future_wait(future, NULL, &last_error));
  tdict_future_cancel(future); /* has no effect, because the transfer is complete */
  TRUE(tdict_future_state(future) != TDICT_FUTURE_CANCELLED);
  tdict_future_release(future);
  tdict_release(device);
  OK(tdict_stream_synchronize(context, stream, &last_error));
  tdict_stream_destroy(context, stream);
}

static void use_transfers(tdict_context *context) {
  static const tdict_mode modes[] = {TDICT_MODE_AUTO, TDICT_MODE_BLOCKING, TDICT_MODE_NON_BLOCKING,
                                     TDICT_MODE_NON_BLOCKING_PIN};
  static const tdict_pin_path paths[] = {TDICT_PIN_NONE, TDICT_PIN_REGISTER, TDICT_PIN_DRIVER, TDICT_PIN_PAGEABLE,
                                         TDICT_PIN_SMALL_PIECES};
  const char *nothing = "?no.*.such";
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  tdict_transfer_options options = tdict_transfer_options_default();
  tdict_pin_options pin = tdict_pin_options_default();
  tdict_conversion conversion = tdict_conversion_default();
  tdict_image image = tdict_image_default();
  tdict_window window = {0, 0, true};
  tdict_tree *host = make_tree(NULL), *device = NULL, *pinned = NULL;
  tdict_future *into = NULL;
  size_t i;
  options.stats = &stats;
  for (i = 0; i < sizeof modes / sizeof modes[0]; i++) {
    options.mode = (int32_t)modes[i];
    tdict_release(device);
    OK(tdict_to_device(context, host, tdict_sim(0), &options, &device, &last_error));
    TRUE(stats.pin_path >= (int32_t)paths[0] && stats.pin_path <= (int32_t)paths[4]);
  }
  options.max_queued_bytes = (size_t)1 << 20;
  options.max_bytes_per_second = INT64_MAX;
  options.stats = NULL;
  OK(tdict_transfer_into_async(context, device, host, &options, &into, &last_error));
  OK(tdict_future_wait(into, NULL, &last_error));
  OK(tdict_future_get_stats(into, &stats, &last_error));
  tdict_future_release(into);
  TRUE(stats.peak_queued_bytes <= options.max_queued_bytes);
  options.max_bytes_per_second = 0;
  options.keep = pin.keep = &nothing;
  options.num_keep = pin.num_keep = 1;
  conversion.pattern = "?nothing";
  conversion.dtype = conversion.wire_dtype = TDICT_F16;
  options.conversions = &conversion;
  options.num_conversions = 1;
  options.narrow = 1;
  OK(tdict_transfer_into_async(context, device, host, &options, &into, &last_error));
  OK(tdict_future_take(into, NULL, &last_error));
  conversion.wire_dtype = 0;
  image.window_array = &window;
  image.num_windows = 1;
  conversion.image = &image;
  OK(tdict_transfer_into_async(context, device, host, &options, &into, &last_error));
  OK(tdict_future_take(into, NULL, &last_error));
  OK(tdict_pin_memory(context, host, &pin, &pinned, &last_error));
  TRUE(tdict_is_pinned(pinned) && !tdict_is_pinned(host));
  use_futures(context, host, device);
  use_context(context, device);
  use_hooks(context);
  use_order(context, host);
  use_own_memory(context);
  use_datasets();
  use_loader(context, host);
  tdict_release(pinned);
  tdict_release(device);
  tdict_release(host);
}
