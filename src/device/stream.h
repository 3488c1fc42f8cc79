/* Checks the streams that a program passes to a call. The program owns its streams. Thread rule: safe from any
 * thread. */
#ifndef TDICT_DEVICE_STREAM_H
#define TDICT_DEVICE_STREAM_H

#include "device/devices.h"

/* Returns TDICT_EWRONGDEVICE if the stream belongs to the cpu, to an absent device, or to a simulated device of another
 * context. `what` begins the message. */
tdict_status tdict_stream_check(const tdict_stream_range *range, tdict_stream stream, const char *what,
                                tdict_error *err);
/* Checks that work may be queued on the stream, and writes the stream's gpu to *out. The caller borrows the gpu.
 * Returns the error of tdict_stream_check(), or TDICT_ECAPTURE if the stream is being captured. Returns TDICT_ENODEVICE
 * or TDICT_EDEVICE if the device cannot be opened. Other errors: TDICT_EFORKED, TDICT_ELOST, TDICT_ENOMEM. */
tdict_status tdict_stream_open(tdict_devices *devices, tdict_stream stream, const char *what, tdict_gpu **out,
                               tdict_error *err);

#endif
