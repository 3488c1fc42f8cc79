/* Declares the joining of trees for layers above. Thread rule: as in tdict/devices.h. */
#ifndef TDICT_SERVICES_MULTI_DEVICE_GATHER_H
#define TDICT_SERVICES_MULTI_DEVICE_GATHER_H

#include "tdict/devices.h"

/* Joins trees as tdict_gather_devices_async() does, and waits; the calling thread may also copy. */
tdict_status tdict_gather_and_wait(tdict_context *context, const tdict_tree *const *trees, size_t count,
                                   const tdict_gather_devices_options *options, tdict_tree **out, tdict_error *err);

#endif
