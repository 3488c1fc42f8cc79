/* A use: what a program has queued on a stream so far, as a fence. Counted; keeps its gpu. Thread rule: safe from any
 * thread. */
#ifndef TDICT_DEVICE_USE_H
#define TDICT_DEVICE_USE_H

#include "device/gpu.h"

/* What is queued on `stream` now; one reference. TDICT_ECAPTURE the stream is being captured; TDICT_EDEVICE;
 * TDICT_ENOMEM. */
tdict_status tdict_use_create(tdict_gpu *gpu, tdict_cu_stream stream, tdict_fence **out, tdict_error *err);

#endif
