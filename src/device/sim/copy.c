/* Implements the copy and fill entries of the simulated driver's table. A queued copy accesses pinned memory only when
 * the copy runs. The pageable source of an asynchronous copy is first copied to a buffer, inside the call. With the
 * option reads_pageable_memory, the copy also reads a pageable source only when the copy runs. A call that copies to a
 * pageable destination returns after the copy has ended. Thread rule: safe from any thread. */
#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "device/sim/entries.h"

/* Computes the number of bytes from the first to the last byte of a rectangle. Returns false on overflow. */
static bool get_extent(size_t pitch, size_t width, size_t height, size_t *out) {
  size_t rows;
  return tdict_mul_size(pitch, height - 1, &rows) && tdict_add_size(rows, width, out);
}

/* Checks whether host bytes are page-locked. Returns INVALID_VALUE if the range is NULL, overflows, exceeds its
 * registration or overlaps device memory. Call with the driver's lock held. */
static tdict_cu check_host(const tdict_sim_driver *d, const void *host, size_t bytes, bool *pinned) {
  if (!host || (uintptr_t)host + bytes < (uintptr_t)host) return TDICT_CU_INVALID_VALUE;
  for (int32_t i = 0; i < d->num_devices; i++)
    if (tdict_sim_space_overlaps(&d->devices[i].space, host, bytes)) return TDICT_CU_INVALID_VALUE;
  const tdict_sim_range *range = tdict_sim_ranges_find(&d->hosts, host);
  if (range && bytes > range->bytes - ((uintptr_t)host - range->start)) return TDICT_CU_INVALID_VALUE;
  *pinned = range != NULL;
  return TDICT_CU_SUCCESS;
}

/* Checks device memory that a copy on `device`, for peers the owner, accesses, with the driver's lock held. *out is its
 * host address, and *use allows a later check that the allocation still exists. */
static tdict_cu check_device(tdict_sim_driver *d, const tdict_sim_device *device, const void *address, size_t bytes,
                             tdict_sim_use *use, char **out) {
  tdict_sim_device *owner = tdict_sim_device_of(d, address);
  if (!owner) return TDICT_CU_INVALID_VALUE;
  const tdict_sim_range *range = tdict_sim_ranges_find(&owner->space.live, address);
  if (!range || range->free_queued) return TDICT_CU_INVALID_VALUE;
  if (!tdict_sim_has_access(device, owner, range)) return TDICT_CU_INVALID_VALUE;
  if (bytes > range->bytes - ((uintptr_t)address - range->start)) return TDICT_CU_INVALID_VALUE;
  *use = (tdict_sim_use){.space = &owner->space, .address = address, .id = range->id};
  *out = tdict_sim_space_bytes(&owner->space, address);
  return TDICT_CU_SUCCESS;
}

/* Returns a contiguous copy of a pageable source. The caller frees the copy. Returns NULL if memory is exhausted. */
static void *copy_source(const tdict_cu_rect *r) {
  size_t bytes;
  char *buffer = tdict_mul_size(r->width, r->height, &bytes) ? malloc(bytes) : NULL;
  if (!buffer) return NULL;
  for (size_t row = 0; row < r->height; row++)
    memcpy(buffer + row * r->width, (const char *)r->src + row * r->src_pitch, r->width);
  return buffer;
}

/* The devices that access the source and the destination: the current device, or the devices that a peer copy names. */
typedef struct copy_devices {
  const tdict_sim_device *dst, *src;
} copy_devices;

/* Checks the rectangle and fills op->work. Sets *pageable to true if the copy accesses host memory that is not
 * page-locked and that the device does not read itself, else to false. If op->buffer is set, the copy reads this
 * buffer, which does not count as pageable. Call with the driver's lock held. */
static tdict_cu prepare_copy(tdict_sim_driver *d, const tdict_cu_rect *r, copy_devices devices, tdict_sim_op *op,
                             bool *pageable) {
  tdict_sim_work *w = &op->work;
  size_t dst_bytes, src_bytes;
  bool pinned = true;
  char *bytes = NULL;
  if (!get_extent(r->dst_pitch, r->width, r->height, &dst_bytes)) return TDICT_CU_INVALID_VALUE;
  if (!get_extent(r->src_pitch, r->width, r->height, &src_bytes)) return TDICT_CU_INVALID_VALUE;
  w->dst_pitch = r->dst_pitch;
  w->src_pitch = r->src_pitch;
  w->width = r->width;
  w->height = r->height;
  /* Check the destination. */
  tdict_cu result;
  if (r->kind == TDICT_CU_D2H) {
    result = check_host(d, r->dst, dst_bytes, &pinned);
    w->dst = r->dst;
  } else {
    result = check_device(d, devices.dst, r->dst, dst_bytes, &w->dst_use, &w->dst);
  }
  if (result != TDICT_CU_SUCCESS) return result;
  /* Check the source. A source that was copied to the buffer is checked already. */
  if (op->buffer) {
    w->src = op->buffer;
    w->src_pitch = r->width;
  } else if (r->kind == TDICT_CU_H2D) {
    result = check_host(d, r->src, src_bytes, &pinned);
    pinned |= d->options.reads_pageable_memory;
    w->src = r->src;
  } else {
    result = check_device(d, devices.src, r->src, src_bytes, &w->src_use, &bytes);
    w->src = bytes;
  }
  op->engine = r->kind == TDICT_CU_H2D   ? TDICT_SIM_ENGINE_IN
               : r->kind == TDICT_CU_D2H ? TDICT_SIM_ENGINE_OUT
                                         : TDICT_SIM_ENGINE_OTHER;
  *pageable = !pinned;
  return result;
}

/* Queues the operation. If `blocking` is true, waits until the operation is done. Call with the driver's lock held. */
static tdict_cu queue_op(tdict_sim_driver *d, tdict_sim_stream *stream, tdict_sim_op *op, bool blocking) {
  tdict_sim_device *device = stream->device;
  tdict_cu result = tdict_sim_push(stream, op);
  if (result != TDICT_CU_SUCCESS || !blocking) return result;
  tdict_sim_wait_op(d, op);
  return device->fault;
}

static tdict_cu copy_between(tdict_driver *base, const tdict_cu_rect *r, copy_devices devices, tdict_cu_stream handle) {
  tdict_sim_driver *d = tdict_sim_driver_of(base);
  const tdict_sim_device *current = tdict_sim_current(d);
  tdict_sim_stream *stream;
  bool pageable = false;
  if (!current) return TDICT_CU_INVALID_CONTEXT;
  if (r->width > r->dst_pitch || r->width > r->src_pitch) return TDICT_CU_INVALID_VALUE;
  if (r->width == 0 || r->height == 0) return TDICT_CU_SUCCESS;
  tdict_sim_op *op = tdict_sim_op_new(TDICT_SIM_OP_COPY);
  if (!op) return TDICT_CU_OUT_OF_MEMORY;
  tdict_sim_lock(d);
  tdict_cu result = tdict_sim_resolve_on(current, handle, &stream);
  if (result == TDICT_CU_SUCCESS) result = prepare_copy(d, r, devices, op, &pageable);
  if (result == TDICT_CU_SUCCESS && pageable && r->kind == TDICT_CU_H2D) {
    /* Copy the source without the lock, then check again, because other threads may have freed memory or the stream. */
    tdict_sim_unlock(d);
    op->buffer = copy_source(r);
    tdict_sim_lock(d);
    result = op->buffer ? tdict_sim_resolve_on(current, handle, &stream) : TDICT_CU_OUT_OF_MEMORY;
    if (result == TDICT_CU_SUCCESS) result = prepare_copy(d, r, devices, op, &pageable);
  }
  if (result == TDICT_CU_SUCCESS) result = queue_op(d, stream, op, pageable && r->kind == TDICT_CU_D2H);
  tdict_sim_op_release(op);
  tdict_sim_unlock(d);
  return result;
}

static tdict_cu copy_on_current(tdict_driver *base, const tdict_cu_rect *r, tdict_cu_stream handle) {
  const tdict_sim_device *current = tdict_sim_current(tdict_sim_driver_of(base));
  return copy_between(base, r, (copy_devices){current, current}, handle);
}

static tdict_cu copy_row(tdict_driver *base, tdict_cu_kind kind, const tdict_cu_copy *c, tdict_cu_stream handle) {
  const tdict_cu_rect r = {kind, c->dst, c->src, c->bytes, c->bytes, c->bytes, 1};
  return copy_on_current(base, &r, handle);
}

static tdict_cu copy_h2d_async(tdict_driver *base, void *device, const void *host, size_t bytes, tdict_cu_stream s) {
  return copy_row(base, TDICT_CU_H2D, &(tdict_cu_copy){device, host, bytes}, s);
}
static tdict_cu copy_d2h_async(tdict_driver *base, void *host, const void *device, size_t bytes, tdict_cu_stream s) {
  return copy_row(base, TDICT_CU_D2H, &(tdict_cu_copy){host, device, bytes}, s);
}
static tdict_cu copy_d2d_async(tdict_driver *base, void *dst, const void *src, size_t bytes, tdict_cu_stream s) {
  return copy_row(base, TDICT_CU_D2D, &(tdict_cu_copy){dst, src, bytes}, s);
}

static tdict_cu copy_peer_async(tdict_driver *base, const tdict_cu_rect *rect, tdict_cu_context to,
                                tdict_cu_context from, tdict_cu_stream handle) {
  tdict_sim_driver *d = tdict_sim_driver_of(base);
  if (rect->kind != TDICT_CU_D2D) return TDICT_CU_INVALID_VALUE;
  if (!to || tdict_sim_device_of(d, rect->dst) != to) return TDICT_CU_INVALID_VALUE;
  if (!from || tdict_sim_device_of(d, rect->src) != from) return TDICT_CU_INVALID_VALUE;
  return copy_between(base, rect, (copy_devices){to, from}, handle);
}

static tdict_cu copy_rect_async(tdict_driver *base, const tdict_cu_rect *rect, tdict_cu_stream handle) {
  if (rect->kind != TDICT_CU_H2D && rect->kind != TDICT_CU_D2H && rect->kind != TDICT_CU_D2D)
    return TDICT_CU_INVALID_VALUE;
  return copy_on_current(base, rect, handle);
}

static tdict_cu copy_batch_async(tdict_driver *base, tdict_cu_kind kind, const tdict_cu_copy *lines, size_t count,
                                 tdict_cu_stream handle) {
  if (count == 0 || count > TDICT_CU_MOST_COPIES || !handle) return TDICT_CU_INVALID_VALUE;
  tdict_cu result = TDICT_CU_SUCCESS;
  for (size_t i = 0; i < count && result == TDICT_CU_SUCCESS; i++) result = copy_row(base, kind, &lines[i], handle);
  return result;
}

static tdict_cu fill_async(tdict_driver *base, void *address, unsigned char byte, size_t bytes,
                           tdict_cu_stream handle) {
  tdict_sim_driver *d = tdict_sim_driver_of(base);
  const tdict_sim_device *current = tdict_sim_current(d);
  tdict_sim_stream *stream;
  if (!current) return TDICT_CU_INVALID_CONTEXT;
  if (bytes == 0) return TDICT_CU_SUCCESS;
  tdict_sim_op *op = tdict_sim_op_new(TDICT_SIM_OP_FILL);
  if (!op) return TDICT_CU_OUT_OF_MEMORY;
  op->engine = TDICT_SIM_ENGINE_OTHER;
  op->work.byte = byte;
  op->work.width = bytes;
  tdict_sim_lock(d);
  tdict_cu result = tdict_sim_resolve_on(current, handle, &stream);
  if (result == TDICT_CU_SUCCESS) result = check_device(d, current, address, bytes, &op->work.dst_use, &op->work.dst);
  if (result == TDICT_CU_SUCCESS) result = queue_op(d, stream, op, false);
  tdict_sim_op_release(op);
  tdict_sim_unlock(d);
  return result;
}

void tdict_sim_add_copies(tdict_driver_ops *ops) { TDICT_DRIVER_COPY_ENTRIES(TDICT_SIM_FILL) }
