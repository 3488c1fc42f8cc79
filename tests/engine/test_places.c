/* Tests calls with two devices. No call may change the CUDA context that is current on the calling thread. */
#include "pair.h"

#include <dlfcn.h>

enum { TRIES = 1000, ROWS = 4096 };

/* Moves trees from device 0 to device 1, and from there to the host, while the context of device 0 is current. */
static void between_two(const place *w, tdict_device second, void (*make_current)(const place *w)) {
  const int64_t shape[] = {ROWS, 7};
  for (int i = 0; i < TRIES; i++) {
    scoped_tree src = new_tree();
    td_put(src, "n.x", new_tensor(TDICT_F32, 2, shape, i % 2 ? w->pinned : NULL));
    put_number(w, td_leaf(src, "n.x"), 1000 + (uint64_t)i);
    make_current(w);
    scoped_tree one = moved(w, src, w->device), two = moved(w, one, second), back = moved(w, two, tdict_cpu());
    assert_true(tdict_device_equal(tdict_tensor_device(td_leaf(two, "n.x")), second));
    if (!has_number(w, td_leaf(back, "n.x"), 1000 + (uint64_t)i)) fail_msg("try %d: wrong bytes came back", i);
  }
}
static void sim_current(const place *w) { (void)w; }

SIM_CASE(two_simulated_devices) {
  scoped_place w = place_sim(4, 0, 2);
  tdict_cu_context popped, current;
  assert_int_equal(w.d->ops->ctx_push(w.d, w.gpu->context), 0);
  between_two(&w, tdict_sim(1), sim_current);
  assert_int_equal(w.d->ops->ctx_current(w.d, &current), 0);
  assert_ptr_equal(current, w.gpu->context);
  assert_int_equal(w.d->ops->ctx_pop(w.d, &popped), 0);
}

/* Moves trees between two devices after streams of both devices, and a tree with leaves on both devices. */
SIM_CASE(two_simulated_devices_in_one_tree) {
  scoped_place w = place_sim(4, 50e6, 2);
  scoped_tree src = numbered_tree(&w, NULL, 5), one = moved(&w, src, tdict_sim(0)), two = moved(&w, src, tdict_sim(1)),
              both = new_tree(), out = NULL;
  td_ok(tdict_set(both, "zero", td_leaf(one, "a"), err));
  td_ok(tdict_set(both, "one", td_leaf(two, "n.b"), err));
  td_ok(tdict_set(both, "host", td_leaf(src, "d"), err));
  const tdict_device places[] = {tdict_sim(0), tdict_sim(1), tdict_cpu()};
  for (int k = 0; k < 3 * 3; k++) {
    tdict_transfer_options o = threads(k / 3);
    out = finish(move_async(&w, both, places[k % 3], &o));
    assert_true(tdict_device_equal(tdict_tensor_device(td_leaf(out, "zero")), places[k % 3]));
    tdict_tree *back = moved(&w, out, tdict_cpu());
    assert_true(has_number(&w, td_leaf(back, "zero"), number_of_leaf(5, 0)));
    assert_true(has_number(&w, td_leaf(back, "one"), number_of_leaf(5, 1)));
    assert_true(has_number(&w, td_leaf(back, "host"), number_of_leaf(5, 3)));
    td_release(back, out);
  }
}

/* A copy between two devices waits for the legacy streams of both, so a kernel on a blocking stream of either device
 * delays it. */
static void behind_legacy_of(int ordinal, bool writes_existing) {
  scoped_place w = place_sim(4, 0, 2);
  scoped_tree src = numbered_tree(&w, NULL, 6), from = moved(&w, src, tdict_sim(1)), to = moved(&w, src, tdict_sim(0));
  tdict_device device = tdict_sim(ordinal);
  tdict_gpu *gpu;
  tdict_gpu_scope scope;
  tdict_cu_stream handle = NULL;
  gate g = {0};
  scoped_kernel k;
  td_ok(tdict_devices_gpu(tdict_context_devices(w.c), device, &gpu, err));
  td_ok(tdict_gpu_enter(gpu, &scope, err));
  assert_int_equal(w.d->ops->stream_create(w.d, &handle, TDICT_CU_STREAM_DEFAULT), 0);
  tdict_gpu_leave(gpu, &scope);
  tdict_tensor *a = td_leaf(ordinal ? from : to, "a");
  scoped_bytes fresh = td_alloc(tdict_tensor_bytes(a));
  td_fill_random(fresh, tdict_tensor_bytes(a), number_of_leaf(7, 0));
  kernel_launch(&k, (tdict_stream){device, handle}, a, &g, fresh);
  gate_await(&g, 1);
  tdict_future *f = writes_existing ? copy_async(&w, from, to, NULL) : move_async(&w, from, tdict_sim(0), NULL);
  check_pending(f);
  gate_open(&g);
  scoped_tree out = finish(f), back = moved(&w, out, tdict_cpu());
  assert_true(has_number(&w, td_leaf(back, "a"), number_of_leaf(ordinal ? 7 : 6, 0)));
  assert_true(has_number(&w, td_leaf(back, "d"), number_of_leaf(6, 3)));
  assert_true(wait_flag(&k.done));
  td_ok(tdict_gpu_enter(gpu, &scope, err));
  assert_int_equal(w.d->ops->stream_destroy(w.d, handle), 0);
  tdict_gpu_leave(gpu, &scope);
}
SIM_CASE(two_simulated_devices_follow_both_legacy_streams) {
  behind_legacy_of(1, false); /* of the source; into new memory */
  behind_legacy_of(1, true);
  behind_legacy_of(0, true); /* of the destination */
}

/* Copies a tree with leaves on all devices. Each copy must wait for all legacy streams. Stream `last` ends last. */
static void on_all_devices(const place *w, int last) {
  enum { DEVICES = 8 };
  static const char *const names[DEVICES] = {"a", "b", "c", "d", "e", "f", "g", "h"};
  scoped_tree src = new_tree();
  tdict_gpu *gpus[DEVICES];
  tdict_gpu_scope scope;
  tdict_cu_stream handles[DEVICES];
  gate gates[DEVICES] = {0};
  kernel k[DEVICES];
  unsigned char *fresh[DEVICES];
  for (int i = 0; i < DEVICES; i++) {
    const tdict_device device = tdict_sim(i);
    td_ok(tdict_devices_gpu(tdict_context_devices(w->c), device, &gpus[i], err));
    tdict_tensor *t = new_bytes(ROWS, &gpus[i]->memory);
    td_ok(tdict_gpu_enter(gpus[i], &scope, err));
    assert_int_equal(w->d->ops->stream_create(w->d, &handles[i], TDICT_CU_STREAM_DEFAULT), 0);
    tdict_gpu_leave(gpus[i], &scope);
    fresh[i] = td_alloc(ROWS);
    td_fill_random(fresh[i], ROWS, number_of_leaf(8, i));
    kernel_launch(&k[i], (tdict_stream){device, handles[i]}, t, &gates[i], fresh[i]);
    td_put(src, names[i], t);
  }
  tdict_future *f = move_async(w, src, tdict_cpu(), NULL);
  for (int i = 0; i < DEVICES; i++)
    if (i != last) gate_open(&gates[i]);
  for (int i = 0; i < DEVICES; i++)
    if (i != last) assert_true(wait_flag(&k[i].done));
  check_pending(f);
  gate_open(&gates[last]);
  scoped_tree out = finish(f);
  for (int i = 0; i < DEVICES; i++) {
    if (!has_number(w, td_leaf(out, names[i]), number_of_leaf(8, i))) fail_msg("leaf %d has wrong bytes", i);
    assert_true(wait_flag(&k[i].done));
    td_ok(tdict_gpu_enter(gpus[i], &scope, err));
    assert_int_equal(w->d->ops->stream_destroy(w->d, handles[i]), 0);
    tdict_gpu_leave(gpus[i], &scope);
    kernel_end(&k[i]);
    free(fresh[i]);
  }
}
SIM_CASE(eight_simulated_devices_follow_all_legacy_streams) {
  scoped_place w = place_sim(4, 0, 8);
  for (int last = 0; last < 8; last++) on_all_devices(&w, last);
}

/* libcuda functions, declared independently of tdict, whose declarations could be wrong. */
typedef struct cu_calls {
  int (*device_get)(int *device, int ordinal);
  int (*device_count)(int *count);
  int (*retain)(void **context, int device);
  int (*release)(int device);
  int (*set_current)(void *context);
  int (*get_current)(void **context);
} cu_calls;
static cu_calls cu;
static void *zero; /* the primary context of device 0 */
static void take(void *function, const char *name) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  void *found = library ? dlsym(library, name) : NULL;
  if (!found) fail_msg("libcuda.so.1 has no %s", name);
  memcpy(function, &found, sizeof found);
}
static void open_cu(void) {
  int device = 0;
  take(&cu.device_get, "cuDeviceGet");
  take(&cu.device_count, "cuDeviceGetCount");
  take(&cu.retain, "cuDevicePrimaryCtxRetain");
  take(&cu.release, "cuDevicePrimaryCtxRelease_v2");
  take(&cu.set_current, "cuCtxSetCurrent");
  take(&cu.get_current, "cuCtxGetCurrent");
  assert_int_equal(cu.device_get(&device, 0), 0);
  assert_int_equal(cu.retain(&zero, device), 0);
}
static void close_cu(void) {
  int device = 0;
  assert_int_equal(cu.set_current(NULL), 0);
  assert_int_equal(cu.device_get(&device, 0), 0);
  assert_int_equal(cu.release(device), 0);
}
static void cuda_current(const place *w) {
  (void)w;
  assert_int_equal(cu.set_current(zero), 0);
}

CUDA_CASE(two_gpus_between_devices_and_back) {
  scoped_place w = place_open(4);
  int count = 0;
  open_cu();
  assert_int_equal(cu.device_count(&count), 0);
  if (count < 2) {
    close_cu();
    place_close(&w);
    td_skip("this machine has fewer than two GPUs");
  }
  between_two(&w, tdict_cuda(1), cuda_current);
  void *current = NULL;
  assert_int_equal(cu.get_current(&current), 0);
  assert_ptr_equal(current, zero);
  close_cu();
}

/* A function for put_pair_with() that does nothing. */
static tdict_status just_move(const pair *self, const tdict_hook *hook, tdict_error *err) {
  (void)self, (void)err, (void)hook;
  return TDICT_OK;
}
static void call_everything(place *w) {
  scoped_probe p = {0};
  scoped_tree src = numbered_tree(w, NULL, 9);
  tdict_tree *out = NULL, *back = NULL;
  put_pair(src, "pair", &pair_hooked, &p, 1)->also = just_move;
  put_pair(src, "flat", &pair_flat, &p, 2);
  for (int k = 0; k < 4 * 3; k++) {
    tdict_transfer_options o = td_with(tdict_transfer_options, num_threads = k % 3 - 1, mode = k / 3);
    td_ok(tdict_to_device(w->c, src, w->device, &o, &out, err));
    tdict_future *f = move_async(w, out, tdict_cpu(), &o);
    tdict_stream s = new_stream(w);
    td_ok(tdict_record_stream(out, s, err));
    td_ok(tdict_future_wait_on_stream(f, s, NULL, err));
    td_ok(tdict_future_wait(f, &back, err));
    tdict_future_release(f);
    tdict_stream_destroy(w->c, s);
    td_release(back, out);
    tdict_release(td_made(tree, tdict_pin_memory(w->c, src, NULL, &made, err)));
    tdict_context_trim(w->c, w->device, 0);
    tdict_context_trim(w->c, tdict_cpu(), 0);
  }
}

SIM_CASE(context_of_the_program_is_left_as_found_on_sim) {
  scoped_place w = place_sim(2, 0, 2);
  tdict_cu_context one, now;
  int mode;
  assert_int_equal(w.d->ops->ctx_retain(w.d, 1, &one), 0);
  for (int k = 0; k < 3; k++) { /* the current context: none, the device's, or another device's */
    tdict_cu_context mine = k == 0 ? NULL : k == 1 ? w.gpu->context : one;
    if (mine) assert_int_equal(w.d->ops->ctx_push(w.d, mine), 0);
    mode = TDICT_CU_CAPTURE_THREAD_LOCAL; /* calls must not change the capture mode either */
    w.d->ops->capture_mode(w.d, &mode);
    call_everything(&w);
    assert_int_equal(w.d->ops->ctx_current(w.d, &now), 0);
    assert_ptr_equal(now, mine);
    mode = TDICT_CU_CAPTURE_GLOBAL;
    w.d->ops->capture_mode(w.d, &mode);
    assert_int_equal(mode, TDICT_CU_CAPTURE_THREAD_LOCAL);
    if (mine) assert_int_equal(w.d->ops->ctx_pop(w.d, &now), 0);
    assert_int_equal(w.d->ops->ctx_current(w.d, &now), 0);
    assert_null(now);
  }
  assert_int_equal(w.d->ops->ctx_release(w.d, 1), 0);
}

CUDA_CASE(context_of_the_program_is_left_as_found_on_cuda) {
  scoped_place w = place_open(2);
  open_cu();
  for (int k = 0; k < 2; k++) {
    void *mine = k ? zero : NULL, *now = &w;
    assert_int_equal(cu.set_current(mine), 0);
    call_everything(&w);
    assert_int_equal(cu.get_current(&now), 0);
    assert_ptr_equal(now, mine);
  }
  close_cu();
}

GPU_CASE(checked_data_refuses_device_tensors) {
  scoped_place w = place_open(2);
  scoped_tree src = new_tree(), out = NULL;
  td_put(src, "n.x", new_tensor(TDICT_F32, 1, (const int64_t[]){4}, NULL));
  out = moved(&w, src, w.device);
  td_last_error = (tdict_error){0};
  assert_null(tdict_checked_data(out, "n.x", TDICT_F32, TDICT_SHAPE(4), &td_last_error));
  assert_int_equal(td_last_error.status, TDICT_EWRONGDEVICE);
  assert_string_equal(td_last_error.path, "n.x");
  assert_non_null(strstr(td_last_error.message, "wanted host memory; call tdict_to_device()"));
  assert_null(tdict_checked_const_data(out, "n.x", TDICT_F32, TDICT_SHAPE(4), NULL));
  assert_non_null(tdict_checked_const_data(src, "n.x", TDICT_F32, TDICT_SHAPE(4), NULL));
}
