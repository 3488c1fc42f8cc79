/* Declares the request for a plan. The caller of tdict_plan_collect() owns the request. Thread rule: no thread changes
 * a request during a call. */
#ifndef TDICT_ENGINE_PLAN_REQUEST_H
#define TDICT_ENGINE_PLAN_REQUEST_H

#include "core/sched/pool.h"
#include "engine/options/conversions.h"
#include "engine/options/patterns.h"
#include "engine/plan/plan.h"

/* The arguments of tdict_plan_collect(). */
typedef struct tdict_plan_request {
  tdict_devices *devices;
  tdict_device device;    /* the target device; not used if `dst` is set */
  tdict_gpu *gpu;         /* the target's GPU; NULL: the GPU is looked up if needed */
  const tdict_tree *dst;  /* the destination of tdict_transfer_into_async(); else NULL */
  bool want_pinned;       /* the result is pinned host memory, so host leaves that are not pinned are copied */
  bool copies;            /* true: leaves that are in place already are also copied */
  bool host_only;         /* true for pin_memory: a leaf on a device is an error, and hooks pin the objects */
  bool keep_objects;      /* the option: an object whose type cannot be moved stays as it is */
  int32_t mode;           /* a tdict_mode, but never TDICT_MODE_AUTO */
  bool may_read_pageable; /* true for TDICT_MODE_AUTO: a device that reads ordinary memory copies without slots */
  /* true: the caller keeps the tree alive until the transfer has ended, so the plan does not retain the sources */
  bool borrows;
  tdict_pool *pool; /* the threads of this pool help to read a large tree; NULL: no helpers */
  int num_helpers;
  tdict_patterns *keep;           /* patterns of the entries that are not copied; NULL: no patterns */
  tdict_conversions *conversions; /* NULL: no leaf is converted */
  bool narrow;                    /* the option `narrow` */
  const tdict_plan *used;         /* a cleared plan whose memory the new plan takes over, or NULL */
} tdict_plan_request;

#endif
