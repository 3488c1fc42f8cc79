/* Makes the items of a plan. The collector of a tree owns the maker. Thread rule: one thread uses a maker. */
#ifndef TDICT_ENGINE_PLAN_ITEM_H
#define TDICT_ENGINE_PLAN_ITEM_H

#include "engine/plan/pair.h"
#include "engine/plan/request.h"

/* The state that consecutive items share. */
typedef struct tdict_item_maker {
  tdict_plan *plan;
  const tdict_plan_request *request;
  tdict_item_cast cast;      /* the conversion of the current item */
  const tdict_storage *last; /* the storage whose pinning was checked last. last_gpu and last_pinned are the GPU and the
                              * result of this check */
  tdict_gpu *last_gpu;
  bool last_pinned;
  tdict_device found_device; /* the device that was looked up last. found_gpu is its GPU, or NULL before the first
                              * lookup */
  tdict_gpu *found_gpu;
  tdict_slab *slab; /* the slab to which slab_count references must still be added */
  int64_t slab_count;
} tdict_item_maker;

/* Initializes the maker and its plan, which is empty. Returns TDICT_ENOMEM if host memory is exhausted. */
tdict_status tdict_item_maker_init(tdict_item_maker *maker, tdict_plan *plan, const tdict_plan_request *request,
                                   tdict_error *err);
/* Finds the GPU of a device. Returns TDICT_EWRONGDEVICE if the device is absent, and the errors of
 * tdict_devices_gpu(). */
tdict_status tdict_item_find_gpu(tdict_item_maker *maker, tdict_device device, tdict_gpu **out, tdict_error *err);
/* Chooses the way of an item to the device `to`, and the GPU that copies the item. Returns TDICT_EWRONGDEVICE if a
 * storage is on an absent device, or on a simulated device of another context. Returns TDICT_ENOTSUP for a copy between
 * a simulated device and a GPU. Other errors: those of tdict_devices_gpu(). */
tdict_status tdict_item_choose_way(tdict_item_maker *maker, tdict_item *item, tdict_device to, tdict_error *err);
/* Appends the item to the plan and to the line. Retains its tensors. Returns TDICT_EOVERFLOW and TDICT_ENOMEM. */
tdict_status tdict_item_append(tdict_item_maker *maker, tdict_item *item, tdict_error *err);
/* Adds the pending references of a slab with one atomic operation. Call after the last item. */
void tdict_item_count_slab(tdict_item_maker *maker);
/* Reads pairs into a plan. Each pair becomes an item. The request gives the target device and the mode. Returns the
 * errors of tdict_item_choose_way() and tdict_item_append(). After a failure, the plan is empty. */
tdict_status tdict_plan_collect_pairs(tdict_plan *plan, const tdict_plan_request *request, const tdict_copy_pair *pairs,
                                      size_t num_pairs, tdict_error *err);

#endif
