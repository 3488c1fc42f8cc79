/* Checks streams of calls, which the program owns. Thread rule: safe from any thread. */
#ifndef TDICT_DEVICE_STREAM_H
#define TDICT_DEVICE_STREAM_H

#include "device/devices.h"

/* Returns TDICT_EWRONGDEVICE for the cpu, an absent device, or another context's simulated one. */
tdict_status tdict_stream_check(const tdict_stream_range *range, tdict_stream stream, const char *what,
                                tdict_error *err);
/* Checks that work may be queued on the stream, and writes its gpu to *out, borrowed. Returns TDICT_ECAPTURE if the
 * stream is being captured, and the errors of tdict_stream_check() and tdict_devices_gpu(). */
tdict_status tdict_stream_open(tdict_devices *devices, tdict_stream stream, const char *what, tdict_gpu **out,
                               tdict_error *err);

#endif
