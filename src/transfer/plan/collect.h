/* Collecting the leaves of a tree into a plan. The request belongs to the caller and is read during the call.
 * Thread rule: one thread for each plan. */
#ifndef TDICT_TRANSFER_PLAN_COLLECT_H
#define TDICT_TRANSFER_PLAN_COLLECT_H

#include "sched/pool.h"
#include "transfer/plan/plan.h"

/* What a plan is made for. */
typedef struct tdict_plan_request {
  tdict_devices *devices;
  tdict_device device;   /* to which it goes; not used with `dst` */
  tdict_gpu *gpu;        /* of that device; NULL: it is looked up */
  const tdict_tree *dst; /* copy_into; else NULL */
  bool want_pinned;      /* the result is pinned host memory: leaves that are not are copied */
  bool host_only;        /* pin_memory: a leaf on a device is an error, and objects are asked to pin */
  bool strict_objects;   /* an object without a way is an error */
  int32_t mode;          /* BLOCKING, NON_BLOCKING, NON_BLOCKING_PIN */
  bool borrows;          /* the caller holds the tree until the transfer has ended */
  tdict_pool *pool;      /* whose threads help to read a large tree; NULL: none do */
  int num_helpers;
  tdict_plan *spare; /* a cleared plan whose memory is taken, or NULL */
} tdict_plan_request;

/* Reads the tree: items with their ways. Errors name the leaf. On failure the plan is empty. */
tdict_status tdict_plan_collect(tdict_plan *plan, const tdict_plan_request *request, const tdict_tree *src,
                                tdict_error *err);

#endif
