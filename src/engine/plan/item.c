/* Makes items of a plan: chooses the way and the GPU of an item, and appends the item to the line. See item.h for
 * ownership and threads. */
#include "engine/plan/item.h"

#include <stdlib.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "engine/plan/collect_uniform.h"

tdict_status tdict_item_maker_init(tdict_item_maker *m, tdict_plan *plan, const tdict_plan_request *request,
                                   tdict_error *err) {
  *m = (tdict_item_maker){.plan = plan, .request = request, .found_device = request->device, .found_gpu = request->gpu};
  *plan = request->spare ? *request->spare : (tdict_plan){0};
  if (!request->conversions && !request->narrow) return TDICT_OK;
  plan->wire = calloc(1, sizeof *plan->wire);
  return plan->wire ? TDICT_OK : tdict_fail(err, TDICT_ENOMEM, "transfer: no host memory for its conversions");
}

/* Returns true if the GPU can access the tensor's memory directly. The flags of the storage are not sufficient: the
 * memory may be pinned by another driver, or the program's claim may be false. The last result is stored, because
 * consecutive leaves often share a storage. */
static bool is_pinned(tdict_item_maker *m, tdict_gpu *gpu, const tdict_tensor *t) {
  const tdict_storage *s = t->storage;
  if (!(s->flags & (TDICT_STORAGE_PINNED | TDICT_STORAGE_CLAIMED))) return false;
  if (s != m->last || gpu != m->last_gpu) {
    m->last = s;
    m->last_gpu = gpu;
    m->last_pinned = tdict_gpu_is_pinned(gpu, s, s->data, s->bytes);
  }
  return m->last_pinned;
}

tdict_status tdict_item_find_gpu(tdict_item_maker *m, tdict_device device, tdict_gpu **out, tdict_error *err) {
  if (m->found_gpu && m->found_device.type == device.type && m->found_device.index == device.index) {
    *out = m->found_gpu;
    return TDICT_OK;
  }
  tdict_status status = tdict_devices_gpu(m->request->devices, device, out, err);
  if (status == TDICT_OK) {
    m->found_device = device;
    m->found_gpu = *out;
  }
  if (status == TDICT_ENODEVICE && err) err->status = TDICT_EWRONGDEVICE;
  return status == TDICT_ENODEVICE ? TDICT_EWRONGDEVICE : status;
}

/* Returns the GPU of a storage. Returns TDICT_EWRONGDEVICE if the storage is on an absent device, or on a
 * simulated device of another context. Other errors: those of tdict_devices_gpu(). */
static tdict_status find_storage_gpu(tdict_item_maker *m, const tdict_storage *s, tdict_gpu **out, tdict_error *err) {
  char name[32];
  if (!tdict_devices_own_storage(m->request->devices, s))
    return tdict_fail(err, TDICT_EWRONGDEVICE,
                      "transfer: the tensor is on %s of another context: simulated devices belong to one context",
                      tdict_device_format(s->device, name, sizeof name));
  return tdict_item_find_gpu(m, s->device, out, err);
}

/* Returns true if the GPU should read the tensor's ordinary memory without a slot. Only memory that the library
 * allocated counts: memory of the program may be the mapping of a file, which a device would read page by page. */
static bool is_read_in_place(const tdict_item_maker *m, const tdict_gpu *gpu, const tdict_tensor *t) {
  return m->request->may_read_pageable && gpu->reads_pageable && tdict_storage_is_plain(t->storage);
}

/* Chooses the way from the host to a GPU. */
static void choose_way_in(tdict_item_maker *m, tdict_item *item) {
  item->kind = TDICT_CU_H2D;
  if (m->cast.rule || !item->src_plain || !item->dst_plain)
    item->way = TDICT_WAY_STAGE_IN;
  else if (is_pinned(m, item->gpu, item->src))
    item->way = TDICT_WAY_DIRECT;
  else if (m->request->narrow && tdict_item_can_pack(m->plan, item))
    item->way = TDICT_WAY_STAGE_IN;
  else if (is_read_in_place(m, item->gpu, item->src))
    item->way = TDICT_WAY_DIRECT;
  else if (m->request->mode == TDICT_MODE_NON_BLOCKING_PIN)
    item->way = TDICT_WAY_STAGE_IN;
  else
    item->way = TDICT_WAY_PAGEABLE_IN;
}

/* Chooses the way from a GPU to the host. Never chooses a pageable driver copy, because such a copy blocks other
 * threads. */
static void choose_way_out(tdict_item_maker *m, tdict_item *item) {
  item->kind = TDICT_CU_D2H;
  bool pinned = item->dst ? is_pinned(m, item->gpu, item->dst) : m->request->want_pinned; /* false for a sink */
  item->way = pinned && !m->cast.rule && item->src_plain && item->dst_plain ? TDICT_WAY_DIRECT : TDICT_WAY_STAGE_OUT;
}

/* Chooses the way of an item, and the GPU that copies the item. */
tdict_status tdict_item_choose_way(tdict_item_maker *m, tdict_item *item, tdict_device to, tdict_error *err) {
  tdict_device from = item->src->storage->device;
  bool from_host = from.type == TDICT_DEVICE_CPU, to_host = to.type == TDICT_DEVICE_CPU;
  item->src_plain = !tdict_storage_is_unloaded(item->src->storage) && tdict_uniform_is_plain(item->src);
  item->dst_plain = !item->dst || (!tdict_storage_is_unloaded(item->dst->storage) && tdict_uniform_is_plain(item->dst));
  if (from_host && to_host) {
    item->way = TDICT_WAY_HOST;
    return TDICT_OK;
  }
  tdict_gpu *source;
  tdict_status status = from_host ? TDICT_OK : find_storage_gpu(m, item->src->storage, &source, err);
  if (status == TDICT_OK && !to_host)
    status = item->dst ? find_storage_gpu(m, item->dst->storage, &item->gpu, err)
                       : tdict_item_find_gpu(m, to, &item->gpu, err);
  if (status != TDICT_OK) return status;
  m->plan->reads_device |= !from_host;
  if (to_host) item->gpu = source;
  if (from_host) {
    choose_way_in(m, item);
  } else if (to_host) {
    choose_way_out(m, item);
  } else {
    item->kind = TDICT_CU_D2D;
    item->way = TDICT_WAY_DIRECT;
    m->plan->peer_bytes += source != item->gpu ? item->bytes : 0;
    if (source->driver != item->gpu->driver)
      return tdict_fail(err, TDICT_ENOTSUP,
                        "transfer: no copies between simulated devices and GPUs: move to the cpu first");
  }
  return TDICT_OK;
}

/* Adds the pending references of a slab with one atomic operation. */
void tdict_item_count_slab(tdict_item_maker *m) {
  if (m->slab_count) atomic_fetch_add_explicit(&m->slab->refs, m->slab_count, memory_order_relaxed);
  m->slab_count = 0;
}

static inline void retain_source(tdict_item_maker *m, tdict_tensor *t) {
  if (m->plan->borrows) return;
  if (!t->slab) {
    tdict_tensor_retain(t);
    return;
  }
  if (t->slab != m->slab && m->slab_count) tdict_item_count_slab(m);
  m->slab = t->slab;
  m->slab_count++;
}

/* Appends the item to the plan and to the line. */
tdict_status tdict_item_append(tdict_item_maker *m, tdict_item *item, tdict_error *err) {
  tdict_plan *p = m->plan;
  size_t end;
  if (!tdict_round_up(p->line_bytes, TDICT_LEAF_ALIGNMENT, &item->offset) ||
      !tdict_add_size(item->offset, item->bytes, &end))
    return tdict_fail(err, TDICT_EOVERFLOW, "transfer: the tree's bytes do not fit the address space");
  if (p->num_items == p->cap_items && !tdict_plan_reserve(p, 1, 1))
    return tdict_fail(err, TDICT_ENOMEM, "transfer: no host memory for its plan");
  const bool wire = p->wire != NULL, converts = wire && m->cast.rule;
  const bool pinned = converts && item->way == TDICT_WAY_STAGE_IN && is_pinned(m, item->gpu, item->src);
  tdict_status status = wire ? tdict_plan_append_cast(p, &m->cast, item, m->request->narrow, pinned, err) : TDICT_OK;
  if (status != TDICT_OK) return status;
  retain_source(m, item->src);
  if (item->dst) tdict_tensor_retain(item->dst);
  const uint32_t n = p->num_items++;
  tdict_storage *storage = item->src->storage;
  item->shares_storage = n && p->items[n - 1].src->storage == storage;
  p->nodes[n] = (tdict_fence_node){.storage = item->shares_storage ? NULL : storage};
  p->items[n] = *item;
  p->line_bytes = end;
  p->way_bytes[item->way] += item->bytes;
  p->writes_existing |= item->dst != NULL;
  return TDICT_OK;
}

tdict_status tdict_plan_collect_pairs(tdict_plan *plan, const tdict_plan_request *request, const tdict_copy_pair *pairs,
                                      size_t num_pairs, tdict_error *err) {
  tdict_item_maker m;
  tdict_status status = tdict_item_maker_init(&m, plan, request, err);
  for (size_t i = 0; i < num_pairs && status == TDICT_OK; i++) {
    tdict_tensor *src = pairs[i].src;
    tdict_item item = {.src = src, .src_data = src->data, .dst_data = pairs[i].dst, .leaf = pairs[i].leaf};
    item.bytes = tdict_tensor_nbytes(src);
    status = tdict_item_choose_way(&m, &item, request->device, err);
    if (status == TDICT_OK) status = tdict_item_append(&m, &item, err);
  }
  tdict_item_count_slab(&m);
  if (status != TDICT_OK) tdict_plan_reset(plan);
  return status;
}
