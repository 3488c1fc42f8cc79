/* Checks of devices that programs name. Functions of their arguments; thread-safe. */
#ifndef TDICT_BASE_DEVICE_H
#define TDICT_BASE_DEVICE_H

#include "tdict/values.h"

/* TDICT_EINVAL unless memory may be there: no "auto", no negative index, and of the cpu index 0 alone. Whether the device is
 * present is not asked. `what` begins the message. */
tdict_status tdict_device_check(tdict_device device, const char *what, tdict_error *err);

#endif
