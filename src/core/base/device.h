/* Checks device arguments. The functions keep no state. Thread-safe. */
#ifndef TDICT_CORE_BASE_DEVICE_H
#define TDICT_CORE_BASE_DEVICE_H

#include "tdict/values.h"

/* Checks that a device can hold memory. Returns TDICT_EINVAL for "auto", for a negative type or index, and for a cpu
 * index other than 0. Does not check whether the device type is known or the device is present. The error message
 * begins with `what`. */
tdict_status tdict_device_check(tdict_device device, const char *what, tdict_error *err);

#endif
