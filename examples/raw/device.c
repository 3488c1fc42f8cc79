/* Bare device calls for examples/safety.c: see device.h for owner and thread rule. The driver's calls are declared in
 * our own words after NVIDIA's "CUDA Driver API" manual. */
#include <tdict/sim.h>
#include <tdict/transfer.h>

#include "raw/device.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SLOW_KERNEL_MS = 200, SOON_MS = 50 };

typedef int cu_result;
typedef struct cu_launch { /* CUlaunchConfig */
  unsigned grid[3], block[3], shared_bytes;
  void *stream, *attributes;
  unsigned num_attributes;
} cu_launch;
typedef struct cuda {
  cu_result (*init)(unsigned flags);
  cu_result (*device_get)(int *device, int ordinal);
  cu_result (*ctx_retain)(void **context, int device);
  cu_result (*ctx_release)(int device);
  cu_result (*ctx_set)(void *context);
  cu_result (*copy_in)(uint64_t device, const void *host, size_t bytes, void *stream);
  cu_result (*copy_out)(void *host, uint64_t device, size_t bytes, void *stream);
  cu_result (*synchronize)(void *stream);
  cu_result (*module_load)(void **module, const void *image);
  cu_result (*module_unload)(void *module);
  cu_result (*get_function)(void **function, void *module, const char *name);
  cu_result (*launch)(const cu_launch *launch, void *function, void **parameters, void **extra);
  void *context, *module, *delay, *sum;
  int device;
} cuda;

/* An entry's name and where its pointer lies in the struct above. */
static const struct {
  const char *name;
  size_t offset;
} entries[] = {
    {"cuInit", offsetof(cuda, init)},
    {"cuDeviceGet", offsetof(cuda, device_get)},
    {"cuDevicePrimaryCtxRetain", offsetof(cuda, ctx_retain)},
    {"cuDevicePrimaryCtxRelease_v2", offsetof(cuda, ctx_release)},
    {"cuCtxSetCurrent", offsetof(cuda, ctx_set)},
    {"cuMemcpyHtoDAsync_v2", offsetof(cuda, copy_in)},
    {"cuMemcpyDtoHAsync_v2", offsetof(cuda, copy_out)},
    {"cuStreamSynchronize", offsetof(cuda, synchronize)},
    {"cuModuleLoadData", offsetof(cuda, module_load)},
    {"cuModuleUnload", offsetof(cuda, module_unload)},
    {"cuModuleGetFunction", offsetof(cuda, get_function)},
    {"cuLaunchKernelEx", offsetof(cuda, launch)},
};

/* Two kernels, as text that the driver translates for the GPU it finds: so no CUDA compiler is needed. */
static const char kernels[] = ".version 6.0\n"
                              ".target sm_60\n"
                              ".address_size 64\n"
                              ".visible .entry delay(.param .u64 nanoseconds) {\n"
                              "  .reg .pred %late;\n"
                              "  .reg .u64 %now, %end;\n"
                              "  ld.param.u64 %end, [nanoseconds];\n"
                              "  mov.u64 %now, %globaltimer;\n"
                              "  add.u64 %end, %end, %now;\n"
                              "again:\n"
                              "  mov.u64 %now, %globaltimer;\n"
                              "  setp.lt.u64 %late, %now, %end;\n"
                              "  @%late bra again;\n"
                              "  ret;\n"
                              "}\n"
                              ".visible .entry sum(.param .u64 data, .param .u64 count, .param .u64 result) {\n"
                              "  .reg .pred %done;\n"
                              "  .reg .u64 %at, %left, %out;\n"
                              "  .reg .f32 %x, %total;\n"
                              "  ld.param.u64 %at, [data];\n"
                              "  ld.param.u64 %left, [count];\n"
                              "  ld.param.u64 %out, [result];\n"
                              "  cvta.to.global.u64 %at, %at;\n"
                              "  cvta.to.global.u64 %out, %out;\n"
                              "  mov.f32 %total, 0f00000000;\n"
                              "next:\n"
                              "  setp.eq.u64 %done, %left, 0;\n"
                              "  @%done bra write;\n"
                              "  ld.global.f32 %x, [%at];\n"
                              "  add.f32 %total, %total, %x;\n"
                              "  add.u64 %at, %at, 4;\n"
                              "  sub.u64 %left, %left, 1;\n"
                              "  bra next;\n"
                              "write:\n"
                              "  st.global.f32 [%out], %total;\n"
                              "  ret;\n"
                              "}\n";

struct raw_device {
  tdict_context *context;
  tdict_device device;
  bool is_cuda;
  cuda cuda;
  /* The simulated slow kernel ends when `open` is set. */
  pthread_mutex_t lock; /* guards: open */
  pthread_cond_t opened;
  bool open;
  pthread_t opener; /* when `opening`: raw_go_soon()'s thread */
  bool opening;
  tdict_future *copy; /* simulated: the latest copy, when it is the last on its stream; or NULL */
  void *copy_stream;
};

static tdict_status fail(tdict_error *err, tdict_status status, int native, const char *what) {
  *err = (tdict_error){.status = (int32_t)status, .native = native};
  snprintf(err->message, sizeof err->message, native ? "%s (%d)" : "%s", what, native);
  return status;
}

static tdict_status check(cu_result result, const char *call, tdict_error *err) {
  return result == 0 ? TDICT_OK : fail(err, TDICT_EDEVICE, result, call);
}

static tdict_status open_cuda(cuda *d, int ordinal, tdict_error *err) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL); /* stays open: the driver keeps threads of its own */
  if (!library) return fail(err, TDICT_ENODEVICE, 0, "libcuda.so.1 cannot be opened");
  for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
    void *entry = dlsym(library, entries[i].name);
    if (!entry) return fail(err, TDICT_ENODEVICE, 0, entries[i].name);
    memcpy((char *)d + entries[i].offset, &entry,
           sizeof entry); /* C has no cast from an object's address to a function's */
  }
  tdict_status status = check(d->init(0), "cuInit", err);
  if (status == TDICT_OK) status = check(d->device_get(&d->device, ordinal), "cuDeviceGet", err);
  if (status == TDICT_OK) status = check(d->ctx_retain(&d->context, d->device), "cuDevicePrimaryCtxRetain", err);
  if (status == TDICT_OK) status = check(d->ctx_set(d->context), "cuCtxSetCurrent", err);
  if (status == TDICT_OK) status = check(d->module_load(&d->module, kernels), "cuModuleLoadData", err);
  if (status == TDICT_OK) status = check(d->get_function(&d->delay, d->module, "delay"), "cuModuleGetFunction", err);
  if (status == TDICT_OK) status = check(d->get_function(&d->sum, d->module, "sum"), "cuModuleGetFunction", err);
  return status;
}

tdict_status raw_open(tdict_context *c, tdict_device device, raw_device **out, tdict_error *err) {
  raw_device *r = calloc(1, sizeof *r);
  if (!r) return fail(err, TDICT_ENOMEM, 0, "no memory for a device");
  r->context = c;
  r->device = device;
  r->is_cuda = device.type == TDICT_DEVICE_CUDA;
  r->open = true;
  pthread_mutex_init(&r->lock, NULL);
  pthread_cond_init(&r->opened, NULL);
  tdict_status status = TDICT_OK;
  if (r->is_cuda) status = open_cuda(&r->cuda, device.index, err);
  if (!r->is_cuda && device.type != TDICT_DEVICE_SIM) {
    char what[64], name[32];
    snprintf(what, sizeof what, "wanted cuda or sim, found %s", tdict_device_format(device, name, sizeof name));
    status = fail(err, TDICT_ENODEVICE, 0, what);
  }
  if (status == TDICT_OK)
    *out = r;
  else
    raw_close(r);
  return status;
}

void raw_close(raw_device *r) {
  if (!r) return;
  raw_go(r);
  tdict_future_release(r->copy);
  if (r->cuda.module) (void)r->cuda.module_unload(r->cuda.module);
  if (r->cuda.context) {
    (void)r->cuda.ctx_set(NULL);
    (void)r->cuda.ctx_release(r->cuda.device);
  }
  pthread_cond_destroy(&r->opened);
  pthread_mutex_destroy(&r->lock);
  free(r);
}

static void set_open(raw_device *r, bool open) {
  pthread_mutex_lock(&r->lock);
  r->open = open;
  pthread_cond_broadcast(&r->opened);
  pthread_mutex_unlock(&r->lock);
}

static void wait_until_open(void *user) {
  raw_device *r = user;
  pthread_mutex_lock(&r->lock);
  while (!r->open) pthread_cond_wait(&r->opened, &r->lock);
  pthread_mutex_unlock(&r->lock);
}

static tdict_status launch(raw_device *r, void *function, tdict_stream s, void **parameters, tdict_error *err) {
  const cu_launch one = {.grid = {1, 1, 1}, .block = {1, 1, 1}, .stream = s.handle};
  return check(r->cuda.launch(&one, function, parameters, NULL), "cuLaunchKernelEx", err);
}

/* A simulated kernel. The copy before it is not the last on the stream any more. */
static tdict_status sim_launch(raw_device *r, tdict_stream s, void (*fn)(void *user), void *user, tdict_error *err) {
  if (r->copy_stream == s.handle) {
    tdict_future_release(r->copy);
    r->copy = NULL;
  }
  return tdict_sim_launch(s, fn, user, err);
}

tdict_status raw_slow_kernel(raw_device *r, tdict_stream s, tdict_error *err) {
  uint64_t nanoseconds = (uint64_t)SLOW_KERNEL_MS * 1000000;
  void *parameters[] = {&nanoseconds};
  if (r->is_cuda) return launch(r, r->cuda.delay, s, parameters, err);
  set_open(r, false);
  return sim_launch(r, s, wait_until_open, r, err);
}

void raw_go(raw_device *r) {
  if (r->opening) pthread_join(r->opener, NULL);
  r->opening = false;
  set_open(r, true);
}

static void *open_soon(void *user) {
  const struct timespec moment = {.tv_nsec = SOON_MS * 1000000L};
  nanosleep(&moment, NULL);
  set_open(user, true);
  return NULL;
}

tdict_status raw_go_soon(raw_device *r, tdict_error *err) {
  if (r->is_cuda) return TDICT_OK; /* the slow kernel ends by itself */
  int code = pthread_create(&r->opener, NULL, open_soon, r);
  if (code != 0) return fail(err, TDICT_ENOMEM, code, "no thread could be started");
  r->opening = true;
  return TDICT_OK;
}

/* A tree of one tensor over bytes of which the library knows the address only. */
static tdict_status view_bytes(tdict_device device, const void *data, size_t bytes, tdict_tree **out,
                               tdict_error *err) {
  const int64_t count = (int64_t)bytes;
  tdict_tensor_desc view = tdict_tensor_desc_default();
  view.data = (void *)(uintptr_t)data;
  view.device = device;
  view.dtype = TDICT_U8;
  view.ndim = 1;
  view.shape = &count;
  view.flags = device.type == TDICT_DEVICE_CPU ? TDICT_DESC_PINNED : 0;
  tdict_tensor *tensor;
  tdict_tree *tree;
  tdict_status status = tdict_tensor_from_data(&view, NULL, NULL, &tensor, err);
  if (status != TDICT_OK) return status;
  status = tdict_create(0, NULL, &tree, err);
  if (status == TDICT_OK) {
    status = tdict_set(tree, "bytes", tensor, err);
    if (status == TDICT_OK)
      *out = tree;
    else
      tdict_release(tree);
  }
  tdict_tensor_release(tensor);
  return status;
}

/* A copy of the simulated device: behind what is queued on the stream, and before what will be. */
static tdict_status copy_views(raw_device *r, tdict_stream s, tdict_tree *dst, const tdict_tree *src,
                               tdict_error *err) {
  tdict_future *f;
  tdict_transfer_options o = tdict_transfer_options_default();
  o.after = s;
  tdict_status status = tdict_transfer_into_async(r->context, dst, src, &o, &f, err);
  if (status != TDICT_OK) return status;
  status = tdict_future_wait_on_stream(f, s, NULL, err);
  tdict_future_release(r->copy);
  r->copy = f;
  r->copy_stream = s.handle;
  return status;
}

tdict_status raw_copy_in(raw_device *r, tdict_stream s, void *device, const void *host, size_t bytes,
                         tdict_error *err) {
  if (r->is_cuda) return check(r->cuda.copy_in((uintptr_t)device, host, bytes, s.handle), "cuMemcpyHtoDAsync", err);
  tdict_tree *dst = NULL, *src = NULL;
  tdict_status status = view_bytes(r->device, device, bytes, &dst, err);
  if (status == TDICT_OK) status = view_bytes(tdict_cpu(), host, bytes, &src, err);
  if (status == TDICT_OK) status = copy_views(r, s, dst, src, err);
  tdict_release(src);
  tdict_release(dst);
  return status;
}

tdict_status raw_copy_out(raw_device *r, tdict_stream s, void *host, const void *device, size_t bytes,
                          tdict_error *err) {
  if (r->is_cuda) return check(r->cuda.copy_out(host, (uintptr_t)device, bytes, s.handle), "cuMemcpyDtoHAsync", err);
  tdict_tree *dst = NULL, *src = NULL;
  tdict_status status = view_bytes(tdict_cpu(), host, bytes, &dst, err);
  if (status == TDICT_OK) status = view_bytes(r->device, device, bytes, &src, err);
  if (status == TDICT_OK) status = copy_views(r, s, dst, src, err);
  tdict_release(src);
  tdict_release(dst);
  return status;
}

/* What the simulated sum kernel is given; its own to free. */
typedef struct sum_job {
  tdict_stream stream;
  const float *data;
  size_t count;
  float *sum;
} sum_job;

static void run_sum(void *user) {
  sum_job *job = user;
  const float *x = tdict_sim_host_pointer(job->stream, job->data);
  float *sum = tdict_sim_host_pointer(job->stream, job->sum), total = 0;
  for (size_t i = 0; x && i < job->count; i++) total += x[i];
  if (sum) *sum = total;
  free(job);
}

tdict_status raw_sum(raw_device *r, tdict_stream s, const float *data, size_t count, float *sum, tdict_error *err) {
  uint64_t data_address = (uintptr_t)data, sum_address = (uintptr_t)sum, number = count;
  void *parameters[] = {&data_address, &number, &sum_address};
  if (r->is_cuda) return launch(r, r->cuda.sum, s, parameters, err);
  sum_job *job = malloc(sizeof *job);
  if (!job) return fail(err, TDICT_ENOMEM, 0, "no memory for a kernel");
  *job = (sum_job){s, data, count, sum};
  tdict_status status = sim_launch(r, s, run_sum, job, err);
  if (status != TDICT_OK) free(job);
  return status;
}

tdict_status raw_wait(raw_device *r, tdict_stream s, tdict_error *err) {
  if (r->is_cuda) return check(r->cuda.synchronize(s.handle), "cuStreamSynchronize", err);
  if (r->copy && r->copy_stream == s.handle)
    return tdict_future_wait(r->copy, NULL, err); /* it has a stream of its own */
  return tdict_stream_synchronize(r->context, s, err);
}
