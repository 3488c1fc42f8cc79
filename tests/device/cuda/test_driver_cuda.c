/* Tests driver_cuda.c through the driver's table. Each body runs twice: on a GPU (`..._gpu`), and on the stand-in of
 * fake_libcuda.c (`..._fake`), which runs on any machine and refuses arguments that the manual forbids. */
#include "device/cuda/cuda_table.h"

static void names(fixture *b) {
  int count = 0, value = 0;
  char name[128] = "";
  assert_int_equal(b->d->device_type, TDICT_DEVICE_CUDA);
  cu_ok(device_count(b->d, &count));
  assert_true(count >= 1);
  cu_ok(device_name(b->d, 0, name, sizeof name));
  assert_true(strlen(name) > 0 && strlen(name) < sizeof name);
  cu_ok(device_attribute(b->d, 0, TDICT_CU_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &value));
  assert_true(b->fake ? value == TDICT_CU_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR : value >= 3 && value < 100);
  cu_ok(device_attribute(b->d, 0, TDICT_CU_ATTRIBUTE_MULTIPROCESSOR_COUNT, &value));
  assert_true(value > 0);
  cu_ok(device_attribute(b->d, 0, TDICT_CU_ATTRIBUTE_ASYNC_ENGINE_COUNT, &value));
  assert_true(value > 0);
  assert_int_equal(b->ops->device_name(b->d, count, name, sizeof name), TDICT_CU_INVALID_DEVICE);
  assert_int_equal(b->ops->device_attribute(b->d, -1, TDICT_CU_ATTRIBUTE_PCI_BUS_ID, &value), TDICT_CU_INVALID_DEVICE);
}
CUDA_CASE(cuda_open_and_names_gpu) { on_gpu(names); }
CASE(cuda_open_and_names_fake) { on_fake(names); }

/* Like drivers before CUDA 12.8, the stand-in has no function for batches of copies. */
static void batches(fixture *b) {
  const tdict_cu_copy copy = {0};
  assert_int_equal(b->ops->copy_batch_async(b->d, TDICT_CU_H2D, &copy, 1, NULL), TDICT_CU_NOT_SUPPORTED);
}
CASE(cuda_batches_fake) { on_fake(batches); }

static void contexts(fixture *b) {
  tdict_cu_context now = NULL, again = NULL, popped = NULL;
  void *device = NULL;
  cu_ok(ctx_current(b->d, &now));
  assert_ptr_equal(now, b->context);
  cu_ok(ctx_retain(b->d, 0, &again));
  assert_ptr_equal(again, b->context); /* a device has one primary context */
  cu_ok(ctx_release(b->d, 0));
  cu_ok(ctx_push(b->d, b->context));
  cu_ok(ctx_pop(b->d, &popped));
  assert_ptr_equal(popped, b->context);
  cu_ok(ctx_pop(b->d, &popped)); /* the context that run_body() has pushed */
  cu_ok(ctx_current(b->d, &now));
  assert_null(now);
  assert_int_equal(b->ops->mem_alloc(b->d, &device, 4096), TDICT_CU_INVALID_CONTEXT);
  assert_null(device);
  assert_int_equal(b->ops->ctx_pop(b->d, &popped), TDICT_CU_INVALID_CONTEXT);
  int there = 0;
  tdict_cu_pointer p;
  cu_ok(pointer(b->d, &there, &p)); /* needs no context */
  assert_false(p.known);
  cu_ok(ctx_push(b->d, b->context));
}
CUDA_CASE(cuda_context_push_and_pop_gpu) { on_gpu(contexts); }
CASE(cuda_context_push_and_pop_fake) { on_fake(contexts); }

static void copy_of(fixture *b, size_t bytes, int seed) {
  scoped_bytes source = filled(bytes, seed), result = filled(bytes, 0);
  void *one = device_filled(b, bytes), *two = device_filled(b, bytes), *pinned = NULL;
  put(b, one, source, bytes);
  cu_now(copy_d2h_async, result, two, bytes);
  for (size_t i = 0; i < bytes; i++) assert_int_equal(result[i], 0xA5); /* the second block is unchanged */
  cu_now(copy_d2h_async, result, one, bytes);
  assert_memory_equal(result, source, bytes);

  td_fill_random(source, bytes, (uint64_t)seed + 1000);
  memset(result, 0xA5, bytes);
  cu_ok(host_alloc(b->d, &pinned, bytes, TDICT_CU_HOST_PORTABLE));
  memcpy(pinned, source, bytes);
  tdict_cu_stream s = NULL;
  cu_ok(stream_create(b->d, &s, TDICT_CU_STREAM_NON_BLOCKING));
  cu_ok(copy_h2d_async(b->d, one, pinned, bytes, s));
  cu_ok(copy_d2d_async(b->d, two, one, bytes, s));
  cu_ok(stream_synchronize(b->d, s));
  memset(pinned, 0xA5, bytes);
  cu_ok(copy_d2h_async(b->d, pinned, two, bytes, s));
  cu_ok(stream_synchronize(b->d, s));
  assert_memory_equal(pinned, source, bytes);
  cu_ok(stream_destroy(b->d, s));
  cu_ok(host_free(b->d, pinned, bytes));
  cu_ok(mem_free(b->d, one));
  cu_ok(mem_free(b->d, two));
}
static void copies(fixture *b) {
  copy_of(b, 1, 1);
  copy_of(b, 4097, 2);
  copy_of(b, ((size_t)3 << 20) + 13, 3);
}
CUDA_CASE(cuda_copies_round_trip_gpu) { on_gpu(copies); }
CASE(cuda_copies_round_trip_fake) { on_fake(copies); }

static void check_range(fixture *b, void *address, size_t bytes, bool device) {
  for (int i = 0; i < 2; i++) {
    tdict_cu_pointer p;
    memset(&p, 0xA5, sizeof p);
    cu_ok(pointer(b->d, (char *)address + (i ? bytes - 1 : 0), &p)); /* the first byte, then the last byte */
    assert_true(p.known);
    assert_int_equal(p.device, device);
    assert_int_equal(p.ordinal, 0);
    assert_true((char *)p.range <= (char *)address);
    assert_true((char *)p.range + p.range_bytes >= (char *)address + bytes);
    assert_true(p.range_bytes < (size_t)1 << 30); /* a size, not an end address */
  }
}
static void check_unknown(fixture *b, void *address) {
  tdict_cu_pointer p;
  memset(&p, 0xA5, sizeof p);
  cu_ok(pointer(b->d, address, &p));
  assert_false(p.known);
  assert_false(p.device);
}
static void pinned(fixture *b) {
  enum { PAGE = 4096, BYTES = 8 * PAGE };
  void *host = aligned_alloc(PAGE, BYTES), *taken = NULL, *device = NULL;
  assert_non_null(host);
  check_unknown(b, host);
  cu_ok(host_register(b->d, host, BYTES, TDICT_CU_HOST_PORTABLE));
  check_range(b, host, BYTES, false);
  assert_int_equal(b->ops->host_register(b->d, host, BYTES, TDICT_CU_HOST_PORTABLE),
                   TDICT_CU_HOST_MEMORY_ALREADY_REGISTERED);
  cu_ok(host_unregister(b->d, host, BYTES));
  check_unknown(b, host);
  assert_int_not_equal(b->ops->host_unregister(b->d, host, BYTES), TDICT_CU_SUCCESS);
  free(host);

  cu_ok(host_alloc(b->d, &taken, BYTES, TDICT_CU_HOST_PORTABLE));
  check_range(b, taken, BYTES, false);
  memset(taken, 0xA5, BYTES);
  cu_ok(host_free(b->d, taken, BYTES));
  cu_ok(mem_alloc(b->d, &device, BYTES));
  check_range(b, device, BYTES, true);
  cu_ok(mem_free(b->d, device));
}
CUDA_CASE(cuda_pinned_and_pointers_gpu) { on_gpu(pinned); }
CASE(cuda_pinned_and_pointers_fake) { on_fake(pinned); }

static uint64_t pool_value(fixture *b, tdict_cu_pool pool, int attribute) {
  uint64_t value = 0xA5A5A5A5A5A5A5A5u;
  cu_ok(pool_get(b->d, pool, attribute, &value));
  return value;
}
static void pools(fixture *b) {
  const size_t bytes = ((size_t)5 << 20) + 3;
  tdict_cu_pool pool = NULL;
  tdict_cu_stream s = NULL;
  void *one = NULL;
  cu_ok(pool_create(b->d, 0, &pool));
  cu_ok(stream_create(b->d, &s, TDICT_CU_STREAM_NON_BLOCKING));
  cu_ok(pool_set(b->d, pool, TDICT_CU_POOL_RELEASE_THRESHOLD, (uint64_t)1 << 40)); /* needs more than 32 bits */
  assert_true(pool_value(b, pool, TDICT_CU_POOL_RELEASE_THRESHOLD) == (uint64_t)1 << 40);
  for (int attribute = 1; attribute <= 3; attribute++) {
    for (uint64_t value = 0; value < 2; value++) {
      cu_ok(pool_set(b->d, pool, attribute, value));
      assert_int_equal(pool_value(b, pool, attribute), value);
    }
  }
  assert_int_equal(pool_value(b, pool, TDICT_CU_POOL_USED_MEM_CURRENT), 0);

  scoped_bytes source = filled(bytes, 7), result = filled(bytes, 0);
  cu_ok(mem_alloc_async(b->d, &one, bytes, pool, s));
  cu_ok(fill_async(b->d, one, 0xA5, bytes, s));
  cu_ok(copy_h2d_async(b->d, one, source, bytes, s));
  cu_ok(copy_d2h_async(b->d, result, one, bytes, s));
  cu_ok(stream_synchronize(b->d, s));
  assert_memory_equal(result, source, bytes);
  check_range(b, one, bytes, true);
  uint64_t used = pool_value(b, pool, TDICT_CU_POOL_USED_MEM_CURRENT);
  assert_true(used >= bytes);
  assert_true(pool_value(b, pool, TDICT_CU_POOL_RESERVED_MEM_CURRENT) >= used);

  cu_ok(mem_free_async(b->d, one, s));
  cu_ok(stream_synchronize(b->d, s));
  assert_int_equal(pool_value(b, pool, TDICT_CU_POOL_USED_MEM_CURRENT), 0);
  assert_true(pool_value(b, pool, TDICT_CU_POOL_RESERVED_MEM_CURRENT) >= bytes); /* the pool keeps these bytes */
  cu_ok(pool_trim(b->d, pool, 0));
  assert_int_equal(pool_value(b, pool, TDICT_CU_POOL_RESERVED_MEM_CURRENT), 0);
  cu_ok(stream_destroy(b->d, s));
  cu_ok(pool_destroy(b->d, pool));
}
CUDA_CASE(cuda_pools_alloc_and_trim_gpu) { on_gpu(pools); }
CASE(cuda_pools_alloc_and_trim_fake) { on_fake(pools); }

static void events(fixture *b) {
  const size_t bytes = (size_t)16 << 20;
  tdict_cu_stream one = NULL, two = NULL;
  tdict_cu_event from = NULL, to = NULL, never = NULL;
  float milliseconds = -1;
  int status = -1;
  void *host = NULL, *device = device_filled(b, bytes);
  scoped_bytes source = filled(bytes, 8);
  cu_ok(host_alloc(b->d, &host, 2 * bytes, TDICT_CU_HOST_PORTABLE));
  memcpy(host, source, bytes);
  memset((char *)host + bytes, 0xA5, bytes);
  cu_ok(stream_create(b->d, &one, TDICT_CU_STREAM_NON_BLOCKING));
  cu_ok(stream_create(b->d, &two, TDICT_CU_STREAM_NON_BLOCKING));
  cu_ok(event_create(b->d, &from, TDICT_CU_EVENT_DEFAULT));
  cu_ok(event_create(b->d, &to, TDICT_CU_EVENT_DEFAULT));
  cu_ok(event_create(b->d, &never, TDICT_CU_EVENT_BLOCKING_SYNC | TDICT_CU_EVENT_DISABLE_TIMING));
  cu_ok(stream_query(b->d, one));
  cu_ok(event_query(b->d, never)); /* an event that was never recorded is complete */
  cu_ok(event_synchronize(b->d, never));
  cu_ok(stream_wait_event(b->d, one, never));
  cu_ok(stream_capture_status(b->d, one, &status));
  assert_int_equal(status, TDICT_CU_CAPTURE_STATUS_NONE);

  cu_ok(event_record(b->d, from, one));
  cu_ok(copy_h2d_async(b->d, device, host, bytes, one));
  cu_ok(event_record(b->d, to, one));
  cu_ok(stream_wait_event(b->d, two, to));
  cu_ok(copy_d2h_async(b->d, (char *)host + bytes, device, bytes, two));
  cu_ok(stream_synchronize(b->d, two)); /* waits only for the second stream */
  assert_memory_equal((char *)host + bytes, source, bytes);
  cu_ok(event_synchronize(b->d, to));
  cu_ok(event_query(b->d, to));
  cu_ok(event_elapsed(b->d, &milliseconds, from, to));
  assert_true(milliseconds > 0 && milliseconds < 10000);
  cu_ok(event_record(b->d, never, one));
  cu_ok(event_synchronize(b->d, never));
  assert_int_equal(b->ops->event_elapsed(b->d, &milliseconds, from, never), TDICT_CU_INVALID_HANDLE);
  cu_ok(event_destroy(b->d, from));
  cu_ok(event_destroy(b->d, to));
  cu_ok(event_destroy(b->d, never));
  cu_ok(stream_destroy(b->d, one));
  cu_ok(stream_destroy(b->d, two));
  cu_ok(host_free(b->d, host, 2 * bytes));
  cu_ok(mem_free(b->d, device));
}
CUDA_CASE(cuda_events_and_streams_gpu) { on_gpu(events); }
CASE(cuda_events_and_streams_fake) { on_fake(events); }

enum { ROWS = 33, WIDTH = 101, TIGHT = 101, LOOSE = 160, LOOSER = 192 };

/* Checks that `got` has the rows of `want`, and 0xA5 between its rows. */
static void check_rows(const unsigned char *got, size_t pitch, const unsigned char *want, size_t want_pitch) {
  for (size_t row = 0; row < ROWS; row++) {
    assert_memory_equal(got + row * pitch, want + row * want_pitch, WIDTH);
    for (size_t i = WIDTH; i < pitch; i++) assert_int_equal(got[row * pitch + i], 0xA5);
  }
}
static void rectangles(fixture *b) {
  scoped_bytes source = filled(ROWS * LOOSE, 9), result = filled(ROWS * LOOSER, 0);
  void *one = device_filled(b, ROWS * TIGHT), *two = device_filled(b, ROWS * LOOSER), *host = NULL;
  tdict_cu_stream s = NULL;
  cu_ok(host_alloc(b->d, &host, ROWS * LOOSER, TDICT_CU_HOST_PORTABLE));
  cu_ok(stream_create(b->d, &s, TDICT_CU_STREAM_NON_BLOCKING));
  memcpy(host, source, ROWS * LOOSE);
  const tdict_cu_rect in = {TDICT_CU_H2D, one, host, TIGHT, LOOSE, WIDTH, ROWS};
  const tdict_cu_rect across = {TDICT_CU_D2D, two, one, LOOSER, TIGHT, WIDTH, ROWS};
  const tdict_cu_rect back = {TDICT_CU_D2H, host, two, LOOSE, LOOSER, WIDTH, ROWS};
  cu_ok(copy_rect_async(b->d, &in, s));
  cu_ok(copy_rect_async(b->d, &across, s));
  cu_ok(stream_synchronize(b->d, s));
  cu_now(copy_d2h_async, result, one, ROWS * TIGHT);
  check_rows(result, TIGHT, source, LOOSE);
  cu_now(copy_d2h_async, result, two, ROWS * LOOSER);
  check_rows(result, LOOSER, source, LOOSE);
  memset(host, 0xA5, ROWS * LOOSER);
  cu_ok(copy_rect_async(b->d, &back, s));
  cu_ok(stream_synchronize(b->d, s));
  check_rows(host, LOOSE, source, LOOSE);
  cu_ok(stream_destroy(b->d, s));
  cu_ok(host_free(b->d, host, ROWS * LOOSER));
  cu_ok(mem_free(b->d, one));
  cu_ok(mem_free(b->d, two));
}
CUDA_CASE(cuda_rectangles_gpu) { on_gpu(rectangles); }
CASE(cuda_rectangles_fake) { on_fake(rectangles); }

/* Tests copies between two contexts. Here both are the same context. */
static void peers(fixture *b) {
  scoped_bytes source = filled(ROWS * LOOSE, 10), result = filled(ROWS * LOOSER, 0);
  void *one = device_filled(b, ROWS * LOOSE), *two = device_filled(b, ROWS * LOOSER);
  tdict_cu_stream s = NULL;
  cu_ok(stream_create(b->d, &s, TDICT_CU_STREAM_NON_BLOCKING));
  put(b, one, source, ROWS * LOOSE);
  const tdict_cu_rect across = {TDICT_CU_D2D, two, one, LOOSER, LOOSE, WIDTH, ROWS};
  const tdict_cu_rect line = {TDICT_CU_D2D, two, one, ROWS * LOOSE, ROWS * LOOSE, ROWS * LOOSE, 1};
  cu_ok(copy_peer_async(b->d, &across, b->context, b->context, s));
  cu_ok(stream_synchronize(b->d, s));
  cu_now(copy_d2h_async, result, two, ROWS * LOOSER);
  check_rows(result, LOOSER, source, LOOSE);
  cu_ok(copy_peer_async(b->d, &line, b->context, b->context, s));
  cu_ok(stream_synchronize(b->d, s));
  cu_now(copy_d2h_async, result, two, ROWS * LOOSE);
  assert_memory_equal(result, source, ROWS * LOOSE);
  cu_ok(stream_destroy(b->d, s));
  cu_ok(mem_free(b->d, one));
  cu_ok(mem_free(b->d, two));
}
CUDA_CASE(cuda_peer_copies_gpu) { on_gpu(peers); }
CASE(cuda_peer_copies_fake) {
  load_fake("fake_libcuda.so")->device_count = 2;
  on_fake(peers);
  tdict_cu_pool pool = NULL;
  int can = -1;
  scoped_driver d = td_made(driver, open_cuda(&made, err));
  fixture it = {.d = d, .ops = d->ops}, *b = &it;
  cu_ok(device_can_reach(d, 0, 1, &can));
  assert_int_equal(can, 1);
  cu_ok(device_can_reach(d, 1, 0, &can)); /* on the stand-in, device 1 cannot reach device 0 */
  assert_int_equal(can, 0);
  assert_int_equal(d->ops->device_can_reach(d, 0, 2, &can), TDICT_CU_INVALID_DEVICE);
  cu_ok(pool_create(d, 0, &pool));
  cu_ok(pool_allow_peer(d, pool, 1)); /* the stand-in checks the arguments */
  cu_ok(pool_destroy(d, pool));
  tdict_cu_context context = NULL;
  cu_ok(ctx_retain(d, 0, &context));
  cu_ok(ctx_allow_peer(d, context)); /* the stand-in checks this argument, too */
  cu_ok(ctx_release(d, 0));
}

static void capture_modes(fixture *b) {
  int mode = TDICT_CU_CAPTURE_RELAXED;
  cu_ok(capture_mode(b->d, &mode));
  assert_int_equal(mode, TDICT_CU_CAPTURE_GLOBAL);
  mode = TDICT_CU_CAPTURE_THREAD_LOCAL;
  cu_ok(capture_mode(b->d, &mode));
  assert_int_equal(mode, TDICT_CU_CAPTURE_RELAXED);
  mode = TDICT_CU_CAPTURE_GLOBAL;
  cu_ok(capture_mode(b->d, &mode));
  assert_int_equal(mode, TDICT_CU_CAPTURE_THREAD_LOCAL);
}
CUDA_CASE(cuda_capture_mode_exchange_gpu) { on_gpu(capture_modes); }
CASE(cuda_capture_mode_exchange_fake) { on_fake(capture_modes); }

/* Begins captures with functions of libcuda that are not in the driver's table. */
static void capture_status(fixture *b) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *graph = NULL, *found;
  assert_non_null(library);
  int (*begin)(void *, int), (*end)(void *, void **), (*destroy)(void *);
  assert_non_null(found = dlsym(library, "cuStreamBeginCapture_v2"));
  memcpy(&begin, &found, sizeof found);
  assert_non_null(found = dlsym(library, "cuStreamEndCapture"));
  memcpy(&end, &found, sizeof found);
  assert_non_null(found = dlsym(library, "cuGraphDestroy"));
  memcpy(&destroy, &found, sizeof found);
  tdict_cu_stream s = NULL;
  int status = -1;
  cu_ok(stream_create(b->d, &s, TDICT_CU_STREAM_NON_BLOCKING));
  assert_int_equal(begin(s, TDICT_CU_CAPTURE_THREAD_LOCAL), 0);
  cu_ok(stream_capture_status(b->d, s, &status));
  assert_int_equal(status, TDICT_CU_CAPTURE_STATUS_ACTIVE);
  assert_int_equal(end(s, &graph), 0);
  assert_int_equal(destroy(graph), 0);
  cu_ok(stream_capture_status(b->d, s, &status));
  assert_int_equal(status, TDICT_CU_CAPTURE_STATUS_NONE);
  cu_ok(stream_destroy(b->d, s));
}
CUDA_CASE(cuda_capture_status_gpu) { on_gpu(capture_status); }

static void fills(fixture *b) {
  enum { BYTES = 1000 };
  unsigned char result[BYTES] = {0};
  void *device = device_filled(b, BYTES);
  tdict_cu_stream s = NULL;
  cu_ok(stream_create(b->d, &s, TDICT_CU_STREAM_NON_BLOCKING));
  cu_ok(fill_async(b->d, (char *)device + 101, 0x3C, 777, s));
  cu_ok(stream_synchronize(b->d, s));
  cu_now(copy_d2h_async, result, device, BYTES);
  for (int i = 0; i < BYTES; i++) assert_int_equal(result[i], i >= 101 && i < 878 ? 0x3C : 0xA5);
  cu_ok(stream_destroy(b->d, s));
  cu_ok(mem_free(b->d, device));
}
CUDA_CASE(cuda_fill_gpu) { on_gpu(fills); }
CASE(cuda_fill_fake) { on_fake(fills); }

static void error_texts(fixture *b) {
  const char *name = NULL, *text = NULL;
  cu_ok(error_text(b->d, TDICT_CU_OUT_OF_MEMORY, &name, &text));
  assert_string_equal(name, "CUDA_ERROR_OUT_OF_MEMORY");
  assert_true(strlen(text) > 0);
  cu_ok(error_text(b->d, TDICT_CU_NOT_READY, &name, &text));
  assert_string_equal(name, "CUDA_ERROR_NOT_READY");
  assert_int_equal(b->ops->error_text(b->d, 123456, &name, &text), TDICT_CU_INVALID_VALUE);
  assert_non_null(name); /* valid strings despite the error */
  assert_string_not_equal(name, "CUDA_ERROR_NOT_READY");
  assert_non_null(text);
}
CUDA_CASE(cuda_error_text_gpu) { on_gpu(error_texts); }
CASE(cuda_error_text_fake) { on_fake(error_texts); }

CASE(cuda_reports_missing_library) {
  tdict_driver *d = NULL;
  tdict_error err = {0};
  tdict_status status = open_cuda(&d, &err);
  if (status == TDICT_OK) {
    tdict_driver_release(d);
    td_skip("there is a GPU");
  }
  assert_int_equal(status, TDICT_ENODEVICE);
  assert_int_equal(err.status, TDICT_ENODEVICE);
  assert_null(d);
  printf("%s\n", err.message);
  assert_true(strlen(err.message) > strlen("no NVIDIA driver: "));
  assert_int_equal(open_cuda(&d, NULL), TDICT_ENODEVICE);
}

CASE(cuda_reports_old_driver) {
  load_fake("fake_libcuda.so")->version = 11040;
  tdict_driver *d = NULL;
  td_fails(TDICT_ENODEVICE, "is for CUDA 11.4, wanted 12.0", open_cuda(&d, err));
  assert_null(d);
}

CASE(cuda_reports_version_failure) {
  load_fake("fake_libcuda.so")->version_result = 34; /* CUDA_ERROR_STUB_LIBRARY */
  tdict_driver *d = NULL;
  td_fails(TDICT_ENODEVICE, "34", open_cuda(&d, err));
  assert_int_equal(td_last_error.native, 34);
  assert_null(d);
}

CASE(cuda_reports_init_failure) {
  fake_settings *settings = load_fake("fake_libcuda.so");
  tdict_driver *d = NULL;
  settings->init_result = TDICT_CU_NO_DEVICE;
  td_fails(TDICT_ENODEVICE, "cuInit returned CUDA_ERROR_NO_DEVICE (a text", open_cuda(&d, err));
  assert_int_equal(td_last_error.native, TDICT_CU_NO_DEVICE);
  settings->init_result = 803; /* the stand-in has no name for this code */
  td_fails(TDICT_ENODEVICE, "unknown error code", open_cuda(&d, err));
  assert_int_equal(td_last_error.native, 803);
  assert_null(d);
}

CASE(cuda_reports_missing_devices) {
  load_fake("fake_libcuda.so")->device_count = 0;
  tdict_driver *d = NULL;
  td_fails(TDICT_ENODEVICE, "no GPU", open_cuda(&d, err));
  assert_int_equal(td_last_error.native, TDICT_CU_NO_DEVICE);
  assert_null(d);
}

CASE(cuda_reports_missing_entry) {
  load_fake("fake_libcuda.so")->missing = "cuMemAllocFromPoolAsync";
  tdict_driver *d = NULL;
  td_fails(TDICT_ENODEVICE, "lacks cuMemAllocFromPoolAsync of CUDA 11.2", open_cuda(&d, err));
  assert_int_equal(td_last_error.native, TDICT_CU_NOT_FOUND);
  assert_null(d);
}

/* Without cuGetProcAddress_v2, the driver finds the entries with dlsym(). */
CASE(cuda_opens_without_cuGetProcAddress) {
  fake_settings *settings = load_fake("fake_libcuda_symbols.so");
  tdict_driver *d = td_made(driver, open_cuda(&made, err));
  assert_int_equal(settings->lookups, 0);
  run_body(d, true, copies);
}
