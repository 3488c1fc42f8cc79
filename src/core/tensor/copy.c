/* Copies between tensors of any strides, on the host or by the copy operation of a memory. Keeps no state. Thread rule:
 * as in tdict/tensor.h. */
#include <string.h>

#include "core/base/error.h"
#include "core/tensor/layout.h"
#include "core/tensor/tensor.h"
#include "tdict/view.h"

/* Determines how rectangles are copied. If `memory` is NULL, the host copies the rectangles. Otherwise the copy
 * operation of `memory` copies the rectangles. */
typedef struct mover {
  tdict_memory *memory;
  tdict_direction direction;
} mover;

static bool is_on_host(const tdict_tensor *t) { return t->storage->device.type == TDICT_DEVICE_CPU; }

/* Returns the memory of a device tensor if that memory has a copy operation, else NULL. */
static tdict_memory *find_copier(const tdict_tensor *t) {
  tdict_memory *m = t->storage->memory;
  return m && m->ops->copy ? m : NULL;
}

/* Finds the memory whose copy operation can copy from `src` to `dst`, and the direction. If both tensors are in host
 * memory, sets out->memory to NULL. */
static tdict_status find_mover(const tdict_tensor *dst, const tdict_tensor *src, mover *out, tdict_error *err) {
  *out = (mover){NULL, TDICT_COPY_WITHIN};
  if (is_on_host(dst) && is_on_host(src)) return TDICT_OK;
  if (!is_on_host(dst) && !is_on_host(src) && !tdict_device_equal(dst->storage->device, src->storage->device))
    return tdict_fail(err, TDICT_EWRONGDEVICE, "copy: from %s to %s; wanted one device, or the host on one side",
                      TDICT_DEVICE_TEXT(src->storage->device), TDICT_DEVICE_TEXT(dst->storage->device));
  out->direction = is_on_host(src) ? TDICT_COPY_IN : is_on_host(dst) ? TDICT_COPY_OUT : TDICT_COPY_WITHIN;
  if (!is_on_host(dst)) out->memory = find_copier(dst);
  if (!out->memory && !is_on_host(src)) out->memory = find_copier(src);
  if (out->memory) return TDICT_OK;
  return tdict_fail(err, TDICT_EWRONGDEVICE,
                    "copy: from %s to %s, but the device memory belongs to the program and to no context",
                    TDICT_DEVICE_TEXT(src->storage->device), TDICT_DEVICE_TEXT(dst->storage->device));
}

tdict_status tdict_tensor_check_target(const char *what, const tdict_tensor *dst, const tdict_tensor *src,
                                       tdict_error *err) {
  if (!tdict_shapes_equal(dst->ndim, dst->dims, src->ndim, src->dims))
    return tdict_fail(err, TDICT_ESHAPE, "%s: from shape %s to shape %s", what, TDICT_SHAPE_TEXT(src->ndim, src->dims),
                      TDICT_SHAPE_TEXT(dst->ndim, dst->dims));
  if (dst->storage->flags & TDICT_STORAGE_READ_ONLY)
    return tdict_fail(err, TDICT_EREADONLY, "%s: the destination may not be written", what);
  return TDICT_OK;
}

static tdict_status check_copy(const tdict_tensor *dst, const tdict_tensor *src, tdict_error *err) {
  if (dst->dtype == src->dtype) return tdict_tensor_check_target("copy", dst, src, err);
  return tdict_fail(err, TDICT_EDTYPE, "copy: from %s to %s", TDICT_DTYPE_TEXT(src->dtype),
                    TDICT_DTYPE_TEXT(dst->dtype));
}

static tdict_status copy_rect(void *user, const tdict_rect *rect, tdict_error *err) {
  const mover *m = user;
  if (m->memory) return m->memory->ops->copy(m->memory, rect, m->direction, err);
  tdict_rect_copy(rect);
  return TDICT_OK;
}

static tdict_status copy_elements(tdict_tensor *dst, const tdict_tensor *src, mover *m, tdict_error *err) {
  tdict_pair pair;
  if (!m->memory && tdict_tensor_is_contiguous(dst) && tdict_tensor_is_contiguous(src)) {
    /* In this common case, one copy avoids the cost of a walk through the dimensions. */
    memmove(dst->data, src->data, tdict_tensor_nbytes(dst));
    return TDICT_OK;
  }
  tdict_pair_init(&pair, dst->ndim, dst->dims, tdict_tensor_dims_strides(dst), tdict_tensor_dims_strides(src),
                  tdict_dtype_bytes(dst->dtype));
  const tdict_pair_span whole = {dst->data, src->data, 0, tdict_tensor_nbytes(dst)};
  return tdict_pair_walk(&pair, &whole, copy_rect, m, err);
}

tdict_status tdict_tensor_copy(tdict_tensor *dst, const tdict_tensor *src, tdict_error *err) {
  mover m;
  if (!dst || !src) return tdict_fail_null(err, "copy", dst ? "src" : "dst");
  tdict_status status = check_copy(dst, src, err);
  if (status == TDICT_OK) status = find_mover(dst, src, &m, err);
  if (status != TDICT_OK || dst->numel == 0) return status;
  tdict_tensor_await(src, false);
  tdict_tensor_await(dst, true);
  /* Check after the wait, since a transfer into `src` can fail during the wait. */
  if (tdict_tensor_is_lost(src)) return tdict_tensor_refuse_lost("copy", "the source's bytes", src, err);
  status = copy_elements(dst, src, &m, err);
  if (status == TDICT_OK) tdict_tensor_regain(dst);
  return status;
}

tdict_status tdict_tensor_clone(const tdict_tensor *tensor, tdict_memory *memory, tdict_tensor **out,
                                tdict_error *err) {
  tdict_tensor *copy;
  if (!tensor || !out) return tdict_fail_null(err, "clone", tensor ? "out" : "tensor");
  tdict_status status = tdict_tensor_empty(tensor->dtype, tensor->ndim, tensor->dims, memory, &copy, err);
  if (status != TDICT_OK) return status;
  status = tdict_tensor_copy(copy, tensor, err);
  return TDICT_HAND_OVER(status, copy, out, tdict_tensor_release);
}

tdict_status tdict_tensor_contiguous(const tdict_tensor *tensor, tdict_tensor **out, tdict_error *err) {
  if (!tensor || !out) return tdict_fail_null(err, "contiguous", tensor ? "out" : "tensor");
  if (!tdict_tensor_is_contiguous(tensor)) return tdict_tensor_clone(tensor, tensor->storage->memory, out, err);
  *out = tdict_tensor_retain(tensor);
  return TDICT_OK;
}
