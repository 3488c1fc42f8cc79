/* Opens one GPU over a driver's table. Thread rule: safe from any thread. */
#ifndef TDICT_DEVICE_GPU_OPEN_H
#define TDICT_DEVICE_GPU_OPEN_H

#include "device/gpu.h"

/* Opens the gpu `ordinal` of a driver, which the gpu retains. At most cache_bytes of freed memory are kept for reuse.
 * *out holds one reference. TDICT_ENODEVICE the driver has no such device, or the device has no memory pools;
 * TDICT_EDEVICE; TDICT_ENOMEM. */
tdict_status tdict_gpu_open(tdict_driver *driver, int ordinal, size_t cache_bytes, tdict_gpu **out, tdict_error *err);

#endif
