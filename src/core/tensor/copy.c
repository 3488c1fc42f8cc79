/* Copies tensors of any strides, on the host or by a memory. Keeps no state. Thread rule: as in tdict/tensor.h. */
#include <string.h>

#include "core/base/error.h"
#include "core/tensor/layout.h"
#include "core/tensor/tensor.h"
#include "tdict/view.h"

/* How rectangles are copied: by the host if `memory` is NULL, else by the copy operation of `memory`. */
typedef struct mover {
  tdict_memory *memory;
  tdict_direction direction;
} mover;

/* Returns the memory of a tensor on a device if that memory has a copy operation, else NULL. */
static tdict_memory *find_copier(const tdict_tensor *t) {
  tdict_memory *m = tdict_is_on_host(t) ? NULL : t->storage->memory;
  return m && m->ops->copy ? m : NULL;
}

static mover find_mover(const tdict_tensor *dst, const tdict_tensor *src) {
  tdict_memory *memory = find_copier(dst);
  return (mover){memory ? memory : find_copier(src), tdict_is_on_host(src)   ? TDICT_COPY_IN
                                                     : tdict_is_on_host(dst) ? TDICT_COPY_OUT
                                                                             : TDICT_COPY_WITHIN};
}

/* Not inlined, because its texts would make the stack frame of the common case larger. */
static __attribute__((noinline)) tdict_status check_any_copy(const char *what, const tdict_tensor *dst,
                                                             const tdict_tensor *src, tdict_error *err) {
  if (dst->dtype != src->dtype)
    return tdict_fail(err, TDICT_EDTYPE, "%s: from %s to %s, wanted equal dtypes", what, TDICT_DTYPE_TEXT(src->dtype),
                      TDICT_DTYPE_TEXT(dst->dtype));
  if (dst->storage->flags & TDICT_STORAGE_READ_ONLY)
    return tdict_fail(err, TDICT_EREADONLY, "%s: the destination is read-only", what);
  bool is_between_devices = !tdict_is_on_host(dst) && !tdict_is_on_host(src) &&
                            !tdict_device_equal(dst->storage->device, src->storage->device);
  if (!is_between_devices && (find_copier(dst) || find_copier(src))) return TDICT_OK;
  return tdict_fail(err, TDICT_EWRONGDEVICE, "%s: from %s to %s; %s", what, TDICT_DEVICE_TEXT(src->storage->device),
                    TDICT_DEVICE_TEXT(dst->storage->device),
                    is_between_devices ? "wanted one device, or the host on one side"
                                       : "the device memory belongs to the program and to no context");
}

tdict_status tdict_tensor_check_copy(const char *what, const tdict_tensor *dst, const tdict_tensor *src,
                                     tdict_error *err) {
  const bool is_writable = !(dst->storage->flags & TDICT_STORAGE_READ_ONLY);
  if (dst->dtype == src->dtype && is_writable && tdict_is_on_host(dst) && tdict_is_on_host(src)) return TDICT_OK;
  return check_any_copy(what, dst, src, err);
}

tdict_status tdict_tensor_check_target(const char *what, const tdict_tensor *dst, const tdict_tensor *src,
                                       tdict_error *err) {
  if (!tdict_shapes_equal(dst->ndim, dst->dims, src->ndim, src->dims))
    return tdict_fail(err, TDICT_ESHAPE, "%s: from shape %s to shape %s", what, TDICT_SHAPE_TEXT(src->ndim, src->dims),
                      TDICT_SHAPE_TEXT(dst->ndim, dst->dims));
  if (dst->storage->flags & TDICT_STORAGE_READ_ONLY)
    return tdict_fail(err, TDICT_EREADONLY, "%s: the destination is read-only", what);
  return TDICT_OK;
}

static tdict_status copy_rect(void *user, const tdict_rect *rect, tdict_error *err) {
  const mover *m = user;
  if (m->memory) return m->memory->ops->copy(m->memory, rect, m->direction, err);
  tdict_rect_copy(rect);
  return TDICT_OK;
}

static tdict_status copy_elements(tdict_tensor *dst, const tdict_tensor *src, tdict_error *err) {
  tdict_pair pair;
  mover m = find_mover(dst, src);
  if (!m.memory && tdict_tensor_is_contiguous(dst) && tdict_tensor_is_contiguous(src)) {
    /* In this common case, one copy avoids the cost of a walk through the dimensions. */
    memmove(dst->data, src->data, tdict_tensor_nbytes(dst));
    return TDICT_OK;
  }
  tdict_pair_init(&pair, dst->ndim, dst->dims, tdict_tensor_dims_strides(dst), tdict_tensor_dims_strides(src),
                  tdict_dtype_bytes(dst->dtype));
  const tdict_pair_span whole = {dst->data, src->data, 0, tdict_tensor_nbytes(dst)};
  return tdict_pair_walk(&pair, &whole, copy_rect, &m, err);
}

tdict_status tdict_tensor_copy(tdict_tensor *dst, const tdict_tensor *src, tdict_error *err) {
  if (!dst || !src) return tdict_fail_null(err, "copy", dst ? "src" : "dst");
  tdict_status status = tdict_tensor_check_copy("copy", dst, src, err);
  if (status == TDICT_OK && !tdict_shapes_equal(dst->ndim, dst->dims, src->ndim, src->dims))
    status = tdict_tensor_check_target("copy", dst, src, err);
  if (status != TDICT_OK || dst->numel == 0) return status;
  tdict_tensor_await(src, false);
  tdict_tensor_await(dst, true);
  /* Check after the wait, since a transfer into `src` can fail during the wait. */
  if (tdict_tensor_is_lost(src)) return tdict_tensor_refuse_lost("copy", "the source's bytes", src, err);
  status = copy_elements(dst, src, err);
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
