/* Checks devices and streams that the program passes. The functions keep no state. Thread-safe. */
#ifndef TDICT_CORE_BASE_DEVICE_H
#define TDICT_CORE_BASE_DEVICE_H

#include "tdict/values.h"

/* Checks that a device can hold memory, known and present or not. Returns TDICT_EINVAL for "auto", for a negative type
 * or index, and for a cpu index other than 0. The error message begins with `what`. */
tdict_status tdict_device_check(tdict_device device, const char *what, tdict_error *err);
/* Returns true if the program passed a stream, and false if it passed tdict_no_stream(). */
static inline bool tdict_has_stream(tdict_stream stream) { return stream.device.type != TDICT_DEVICE_AUTO; }
/* Returns TDICT_EINVAL if the program's stream has a handle but no device. The message begins with `what`. */
tdict_status tdict_stream_check_device(tdict_stream stream, const char *what, tdict_error *err);

#endif
