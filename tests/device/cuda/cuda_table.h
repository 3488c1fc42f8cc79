/* Helpers for tests of driver_cuda.c: a fixture over a GPU's driver, or over the stand-in in fake_libcuda.c. */
#ifndef TDICT_TESTS_DEVICE_CUDA_CUDA_TABLE_H
#define TDICT_TESTS_DEVICE_CUDA_CUDA_TABLE_H

#include <dlfcn.h>
#include <unistd.h>

#include "device/cuda/fake_libcuda.h"
#include "device/driver.h"
#include "support/test.h"

#ifndef TDICT_CUDA
#define TDICT_CUDA 1
#endif

/* The argument of a case's body: a driver, with the primary context of device 0 current. */
typedef struct fixture {
  tdict_driver *d;
  const tdict_driver_ops *ops;
  tdict_cu_context context;
  bool fake;
} fixture;

static inline tdict_status open_cuda(tdict_driver **out, tdict_error *err) {
#if TDICT_CUDA
  return tdict_driver_cuda_open(out, err);
#else
  (void)out;
  (void)err;
  td_skip("built without CUDA");
#endif
}

static inline void cu_ok_(fixture *b, tdict_cu result, const char *call) {
  if (result == TDICT_CU_SUCCESS) return;
  const char *name, *text;
  b->ops->error_text(b->d, result, &name, &text);
  fail_msg("%s: %d %s: %s", call, result, name, text);
}
#define cu_ok(call) cu_ok_(b, b->ops->call, #call)
/* Makes a copy on the legacy stream, and waits for it. */
#define cu_now(entry, ...) cu_ok(entry(b->d, __VA_ARGS__, NULL)), cu_ok(stream_synchronize(b->d, NULL))

static inline void run_body(tdict_driver *d, bool fake, void (*body)(fixture *b)) {
  fixture it = {.d = d, .ops = d->ops, .fake = fake};
  fixture *b = &it;
  tdict_cu_context popped = NULL;
  cu_ok(ctx_retain(d, 0, &b->context));
  cu_ok(ctx_push(d, b->context));
  body(b);
  cu_ok(ctx_pop(d, &popped));
  assert_ptr_equal(popped, b->context);
  cu_ok(ctx_release(d, 0));
  tdict_driver_release(d);
}

/* Opens the real driver, or skips the case. */
static inline tdict_driver *need_cuda(void) {
  tdict_driver *d = NULL;
  tdict_error err = {0};
  tdict_status status = open_cuda(&d, &err);
  if (status == TDICT_ENODEVICE) td_skip(err.message);
  if (status != TDICT_OK) fail_msg("%s: %s", tdict_status_name(status), err.message);
  return d;
}

static inline void on_gpu(void (*body)(fixture *b)) { run_body(need_cuda(), false, body); }

/* Loads a stand-in from the folder of this program. A later dlopen() of libcuda.so.1 returns the stand-in. */
static inline fake_settings *load_fake(const char *file) {
#if !TDICT_CUDA
  td_skip("built without CUDA");
#endif
  char path[4096];
  ssize_t length = readlink("/proc/self/exe", path, sizeof path - 64);
  assert_true(length > 0);
  path[length] = 0;
  char *slash = strrchr(path, '/');
  assert_non_null(slash);
  strcpy(slash + 1, file);
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) fail_msg("%s", dlerror());
  fake_settings *settings = dlsym(library, "fake_libcuda");
  assert_non_null(settings);
  return settings;
}

static inline void on_fake(void (*body)(fixture *b)) {
  fake_settings *settings = load_fake("fake_libcuda.so");
  tdict_driver *d = td_made(driver, open_cuda(&made, err));
  assert_true(settings->lookups > 40); /* one lookup for each entry, through cuGetProcAddress */
  run_body(d, true, body);
}

static inline unsigned char *filled(size_t bytes, int seed) {
  unsigned char *p = td_alloc(bytes);
  if (seed)
    td_fill_random(p, bytes, (uint64_t)seed);
  else
    memset(p, 0xA5, bytes);
  return p;
}

/* Copies bytes to the device and waits for them. A small copy may return before the bytes arrive, and non-blocking
 * streams do not wait for the default stream, so the function reads a byte back. */
static inline void put(fixture *b, void *device, const void *host, size_t bytes) {
  unsigned char first;
  cu_now(copy_h2d_async, device, host, bytes);
  cu_now(copy_d2h_async, &first, device, sizeof first);
}

/* Allocates device memory filled with 0xA5. */
static inline void *device_filled(fixture *b, size_t bytes) {
  scoped_bytes old = filled(bytes, 0);
  void *device = NULL;
  cu_ok(mem_alloc(b->d, &device, bytes));
  put(b, device, old, bytes);
  return device;
}

#endif
