/* The devices of a context: drivers, gpus opened when they are first asked for, and their memories.
 * Thread rule: safe from any thread, but for create and destroy. */
#ifndef TDICT_DEVICE_DEVICES_H
#define TDICT_DEVICE_DEVICES_H

#include "device/gpu.h"
#include "sched/pool.h"
#include "tdict/context.h"

typedef struct tdict_devices tdict_devices;

/* options are complete; only device, pinned_bytes, device_cache_bytes and sim are read. driver: taken instead of those
 * that options would open, for tests and wrappers; NULL for none; retained. The pool is borrowed.
 * TDICT_ENODEVICE: the device that options name is absent; TDICT_EINVAL; TDICT_ENOMEM; TDICT_EDEVICE. */
typedef struct tdict_devices_config {
  const tdict_context_options *options;
  tdict_driver *driver;
  /* Opens the simulated driver, where options want it; checks these. NULL: such options are TDICT_ENODEVICE. */
  tdict_status (*open_sim)(const tdict_sim_options *options, tdict_driver **out, tdict_error *err);
  tdict_pool *pool;
  tdict_forkmark *mark; /* retained by the gpus */
  tdict_log *log;       /* retained; may be NULL */
  const char *sysfs; /* where gpus are looked up to find their memory nodes; NULL: they are not. Outlives the devices */
} tdict_devices_config;
tdict_status tdict_devices_create(const tdict_devices_config *config, tdict_devices **out, tdict_error *err);
void tdict_devices_destroy(tdict_devices *devices);
/* The device by default; *why is written when it is no cuda device. */
tdict_device tdict_devices_default(const tdict_devices *devices, tdict_error *why);
/* Opens a gpu, or finds it open; borrowed; TDICT_DEVICE_AUTO is the default device. TDICT_ENODEVICE with the reason, TDICT_EINVAL for the cpu. */
tdict_status tdict_devices_gpu(tdict_devices *devices, tdict_device device, tdict_gpu **out, tdict_error *err);
/* Never NULL; borrowed. */
tdict_memory *tdict_devices_memory(tdict_devices *devices, tdict_device device);
tdict_memory *tdict_devices_pinned(tdict_devices *devices);
/* False for memory of another context's simulated device: it has the same name and is another one. */
bool tdict_devices_own_memory(const tdict_devices *devices, tdict_memory *memory);
bool tdict_devices_own_storage(const tdict_devices *devices, const tdict_storage *storage);
/* TDICT_EFORKED in a fork of the process that made the devices; `what` begins the message. */
tdict_status tdict_devices_check_fork(const tdict_devices *devices, const char *what, tdict_error *err);
/* TDICT_ENODEVICE with the reason: no device could read pinned memory, so there is none. */
tdict_status tdict_devices_can_pin(const tdict_devices *devices, const char *what, tdict_error *err);
/* Which streams a context's devices have. Plain values, so a transfer can check a stream after its context has ended. */
typedef struct tdict_stream_range {
  int32_t num_cuda, num_sim; /* devices; 0: none */
  const tdict_driver *sim;   /* only compared with a stream's driver */
  tdict_stream_owner sim_owner;
} tdict_stream_range;
tdict_stream_range tdict_devices_streams(const tdict_devices *devices);
/* The simulated driver, or NULL. */
tdict_driver *tdict_devices_sim(tdict_devices *devices);

/* This layer's piece of a context; the composition root defines it. */
tdict_devices *tdict_context_devices(const tdict_context *context);

#endif
