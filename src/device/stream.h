/* Streams that a program gives to a call: whose they are. Thread rule: safe from any thread. */
#ifndef TDICT_DEVICE_STREAM_H
#define TDICT_DEVICE_STREAM_H

#include "device/devices.h"

/* TDICT_EWRONGDEVICE: the stream is of the cpu, of a device that is absent, or of another context's simulated device.
 * `what` begins the message. */
tdict_status tdict_stream_check(const tdict_stream_range *range, tdict_stream stream, const char *what,
                                tdict_error *err);
/* True when the stream is of this gpu. */
bool tdict_stream_is_of(tdict_stream stream, const tdict_gpu *gpu);
/* The gpu of a stream that a call may queue work on. TDICT_EFORKED; TDICT_EWRONGDEVICE as tdict_stream_check();
 * TDICT_ENODEVICE, TDICT_EDEVICE the device cannot be opened; TDICT_ELOST; TDICT_ECAPTURE. */
tdict_status tdict_stream_open(tdict_devices *devices, tdict_stream stream, const char *what, tdict_gpu **out,
                               tdict_error *err);

#endif
