/* Checks streams of calls, which the program owns. Thread rule: safe from any thread. */
#ifndef TDICT_DEVICE_STREAM_H
#define TDICT_DEVICE_STREAM_H

#include "device/devices.h"

/* Returns TDICT_EWRONGDEVICE for the cpu, an absent device, or another context's simulated one. */
tdict_status tdict_stream_check(const tdict_stream_range *range, tdict_stream stream, const char *what,
                                tdict_error *err);
/* Returns the gpu, borrowed, of a stream on which work may be queued. Errors: TDICT_ECAPTURE during a capture, of
 * tdict_stream_check(), and as tdict_devices_gpu() if the device cannot be opened. */
tdict_status tdict_stream_open(tdict_devices *devices, tdict_stream stream, const char *what, tdict_gpu **out,
                               tdict_error *err);

#endif
