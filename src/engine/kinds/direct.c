/* Queues copies without slots. See direct.h for ownership and threads. */
#include "engine/kinds/direct.h"

#include "engine/kinds/device_cast.h"
#include "engine/kinds/leaf_bytes.h"
#include "engine/kinds/windows.h"

/* Queues one launch of the kernel `op` that converts those items of a chunk whose conversions read pinned or device
 * memory. */
static tdict_status queue_launch(const tdict_direct *d, tdict_kernel_op op, tdict_error *err) {
  const tdict_plan *p = d->plan;
  const tdict_chunk *chunk = d->chunk;
  tdict_kernel_work work;
  tdict_status status = TDICT_OK;
  tdict_kernel_work_init(&work, op);
  for (uint32_t i = chunk->first; i < p->num_items && p->items[i].offset < chunk->end && status == TDICT_OK; i++) {
    const tdict_item *item = &p->items[i];
    const tdict_item_cast *cast = tdict_plan_cast(p, i);
    if (!cast || tdict_item_cast_op(cast) != op) continue;
    const size_t begin = item->offset < chunk->begin ? chunk->begin - item->offset : 0;
    const size_t left = chunk->end - item->offset, end = left < item->bytes ? left : item->bytes;
    const size_t to_bytes = tdict_dtype_bytes(cast->cast.to);
    if (end <= begin) continue; /* an empty leaf needs no conversion */
    if (cast->images) {
      const tdict_windows_range range = {begin / to_bytes, (end - begin) / to_bytes, NULL};
      status = tdict_windows_add(&work, item, cast, &range, err);
      continue;
    }
    status = tdict_device_cast_add(&work, &cast->device, item->dst_data + begin,
                                   item->src_data + begin / to_bytes * tdict_dtype_bytes(cast->cast.from),
                                   (end - begin) / to_bytes, err);
  }
  if (status == TDICT_OK && work.num_entries) status = tdict_gpu_queue_work(d->gpu, &work, d->stream, err);
  tdict_kernel_work_reset(&work);
  return status;
}

static tdict_status queue_casts(const tdict_direct *d, tdict_error *err) {
  tdict_status status = queue_launch(d, TDICT_KERNEL_CONVERT, err);
  return status == TDICT_OK && d->plan->wire->images ? queue_launch(d, TDICT_KERNEL_WINDOW, err) : status;
}

/* Queues a chunk's copies, each of a stretch of items, with one call. Converted items are left out. */
static tdict_status queue_stretches(const tdict_direct *d, tdict_error *err) {
  const tdict_plan *p = d->plan;
  const tdict_chunk *chunk = d->chunk;
  tdict_cu_copy copies[TDICT_CU_MOST_COPIES];
  size_t count = 0;
  for (uint32_t i = chunk->first, end; i < p->num_items && p->items[i].offset < chunk->end; i = end) {
    const tdict_item *item = &p->items[i];
    end = tdict_plan_stretch_end(p, i);
    size_t from = item->offset < chunk->begin ? chunk->begin - item->offset : 0;
    size_t to = p->items[end - 1].offset + p->items[end - 1].bytes;
    if (to > chunk->end) to = chunk->end;
    if (to <= item->offset + from || item->is_cast) continue; /* an empty leaf needs no copy */
    copies[count++] = (tdict_cu_copy){item->dst_data + from, item->src_data + from, to - item->offset - from};
  }
  if (count == 0) return TDICT_OK;
  return tdict_gpu_queue_copies(d->gpu, (tdict_cu_kind)p->items[chunk->first].kind, copies, count, d->stream, err);
}

/* A copy between device memories. `to` owns the destination. */
typedef struct device_copy {
  const tdict_direct *to;
  tdict_gpu *from;
} device_copy;
static tdict_status queue_between(void *user, const tdict_rect *rect, tdict_error *err) {
  const device_copy *b = user;
  return tdict_gpu_queue_from(b->to->gpu, b->from, rect, b->to->stream, err);
}

/* Queues the copy of a chunk between device memories. Strided leaves are copied as rectangles. */
static tdict_status queue_within_devices(const tdict_direct *d, tdict_error *err) {
  const tdict_chunk *chunk = d->chunk;
  const tdict_item *item = &d->plan->items[chunk->first];
  device_copy b = {.to = d};
  if (item->is_cast) return queue_casts(d, err);
  tdict_status status = tdict_devices_gpu(d->devices, item->src->storage->device, &b.from, err);
  if (status != TDICT_OK) return status;
  if (item->src_plain && item->dst_plain) {
    ptrdiff_t from = (ptrdiff_t)chunk->begin - (ptrdiff_t)item->offset;
    size_t bytes = chunk->end - chunk->begin;
    tdict_rect line = {(void *)((uintptr_t)item->dst_data + (uintptr_t)from),
                       (void *)((uintptr_t)item->src->data + (uintptr_t)from),
                       (int64_t)bytes,
                       (int64_t)bytes,
                       bytes,
                       1};
    return queue_between(&b, &line, err);
  }
  tdict_pair pair;
  tdict_leaf_pair(&pair, item, true, true);
  tdict_pair_span span = {item->dst_data, item->src->data, chunk->begin - item->offset, chunk->end - item->offset};
  return tdict_pair_walk(&pair, &span, queue_between, &b, err);
}

tdict_status tdict_direct_queue(const tdict_direct *d, tdict_error *err) {
  if (d->plan->items[d->chunk->first].kind == TDICT_CU_D2D) return queue_within_devices(d, err);
  const tdict_wire *wire = d->plan->wire;
  tdict_status status = queue_stretches(d, err);
  return status == TDICT_OK && wire && (wire->pinned_bytes || wire->images) ? queue_casts(d, err) : status;
}
