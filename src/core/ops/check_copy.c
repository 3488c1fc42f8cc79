/* Checks whether a copy between tensors is possible. Keeps no state.
 * Thread rule: see check_copy.h. */
#include "core/ops/check_copy.h"

#include "core/base/error.h"
#include "core/tensor/layout.h"
#include "core/tree/text.h"

/* Returns true if the tensor is in device memory that has a copy function. */
static bool has_copy_function(const tdict_tensor *t) {
  const tdict_memory *m = t->storage->memory;
  return !tdict_is_on_host(t) && m && m->ops->copy;
}

tdict_status tdict_check_copy_allowed(const char *what, const tdict_tensor *dst, const tdict_tensor *src,
                                      tdict_error *err) {
  if (dst->dtype != src->dtype)
    return tdict_fail(err, TDICT_EDTYPE, "%s: from %s to %s, wanted equal dtypes", what, TDICT_DTYPE_TEXT(src->dtype),
                      TDICT_DTYPE_TEXT(dst->dtype));
  if (dst->storage->flags & TDICT_STORAGE_READ_ONLY)
    return tdict_fail(err, TDICT_EREADONLY, "%s: the destination is read-only", what);
  if (tdict_is_on_host(dst) && tdict_is_on_host(src)) return TDICT_OK;
  bool is_between_devices = !tdict_is_on_host(dst) && !tdict_is_on_host(src) &&
                            !tdict_device_equal(dst->storage->device, src->storage->device);
  if (!is_between_devices && (has_copy_function(dst) || has_copy_function(src))) return TDICT_OK;
  return tdict_fail(err, TDICT_EWRONGDEVICE, "%s: from %s to %s; %s", what, TDICT_DEVICE_TEXT(src->storage->device),
                    TDICT_DEVICE_TEXT(dst->storage->device),
                    is_between_devices ? "wanted one device, or the host on one side"
                                       : "the device memory belongs to the program and to no context");
}

tdict_status tdict_check_not_lost(const char *what, const tdict_tensor *src, tdict_error *err) {
  tdict_tensor_await(src, false);
  if (!tdict_tensor_is_lost(src)) return TDICT_OK;
  return tdict_tensor_refuse_lost(what, "the source's bytes", src, err);
}

tdict_status tdict_check_copy(const char *what, const tdict_tensor *dst, const tdict_tensor *src, tdict_error *err) {
  tdict_status status = tdict_check_copy_allowed(what, dst, src, err);
  return status == TDICT_OK ? tdict_check_not_lost(what, src, err) : status;
}

tdict_status tdict_check_shape(const char *what, const tdict_tensor *t, int ndim, const int64_t *shape,
                               tdict_error *err) {
  if (tdict_shapes_equal(t->ndim, t->dims, ndim, shape)) return TDICT_OK;
  return tdict_fail(err, TDICT_ESHAPE, "%s: the tensor has shape %s, wanted %s", what,
                    TDICT_SHAPE_TEXT(t->ndim, t->dims), TDICT_SHAPE_TEXT(ndim, shape));
}

tdict_status tdict_check_batch_size(const char *what, const tdict_tree *dst, int ndim, const int64_t *batch_size,
                                    tdict_error *err) {
  if (tdict_shapes_equal(dst->batch_ndim, dst->batch_size, ndim, batch_size)) return TDICT_OK;
  return tdict_fail(err, TDICT_ESHAPE, "%s: dst has batch size %s, wanted %s", what,
                    TDICT_SHAPE_TEXT(dst->batch_ndim, dst->batch_size), TDICT_SHAPE_TEXT(ndim, batch_size));
}

bool tdict_repeat_leading(const tdict_tensor *src, int ndim, const int64_t *shape, tdict_made *made) {
  int num_leading = ndim - src->ndim;
  if (num_leading < 0) return false;
  made->fresh = false;
  made->ndim = ndim;
  made->data = src->data;
  for (int i = 0; i < ndim; i++) {
    made->shape[i] = shape[i];
    made->strides[i] = i < num_leading ? 0 : tdict_tensor_dims_strides(src)[i - num_leading];
    if (i >= num_leading && src->dims[i - num_leading] != shape[i]) return false;
  }
  return true;
}
