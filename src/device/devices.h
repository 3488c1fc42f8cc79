/* The devices of a context: drivers, gpus, opened when needed, and memories. Thread-safe, except create and destroy. */
#ifndef TDICT_DEVICE_DEVICES_H
#define TDICT_DEVICE_DEVICES_H

#include "core/sched/pool.h"
#include "device/gpu.h"
#include "tdict/context.h"
#include "tdict/sim.h"

typedef struct tdict_devices tdict_devices;

/* The parameters of tdict_devices_create(). Pointers are borrowed for the call unless a comment says otherwise. */
typedef struct tdict_devices_config {
  /* All fields are set. The call reads device, pinned_bytes, device_cache_bytes, pin_piece_bytes and sim. */
  const tdict_context_options *options;
  tdict_driver *driver; /* the only driver of the context, for tests; retained. NULL: opens the CUDA driver, and also
                         * the simulated driver if `options` asks for simulated devices */
  /* Checks the options and opens the simulated driver. Called only if `driver` is NULL and `options` asks for simulated
   * devices. If `open_sim` is NULL and would be called, tdict_devices_create() returns TDICT_ENODEVICE. */
  tdict_status (*open_sim)(const tdict_sim_options *options, tdict_driver **out, tdict_error *err);
  tdict_pool *pool;     /* must outlive the devices */
  tdict_forkmark *mark; /* retained */
  const char *sysfs;    /* root of sysfs, where NUMA nodes are looked up; NULL: no lookup. Must outlive the devices */
} tdict_devices_config;
/* Opens the drivers and the default device. Returns TDICT_ENODEVICE if the options name a device that is absent or has
 * no memory pools. Other errors: TDICT_EINVAL, TDICT_ENOTSUP, TDICT_ENOMEM, TDICT_EDEVICE, TDICT_ELOST. */
tdict_status tdict_devices_create(const tdict_devices_config *config, tdict_devices **out, tdict_error *err);
void tdict_devices_destroy(tdict_devices *devices);
/* Returns the default device. If it is no cuda device, the reason goes to *why, unless NULL. */
tdict_device tdict_devices_default(const tdict_devices *devices, tdict_error *why);
/* Writes the gpu of the device to *out. The caller borrows the gpu. The first call for a device opens the gpu.
 * TDICT_DEVICE_AUTO means the default device. Returns TDICT_ENODEVICE if the device is absent or has no memory pools;
 * the message gives the reason. Also returns TDICT_ENODEVICE if the context has opened too many devices. Returns
 * TDICT_EINVAL if the device is the cpu. Other errors: TDICT_EFORKED, TDICT_ENOMEM, TDICT_EDEVICE, TDICT_ELOST. */
tdict_status tdict_devices_gpu(tdict_devices *devices, tdict_device device, tdict_gpu **out, tdict_error *err);
/* Returns the borrowed memory of a device. If the device is absent, each allocation from it fails. */
tdict_memory *tdict_devices_memory(tdict_devices *devices, tdict_device device);
/* Returns the pool of pinned host memory, never NULL. The caller borrows the pool. */
tdict_memory *tdict_devices_pinned(tdict_devices *devices);
/* Returns false if the memory or storage belongs to a simulated device of another context. Always true if this context
 * has no simulated devices. Simulated devices of two contexts differ even if they have the same index. */
bool tdict_devices_own_memory(const tdict_devices *devices, tdict_memory *memory);
bool tdict_devices_own_storage(const tdict_devices *devices, const tdict_storage *storage);
/* Returns TDICT_EFORKED in a forked child of the process that created the devices. `what` begins the message. */
tdict_status tdict_devices_check_fork(const tdict_devices *devices, const char *what, tdict_error *err);
/* Returns TDICT_ENODEVICE and the reason if no device can read pinned memory. `what` begins the message. */
tdict_status tdict_devices_can_pin(const tdict_devices *devices, const char *what, tdict_error *err);
/* What tdict_stream_check() compares. A transfer has a copy, for checks after the context is destroyed. */
typedef struct tdict_stream_range {
  int32_t num_cuda, num_sim; /* number of devices of each kind */
  const tdict_driver *sim;   /* only compared with the address of the stream's driver, never dereferenced */
  tdict_stream_owner sim_owner;
} tdict_stream_range;
tdict_stream_range tdict_devices_streams(const tdict_devices *devices);
/* Returns the simulated driver, or NULL if the context has no simulated device. The caller borrows the driver. */
tdict_driver *tdict_devices_sim(tdict_devices *devices);
/* Returns the log of the context. The caller borrows the log. */
tdict_log *tdict_devices_log(const tdict_devices *devices);

/* Returns the devices of a context. The caller borrows the devices. src/context.c defines this function. */
tdict_devices *tdict_context_devices(const tdict_context *context);

#endif
