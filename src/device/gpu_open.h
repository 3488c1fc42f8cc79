/* Opens one GPU over a driver's table. Thread rule: safe from any thread. */
#ifndef TDICT_DEVICE_GPU_OPEN_H
#define TDICT_DEVICE_GPU_OPEN_H

#include "device/gpu.h"

/* TDICT_ENODEVICE: no device of this ordinal; TDICT_EDEVICE, TDICT_ENOMEM. Retains the driver. */
tdict_status tdict_gpu_open(tdict_driver *driver, int ordinal, size_t cache_bytes, tdict_gpu **out, tdict_error *err);

#endif
