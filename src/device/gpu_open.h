/* Opens one GPU over a driver's table. Thread rule: safe from any thread. */
#ifndef TDICT_DEVICE_GPU_OPEN_H
#define TDICT_DEVICE_GPU_OPEN_H

#include "device/gpu.h"

/* Opens the gpu with number `ordinal` of a driver, and retains the driver. The gpu keeps at most cache_bytes of freed
 * memory for reuse. *out holds one reference. Returns TDICT_ENODEVICE if the driver has no such device, or if the
 * device has no memory pools. Other errors: TDICT_EDEVICE, TDICT_ELOST, TDICT_ENOMEM. */
tdict_status tdict_gpu_open(tdict_driver *driver, int ordinal, size_t cache_bytes, tdict_gpu **out, tdict_error *err);

#endif
