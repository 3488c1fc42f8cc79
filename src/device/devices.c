/* Opens the drivers and gpus of a context and owns their memories. See devices.h for the thread rule. */
#include "device/devices.h"

#include <stdlib.h>

#include "core/base/array.h"
#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/base/options.h"
#include "core/memory/pinned_pool.h"
#include "device/gpu.h"
#include "device/host.h"
#include "device/placement.h"
#include "tdict/sim.h"

enum { MAX_GPUS = 64 };

enum { LOG_WARNING = 2 }; /* equals TDICT_LOG_WARNING of tdict/context.h, which belongs to a layer above */

struct tdict_devices {
  tdict_driver *cuda, *sim;    /* retained; NULL: the driver is absent */
  tdict_error no_cuda, no_sim; /* why the driver is absent, or why cuda:0 could not become the default device */
  tdict_stream_range streams;
  size_t cache_bytes, pin_piece;
  tdict_forkmark *mark; /* retained */
  const char *sysfs;    /* borrowed; may be NULL */
  tdict_device device;
  tdict_memory *pinned;
  tdict_error no_pinned; /* why pinned memory is unavailable; status 0: pinned memory is available */
  pthread_mutex_t lock;  /* guards: gpus, absent, num_gpus, num_absent, cap_absent */
  tdict_gpu *gpus[MAX_GPUS];
  int num_gpus;
  tdict_memory **absent; /* one memory for each absent device that was requested */
  int num_absent;
  size_t cap_absent;
};

/* Opens the CUDA driver. A failure is only reported when the program requests a cuda device. */
static void open_cuda(tdict_devices *d) {
#if TDICT_CUDA
  (void)!tdict_driver_cuda_open(&d->cuda, &d->no_cuda);
#else
  (void)!tdict_fail(&d->no_cuda, TDICT_ENODEVICE, "this library was built without CUDA (TDICT_CUDA=OFF)");
#endif
}

static tdict_status open_sim(tdict_devices *d, const tdict_devices_config *config, tdict_error *err) {
  const tdict_context_options *options = config->options;
  if (!options->sim && options->device.type != TDICT_DEVICE_SIM) {
    (void)!tdict_fail(&d->no_sim, TDICT_ENODEVICE, "this context has no simulated devices: give it options.sim");
    return TDICT_OK;
  }
  tdict_sim_options o = tdict_sim_options_default();
  tdict_status status = tdict_options_read(&o, sizeof o, options->sim, "sim options", err);
  if (status != TDICT_OK) return status;
  if (!config->open_sim) return tdict_fail(err, TDICT_ENODEVICE, "context: no simulated driver was given");
  return config->open_sim(&o, &d->sim, err);
}

/* Opens CUDA and, if the options want them, simulated devices, or uses the config's driver only. */
static tdict_status open_drivers(tdict_devices *d, const tdict_devices_config *config, tdict_error *err) {
  tdict_driver *driver = config->driver;
  if (!driver) {
    open_cuda(d);
    return open_sim(d, config, err);
  }
  (void)!tdict_fail(&d->no_cuda, TDICT_ENODEVICE, "this context was given another driver");
  d->no_sim = d->no_cuda;
  if (driver->device_type == TDICT_DEVICE_SIM) {
    d->sim = tdict_driver_retain(driver);
  } else {
    d->cuda = tdict_driver_retain(driver);
    d->no_cuda.status = TDICT_OK;
  }
  return TDICT_OK;
}

/* Counts the drivers' devices, so that tdict_stream_check() can recognize valid streams. */
static tdict_status count_devices(tdict_devices *d, tdict_error *err) {
  int count = 0;
  tdict_cu result = TDICT_CU_SUCCESS;
  if (d->cuda) result = d->cuda->ops->device_count(d->cuda, &count);
  d->streams.num_cuda = count;
  if (d->sim && result == TDICT_CU_SUCCESS) result = d->sim->ops->device_count(d->sim, &count);
  if (d->sim) d->streams.num_sim = count;
  if (d->sim) {
    d->streams.sim = tdict_driver_innermost(d->sim);
    d->streams.sim_owner = d->streams.sim->ops->stream_owner;
  }
  if (result == TDICT_CU_SUCCESS) return TDICT_OK;
  return tdict_fail_native(err, TDICT_EDEVICE, result, "context: cuDeviceGetCount returned %d", result);
}

/* Opens the default device. "auto" is cuda:0 if that can be opened, else sim:0 if there is one, else the cpu. */
static tdict_status open_default_device(tdict_devices *d, tdict_device requested, tdict_error *err) {
  tdict_gpu *gpu;
  if (requested.type != TDICT_DEVICE_AUTO) {
    d->device = requested;
    if (requested.type == TDICT_DEVICE_CPU && requested.index != 0)
      return tdict_fail(err, TDICT_ENODEVICE, "cpu:%d is absent: there is one cpu", (int)requested.index);
    return requested.type == TDICT_DEVICE_CPU ? TDICT_OK : tdict_devices_gpu(d, requested, &gpu, err);
  }
  if (d->cuda) {
    if (tdict_devices_gpu(d, tdict_cuda(0), &gpu, &d->no_cuda) == TDICT_OK) {
      d->device = tdict_cuda(0);
      return TDICT_OK;
    }
  }
  d->device = d->sim ? tdict_sim(0) : tdict_cpu();
  tdict_status status = d->sim ? tdict_devices_gpu(d, d->device, &gpu, err) : TDICT_OK;
  tdict_log *log = tdict_forkmark_log(d->mark);
  if (status == TDICT_OK && log)
    tdict_log_write(log, LOG_WARNING, "no usable GPU, so the default device of the context is the %s: %s",
                    d->sim ? "simulated device" : "cpu", d->no_cuda.message);
  return status;
}

/* Creates the pool of pinned memory. The default device's driver pins the pages for all its devices. If the default is
 * the cpu, the driver of cuda:0 pins them, or that of sim:0 without CUDA. If both are absent, or the device cannot be
 * opened, each allocation fails. */
static tdict_status create_pinned_memory(tdict_devices *d, size_t limit_bytes, tdict_pool *pool, tdict_error *err) {
  tdict_gpu *gpu;
  tdict_device device = d->device;
  if (device.type == TDICT_DEVICE_CPU && d->cuda) device = tdict_cuda(0);
  if (device.type == TDICT_DEVICE_CPU && d->sim) device = tdict_sim(0);
  tdict_error cause = d->no_cuda;
  if (device.type == TDICT_DEVICE_CPU || tdict_devices_gpu(d, device, &gpu, &cause) != TDICT_OK) {
    (void)!tdict_fail(&d->no_pinned, TDICT_ENODEVICE, "pinned memory needs a device that reads it: %.200s",
                      cause.message);
    d->no_pinned.native = cause.native;
    d->pinned = tdict_absent_memory_create(tdict_cpu(), &d->no_pinned);
    return d->pinned ? TDICT_OK : tdict_fail_memory(err, "context", NULL, "its pinned memory");
  }
  tdict_pinner pinner = tdict_gpu_pinner(gpu, pool);
  return tdict_pinned_pool_create(&pinner, limit_bytes, &d->pinned, err);
}

/* Rounds the piece size up to a multiple of TDICT_PINNED_GRAIN. If the result overflows, returns 0, which means that
 * blocks are not divided: no block could be larger than the wanted piece. */
static size_t round_piece_bytes(size_t wanted) {
  size_t rounded;
  return tdict_round_up(wanted, TDICT_PINNED_GRAIN, &rounded) ? rounded : 0;
}

tdict_status tdict_devices_create(const tdict_devices_config *config, tdict_devices **out, tdict_error *err) {
  const tdict_context_options *options = config->options;
  tdict_devices *d = calloc(1, sizeof *d);
  if (!d) return tdict_fail_memory(err, "context", NULL, "its devices");
  pthread_mutex_init(&d->lock, NULL);
  d->cache_bytes = options->device_cache_bytes;
  d->pin_piece = round_piece_bytes(options->pin_piece_bytes);
  d->mark = tdict_forkmark_retain(config->mark);
  d->sysfs = config->sysfs;
  tdict_status status = open_drivers(d, config, err);
  if (status == TDICT_OK) status = count_devices(d, err);
  if (status == TDICT_OK) status = open_default_device(d, options->device, err);
  if (status == TDICT_OK) status = create_pinned_memory(d, options->pinned_bytes, config->pool, err);
  return TDICT_HAND_OVER(status, d, out, tdict_devices_destroy);
}

void tdict_devices_destroy(tdict_devices *d) {
  if (!d) return;
  if (d->pinned) {
    tdict_pinned_pool_forget_threads(d->pinned); /* a storage may keep the pinned pool alive after the threads have
                                                  * ended */
    d->pinned->ops->release(d->pinned);
  }
  for (int i = 0; i < d->num_absent; i++) d->absent[i]->ops->release(d->absent[i]);
  free(d->absent);
  for (int i = 0; i < d->num_gpus; i++) tdict_gpu_release(d->gpus[i]);
  tdict_driver_release(d->cuda);
  tdict_driver_release(d->sim);
  pthread_mutex_destroy(&d->lock);
  tdict_forkmark_release(d->mark);
  free(d);
}

tdict_log *tdict_devices_log(const tdict_devices *d) { return tdict_forkmark_log(d->mark); }

tdict_device tdict_devices_default(const tdict_devices *d, tdict_error *why) {
  if (why && d->device.type != TDICT_DEVICE_CUDA) {
    *why = d->no_cuda;
    why->status = TDICT_ENODEVICE; /* no_cuda can also have the status with which cuda:0 failed to open */
    if (!d->no_cuda.status)
      (void)!tdict_fail(why, TDICT_ENODEVICE, "a cuda device exists, but the options name another device");
  }
  return d->device;
}

/* Finds the driver of a device type, or fails with the reason, as for the cpu and unknown types. */
static tdict_status find_driver(const tdict_devices *d, tdict_device device, tdict_driver **out, tdict_error *err) {
  const tdict_error *reason = NULL;
  if (device.type == TDICT_DEVICE_CUDA)
    *out = d->cuda, reason = &d->no_cuda;
  else if (device.type == TDICT_DEVICE_SIM)
    *out = d->sim, reason = &d->no_sim;
  else if (device.type == TDICT_DEVICE_CPU)
    return tdict_fail(err, TDICT_EINVAL, "cpu: a cuda or simulated device was wanted");
  else
    return tdict_fail(err, TDICT_ENODEVICE, "device type %d:%d is unknown", (int)device.type, (int)device.index);
  if (*out) return TDICT_OK;
  return tdict_fail_native(err, TDICT_ENODEVICE, reason->native, "%s is absent: %.200s", TDICT_DEVICE_TEXT(device),
                           reason->message);
}

tdict_status tdict_devices_check_fork(const tdict_devices *d, const char *what, tdict_error *err) {
  return tdict_forkmark_check(d->mark, what, err);
}

tdict_status tdict_devices_gpu(tdict_devices *d, tdict_device device, tdict_gpu **out, tdict_error *err) {
  tdict_driver *driver;
  if (device.type == TDICT_DEVICE_AUTO) device = d->device;
  tdict_status status = tdict_forkmark_check(d->mark, "devices", err);
  if (status == TDICT_OK) status = find_driver(d, device, &driver, err);
  if (status != TDICT_OK) return status;
  tdict_gpu *gpu = NULL;
  /* Find the gpu, or open the gpu under the lock, so that no other thread opens the same gpu. */
  pthread_mutex_lock(&d->lock);
  for (int i = 0; i < d->num_gpus && !gpu; i++)
    if (tdict_device_equal(d->gpus[i]->memory.device, device)) gpu = d->gpus[i];
  if (!gpu) {
    status = d->num_gpus == MAX_GPUS ? tdict_fail(err, TDICT_ENODEVICE, "a context opens at most %d devices", MAX_GPUS)
                                     : tdict_gpu_open(driver, device.index, d->cache_bytes, &gpu, err);
    if (status == TDICT_OK) gpu->mark = tdict_forkmark_retain(d->mark);
    if (status == TDICT_OK && d->sysfs) gpu->node = tdict_placement_node(d->sysfs, gpu);
    if (status == TDICT_OK) gpu->pin_piece = d->pin_piece;
    if (status == TDICT_OK) d->gpus[d->num_gpus++] = gpu;
  }
  pthread_mutex_unlock(&d->lock);
  if (status == TDICT_OK) *out = gpu;
  return status;
}

/* Returns the memory of an absent device, and creates the memory at the first request. The memory is kept, because
 * callers borrow the memory. Returns NULL if host memory is exhausted. The caller holds the lock. */
static tdict_memory *find_or_create_absent(tdict_devices *d, tdict_device device, const tdict_error *why) {
  for (int i = 0; i < d->num_absent; i++)
    if (tdict_device_equal(d->absent[i]->device, device)) return d->absent[i];
  if (!TDICT_RESERVE(d->absent, d->cap_absent, (size_t)d->num_absent + 1)) return NULL;
  tdict_memory *memory = tdict_absent_memory_create(device, why);
  if (memory) d->absent[d->num_absent++] = memory;
  return memory;
}

/* Returns the memory of a device in a forked child. Takes no lock, because a thread that exists only in the parent may
 * hold the lock. In a forked child, every allocation from the memory of a gpu fails. */
static tdict_memory *forked_memory(const tdict_devices *d, tdict_device device) {
  for (int i = 0; i < d->num_gpus; i++)
    if (tdict_device_equal(d->gpus[i]->memory.device, device)) return &d->gpus[i]->memory;
  return tdict_no_memory();
}

tdict_memory *tdict_devices_memory(tdict_devices *d, tdict_device device) {
  if (device.type == TDICT_DEVICE_AUTO) device = d->device;
  if (tdict_device_equal(device, tdict_cpu())) return tdict_host_memory();
  tdict_gpu *gpu;
  tdict_error why = {0};
  tdict_status status = tdict_devices_gpu(d, device, &gpu, &why);
  if (device.type == TDICT_DEVICE_CPU)
    (void)!tdict_fail(&why, TDICT_ENODEVICE, "cpu:%d is absent: there is one cpu", (int)device.index);
  if (status == TDICT_OK) return &gpu->memory;
  if (status == TDICT_EFORKED) return forked_memory(d, device);
  pthread_mutex_lock(&d->lock);
  tdict_memory *found = find_or_create_absent(d, device, &why);
  pthread_mutex_unlock(&d->lock);
  return found ? found : tdict_no_memory();
}

bool tdict_devices_own_memory(const tdict_devices *d, tdict_memory *memory) {
  const tdict_gpu *gpu = tdict_gpu_of_memory(memory);
  if (!gpu || !d->sim || gpu->driver->device_type != TDICT_DEVICE_SIM)
    return true; /* a cuda device is the same device in all contexts */
  return tdict_driver_innermost(gpu->driver) == d->streams.sim;
}

bool tdict_devices_own_storage(const tdict_devices *d, const tdict_storage *s) {
  if (s->device.type != TDICT_DEVICE_SIM || !d->sim) return true;
  if (tdict_gpu_of_memory(s->memory)) return tdict_devices_own_memory(d, s->memory);
  tdict_cu_pointer p = {0}; /* the program allocated this block: ask the driver about the address */
  if (s->bytes == 0 || d->sim->ops->pointer(d->sim, s->data, &p) != TDICT_CU_SUCCESS) return true;
  return p.known && p.device;
}

tdict_stream_range tdict_devices_streams(const tdict_devices *d) { return d->streams; }
tdict_memory *tdict_devices_pinned(tdict_devices *d) { return d->pinned; }
tdict_status tdict_devices_can_pin(const tdict_devices *d, const char *what, tdict_error *err) {
  if (!d->no_pinned.status) return TDICT_OK;
  return tdict_fail(err, TDICT_ENODEVICE, "%s: %.220s", what, d->no_pinned.message);
}
tdict_driver *tdict_devices_sim(tdict_devices *d) { return d->sim; }
