/* Declares uses. A use is a fence for the work that a program has queued on a stream before the use is created.
 * tdict_record_stream() creates a use. A use is reference counted and retains its gpu. Thread rule: safe from any
 * thread. */
#ifndef TDICT_DEVICE_USE_H
#define TDICT_DEVICE_USE_H

#include "device/gpu.h"

/* Creates a use for the work that is queued on `stream` now. *out has one reference. Returns TDICT_ECAPTURE if the
 * stream is being captured. Other errors: TDICT_EFORKED, TDICT_ELOST, TDICT_EDEVICE, TDICT_ENOMEM. */
tdict_status tdict_use_create(tdict_gpu *gpu, tdict_cu_stream stream, tdict_fence **out, tdict_error *err);

#endif
