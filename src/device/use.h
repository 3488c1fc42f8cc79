/* Declares uses. A use is a fence for the work that a program has queued on a stream before the use is created. A use
 * is reference counted and retains its gpu. Thread rule: safe from any thread. */
#ifndef TDICT_DEVICE_USE_H
#define TDICT_DEVICE_USE_H

#include "device/gpu.h"

/* Creates a use for the work that is queued on `stream` now. *out has one reference. If the stream is being captured,
 * returns TDICT_ECAPTURE with a message that begins with `what`. NULL: the caller knows that the stream is not being
 * captured, so the driver is not asked. Other errors: TDICT_EFORKED, TDICT_ELOST, TDICT_EDEVICE, TDICT_ENOMEM. */
tdict_status tdict_use_create(tdict_gpu *gpu, tdict_cu_stream stream, const char *what, tdict_fence **out,
                              tdict_error *err);
/* Returns the GPU of a use. */
const tdict_gpu *tdict_use_gpu(const tdict_fence *fence);

#endif
